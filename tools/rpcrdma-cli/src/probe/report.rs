//! The report of a probe as JSON. docs/guide/probe.md explains each field.

use super::answer::Answer;
use super::nfs4::Nfs4Seen;
use super::version_two::VersionTwo;
use crate::provider;
use iwarp_proto::mpa::{Enhanced, HeaderView, Kind, NOT_NEGOTIATED, Revision};
use printing::latency::{Latencies, milliseconds};
use rpcrdma_proto::private_data::{FORMAT_IDENTIFIER, FORMATS, PrivateData, PrivateDataView};
use rpcrdma_proto::v2::Dialect;
use serde::Serialize;
use std::net::SocketAddr;
use verbs::QueuePair;
use verbs_iwarp::Exchange;

/// Findings about a peer. Null stands for an unknown value.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    /// As the user named it.
    pub(super) server: String,
    /// The address that was looked at.
    pub(super) address: String,
    /// Kind of peer.
    pub(super) verdict: Verdict,
    /// The verdict in a sentence that says what to do.
    pub(super) explanation: String,
    /// Provider over which the peer was looked at: `iwarp` (software iWARP over TCP) or `verbs` (RDMA devices).
    pub(super) provider: &'static str,
    /// Name of the RDMA device at this end, if the connection uses one.
    pub(super) device: Option<String>,
    /// The connection in words.
    pub(super) transport: Option<String>,
    /// Limits of the connection.
    pub(super) limits: Option<LimitsSeen>,
    /// Milliseconds to connect over TCP.
    pub(super) tcp_connect_ms: Option<f64>,
    /// First octets that came in the place of an MPA Reply.
    pub(super) first_bytes: Option<FirstBytes>,
    /// NFS version 3 over plain TCP, where there is no MPA.
    pub(super) plain_tcp: Option<ProgramAnswer>,
    /// The MPA Reply.
    pub(super) mpa: Option<Mpa>,
    /// The private data of the peer.
    pub(super) private_data: Option<PrivateDataSeen>,
    /// The inline thresholds.
    pub(super) inline: Option<Inline>,
    /// Findings about RPC-over-RDMA.
    pub(super) rpcrdma: Option<RpcRdma>,
    /// Calls of the procedure NULL of each program and version that was tried.
    pub(super) programs: Vec<ProgramAnswer>,
    /// Those of NFS that are there, in ascending order.
    pub(super) nfs_versions: Vec<u32>,
    /// Those of NFS version 4 that are there.
    pub(super) nfs4_minor_versions: Vec<u32>,
    /// The server as NFS version 4.1 or 4.2 knows it; null without such a version.
    pub(super) nfs4: Option<Nfs4Seen>,
    /// Times of calls of the procedure NULL.
    pub(super) rtt_ms: Option<RoundTrip>,
}

impl Report {
    /// Of a peer of which nothing is known but that it takes connections.
    pub(super) fn new(server: String, address: SocketAddr, over_devices: bool) -> Self {
        Self {
            server,
            address: address.to_string(),
            verdict: match over_devices {
                true => Verdict::RdmaOnly,
                false => Verdict::MpaOnly,
            },
            explanation: String::new(),
            provider: provider::name(over_devices),
            device: None,
            transport: None,
            limits: None,
            tcp_connect_ms: None,
            first_bytes: None,
            plain_tcp: None,
            mpa: None,
            private_data: None,
            inline: None,
            rpcrdma: None,
            programs: Vec::new(),
            nfs_versions: Vec::new(),
            nfs4_minor_versions: Vec::new(),
            nfs4: None,
            rtt_ms: None,
        }
    }

    /// With what is known of a connection that was made.
    pub(super) fn connected(&mut self, qp: &dyn QueuePair) {
        let limits = qp.limits();
        self.device = qp.device().map(str::to_owned);
        self.transport = Some(qp.describe());
        self.limits = Some(LimitsSeen {
            outstanding_reads: limits.outstanding_reads,
            inbound_reads: limits.inbound_reads,
            max_message_bytes: limits.max_message,
        });
    }

    /// Whether the peer was looked at over RDMA devices.
    pub(super) fn is_over_devices(&self) -> bool {
        self.provider == provider::name(true)
    }
}

/// Limits of a connection, after the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LimitsSeen {
    /// RDMA Reads that this end may have outstanding (ORD).
    pub(super) outstanding_reads: usize,
    /// RDMA Reads of the peer that this end serves at a time (IRD).
    pub(super) inbound_reads: usize,
    /// Bytes of the largest message.
    pub(super) max_message_bytes: u32,
}

/// Kind of peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// RPC-over-RDMA.
    Rpcrdma,
    /// An iWARP connection on which calls are not answered.
    MpaOnly,
    /// A connection over RDMA devices on which calls are not answered.
    RdmaOnly,
    /// MPA or an RDMA device, which refused the connection.
    Rejected,
    /// An MPA Reply that cannot be accepted.
    BadMpa,
    /// Something else over TCP.
    NotMpa,
    /// Somebody who closes the connection without a word.
    Closed,
    /// Somebody who says nothing.
    Silent,
    /// Nobody.
    Refused,
    /// No way to it, or somebody who drops what we send.
    Unreachable,
}

/// First octets that came in the place of an MPA Reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FirstBytes {
    /// In hexadecimal digits.
    pub(super) hex: String,
    /// With `\xNN` for what is no text.
    pub(super) text: String,
}

/// The MPA Reply (RFC 5044 §7.1.1, RFC 6581 §9), as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Mpa {
    /// Revision of MPA.
    pub(super) revision: u8,
    /// Whether the connection setup is enhanced (RFC 6581).
    pub(super) enhanced: bool,
    /// Whether the peer rejects the connection.
    pub(super) rejected: bool,
    /// Whether the peer asks for CRCs.
    pub(super) crc: bool,
    /// Whether CRCs are used when we do not ask for them.
    pub(super) crc_required: Option<bool>,
    /// Whether the peer asks for markers.
    pub(super) markers: bool,
    /// Whether the peer asks for the peer-to-peer model (RFC 6581).
    pub(super) peer_to_peer: bool,
    /// Inbound RDMA Reads of the peer.
    pub(super) ird: Option<u16>,
    /// Outbound RDMA Reads of the peer.
    pub(super) ord: Option<u16>,
    /// Inbound RDMA Reads that we offered.
    pub(super) offered_ird: Option<u16>,
    /// Outbound RDMA Reads that we offered.
    pub(super) offered_ord: Option<u16>,
    /// Whether the peer closed the connection when it was offered revision 2.
    pub(super) fell_back: bool,
    /// The reply in hexadecimal digits.
    pub(super) reply: String,
}

/// The peer's private data, without what belongs to MPA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PrivateDataSeen {
    /// In hexadecimal digits.
    pub(super) bytes: String,
    /// Bytes in front of the message of RFC 8797, if there is one.
    pub(super) offset: Option<usize>,
    /// The format that was recognised.
    pub(super) format: Option<&'static str>,
    /// Version of that format.
    pub(super) version: Option<u8>,
    /// Whether it is valid.
    pub(super) valid: bool,
    /// Bits that are to be zero.
    pub(super) reserved_bits: Option<u8>,
    /// Bytes of the largest message that the peer sends inline.
    pub(super) send_size: Option<usize>,
    /// Bytes of the largest message that the peer receives inline.
    pub(super) receive_size: Option<usize>,
    /// Whether the peer supports remote invalidation.
    pub(super) remote_invalidation: Option<bool>,
    /// The draft of version two that the peer announces.
    pub(super) version_two: Option<&'static str>,
}

/// The inline thresholds between the peer and our commands (RFC 8797 §4.2), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Inline {
    /// Bytes of a message to the peer.
    pub(super) to_peer: usize,
    /// Bytes of a message from the peer.
    pub(super) from_peer: usize,
}

/// Findings about the transport protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RpcRdma {
    /// Whether the peer answers in version one.
    pub(super) version_one: bool,
    /// Outcome of version two.
    pub(super) version_two: Option<VersionTwo>,
    /// Credits that we asked for.
    pub(super) credits_asked: u32,
    /// Credits that the peer granted.
    pub(super) credits_granted: Option<u32>,
    /// Whether it invalidated memory of ours with its reply, though it may not have said so.
    pub(super) invalidates: Option<bool>,
    /// Messages that answered nothing we had asked.
    pub(super) stray_messages: u64,
    /// Why the conversation ended early, if it did.
    pub(super) ended: Option<String>,
}

/// A call of the procedure NULL, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ProgramAnswer {
    /// Name of the program.
    pub(super) name: &'static str,
    /// Number of the program.
    pub(super) program: u32,
    /// Version of the program.
    pub(super) version: u32,
    #[serde(flatten)]
    pub(super) answer: Answer,
}

/// Times of calls of the procedure NULL, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RoundTrip {
    /// Calls that were answered.
    pub(super) calls: u64,
    /// The shortest.
    pub(super) min: f64,
    /// The median.
    pub(super) median: f64,
    /// The longest.
    pub(super) max: f64,
}

impl Verdict {
    /// From how the setup of a connection went that was not made.
    pub(super) fn of_failure(exchanges: &[Exchange], error: &verbs::SetupError) -> Self {
        use verbs::SetupError::{Io, NotOurProtocol, Rejected, TimedOut};
        let Some(last) = exchanges.last() else {
            return match error {
                Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Self::Refused,
                _ => Self::Unreachable,
            };
        };
        let is_mpa = Kind::Reply
            .key()
            .starts_with(&last.received[..last.received.len().min(16)]);
        match error {
            Rejected(_) => Self::Rejected,
            TimedOut(..) if last.received.is_empty() => Self::Silent,
            Io(_) | NotOurProtocol(_) if last.received.is_empty() => Self::Closed,
            _ if is_mpa => Self::BadMpa,
            _ => Self::NotMpa,
        }
    }
}

impl Verdict {
    /// From why there was no connection over RDMA devices.
    pub(super) fn of_failure_over_devices(error: &verbs::SetupError) -> Self {
        use verbs::SetupError::{Io, Refused, Rejected};
        match error {
            Rejected(_) | Refused(_) => Self::Rejected,
            Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Self::Refused,
            _ => Self::Unreachable,
        }
    }
}

impl FirstBytes {
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self {
            hex: hex(bytes),
            text: nfs_client::printable(bytes),
        })
    }
}

impl Mpa {
    /// Of what came back, if it begins like a Reply and is not cut off within its fixed part.
    pub(super) fn new(exchanges: &[Exchange]) -> Option<Self> {
        let last = exchanges.last()?;
        let header = HeaderView::new(&last.received).filter(|h| h.key() == Kind::Reply.key())?;
        let word = last.received[HeaderView::LEN..].first_chunk();
        // RFC 6581 §6: before revision 2 the bit is reserved.
        let enhanced = header.enhanced() && header.revision() >= Revision::Two as u8;
        let word = word.filter(|_| enhanced).map(Enhanced::parse);
        let depth = |depth: u16| (depth != NOT_NEGOTIATED).then_some(depth);
        Some(Self {
            revision: header.revision(),
            enhanced,
            rejected: header.reject(),
            crc: header.crc(),
            crc_required: None,
            markers: header.markers(),
            peer_to_peer: word.is_some_and(|word| word.peer_to_peer.is_some()),
            ird: word.and_then(|word| depth(word.ird)),
            ord: word.and_then(|word| depth(word.ord)),
            offered_ird: last.request.enhanced.map(|word| word.ird),
            offered_ord: last.request.enhanced.map(|word| word.ord),
            fell_back: exchanges.len() > 1,
            reply: hex(&last.received),
        })
    }
}

impl PrivateDataSeen {
    pub(super) fn new(received: &[u8]) -> Self {
        let named = |bytes: &[u8]| bytes.starts_with(&FORMAT_IDENTIFIER.to_be_bytes());
        // What is valid, or else what at least has the name.
        let valid = PrivateData::locate(received).map(|(offset, _)| offset);
        let mut places = received.windows(PrivateData::LEN);
        let offset = valid.or_else(|| places.position(named));
        let view = offset.and_then(|offset| PrivateDataView::new(&received[offset..]));
        let parsed = view.and_then(PrivateData::parse);
        let of_format = |view: PrivateDataView<'_>| {
            let mut formats = FORMATS.iter();
            formats.find(|format| format.identifier == view.identifier())
        };
        Self {
            bytes: hex(received),
            offset,
            format: view.and_then(of_format).map(|format| format.description),
            version: view.map(PrivateDataView::version),
            valid: parsed.is_some(),
            reserved_bits: view.map(PrivateDataView::reserved),
            send_size: parsed.map(|parsed| parsed.send.bytes()),
            receive_size: parsed.map(|parsed| parsed.receive.bytes()),
            remote_invalidation: parsed.map(|parsed| parsed.remote_invalidation),
            version_two: Dialect::announced(received).map(Dialect::name),
        }
    }
}

impl Inline {
    pub(super) fn new(ours: PrivateData, received: &[u8]) -> Self {
        let theirs = PrivateData::find(received).unwrap_or(PrivateData::ABSENT);
        let thresholds = ours.thresholds(theirs);
        Self {
            to_peer: thresholds.send.bytes(),
            from_peer: thresholds.receive.bytes(),
        }
    }
}

impl RoundTrip {
    /// None without a call.
    pub(super) fn new(latencies: &Latencies) -> Option<Self> {
        (latencies.count() > 0).then(|| Self {
            calls: latencies.count(),
            min: milliseconds(latencies.min()),
            median: milliseconds(latencies.percentile(50.0)),
            max: milliseconds(latencies.max()),
        })
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const OURS: PrivateData = PrivateData {
        send: rpcrdma_proto::InlineThreshold::DEFAULT,
        receive: rpcrdma_proto::InlineThreshold::MAX,
        remote_invalidation: true,
    };

    #[test]
    fn private_data_is_found_behind_bytes_of_others() {
        let bytes = b"\0mine\xf6\xab\x0e\x18\x01\x01\x07\x03";
        let seen = PrivateDataSeen::new(bytes);
        assert_eq!((seen.offset, seen.valid), (Some(5), true));
        assert_eq!(
            (seen.send_size, seen.receive_size),
            (Some(8192), Some(4096))
        );
        assert_eq!(seen.remote_invalidation, Some(true));
        assert_eq!(seen.bytes, "006d696e65f6ab0e1801010703");
        let inline = Inline::new(OURS, bytes);
        assert_eq!((inline.to_peer, inline.from_peer), (4096, 8192));
    }

    #[test]
    fn private_data_of_another_version_is_shown_and_not_believed() {
        let bytes = b"\xf6\xab\x0e\x18\x02\x81\x07\x03";
        let seen = PrivateDataSeen::new(bytes);
        assert_eq!((seen.offset, seen.valid), (Some(0), false));
        assert_eq!((seen.version, seen.reserved_bits), (Some(2), Some(0x40)));
        assert_eq!(seen.send_size, None);
        let inline = Inline::new(OURS, bytes);
        assert_eq!((inline.to_peer, inline.from_peer), (1024, 1024));
    }

    #[test]
    fn foreign_private_data_is_shown_as_it_is() {
        let seen = PrivateDataSeen::new(b"what");
        assert_eq!((seen.bytes.as_str(), seen.offset), ("77686174", None));
        assert_eq!((seen.format, seen.valid), (None, false));
    }

    #[test]
    fn median_is_in_the_middle() {
        let times = |ms: &[u64]| {
            let latencies: Latencies = ms.iter().copied().map(Duration::from_millis).collect();
            RoundTrip::new(&latencies)
        };
        assert_eq!(times(&[]), None);
        let three = times(&[9, 1, 2]).unwrap();
        assert_eq!((three.calls, three.min, three.max), (3, 1.0, 9.0));
        assert!((three.median - 2.0).abs() < 0.002, "{}", three.median);
    }
}
