//! The conformance suite of providers, over fabrics with several settings.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use verbs::{BoxFuture, Provider};
use verbs_conformance::Fixture;
use verbs_sim::{EndOptions, Fabric, Faults};

struct Simulated {
    fabric: Fabric,
    end: EndOptions,
    shared_receives: bool,
}

impl Simulated {
    fn new(seed: u64, end: EndOptions) -> Self {
        let fabric = Fabric::new(seed);
        Self {
            fabric,
            end,
            shared_receives: false,
        }
    }

    fn with_shared_receives(self) -> Self {
        Self {
            shared_receives: true,
            ..self
        }
    }

    /// Everything arrives at once.
    fn instant() -> Self {
        Self::new(1, EndOptions::default())
    }

    /// Everything takes its time, and little is in flight at once.
    fn slow_and_narrow() -> Self {
        let end = EndOptions {
            window: 3000,
            faults: Faults {
                latency: Duration::from_micros(5)..=Duration::from_millis(2),
                ..Faults::default()
            },
            ..EndOptions::default()
        };
        Self::new(2, end)
    }
}

impl Fixture for Simulated {
    fn connector(&self) -> Arc<dyn Provider> {
        Arc::new(self.fabric.provider(self.end.clone()))
    }

    fn acceptor(&self) -> Arc<dyn Provider> {
        self.connector()
    }

    fn shared_receives(&self) -> bool {
        self.shared_receives
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(self.fabric.sleep(time))
    }

    /// Lets time pass only when nothing can happen without it.
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let woken = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            while !woken.0.swap(false, SeqCst) {
                let next = self.fabric.next_event();
                let next = next.expect("somebody waits, but nothing will ever happen");
                self.fabric.advance_to(next);
            }
        }
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// The same fabric under a runtime whose clock is paused: the time is the runtime's.
struct UnderTokio(Fabric);

impl UnderTokio {
    fn new() -> Self {
        Self(Fabric::new(3))
    }
}

impl Fixture for UnderTokio {
    fn connector(&self) -> Arc<dyn Provider> {
        let end = EndOptions {
            faults: Faults {
                latency: Duration::from_micros(5)..=Duration::from_micros(70),
                ..Faults::default()
            },
            ..EndOptions::default()
        };
        Arc::new(self.0.provider(end))
    }

    fn acceptor(&self) -> Arc<dyn Provider> {
        self.connector()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        // Made here, outside of the runtime; the timer itself is made at the first poll, inside.
        Box::pin(async move { tokio::time::sleep(time).await })
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let start = tokio::time::Instant::now();
            let keeping = self
                .0
                .keep_time(move || start.elapsed(), tokio::time::sleep);
            let keeper = tokio::spawn(async move {
                keeping.await;
            });
            let output = future.await;
            keeper.abort();
            output
        })
    }
}

mod instant {
    use super::*;
    verbs_conformance::suite!(Simulated::instant());
}

mod slow_and_narrow {
    use super::*;
    verbs_conformance::suite!(Simulated::slow_and_narrow());
}

mod under_tokio {
    use super::*;
    verbs_conformance::suite!(UnderTokio::new());
}

mod instant_with_shared_receives {
    use super::*;
    verbs_conformance::suite!(Simulated::instant().with_shared_receives());
}

mod slow_with_shared_receives {
    use super::*;
    verbs_conformance::suite!(Simulated::slow_and_narrow().with_shared_receives());
}
