//! A call of a client, for a hostile server to answer.

use crate::header::{Version, procedure};
use crate::rpc::accepted;
use crate::victim::{Calling, Offered, Victim};
use crate::words;
use crate::{Cause, Peer};
use oncrpc::TransportError;

/// A client with one call on its way, which offers a Read chunk and a Write chunk.
pub struct Scene {
    /// The protocol version in use.
    pub version: Version,
    /// The client.
    pub client: Victim,
    /// The hostile server.
    pub server: Peer,
    /// The data to be echoed.
    pub data: Vec<u8>,
    /// The call.
    pub calling: Calling,
    /// The segments that the call offers.
    pub offered: Offered,
}

impl Scene {
    /// Bytes of the data, and room for as many.
    pub const LENGTH: u32 = 100_000;

    /// A scene on a connection of its own.
    ///
    /// # Panics
    ///
    /// If the call does not come, or offers anything else; the methods, if they find something else
    /// than they say.
    pub fn of(version: Version) -> Self {
        let (client, server) = Victim::speaking(version);
        Self::between(version, client, server)
    }

    /// A scene between these two, who speak this version.
    ///
    /// # Panics
    ///
    /// As [`Self::of`].
    pub fn between(version: Version, client: Victim, mut server: Peer) -> Self {
        let data: Vec<u8> = (0..=250).cycle().take(Self::LENGTH as usize).collect();
        let calling = client.echo(&data);
        let offered = Offered::parse(&server.answer());
        assert_eq!((offered.reads.len(), offered.writes.len()), (1, 1));
        Self {
            version,
            client,
            server,
            data,
            calling,
            offered,
        }
    }

    /// The handle of the Read chunk.
    pub fn source(&self) -> u32 {
        self.offered.reads[0][0]
    }

    /// The handle of the Write chunk.
    pub fn sink(&self) -> u32 {
        self.offered.writes[0][0][0]
    }

    /// A good reply, as long as so many bytes were written.
    pub fn reply(&self, written: u32) -> Vec<u32> {
        let [handle, _, high, low] = self.offered.writes[0][0];
        let xid = self.offered.xid;
        let header = [xid, 1, 4, 0, 0, 1, 1, handle, written, high, low, 0, 0];
        let reply = [&header[..], &accepted(xid, 0, &[written])].concat();
        self.version.reply(&reply)
    }

    /// Sends a message that is written down as one of version one.
    pub fn say(&mut self, message: &[u32]) {
        self.server.send(&words(&self.version.reply(message)));
    }

    /// Both ends, when the call has its reply.
    #[track_caller]
    pub fn answered(self) -> (Victim, Peer) {
        self.client.outcome(self.calling).expect("a reply");
        (self.client, self.server)
    }

    /// Asserts that the client ends the connection with this cause, and that its call fails.
    #[track_caller]
    pub fn assert_terminated(mut self, cause: Cause) {
        self.server.assert_terminated(cause);
        self.assert_lost();
    }

    /// Asserts that the call ends with its connection.
    #[track_caller]
    pub fn assert_lost(self) {
        match self.client.outcome(self.calling) {
            Err(TransportError::Disconnected(_)) => {}
            other => panic!(
                "expected the loss of the connection, got {:?}",
                other.map(drop)
            ),
        }
    }
}

/// Asserts that the connection still works: a small call is answered.
///
/// # Panics
///
/// If it is not.
#[track_caller]
pub fn assert_goes_on(client: &Victim, server: &mut Peer) {
    let calling = client.echo(b"four");
    // What the client has to say about itself is let pass.
    let mut messages = std::iter::repeat_with(|| server.answer());
    let call = messages.find(|message| message[3] != procedure::OPTIONAL);
    let call = call.expect("there is no end to it");
    let (xid, version) = (
        Offered::parse(&call).xid,
        Version::BOTH[call[1] as usize - 1],
    );
    let result = accepted(xid, 0, &[4, u32::from_be_bytes(*b"four")]);
    let reply = [&[xid, 1, 4, 0, 0, 0, 0][..], &result].concat();
    server.send(&words(&version.reply(&reply)));
    client.outcome(calling).expect("a reply");
}
