//! Environment of the cases against a Responder: connections to it, calls, and what the answers must be.

use crate::deadline::Deadline;
use crate::fixture::Fixture;
use crate::header::{Version, direction, error as code, operation};
use crate::iwarp::{self, Peer};
use crate::link::{Heard, Link, receives};
use crate::message::{Body, Lists, Message};
use crate::verdict::{Log, Stop, Tested, ensure, error, fail, skip};
use crate::{as_words, rpc, words};
use oncrpc::xdr::Writer;
use oncrpc::{Credential, Procedure, write_call};
use rpcrdma_proto::{InlineThreshold, PrivateData};
use std::cell::{Cell, OnceCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use verbs::{Provider, QpOptions, SetupError};

/// The NFS program (RFC 1813 §2.1).
pub(crate) const NFS: u32 = 100_003;

/// Credits that calls ask for.
pub(crate) const CREDITS: u32 = 32;

/// Receives of each connection: as many as calls may be in flight in any case, and some more.
const RECEIVES: usize = 160;

/// Octets of each Receive. More than any case announces, so that a longer message is seen, and does not end the connection.
const RECEIVE_SIZE: usize = 16 << 10;

/// Longest wait for what must not come.
const QUIET: Duration = Duration::from_millis(150);

/// How long a Responder may take to come back after a case that it did not survive.
const COMES_BACK_WITHIN: Duration = Duration::from_secs(30);

/// Environment of a case.
pub(crate) struct Bed {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) address: SocketAddr,
    /// Whether the peer is reached by TCP, so that frames can be sent by hand.
    pub(crate) over_tcp: bool,
    pub(crate) runtime: Rc<Runtime>,
    pub(crate) log: Log,
    pub(crate) patience: Duration,
    pub(crate) deadline: Deadline,
    pub(crate) files: Option<Fixture>,
    /// The user who runs the cases.
    pub(crate) credential: Credential,
    /// A version of NFS whose NULL is answered with SUCCESS.
    nfs_version: Cell<u32>,
    xid: Cell<u32>,
    /// Reason why version two is not tested, if it is not.
    two: OnceCell<Result<(), String>>,
    /// Reason why characteristics are not tested, if they are not.
    characteristics: OnceCell<Result<(), String>>,
    /// Reason why ietf-07 is not tested, if it is not.
    pub(crate) ietf07: OnceCell<Result<(), String>>,
}

impl Bed {
    pub(crate) fn new(
        provider: Arc<dyn Provider>,
        address: SocketAddr,
        over_tcp: bool,
        patience: Duration,
        files: Option<Fixture>,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(Self {
            provider,
            address,
            over_tcp,
            runtime: Rc::new(runtime),
            log: Log::default(),
            patience,
            deadline: Deadline::default(),
            files,
            credential: nfs_client::current_user(),
            nfs_version: Cell::new(3),
            xid: Cell::new(fastrand::u32(..)),
            two: OnceCell::new(),
            characteristics: OnceCell::new(),
            ietf07: OnceCell::new(),
        })
    }

    /// A connection with the private data of a Requester that has set R and takes 4096 octets.
    pub(crate) fn connect(&self) -> Tested<Link> {
        self.connect_saying(&private_data(true, 4096))
    }

    /// The same with this private data.
    pub(crate) fn connect_saying(&self, private_data: &[u8]) -> Tested<Link> {
        match self.try_connect(private_data) {
            Ok(link) => Ok(link),
            Err(why) => fail(format!("no connection: {why}")),
        }
    }

    fn try_connect(&self, private_data: &[u8]) -> Result<Link, SetupError> {
        let options = QpOptions::default()
            .with_receives(RECEIVES)
            .with_receive_size(RECEIVE_SIZE)
            .with_setup_timeout(self.patience);
        let receives = receives(RECEIVES - 1, RECEIVE_SIZE);
        let connecting = self
            .provider
            .connect(self.address, &options, private_data, receives);
        let connected = self.runtime.block_on(connecting)?;
        let (runtime, log) = (&self.runtime, &self.log);
        Ok(Link::new(
            connected.qp,
            connected.private_data,
            runtime,
            log,
            (self.patience, &self.deadline),
        ))
    }

    /// A TCP connection for frames that are sent by hand, on which nothing was said.
    pub(crate) fn raw(&self) -> Tested<Peer> {
        if !self.over_tcp {
            return skip("the peer is reached over an RDMA device, which has frames of its own");
        }
        match Peer::silent(self.address, self.patience) {
            Ok(peer) => Ok(peer),
            Err(why) => error(format!("no TCP connection: {why}")),
        }
    }

    /// The same, set up with this request, which must be accepted.
    pub(crate) fn raw_with(&self, request: &iwarp::Request) -> Tested<Peer> {
        let mut peer = self.raw()?;
        self.log.sent("MPA Request", &request.emit());
        peer.bytes(&request.emit())?;
        match peer.reply(request)? {
            Some(reply) if !reply.rejected() => {
                self.log.came(format!("MPA Reply {reply:x?}"), &[]);
                Ok(peer)
            }
            Some(_) => fail("the MPA Request is rejected"),
            None => fail("the connection is closed instead of an MPA Reply"),
        }
    }

    /// An XID of its own.
    pub(crate) fn xid(&self) -> u32 {
        self.xid.set(self.xid.get().wrapping_add(1));
        self.xid.get()
    }

    /// The RPC message of a NULL call.
    pub(crate) fn null(&self, xid: u32) -> Vec<u32> {
        rpc::call(xid, NFS, self.nfs_version.get(), 0)
    }

    /// The header of a call of NFS version 3 as the user who runs the cases.
    pub(crate) fn user_call(&self, xid: u32, procedure: u32) -> Vec<u32> {
        let mut w = Writer::default();
        let procedure = Procedure {
            prog: NFS,
            vers: 3,
            proc: procedure,
        };
        write_call(&mut w, xid, procedure, &self.credential);
        as_words(w.finish().head())
    }

    /// A NULL call as a message of version one.
    pub(crate) fn null_message(&self, xid: u32) -> Vec<u32> {
        rpc::msg(xid, CREDITS, &self.null(xid))
    }

    /// A message of version one with these lists before an RPC message.
    pub(crate) fn message(proc: u32, xid: u32, lists: &[u32], stream: &[u32]) -> Vec<u32> {
        [&[xid, 1, CREDITS, proc], lists, stream].concat()
    }

    /// Sends words.
    pub(crate) fn send(&self, link: &mut Link, message: &[u32]) -> Tested {
        link.send(&words(message))
    }

    /// The answer to a message of this XID. What a peer of version two says of itself is let pass.
    pub(crate) fn answer(&self, link: &mut Link, xid: u32) -> Tested<Answer> {
        loop {
            let (bytes, invalidated) = link.message()?;
            let message = parse(&bytes)?;
            if is_own_affair(&message) {
                continue;
            }
            ensure(message.xid == xid, || {
                format!(
                    "a message with XID {:#010x} that nobody asked for",
                    message.xid
                )
            })?;
            return Ok(Answer {
                message,
                invalidated,
            });
        }
    }

    /// Sends a call, and returns the answer to it.
    pub(crate) fn ask(&self, link: &mut Link, message: &[u32]) -> Tested<Answer> {
        self.send(link, message)?;
        self.answer(link, message[0])
    }

    /// Sends a message, which must draw RDMA_ERROR with this code.
    pub(crate) fn refused(&self, link: &mut Link, message: &[u32], expected: u32) -> Tested {
        let answer = self.ask(link, message)?;
        answer.message.is_error(expected)
    }

    /// Sends a message, which must draw ERR_CHUNK, or GARBAGE_ARGS: RFC 8166 §4.5.2 has both for chunks that do not fit
    /// the arguments.
    pub(crate) fn does_not_fit(&self, link: &mut Link, message: &[u32]) -> Tested {
        let answer = self.ask(link, message)?;
        if answer.message.error() == Some(code::HEADER) {
            return Ok(());
        }
        let status = answer.accepted(message[0])?;
        ensure(status == rpc::accept::GARBAGE_ARGS, || {
            format!("it is answered with accept_stat {status}")
        })
    }

    /// Sends a message of version one, on a connection of its own, which must draw ERR_CHUNK.
    pub(crate) fn refused_with_err_chunk(&self, message: &[u32]) -> Tested {
        let mut link = self.connect()?;
        self.refused(&mut link, message, code::HEADER)?;
        link.close();
        Ok(())
    }

    /// Sends octets, on a connection of its own, which must draw nothing: a call behind them is answered next.
    pub(crate) fn discarded(&self, version: Version, message: &[u8]) -> Tested {
        let mut link = self.connect()?;
        if version == Version::Two {
            self.open_two(&mut link)?;
        }
        self.discarded_on(&mut link, version, message)?;
        link.close();
        Ok(())
    }

    /// The same on a connection that is there.
    pub(crate) fn discarded_on(&self, link: &mut Link, version: Version, message: &[u8]) -> Tested {
        // Until there was a reply one credit is all that there is (RFC 8166 §3.3.3), and a message that is discarded may
        // take its Receive for a while.
        self.goes_on(link, version)?;
        link.send(message)?;
        loop {
            match link.hear_within(QUIET) {
                Heard::Silence => return self.goes_on(link, version),
                Heard::Message { bytes, .. } if is_own_affair(&parse(&bytes)?) => {}
                Heard::Message { bytes, .. } => {
                    return fail(format!("it is answered: {}", parse(&bytes)?));
                }
                Heard::End(why) => return fail(format!("the connection ended: {why}")),
            }
        }
    }

    /// A NULL call is answered next on this connection.
    pub(crate) fn goes_on(&self, link: &mut Link, version: Version) -> Tested {
        let xid = self.xid();
        let answer = self.ask(link, &version.call(&self.null_message(xid)))?;
        answer.accepted(xid)?;
        Ok(())
    }

    /// Sends something that the text does not say how to answer: any RDMA_ERROR, RPC reply, silence or end of the
    /// connection will do. The caller checks afterwards that the peer is alive.
    pub(crate) fn survives(&self, message: &[u8]) -> Tested {
        let mut link = self.connect()?;
        link.send(message)?;
        self.settles(&mut link);
        Ok(())
    }

    /// Waits until the peer has answered somehow, or ended the connection, or nothing comes for a while.
    pub(crate) fn settles(&self, link: &mut Link) {
        let mut limit = self.patience.min(Duration::from_secs(1));
        while let Heard::Message { .. } = link.hear_within(limit) {
            limit = QUIET;
        }
    }

    /// Nothing comes for a while.
    pub(crate) fn stays_silent(&self, link: &mut Link) -> Tested {
        match link.hear_within(QUIET) {
            Heard::Silence => Ok(()),
            Heard::Message { bytes, .. } => fail(format!("unasked: {}", parse(&bytes)?)),
            Heard::End(why) => fail(format!("the connection ended: {why}")),
        }
    }

    /// The files in a directory of the peer, if it has NFS version 3 and the user named one.
    pub(crate) fn files(&self) -> Tested<&Fixture> {
        self.nfs3()?;
        match &self.files {
            Some(files) => Ok(files),
            None => skip("it needs files: name a directory for them (--directory)"),
        }
    }

    /// NFS version 3 is there.
    pub(crate) fn nfs3(&self) -> Tested {
        match self.nfs_version.get() {
            3 => Ok(()),
            other => skip(format!(
                "the peer has NFS version {other}, and the case needs version 3"
            )),
        }
    }

    /// Version two was agreed on, on this connection.
    pub(crate) fn open_two(&self, link: &mut Link) -> Tested {
        let xid = self.xid();
        let answer = self.ask(link, &Version::Two.call(&self.null_message(xid)))?;
        answer.accepted(xid)?;
        Ok(())
    }

    /// A connection of version two, if the peer speaks it.
    pub(crate) fn two(&self) -> Tested<Link> {
        self.two_saying(&private_data(true, 4096))
    }

    /// The same with this private data.
    pub(crate) fn two_saying(&self, private_data: &[u8]) -> Tested<Link> {
        let spoken = self.two.get_or_init(|| self.speaks_two());
        if let Err(why) = spoken {
            return skip(why);
        }
        let mut link = self.connect_saying(private_data)?;
        self.open_two(&mut link)?;
        Ok(link)
    }

    fn speaks_two(&self) -> Result<(), String> {
        let mut link = self.connect().map_err(|stop| format!("{stop:?}"))?;
        let xid = self.xid();
        let call = Version::Two.call(&self.null_message(xid));
        match self.ask(&mut link, &call) {
            Ok(answer) => match answer.message.error() {
                Some(code::VERS) => {
                    Err("the peer does not speak version two as cel-01 has it".to_owned())
                }
                Some(_) => Err("the peer refuses a call of version two".to_owned()),
                None => Ok(()),
            },
            Err(stop) => Err(format!(
                "the peer answers no call of version two: {}",
                stop.why()
            )),
        }
    }

    /// A connection of version two whose peer has operations for characteristics.
    pub(crate) fn characteristics(&self) -> Tested<Link> {
        let mut link = self.two()?;
        let known = self.characteristics.get_or_init(|| {
            let xid = self.xid();
            let request = crate::header::optional(xid, direction::CALL, operation::REQXCH, &[0]);
            match self.ask(&mut link, &request) {
                Ok(answer) if answer.message.error() == Some(code::INVAL_OPTION) => {
                    Err("the peer does not know ROPT_REQXCH".to_owned())
                }
                // How it is answered is for a case to judge.
                Ok(_) | Err(_) => Ok(()),
            }
        });
        match known {
            Ok(()) => Ok(link),
            Err(why) => skip(why),
        }
    }

    /// A new connection is made, and NULL answered on it, whatever the answer is: that is for other cases to judge.
    pub(crate) fn is_alive(&self) -> Tested {
        let mut link = self.connect()?;
        self.send(&mut link, &self.null_message(self.xid()))?;
        link.message()?;
        link.close();
        Ok(())
    }

    /// Whether the peer serves again before its time for that is over.
    pub(crate) fn comes_back(&self) -> bool {
        let deadline = std::time::Instant::now() + COMES_BACK_WITHIN;
        while std::time::Instant::now() < deadline {
            self.deadline.begin(self.patience);
            if self.is_alive().is_ok() {
                return true;
            }
            std::thread::sleep(QUIET);
        }
        false
    }

    /// Looks whether anybody is there, and which version of NFS it has.
    pub(crate) fn look(&self) -> Result<(), String> {
        self.deadline.begin(self.patience);
        for version in [3, 4] {
            self.nfs_version.set(version);
            let mut link = self
                .try_connect(&private_data(true, 4096))
                .map_err(|why| why.to_string())?;
            let xid = self.xid();
            let answered = self.ask(&mut link, &self.null_message(xid));
            match answered.and_then(|answer| answer.accepted(xid)) {
                Ok(rpc::accept::SUCCESS) => return Ok(()),
                Ok(_) => {}
                Err(_) => {
                    // What is wrong with the answer is for a case to say.
                    self.nfs_version.set(3);
                    return Ok(());
                }
            }
        }
        // A Responder of another program: every NULL is answered all the same.
        self.nfs_version.set(0);
        Ok(())
    }
}

impl Stop {
    /// The reason.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Fail(why) | Self::Skip(why) | Self::Error(why) => why.clone(),
        }
    }
}

/// CM Private Data of RFC 8797 §4, of an end that sends 4096 octets.
pub(crate) fn private_data(remote_invalidation: bool, receive: usize) -> [u8; 8] {
    private_data_of(remote_invalidation, 4096, receive)
}

/// The same of an end that sends and takes so many.
pub(crate) fn private_data_of(remote_invalidation: bool, send: usize, receive: usize) -> [u8; 8] {
    let data = PrivateData {
        send: InlineThreshold::at_most(send),
        receive: InlineThreshold::at_most(receive),
        remote_invalidation,
    };
    data.emit()
}

/// A message, taken apart, which fails if it is none.
pub(crate) fn parse(bytes: &[u8]) -> Tested<Message> {
    match Message::parse(bytes) {
        Ok(message) => Ok(message),
        Err(why) => fail(format!("it sends what is no message: {why}")),
    }
}

/// Whether a peer of version two says something of itself, unasked or in answer to what was said to it.
fn is_own_affair(message: &Message) -> bool {
    match &message.body {
        Body::Optional {
            direction,
            operation,
            ..
        } => *direction == direction::CALL || *operation == operation::INITXCH,
        Body::Chunks(_) | Body::Error { .. } | Body::Other(_) => false,
    }
}

/// The answer to a call.
pub(crate) struct Answer {
    pub(crate) message: Message,
    pub(crate) invalidated: Option<u32>,
}

impl Answer {
    /// The `accept_stat` of an RPC reply of this XID that is in the message itself.
    pub(crate) fn accepted(&self, xid: u32) -> Tested<u32> {
        let lists = self.message.chunks()?;
        ensure(!lists.nomsg, || {
            "the reply is in the Reply chunk, and RDMA_MSG was expected".to_owned()
        })?;
        accepted(&self.message.payload, xid)
    }
}

/// The `accept_stat` of an RPC reply of this XID (RFC 5531 §9).
pub(crate) fn accepted(stream: &[u8], xid: u32) -> Tested<u32> {
    let whole = &stream[..stream.len() / 4 * 4];
    let words = as_words(whole);
    let [of, 1, state, ..] = words[..] else {
        return fail(format!("no RPC reply: {}", rpc::describe(stream)));
    };
    ensure(of == xid, || format!("the RPC reply has XID {of:#010x}"))?;
    let verifier = match state {
        0 => words.get(4).copied().unwrap_or_default() as usize,
        _ => return fail(format!("the call is denied: {words:x?}")),
    };
    match words.get(5 + verifier.div_ceil(4)) {
        Some(&status) => Ok(status),
        None => fail("an RPC reply without a status"),
    }
}

impl Message {
    /// The chunk lists; anything else fails.
    pub(crate) fn chunks(&self) -> Tested<&Lists> {
        match self.lists_of() {
            Some(lists) => Ok(lists),
            None => fail(format!("not a reply, but {self}")),
        }
    }

    /// An RDMA_ERROR of this code; anything else fails.
    pub(crate) fn is_error(&self, expected: u32) -> Tested {
        ensure(self.error() == Some(expected), || {
            let name = match expected {
                code::VERS => "ERR_VERS",
                code::HEADER => "ERR_CHUNK (RDMA2_ERR_BAD_HEADER in version two)",
                _ => "RDMA2_ERR_INVAL_OPTION",
            };
            format!("{name} is due, and this came: {self}")
        })
    }
}
