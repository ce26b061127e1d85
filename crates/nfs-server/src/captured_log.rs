//! Captures the log of a test.

use std::fmt::{Debug, Write};
use std::sync::{Arc, LazyLock, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// A listener that hears nothing, and stays. With a single listener, an event that another thread
/// logs first would count as one that nobody wants to hear, on all threads.
static DEAF: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Listener::default()));

/// The events that this thread logs in `what`, one per line, each with its level and fields.
pub(crate) fn captured_log(what: impl FnOnce()) -> String {
    LazyLock::force(&DEAF);
    let listener = Listener::default();
    let said = Arc::clone(&listener.said);
    tracing::subscriber::with_default(listener, what);
    let said = said.lock().unwrap();
    said.clone()
}

#[derive(Default)]
struct Listener {
    said: Arc<Mutex<String>>,
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = self.said.lock().unwrap();
        write!(said, "{}", event.metadata().level()).unwrap();
        event.record(&mut Fields(&mut said));
        said.push('\n');
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
