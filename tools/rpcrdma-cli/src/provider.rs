//! Options that choose the provider: software iWARP, RDMA devices, or both.

use crate::words::word;
use clap::Args;
use rpcrdma::any::Selection;
use rpcrdma_daemon::providers::{ProviderKind, ProviderSetting};

/// Options that choose the provider.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ProviderArgs {
    /// RDMA provider [default: auto, or verbs with --device]
    #[arg(long, value_parser = word::<ProviderKind>(), value_name = "NAME")]
    provider: Option<ProviderKind>,

    /// The only RDMA device to use, as `rpcrdma devices` names it [default: the one that has the IP address
    /// at this end]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

pub(crate) use rpcrdma_daemon::listening::provider_name as name;

impl ProviderArgs {
    /// The setting that they are.
    pub(crate) fn setting(&self) -> ProviderSetting {
        ProviderSetting {
            kind: self.provider,
            device: self.device.clone(),
        }
    }

    /// The providers that move the data, in words, before it is known where a choice is left.
    pub(crate) fn describe(&self) -> &'static str {
        match self.setting().selection() {
            Some(Selection::Any(_)) => "RDMA devices, or software iWARP over TCP",
            Some(Selection::Devices(_)) => "RDMA devices",
            Some(Selection::Software) | None => "software iWARP over TCP",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};
    use rpcrdma::Iwarp;

    /// How options are understood.
    fn chosen(args: &[&str]) -> Result<String, String> {
        let command = ProviderArgs::augment_args(Command::new("x"));
        let matches = command.try_get_matches_from([&["x"], args].concat());
        let args = ProviderArgs::from_arg_matches(&matches.unwrap()).unwrap();
        let options = args.setting().options(Iwarp::default());
        let options = options.map_err(|error| error.to_string())?;
        Ok(match options.selection {
            Selection::Software => "software".to_owned(),
            Selection::Devices(device) => format!("devices {device:?}"),
            Selection::Any(device) => format!("both {device:?}"),
        })
    }

    #[test]
    fn device_that_is_named_alone_is_used_alone() {
        let check = |args: &[&str], expected: &str| {
            assert_eq!(chosen(args).as_deref(), Ok(expected), "{args:?}");
        };
        check(&[], "both None");
        check(&["--provider=auto"], "both None");
        check(&["--provider=iwarp"], "software");
        check(&["--provider=verbs"], "devices None");
        check(&["--device=rxe0"], "devices Some(\"rxe0\")");
        check(
            &["--provider=verbs", "--device=rxe0"],
            "devices Some(\"rxe0\")",
        );
        check(&["--provider=auto", "--device=rxe0"], "both Some(\"rxe0\")");
        let error = chosen(&["--provider=iwarp", "--device=rxe0"]).unwrap_err();
        assert!(
            error.starts_with("--device names an RDMA device"),
            "{error}"
        );
    }
}
