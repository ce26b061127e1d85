//! The initiator's side of connection setup.

use crate::config::Config;
use crate::handshake::{self, NoFrame};
use crate::queue_pair::{IwarpQp, invalid};
use crate::setup_failure::{SetupFailure, SystemFailure};
use crate::shared::Shared;
use crate::socket;
use crate::startup::{Exchange, Startup};
use iwarp_proto::Role;
use iwarp_proto::mpa::{Frame, FrameError, FrameReader, Initiator, Kind, Offer, Refusal};
use iwarp_proto::terminate::Cause;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use verbs::{Connected, QpOptions, SetupError, WorkRequest};

/// Message that is awaited behind the TCP connection. A server of plain RPC over TCP waits in its turn: to it the request is
/// the beginning of a long record.
const ANSWER: &str = "the answer to our MPA request (is this a plain NFS/TCP port?)";

/// Connects with MPA revision 2, and with revision 1 to a responder that closes instead of
/// answering (RFC 6581 §10). What is said on the way goes to `startup`.
pub(crate) async fn connect(
    provider: &Shared,
    to: SocketAddr,
    options: &QpOptions,
    private_data: &[u8],
    receives: Vec<WorkRequest>,
    startup: &mut Startup,
) -> Result<Connected, SetupError> {
    if private_data.len() > Frame::capacity(true) {
        return Err(invalid("more private data than fits an MPA request").into());
    }
    let config = &provider.config;
    let offer = config.offer(options);
    let mut attempt = Attempt {
        config,
        to,
        options,
        private_data,
        deadline: Instant::now() + options.setup_timeout,
        exchanges: &mut startup.exchanges,
    };
    let initiator = Initiator::new(offer);
    let (stream, initiator, reply) = match attempt.exchange(&initiator).await? {
        Answer::Reply(stream, reply) => (stream, initiator, reply),
        Answer::Closed => attempt.revision_one(offer).await?,
    };
    let agreed = match initiator.reply(&reply) {
        Ok(agreed) => agreed,
        Err(Refusal::Rejected(private_data)) => return Err(SetupError::Rejected(private_data)),
        Err(Refusal::Invalid(why)) => return Err(SetupFailure::Reply(why).into()),
        Err(Refusal::Terminate(cause)) => {
            // With its own depths: nothing but the Terminate is ever sent.
            let agreed = Initiator::revision_one(offer)
                .reply(&Frame {
                    revision: iwarp_proto::mpa::Revision::One,
                    ..reply
                })
                .map_err(|_| SetupFailure::Reply("the MPA reply contradicts itself"))?;
            let mut qp = IwarpQp::new(provider, stream, Role::Initiator, &agreed, options)?;
            qp.refuse(cause).await;
            return Err(SetupFailure::Demands(cause).into());
        }
    };
    let mut qp = IwarpQp::new(provider, stream, Role::Initiator, &agreed, options)?;
    startup.agreed = Some(agreed);
    if let Err(error) = qp.post_receives(receives) {
        // RFC 6581 §9.3: a fault of our own is told before the connection is closed.
        qp.refuse(Cause::MPA_CATASTROPHIC).await;
        return Err(error);
    }
    Ok(Connected {
        qp: Box::new(qp),
        private_data: reply.private_data,
    })
}

/// One try to get a Reply.
struct Attempt<'a> {
    config: &'a Config,
    to: SocketAddr,
    options: &'a QpOptions,
    private_data: &'a [u8],
    deadline: Instant,
    exchanges: &'a mut Vec<Exchange>,
}

enum Answer {
    Reply(TcpStream, Frame),
    /// The responder closed without an answer; it may not support this revision.
    Closed,
}

impl Attempt<'_> {
    async fn exchange(&mut self, initiator: &Initiator) -> Result<Answer, SetupError> {
        let timeout = self.options.setup_timeout;
        let begin = Instant::now();
        let connecting = socket::connect(self.to, self.config);
        let mut stream = timeout_at(self.deadline, connecting)
            .await
            .map_err(|_| SetupError::TimedOut("the TCP connection", timeout))?
            .map_err(explain)?;
        let connected = begin.elapsed();
        let request = initiator.request(self.private_data);
        let mut reader = FrameReader::new(Kind::Reply);
        let answer = timeout_at(self.deadline, async {
            // One that refuses at once may have answered before we spoke, and left.
            if let Err(error) = handshake::write_frame(&mut stream, &request).await {
                tracing::debug!(to = %self.to, %error, "sending the MPA request");
            }
            handshake::read_frame(&mut stream, &mut reader).await
        })
        .await;
        self.exchanges.push(Exchange {
            connected,
            request,
            received: reader.bytes().to_vec(),
            answered: begin.elapsed() - connected,
        });
        match answer.map_err(|_| SetupError::TimedOut(ANSWER, timeout))? {
            Ok(reply) => Ok(Answer::Reply(stream, reply)),
            Err(NoFrame::Closed) => Ok(Answer::Closed),
            Err(NoFrame::Torn) => Err(SetupFailure::TornReply.into()),
            Err(NoFrame::Frame(FrameError::NotMpa(first))) => {
                Err(SetupFailure::NotMpa(first).into())
            }
            Err(NoFrame::Frame(error)) => Err(SetupFailure::Frame(error).into()),
            Err(NoFrame::Io(error)) => Err(error.into()),
        }
    }

    async fn revision_one(
        &mut self,
        offer: Offer,
    ) -> Result<(TcpStream, Initiator, Frame), SetupError> {
        tracing::debug!(to = %self.to, "closed without an MPA reply, trying revision 1");
        let initiator = Initiator::revision_one(offer);
        match self.exchange(&initiator).await? {
            Answer::Reply(stream, reply) => Ok((stream, initiator, reply)),
            Answer::Closed => Err(SetupFailure::NoReply.into()),
        }
    }
}

/// Adds what to check to an error of the system; the kind stays.
fn explain(error: io::Error) -> io::Error {
    let what = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there (is the server running, and is this its port?)"
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "there is no route to it (is the address right?)"
        }
        _ => return error,
    };
    SystemFailure::explain(what, error)
}
