//! Options that the command line gives: they go before those of a file.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};
use rpcrdma_daemon::config::Given;

/// Those of a command line of `A` that was understood.
pub(crate) fn given<A: Args>(matches: &ArgMatches) -> Given {
    let command = A::augment_args(Command::new("rpcrdma"));
    let ids = command.get_arguments().map(|arg| arg.get_id().as_str());
    ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::GatewayArgs;
    use crate::serve::ServeArgs;
    use clap::Arg;
    use rpcrdma_daemon::gateway::GatewaySettings;
    use rpcrdma_daemon::gateway::configuration::PairsFrom;
    use rpcrdma_daemon::server::ServerSettings;
    use rpcrdma_daemon::server::configuration::ExportsFrom;
    use rpcrdma_daemon::systemd::Sockets;
    use std::fmt::Debug;
    use std::path::Path;

    /// Options that have no place in a file: the file itself, the behaviour of the command, and what each export or pair says.
    const NOT_IN_FILES: [&str; 13] = [
        "config",
        "check",
        "json",
        "log-format",
        "read-only",
        "squash",
        "listen",
        "upstream",
        "mount-port",
        "upstream-mount",
        "rpcbind",
        "reserved-port",
        "hide-pnfs",
    ];

    /// Those among them that a file of `serve` has all the same.
    const OF_SERVERS: [&str; 3] = ["listen", "mount-port", "rpcbind"];

    /// A value of each option with a value, which is not the one by default.
    const VALUES: [(&str, &str); 21] = [
        ("listen", "192.0.2.1:7"),
        ("tcp", "7"),
        ("mount-port", "7"),
        ("allow", "192.0.2.0/24"),
        ("changes", "cached"),
        ("state-dir", "/x"),
        ("threads", "3"),
        ("max-connections", "5"),
        ("lease", "20s"),
        ("idle-timeout", "7s"),
        ("call-timeout", "8s"),
        ("metrics", "9100"),
        ("control-socket", "/x/control"),
        ("provider", "iwarp"),
        ("device", "rxe0"),
        ("crc", "strict"),
        ("rpcrdma-version", "2:ietf-07"),
        ("credits", "9"),
        ("inline-size", "8k"),
        ("remote-invalidation", "per_call"),
        ("spin", "park"),
    ];

    fn parsed<A: Args>(words: &[&str]) -> (A, ArgMatches) {
        let command = A::augment_args(Command::new("rpcrdma"));
        let matches = command.get_matches_from([&["rpcrdma"], words].concat());
        (A::from_arg_matches(&matches).unwrap(), matches)
    }

    fn no_sockets() -> Sockets {
        Sockets {
            rdma: Vec::new(),
            tcp: Vec::new(),
            mount: Vec::new(),
        }
    }

    fn server(words: &[&str]) -> ServerSettings {
        let (mut args, matches) = parsed::<ServeArgs>(words);
        args.given = given::<ServeArgs>(&matches);
        let source = args.source(&no_sockets());
        match source.exports {
            ExportsFrom::File(_) => source.read().unwrap().0.settings,
            ExportsFrom::CommandLine(..) => source.settings,
        }
    }

    fn gateway(words: &[&str]) -> GatewaySettings {
        let sides = ["--listen=rdma://127.0.0.1", "--upstream=tcp://filer"];
        let has_file = words.iter().any(|word| word.starts_with("--config"));
        let words = match has_file {
            true => words.to_vec(),
            false => [&sides, words].concat(),
        };
        let (mut args, matches) = parsed::<GatewayArgs>(&words);
        args.given = given::<GatewayArgs>(&matches);
        let source = args.source().unwrap();
        match source.pairs {
            PairsFrom::File(_) => source.read().unwrap().0.settings,
            PairsFrom::CommandLine(..) => source.settings,
        }
    }

    /// Checks that the command line and a file have the same options, in the same order, which set the same.
    fn same<A: Args, S: Debug>(
        settings: fn(&[&str]) -> S,
        (table, rest): (&str, &str),
        not_in_files: &[&str],
        unknown: impl Fn(&Path) -> String,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file.toml");
        let write = |line: &str| std::fs::write(&path, format!("[{table}]\n{line}\n{rest}"));
        let file = format!("--config={}", path.display());
        let shown = |words: &[&str]| format!("{:#?}", settings(words));
        let command = A::augment_args(Command::new("rpcrdma"));
        let longs = command.get_arguments().filter_map(Arg::get_long);
        let longs: Vec<&str> = longs.filter(|long| !not_in_files.contains(long)).collect();
        let keys: Vec<String> = longs.iter().map(|long| long.replace('-', "_")).collect();
        write("none = 1").unwrap();
        let says = format!("there is no such option; there are {}", keys.join(", "));
        let said = unknown(&path);
        assert!(said.ends_with(&says), "{said}");
        let usual = shown(&[]);
        for (long, key) in longs.iter().zip(&keys) {
            let value = VALUES.iter().find(|(name, _)| name == long);
            let (option, line) = match value {
                Some((_, value)) => (format!("--{long}={value}"), format!("{key} = \"{value}\"")),
                None => (format!("--{long}"), format!("{key} = true")),
            };
            let of_command_line = shown(&[&option]);
            assert_ne!(of_command_line, usual, "{option}");
            write(&line).unwrap();
            assert_eq!(shown(&[&file]), of_command_line, "{line}");
            if value.is_none() {
                write(&format!("{key} = false")).unwrap();
                assert_eq!(shown(&[&file]), usual, "{key}");
            }
        }
    }

    #[test]
    fn options_of_a_server_are_the_same_in_a_file() {
        let not_in_files = NOT_IN_FILES.into_iter();
        let not_in_files: Vec<&str> = not_in_files
            .filter(|name| !OF_SERVERS.contains(name))
            .collect();
        let rest = "[[export]]\npath = \"/usr\"\n";
        same::<ServeArgs, _>(server, ("server", rest), &not_in_files, |path| {
            let file = format!("--config={}", path.display());
            let (args, _) = parsed::<ServeArgs>(&[&file]);
            let (_, errors) = args.source(&no_sockets()).read().unwrap();
            errors[0].to_string()
        });
        let usual = format!("{:#?}", ServerSettings::default());
        assert_eq!(format!("{:#?}", server(&[])), usual);
    }

    #[test]
    fn options_of_a_gateway_are_the_same_in_a_file() {
        let rest = "[[pair]]\nlisten = \"rdma://127.0.0.1\"\nupstream = \"tcp://filer\"\n";
        same::<GatewayArgs, _>(gateway, ("gateway", rest), &NOT_IN_FILES, |path| {
            let file = format!("--config={}", path.display());
            let (args, _) = parsed::<GatewayArgs>(&[&file]);
            let (_, errors) = args.source().unwrap().read().unwrap();
            errors[0].to_string()
        });
        let usual = format!("{:#?}", GatewaySettings::default());
        assert_eq!(format!("{:#?}", gateway(&[])), usual);
    }

    #[test]
    fn option_of_the_command_line_goes_before_those_of_the_file_that_it_excludes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file.toml");
        let file = format!("--config={}", path.display());
        for (word, line) in [
            ("--no-crc", "crc = \"strict\""),
            ("--crc=strict", "no_crc = true"),
        ] {
            let text = format!("[server]\n{line}\n[[export]]\npath = \"/usr\"\n");
            std::fs::write(&path, text).unwrap();
            let both = server(&[&file, word]);
            assert_eq!(both.connections.crc, server(&[word]).connections.crc);
        }
    }
}
