//! The suite that every provider passes, over loopback, in each way of checking integrity.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use verbs::{BoxFuture, Provider};
use verbs_conformance::Fixture;
use verbs_iwarp::{Config, CrcMode, FpduPolicy, Iwarp};

struct Loopback {
    connector: Config,
    acceptor: Config,
    shared_receives: bool,
}

impl Loopback {
    fn new(connector: CrcMode, acceptor: CrcMode, fpdu: FpduPolicy) -> Self {
        let config = |crc| Config::default().with_crc(crc).with_fpdu(fpdu);
        Self {
            connector: config(connector),
            acceptor: config(acceptor),
            shared_receives: false,
        }
    }

    /// With the extension by which a Send invalidates several handles.
    fn with_several_invalidations(self) -> Self {
        Self {
            connector: self.connector.with_several_invalidations(true),
            acceptor: self.acceptor.with_several_invalidations(true),
            ..self
        }
    }

    fn with_shared_receives(self) -> Self {
        Self {
            shared_receives: true,
            ..self
        }
    }
}

impl Fixture for Loopback {
    fn connector(&self) -> Arc<dyn Provider> {
        Arc::new(Iwarp::new(self.connector.clone()))
    }

    fn acceptor(&self) -> Arc<dyn Provider> {
        Arc::new(Iwarp::new(self.acceptor.clone()))
    }

    fn shared_receives(&self) -> bool {
        self.shared_receives
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move { tokio::time::sleep(time).await })
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(future)
    }
}

mod as_by_default {
    use super::*;
    verbs_conformance::suite!(Loopback::new(CrcMode::On, CrcMode::On, FpduPolicy::Path));
}

mod without_crc {
    use super::*;
    verbs_conformance::suite!(
        Loopback::new(CrcMode::Off, CrcMode::Off, FpduPolicy::Large).with_several_invalidations()
    );
}

mod strict_and_in_jumbo_segments {
    use super::*;
    verbs_conformance::suite!(
        Loopback::new(CrcMode::Off, CrcMode::Strict, FpduPolicy::Max(8954))
            .with_several_invalidations()
    );
}

mod with_shared_receives {
    use super::*;
    verbs_conformance::suite!(
        Loopback::new(CrcMode::On, CrcMode::On, FpduPolicy::Path)
            .with_several_invalidations()
            .with_shared_receives()
    );
}

mod strict_with_shared_receives {
    use super::*;
    verbs_conformance::suite!(
        Loopback::new(CrcMode::Strict, CrcMode::Off, FpduPolicy::Max(1442)).with_shared_receives()
    );
}
