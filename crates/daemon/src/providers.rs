//! Settings that choose providers, opened, with errors and warnings in words of the settings.

use crate::errors::Usage;
use anyhow::anyhow;
use rpcrdma::any::{NoListener, OpenError, Options, Providers, Selection, WhyNoListener, devices};
use rpcrdma::{Iwarp, ServerConfig};
use std::net::{SocketAddr, TcpListener};

/// Message about a device for a provider that uses none.
const NEEDS_VERBS: &str =
    "--device names an RDMA device, which --provider iwarp does not use: leave one of the two out";

/// Name of a provider in a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// RDMA devices for InfiniBand and RoCE, and software iWARP.
    Auto,
    /// Software iWARP.
    Iwarp,
    /// RDMA devices.
    Verbs,
}

/// The settings that choose a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderSetting {
    /// The provider, if one is named.
    pub kind: Option<ProviderKind>,
    /// The only RDMA device to use, if one is named.
    pub device: Option<String>,
}

impl ProviderSetting {
    /// The providers; `None` if a device is named that the provider does not use.
    pub fn selection(&self) -> Option<Selection> {
        let device = self.device.clone();
        match (self.kind, device) {
            (None | Some(ProviderKind::Auto), None) => Some(Selection::Any(None)),
            (Some(ProviderKind::Auto), device) => Some(Selection::Any(device)),
            (None | Some(ProviderKind::Verbs), device) => Some(Selection::Devices(device)),
            (Some(ProviderKind::Iwarp), None) => Some(Selection::Software),
            (Some(ProviderKind::Iwarp), Some(_)) => None,
        }
    }

    /// Whether RDMA devices alone are to be used.
    pub fn wants_devices(&self) -> bool {
        matches!(self.selection(), Some(Selection::Devices(_)))
    }

    /// Whether a device is named that the provider does not use.
    pub fn contradicts_itself(&self) -> bool {
        self.selection().is_none()
    }

    /// The providers, with software iWARP in this configuration.
    ///
    /// # Errors
    ///
    /// [`Usage`] if a device is named that the provider does not use.
    pub fn options(&self, software: Iwarp) -> anyhow::Result<Options> {
        let selection = self.selection();
        let selection = selection.ok_or_else(|| Usage(NEEDS_VERBS.to_owned()))?;
        Ok(Options::new(selection, software))
    }

    /// Opens the providers for connections to servers.
    ///
    /// # Errors
    ///
    /// If the RDMA devices that are asked for cannot be used, or a device is named that the provider does not use.
    pub fn open(&self, software: Iwarp) -> anyhow::Result<Providers> {
        let options = self.options(software)?;
        Providers::open(&options).map_err(|error| explain(error, &options.selection))
    }

    /// Opens the providers over which a server listens at these addresses, some of which have sockets that listen already.
    /// Logs why RDMA devices cannot be used, if there are some.
    ///
    /// # Errors
    ///
    /// As those of [`open`](Self::open); and if there are sockets, and the only provider listens without.
    pub fn open_to_listen(
        &self,
        software: Iwarp,
        at: &[SocketAddr],
        sockets: Vec<(SocketAddr, TcpListener)>,
    ) -> anyhow::Result<Providers> {
        let options = self.options(software)?;
        let providers = Providers::open_to_listen(&options, at, sockets);
        let providers = providers.map_err(|error| explain(error, &options.selection))?;
        if let Some(why) = providers.unusable_devices() {
            tracing::info!(
                target: "serve",
                "listening over software iWARP alone: RDMA devices cannot be used: {why}"
            );
        }
        Ok(providers)
    }

    /// Names of the devices that connections to a server may use, as far as they are known.
    pub fn device_names(&self) -> Vec<String> {
        let selection = self.selection();
        selection.map_or_else(Vec::new, |selection| devices::usable_names(&selection))
    }
}

/// The error of opening providers, in words of the settings.
pub(crate) fn explain(error: OpenError, selection: &Selection) -> anyhow::Error {
    let alone = matches!(selection, Selection::Devices(_));
    match error {
        OpenError::OnlyIwarp { device: Some(name) } => anyhow!(
            "{name} is an iWARP device: --provider auto reaches its peers over software iWARP; use --provider verbs \
             to use it"
        ),
        OpenError::TakesNoSocket => anyhow!(
            "--provider verbs cannot listen with a socket of the service manager, which is one of TCP: use \
             --provider auto, which listens with it and over RDMA devices beside it, or disable the unit of the \
             socket"
        ),
        error if alone || matches!(error, OpenError::NoDevice { .. }) => {
            anyhow!("{error}; without --provider verbs and --device, software iWARP is used")
        }
        error => error.into(),
    }
}

/// The warning that a server does not listen over devices at an address, with advice.
pub(crate) fn warning(missing: &NoListener) -> String {
    let advice = match &missing.why {
        WhyNoListener::NoDevice(_) => {
            " (`rpcrdma devices` shows the addresses of each; --provider iwarp leaves devices alone)"
        }
        WhyNoListener::NoAddress => {
            " (`rpcrdma devices` shows them and their interfaces; `ip address add` gives an interface one)"
        }
        WhyNoListener::TooMany => ": name addresses with --listen",
        _ => "",
    };
    format!("{missing}{advice}")
}

/// Connections of those configured for which there is memory, whichever of the providers they come over.
pub(crate) fn connections_with_memory(providers: &Providers, config: &ServerConfig) -> usize {
    let all = [providers.main()]
        .into_iter()
        .chain(providers.devices_beside());
    let each = all.map(|provider| config.connections_with_memory(&provider.limits()));
    each.min().unwrap_or(config.max_connections)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn device_that_is_named_alone_is_used_alone() {
        let check = |kind, device: Option<&str>, expected| {
            let setting = ProviderSetting {
                kind,
                device: device.map(str::to_owned),
            };
            assert_eq!(setting.selection(), expected, "{setting:?}");
        };
        let (auto, verbs) = (Some(ProviderKind::Auto), Some(ProviderKind::Verbs));
        check(None, None, Some(Selection::Any(None)));
        check(auto, None, Some(Selection::Any(None)));
        let (device, name) = (Some("rxe0"), Some("rxe0".to_owned()));
        check(None, device, Some(Selection::Devices(name.clone())));
        check(verbs, None, Some(Selection::Devices(None)));
        check(verbs, device, Some(Selection::Devices(name.clone())));
        check(auto, device, Some(Selection::Any(name)));
        let iwarp = Some(ProviderKind::Iwarp);
        check(iwarp, None, Some(Selection::Software));
        check(iwarp, device, None);
    }

    #[test]
    fn errors_of_opening_name_the_settings() {
        let name = || Some("rxe0".to_owned());
        let check = |error: OpenError, selection: Selection, expected: &str| {
            assert_eq!(explain(error, &selection).to_string(), expected);
        };
        let remedy = "(the driver of a card makes one; without a card, `rdma link add rxe0 type rxe netdev eth0` makes \
                      a RoCE device of network card eth0, and type siw an iWARP device)";
        let without = "; without --provider verbs and --device, software iWARP is used";
        check(
            OpenError::NoDevice { device: None },
            Selection::Devices(None),
            &format!("no RDMA device on this machine {remedy}{without}"),
        );
        for selection in [Selection::Devices(name()), Selection::Any(name())] {
            check(
                OpenError::NoDevice { device: name() },
                selection,
                &format!("no RDMA device rxe0: this machine has none {remedy}{without}"),
            );
        }
        check(
            OpenError::OnlyIwarp { device: name() },
            Selection::Any(name()),
            "rxe0 is an iWARP device: --provider auto reaches its peers over software iWARP; use --provider verbs to \
             use it",
        );
        let no_driver = "libibverbs has no driver for it (install ibverbs-providers on Debian and Ubuntu, libibverbs \
                         on Fedora and RHEL)";
        check(OpenError::NoDriver, Selection::Any(name()), no_driver);
        check(
            rpcrdma::ibv::OpenError::Platform.into(),
            Selection::Devices(None),
            &format!("RDMA devices can be used on 64-bit Linux only{without}"),
        );
    }

    #[test]
    fn address_without_a_device_is_a_warning_with_a_remedy() {
        let at: SocketAddr = "192.0.2.1:7".parse().unwrap();
        let check = |why, expected: &str| {
            let text = warning(&NoListener { at, why });
            let begin = "not listening over RDMA devices at 192.0.2.1:7, but over software iWARP: ";
            assert_eq!(text.strip_prefix(begin), Some(expected));
        };
        check(
            WhyNoListener::NoDevice(at.ip()),
            "no InfiniBand or RoCE device has the address 192.0.2.1 (`rpcrdma devices` shows the addresses of each; \
             --provider iwarp leaves devices alone)",
        );
        check(
            WhyNoListener::NoAddress,
            "no InfiniBand or RoCE device has an IP address (`rpcrdma devices` shows them and their interfaces; `ip \
             address add` gives an interface one)",
        );
        check(
            WhyNoListener::TooMany,
            "there are 64 listeners, the most there can be: name addresses with --listen",
        );
        let in_use = std::io::Error::from(ErrorKind::AddrInUse);
        check(WhyNoListener::Setup(in_use.into()), "address in use");
    }
}
