//! Settings of connections: the provider and its configuration, and what to agree on.

use super::keys::{Key, number};
use super::words::{VersionSetting, word};
use crate::providers::ProviderSetting;
use printing::units;
use rpcrdma::iwarp::{Config, CrcMode};
use rpcrdma::{ClientConfig, Design, InlineThreshold, ServerConfig, Spin};
use std::ops::RangeInclusive;

/// Most credits that can be asked for or granted.
pub const MAX_CREDITS: i64 = 1024;

/// Inline thresholds that can be asked for, in bytes.
pub const INLINE_SIZES: RangeInclusive<u64> =
    InlineThreshold::MIN.bytes() as u64..=InlineThreshold::MAX.bytes() as u64;

/// The error of two settings that say when there is a CRC.
const CRC_TWICE: &str = "the argument '--crc <WHEN>' cannot be used with '--no-crc'";

/// Settings of everything that makes or takes in connections.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    /// The provider.
    pub provider: ProviderSetting,
    /// CRC32C of frames of software iWARP.
    pub crc: CrcMode,
    /// Versions of RPC-over-RDMA.
    pub version: VersionSetting,
    /// Most calls in flight on each connection.
    pub credits: u32,
    /// Inline threshold of both directions, in bytes, where it is not the usual one of each.
    pub inline_size: Option<usize>,
    /// Designs for remote invalidation.
    pub remote_invalidation: Invalidation,
    /// Waiting for data.
    pub spin: Spin,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self {
            provider: ProviderSetting::default(),
            crc: CrcMode::On,
            version: VersionSetting::default(),
            credits: 128,
            inline_size: None,
            remote_invalidation: Invalidation(vec![Design::PerConnection]),
            spin: Spin::Adaptive,
        }
    }
}

/// The designs for remote invalidation that may be used, best first.
#[derive(Clone, Debug)]
pub struct Invalidation(pub Vec<Design>);

impl Invalidation {
    /// Whether one of them needs a provider that invalidates several handles with one Send.
    pub fn needs_several(&self) -> bool {
        self.0.iter().any(|design| design.needs_several())
    }
}

/// Designs for remote invalidation, by their names (reminv §4).
///
/// # Errors
///
/// For each name that is none of a design.
pub fn invalidation(text: &str) -> Result<Invalidation, String> {
    match text {
        "on" => return Ok(Invalidation(vec![Design::PerConnection])),
        "off" | "none" => return Ok(Invalidation(Vec::new())),
        _ => {}
    }
    let (mut designs, mut wrong) = (Vec::new(), Vec::new());
    for name in text.split(',').map(str::trim) {
        match name.parse() {
            Ok(design) => designs.push(design),
            Err(error) => wrong.push(format!("'{name}': {error}")),
        }
    }
    match wrong.is_empty() {
        true => Ok(Invalidation(designs)),
        false => Err(wrong.join("; ")),
    }
}

impl ConnectionSettings {
    /// The keys of a table that has them.
    pub(crate) fn keys() -> [Key<Self>; 9] {
        [
            Key::value("provider", word, |settings: &mut Self, kind| {
                settings.provider.kind = Some(kind);
            }),
            Key::value("device", any, |settings: &mut Self, name| {
                settings.provider.device = Some(name);
            }),
            Key::value("crc", word, |settings: &mut Self, crc| settings.crc = crc)
                .with_default()
                .excluding("no_crc", CRC_TWICE),
            Key::flag("no_crc", |settings: &mut Self| settings.crc = CrcMode::Off)
                .excluding("crc", CRC_TWICE),
            Key::value("rpcrdma_version", word, |settings: &mut Self, version| {
                settings.version = version;
            })
            .with_default(),
            Key::value(
                "credits",
                number(1..=MAX_CREDITS),
                |settings: &mut Self, n| {
                    settings.credits = n;
                },
            )
            .with_default(),
            Key::value(
                "inline_size",
                units::size_within(INLINE_SIZES),
                |settings: &mut Self, size| settings.inline_size = Some(size),
            ),
            Key::value(
                "remote_invalidation",
                invalidation,
                |settings: &mut Self, designs| settings.remote_invalidation = designs,
            )
            .with_default(),
            Key::value("spin", word, |settings: &mut Self, spin| {
                settings.spin = spin
            })
            .with_default(),
        ]
    }

    /// Configuration of listeners.
    pub fn server(&self) -> ServerConfig {
        let usual = ServerConfig::default();
        usual
            .clone()
            .with_versions(self.version.versions)
            .with_dialect(self.version.dialect)
            .with_credits(self.credits)
            .with_send_size(self.inline_size_or(usual.send_size))
            .with_receive_size(self.inline_size_or(usual.receive_size))
            .with_remote_invalidation(self.remote_invalidation.0.clone())
            .with_spin(self.spin)
    }

    /// Configuration of connections to servers.
    pub fn client(&self) -> ClientConfig {
        let usual = ClientConfig::default();
        usual
            .clone()
            .with_versions(self.version.versions)
            .with_dialect(self.version.dialect)
            .with_credits(self.credits)
            .with_send_size(self.inline_size_or(usual.send_size))
            .with_receive_size(self.inline_size_or(usual.receive_size))
            .with_remote_invalidation(self.remote_invalidation.0.clone())
            .with_spin(self.spin)
    }

    /// Configuration of software iWARP, with the extension that one of the designs needs, if that is asked for.
    pub fn iwarp(&self) -> Config {
        Config::default()
            .with_crc(self.crc)
            .with_several_invalidations(self.remote_invalidation.needs_several())
    }

    /// The integrity checks of software iWARP, in words.
    pub fn describe_crc(&self) -> &'static str {
        match self.crc {
            CrcMode::On => "CRC on",
            CrcMode::Off => "CRC off",
            CrcMode::Strict => "CRC strict",
        }
    }

    /// The size that was asked for, in both directions, or else the usual one of a direction.
    fn inline_size_or(&self, usual: InlineThreshold) -> InlineThreshold {
        self.inline_size.map_or(usual, InlineThreshold::at_most)
    }
}

/// Any text.
#[expect(
    clippy::unnecessary_wraps,
    reason = "it stands beside parsers that fail"
)]
fn any(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}
