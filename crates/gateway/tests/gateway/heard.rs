//! Captures the warnings of a test.

use std::fmt::{Debug, Write};
use std::sync::{Arc, LazyLock, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// The warnings that a thread has logged.
pub(crate) struct Heard {
    said: Arc<Mutex<String>>,
    _guard: DefaultGuard,
}

/// A listener that hears nothing, and stays. With a single listener, a warning that another thread
/// gives first would count as one that nobody wants to hear, on all threads.
static DEAF: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Listener(Arc::default())));

impl Heard {
    /// Listens to this thread.
    pub(crate) fn listen() -> Self {
        LazyLock::force(&DEAF);
        let said = Arc::<Mutex<String>>::default();
        let listener = Listener(Arc::clone(&said));
        Self {
            said,
            _guard: tracing::subscriber::set_default(listener),
        }
    }

    /// How often a text was logged.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.said.lock().expect("no panic").matches(text).count()
    }
}

struct Listener(Arc<Mutex<String>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").expect("there is memory");
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = self.0.lock().expect("no panic");
        event.record(&mut Fields(&mut said));
        said.push('\n');
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
