//! Configuration of the provider.

use iwarp_proto::mpa::{MAX_DEPTH, Offer};
use std::time::Duration;
use verbs::QpOptions;

/// Configuration of an [`Iwarp`](crate::Iwarp) provider and its connections.
///
/// Start with the [default](Self::default) and change fields by their methods:
///
/// ```
/// use std::time::Duration;
/// use verbs_iwarp::{Config, CrcMode, Iwarp};
///
/// let config = Config::default()
///     .with_crc(CrcMode::Strict)
///     .with_user_timeout(Duration::from_secs(10));
/// let provider = Iwarp::new(config);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Integrity checks. On by default (RFC 5044 §4.4).
    pub crc: CrcMode,
    /// Largest size of an FPDU.
    pub fpdu: FpduPolicy,
    /// Bytes of each socket buffer towards a peer on this machine. Elsewhere the kernel tunes
    /// them itself.
    pub loopback_socket_buffer: usize,
    /// How long a connection may be silent before TCP sends a keepalive probe.
    pub keepalive_idle: Duration,
    /// Interval of further probes; the third unanswered one ends the connection.
    pub keepalive_interval: Duration,
    /// How long bytes may stay unacknowledged before the connection is lost.
    pub user_timeout: Duration,
    /// How long a message with a block of a shared receive queue may take to arrive, from its first
    /// segment on: other connections may wait for the block.
    pub message_timeout: Duration,
    /// How long closing a connection may take: posted work is sent, and the peer gets time to read
    /// it.
    pub linger: Duration,
    /// How long the first message of an initiator may stay unanswered before a zero-length RDMA
    /// Write is sent behind it. Linux's siw can overlook the first message until more arrives.
    pub nudge_after: Duration,
    /// Whether one Send can invalidate several STags, up to
    /// [`Limits::invalidations`](verbs::Limits::invalidations). This is an extension of RDMAP by an
    /// opcode that RFC 5040 reserves, so it is off by default, and the user of the provider uses it
    /// only towards a peer that has agreed to it. A peer that sends it unasked is refused while it is
    /// off.
    pub several_invalidations: bool,
    /// Largest number of peers of one listener that are refused at a time whose Request is still to be
    /// read. Each has a descriptor meanwhile. Further ones are closed without an answer.
    pub refusals: usize,
}

impl Config {
    buffer::setters! {
        with_crc(crc: CrcMode),
        with_fpdu(fpdu: FpduPolicy),
        with_loopback_socket_buffer(loopback_socket_buffer: usize),
        with_keepalive_idle(keepalive_idle: Duration),
        with_keepalive_interval(keepalive_interval: Duration),
        with_user_timeout(user_timeout: Duration),
        with_message_timeout(message_timeout: Duration),
        with_linger(linger: Duration),
        with_nudge_after(nudge_after: Duration),
        with_several_invalidations(several_invalidations: bool),
        with_refusals(refusals: usize),
    }

    /// Offer to the peer of a connection with these options.
    pub(crate) fn offer(&self, options: &QpOptions) -> Offer {
        let depth = |wanted: usize| u16::try_from(wanted).unwrap_or(MAX_DEPTH).min(MAX_DEPTH);
        Offer {
            crc: self.crc != CrcMode::Off,
            ird: depth(options.inbound_reads),
            ord: depth(options.outstanding_reads),
            peer_to_peer: false,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            crc: CrcMode::On,
            fpdu: FpduPolicy::Path,
            loopback_socket_buffer: 4 << 20,
            keepalive_idle: Duration::from_secs(15),
            keepalive_interval: Duration::from_secs(5),
            user_timeout: Duration::from_secs(30),
            message_timeout: Duration::from_secs(30),
            linger: Duration::from_secs(2),
            nudge_after: Duration::from_millis(50),
            several_invalidations: false,
            refusals: 64,
        }
    }
}

/// Whether FPDUs carry a CRC32C, and when it is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrcMode {
    /// Requested. Large payload is placed before its CRC is checked; a bad CRC ends the connection
    /// before anything is reported.
    #[default]
    On,
    /// Requested, and every FPDU is verified before any of it is placed, at the price of a copy.
    Strict,
    /// Not requested; still used if the peer requests it.
    Off,
}

/// Largest size of an FPDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FpduPolicy {
    /// Large FPDUs towards this machine, one FPDU per TCP segment elsewhere (RFC 5044 §5.1).
    #[default]
    Path,
    /// Large FPDUs, for software peers.
    Large,
    /// At most this many bytes of ULPDU, within 128 to 64768.
    Max(u16),
}
