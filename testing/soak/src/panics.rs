//! Collects panics of tasks, which the runtime would swallow.

use std::cell::RefCell;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static CAUGHT: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Collects the panics of this thread from now on.
pub(crate) fn begin() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if !caught(info) {
                before(info);
            }
        }));
    });
    CAUGHT.set(Some(Vec::new()));
}

/// The panics since [`begin`]; later ones are none of our business.
pub(crate) fn end() -> Vec<String> {
    CAUGHT.take().unwrap_or_default()
}

fn caught(info: &PanicHookInfo<'_>) -> bool {
    CAUGHT.with_borrow_mut(|caught| match caught {
        Some(caught) => {
            caught.push(format!("panic: {info}"));
            true
        }
        None => false,
    })
}
