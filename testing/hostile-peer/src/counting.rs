//! A peer of ietf-07 that counts messages, so that a test can keep to the credits or not.

use crate::{PROGRAM, Peer, procedure};
use conform::ietf07::{call, htype};
use conform::{as_words, iwarp::Heard, rpc, words};

/// Messages that each of its own grants beyond those that came.
const WINDOW: u32 = 1000;

/// One end of a connection of ietf-07.
pub struct Counting {
    /// Its socket.
    pub peer: Peer,
    sent: u32,
    received: u32,
    credits: u32,
    /// Messages that the other end may send beyond those that came.
    pub window: u32,
    /// Messages with nothing but credits that came.
    pub grants: usize,
}

impl Counting {
    /// Of a connection on which so many messages were sent and came, the last with these credits.
    pub fn over(peer: Peer, (sent, received, credits): (u32, u32, u32)) -> Self {
        Self {
            peer,
            sent,
            received,
            credits,
            window: WINDOW,
            grants: 0,
        }
    }

    /// Messages that may be sent.
    pub fn may_send(&self) -> u32 {
        let left = self.credits.wrapping_sub(self.sent);
        if left < 1 << 31 { left } else { 0 }
    }

    /// Sends a message whether it may or not, with the credits of this end in it.
    pub fn force(&mut self, message: &[u32]) {
        let message = self.stamped(message);
        self.peer.send(&message);
    }

    /// The same that takes a handle away from the other end.
    pub fn invalidate(&mut self, message: &[u32], handle: u32) {
        let message = self.stamped(message);
        self.peer.send_and_invalidate(&message, handle);
    }

    fn stamped(&mut self, message: &[u32]) -> Vec<u8> {
        let mut message = message.to_vec();
        if let Some(credits) = message.get_mut(2) {
            *credits = self.received.wrapping_add(self.window);
        }
        self.sent = self.sent.wrapping_add(1);
        words(&message)
    }

    /// Sends a message when there is a credit for it. Only grants and properties may come before that.
    ///
    /// # Panics
    ///
    /// If anything else comes.
    #[track_caller]
    pub fn send(&mut self, message: &[u32]) {
        while self.may_send() == 0 {
            let heard = self.hear();
            let came = heard.expect("a grant, and not the end of the connection");
            assert!(own_affair(&came), "{came:x?}");
        }
        self.force(message);
    }

    /// The next message; none if the connection ends.
    pub fn hear(&mut self) -> Option<Vec<u32>> {
        match self.peer.hear() {
            Heard::Message { bytes, .. } => {
                self.received = self.received.wrapping_add(1);
                let message = as_words(&bytes);
                self.credits = message[2];
                self.grants += usize::from(message[3] == htype::GRANT);
                Some(message)
            }
            Heard::Read(_) | Heard::Terminate(_) | Heard::Closed => None,
        }
    }

    /// The next message that is no grant and no properties.
    ///
    /// # Panics
    ///
    /// If the connection ends.
    #[track_caller]
    pub fn answer(&mut self) -> Vec<u32> {
        let own_affair =
            |message: &[u32]| (htype::GRANT..=htype::CONNPROP_FINAL).contains(&message[3]);
        loop {
            let message = self.hear().expect("a message");
            if !own_affair(&message) {
                return message;
            }
        }
    }

    /// Sends a message, and returns its answer without credits.
    #[track_caller]
    pub fn ask(&mut self, message: &[u32]) -> Vec<u32> {
        self.send(message);
        let mut answer = self.answer();
        answer.remove(2);
        answer
    }

    /// Asserts that a good call is answered next.
    ///
    /// # Panics
    ///
    /// If it is not.
    #[track_caller]
    pub fn assert_goes_on(&mut self, xid: u32) {
        let reply = [
            &[xid, 2, htype::REPLY_INLINE, 0],
            &rpc::accepted(xid, 0, &[])[..],
        ]
        .concat();
        assert_eq!(self.ask(&null(xid)), reply);
    }

    /// Asserts that a message draws this error, and that the connection goes on.
    ///
    /// # Panics
    ///
    /// If it does not.
    #[track_caller]
    pub fn assert_refused(&mut self, message: &[u32], error: &[u32]) {
        let expected = [&[message[0], 2, htype::ERROR], error].concat();
        assert_eq!(self.ask(message), expected);
        self.assert_goes_on(message[0] ^ 0x0040_0000);
    }
}

/// A NULL call.
pub fn null(xid: u32) -> Vec<u32> {
    let stream = rpc::call(xid, PROGRAM, 2, procedure::NULL);
    call(xid, 0, &[0; 3], &stream)
}

/// Whether a message is about its sender: credits or properties.
fn own_affair(message: &[u32]) -> bool {
    (htype::GRANT..=htype::CONNPROP_FINAL).contains(&message[3])
}
