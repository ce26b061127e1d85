//! Which addresses of a server answer over RDMA devices, so that one connection waits for those that do not, and others
//! follow it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use verbs::SetupError;

/// How long devices are not tried for an address that did not answer over them, but over software iWARP. After that one
/// connection tries them, and the others go on without.
const DEVICES_PAUSE: Duration = Duration::from_secs(60);

/// Addresses that are known not to answer over devices, at most. Devices are tried for further ones each time.
const MAX_SILENT: usize = 1024;

/// Answers of addresses over the same devices.
#[derive(Default)]
pub(super) struct DeviceAnswers(Mutex<HashMap<SocketAddr, Known>>);

enum Known {
    /// A connection tries devices now. It tells others when they have failed.
    Tried(watch::Receiver<bool>),
    /// They did not answer, and are not tried before this time.
    Silent(Instant),
}

/// Next step of a connection.
pub(super) enum Turn {
    /// Try devices, before others do.
    First(Trial),
    /// Try devices.
    Try,
    /// Leave them out.
    Without,
}

/// The first attempt over devices, which others wait for. Dropped without a failure, the others try devices, too.
pub(super) struct Trial {
    answers: Arc<DeviceAnswers>,
    to: SocketAddr,
    failed: watch::Sender<bool>,
}

impl Trial {
    /// Tells those that wait to go on without devices.
    pub(super) fn has_failed(&self) {
        self.failed.send_replace(true);
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if let Entry::Occupied(known) = self.answers.lock().entry(self.to)
            && matches!(known.get(), Known::Tried(_))
        {
            known.remove();
        }
    }
}

impl DeviceAnswers {
    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides whether a connection tries devices. Waits for one that does already, whose attempt has a time limit.
    pub(super) async fn turn(self: &Arc<Self>, to: SocketAddr) -> Turn {
        let mut failed = match self.turn_now(to, Instant::now()) {
            Ok(turn) => return turn,
            Err(failed) => failed,
        };
        match failed.wait_for(|&failed| failed).await {
            Ok(_) => Turn::Without,
            Err(_) => Turn::Try,
        }
    }

    /// The same without waiting.
    ///
    /// # Errors
    ///
    /// What to wait for.
    fn turn_now(
        self: &Arc<Self>,
        to: SocketAddr,
        now: Instant,
    ) -> Result<Turn, watch::Receiver<bool>> {
        match self.lock().entry(to) {
            Entry::Vacant(place) => {
                let (failed, told) = watch::channel(false);
                place.insert(Known::Tried(told));
                Ok(Turn::First(Trial {
                    answers: Arc::clone(self),
                    to,
                    failed,
                }))
            }
            Entry::Occupied(mut known) => match known.get_mut() {
                Known::Tried(failed) => Err(failed.clone()),
                Known::Silent(until) if now < *until => Ok(Turn::Without),
                Known::Silent(until) => {
                    *until = now + DEVICES_PAUSE;
                    Ok(Turn::Try)
                }
            },
        }
    }

    /// Learns from a connection that tried devices and reached the server, over these if there is no error of theirs.
    /// Only what costs time is remembered, and only of a server that is there: one that is away may come back over
    /// devices.
    pub(super) fn learn(&self, to: SocketAddr, over_devices: Option<&SetupError>, now: Instant) {
        match over_devices {
            Some(error) if takes_time(error) => self.remember(to, now),
            Some(_) | None => self.forget(to),
        }
    }

    fn remember(&self, to: SocketAddr, now: Instant) {
        let mut all = self.lock();
        let is_silent = |known: &Known| matches!(known, Known::Silent(_));
        if all.values().filter(|known| is_silent(known)).count() >= MAX_SILENT {
            all.retain(|_, known| !matches!(known, Known::Silent(until) if *until <= now));
        }
        let has_room = all.values().filter(|known| is_silent(known)).count() < MAX_SILENT;
        if has_room || all.get(&to).is_some_and(is_silent) {
            all.insert(to, Known::Silent(now + DEVICES_PAUSE));
        }
    }

    /// Forgets that an address did not answer over devices.
    pub(super) fn forget(&self, to: SocketAddr) {
        if let Entry::Occupied(known) = self.lock().entry(to)
            && matches!(known.get(), Known::Silent(_))
        {
            known.remove();
        }
    }
}

/// Whether an error came of waiting in vain.
fn takes_time(error: &SetupError) -> bool {
    match error {
        SetupError::TimedOut(..) => true,
        SetupError::Io(error) => matches!(
            error.kind(),
            ErrorKind::TimedOut | ErrorKind::HostUnreachable
        ),
        _ => false,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::any::connect::tests::{refused, timed_out};

    pub(in crate::any) fn somewhere() -> SocketAddr {
        "192.0.2.1:20049".parse().unwrap()
    }

    /// Whether a connection at this time would try devices. One that does has ended then.
    fn tries(answers: &Arc<DeviceAnswers>, to: SocketAddr, now: Instant) -> bool {
        match answers.turn_now(to, now) {
            Ok(Turn::First(_) | Turn::Try) => true,
            Ok(Turn::Without) => false,
            Err(_) => panic!("nobody tries them"),
        }
    }

    #[test]
    fn after_a_pause_one_connection_tries_devices() {
        let (answers, start, to) = (Arc::default(), Instant::now(), somewhere());
        assert!(tries(&answers, to, start));
        answers.learn(to, Some(&timed_out()), start);
        assert!(!tries(&answers, to, start));
        let other = "192.0.2.2:20049".parse().unwrap();
        assert!(tries(&answers, other, start), "it is another");
        let later = start + DEVICES_PAUSE;
        assert!(tries(&answers, to, later));
        assert!(!tries(&answers, to, later), "one does already");
        answers.learn(to, None, later);
        assert!(tries(&answers, to, later), "they are answered");
        // What is refused at once costs nothing.
        answers.learn(to, Some(&refused()), later);
        assert!(tries(&answers, to, later));
    }

    #[test]
    fn silent_addresses_are_remembered_up_to_a_limit_until_their_pause_is_over() {
        let (answers, start) = (Arc::<DeviceAnswers>::default(), Instant::now());
        let to = |port: usize| SocketAddr::new([192, 0, 2, 1].into(), u16::try_from(port).unwrap());
        for port in 0..=MAX_SILENT {
            answers.learn(to(port), Some(&timed_out()), start);
        }
        assert_eq!(answers.lock().len(), MAX_SILENT);
        assert!(!tries(&answers, to(MAX_SILENT - 1), start));
        assert!(tries(&answers, to(MAX_SILENT), start));
        let later = start + DEVICES_PAUSE;
        answers.learn(to(MAX_SILENT), Some(&timed_out()), later);
        assert!(!tries(&answers, to(MAX_SILENT), later));
        assert_eq!(answers.lock().len(), 1);
    }

    #[tokio::test]
    async fn others_wait_for_the_first_and_do_as_it_went() {
        let (answers, to) = (Arc::<DeviceAnswers>::default(), somewhere());
        for has_failed in [true, false] {
            let Turn::First(trial) = answers.turn(to).await else {
                panic!("nobody tries them");
            };
            let first_ends = async {
                if has_failed {
                    trial.has_failed();
                    // It goes on over software iWARP.
                    assert!(matches!(answers.turn(to).await, Turn::Without));
                }
                drop(trial);
            };
            let (one, other, ()) = tokio::join!(answers.turn(to), answers.turn(to), first_ends);
            for turn in [one, other] {
                match has_failed {
                    true => assert!(matches!(turn, Turn::Without)),
                    false => assert!(matches!(turn, Turn::Try), "they may try at a time"),
                }
            }
        }
    }
}
