//! Completion of directories: sets mode and times of a directory once everything in it is copied.

use super::made_names::Made;
use crate::error::Result;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::UnboundedSender;

/// Sets mode and times of a complete directory.
pub(crate) type Last = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Holds a directory open for changes. What is put into it has a clone of the [`Arc`], and so have directories
/// in it; with the last one its end is handed to the copy.
pub(crate) struct Held {
    /// The lock is for nobody: it lets tasks share this.
    last: Mutex<Option<Last>>,
    above: Option<Arc<Held>>,
    /// Things put into it.
    pub(super) made: Arc<Made>,
    ends: UnboundedSender<Last>,
}

impl Held {
    /// A directory in another one, and what is to be done at its end, if anything.
    pub(crate) fn new(
        above: Option<Arc<Self>>,
        last: Option<Last>,
        made: Made,
        ends: &UnboundedSender<Last>,
    ) -> Arc<Self> {
        Arc::new(Self {
            last: Mutex::new(last),
            above,
            made: Arc::new(made),
            ends: ends.clone(),
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let last = self.last.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.take() {
            let above = self.above.take();
            // A copy that is gone sets nothing any more.
            let _ = self.ends.send(Box::pin(async move {
                let set = last.await;
                drop(above);
                set
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::unbounded_channel;

    #[tokio::test]
    async fn directory_ends_after_all_that_is_in_it() {
        let (ends, mut ended) = unbounded_channel();
        let order = Arc::new(Mutex::new(Vec::new()));
        let last = |name: &'static str| -> Option<Last> {
            let order = Arc::clone(&order);
            Some(Box::pin(async move {
                order.lock().unwrap().push(name);
                Ok(())
            }))
        };
        let top = Held::new(None, last("top"), Made::new(), &ends);
        let plain = Held::new(Some(Arc::clone(&top)), None, Made::new(), &ends);
        let deep = Held::new(Some(Arc::clone(&plain)), last("deep"), Made::new(), &ends);
        let file = Arc::clone(&deep);
        drop((top, plain, deep));
        assert!(ended.try_recv().is_err(), "a file is in flight");
        drop(file);
        while let Ok(last) = ended.try_recv() {
            last.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["deep", "top"]);
    }
}
