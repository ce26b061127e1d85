//! `serve --check`: whether a server could start, and what it would serve.

use crate::failure::Ended;
use crate::output;
use rpcrdma_daemon::server::announcement::Described;
use rpcrdma_daemon::server::{Configuration, check};
use rpcrdma_daemon::systemd::Sockets;
use verbs_iwarp::Iwarp;

/// Prints what would be served, or all that speaks against a start, also what is wrong with the file. `sockets`
/// are those of the service manager.
///
/// # Errors
///
/// If the file is wrong, or a server could not start, in the words of one that does not.
pub(super) async fn check_and_print(
    configuration: &Configuration,
    sockets: Sockets,
    of_file: Vec<anyhow::Error>,
    json: bool,
) -> anyhow::Result<Ended> {
    let options = configuration.options(sockets.tcp, sockets.mount);
    let connections = &configuration.settings.connections;
    let software = Iwarp::new(connections.iwarp());
    // Whether a socket is there is not looked at: nothing is served with it.
    let open = || {
        let at = &configuration.settings.listen;
        connections
            .provider
            .open_to_listen(software, at, Vec::new())
    };
    let checked = check::check(&options, open, of_file).await?;
    let described = Described {
        plans: &configuration.exports,
        absent: &checked.absent,
        warnings: &checked.warnings,
        listening: checked.listening,
        mount: &options.mount,
    };
    output::print(json, || described.json(), &described)?;
    Ok(Ended::Well)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::ServeArgs;
    use clap::{Args, Command, FromArgMatches};
    use std::net::TcpListener;

    /// Error of `--check` with these options.
    async fn refused(options: &[&str]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let command = ServeArgs::augment_args(Command::new("rpcrdma"));
        let words = ["rpcrdma", dir.path().to_str().unwrap()];
        let matches = command.get_matches_from(words.iter().chain(options));
        let args = ServeArgs::from_arg_matches(&matches).unwrap();
        let sockets = Sockets {
            rdma: Vec::new(),
            tcp: Vec::new(),
            mount: Vec::new(),
        };
        let (configuration, errors) = args.source(&sockets).read().unwrap();
        let checked = check_and_print(&configuration, sockets, errors, false);
        checked.await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn port_that_another_program_has_is_refused_in_the_words_of_a_start() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = taken.local_addr().unwrap();
        let (addr, port) = (addr.to_string(), addr.port().to_string());
        let free = [
            "--provider",
            "iwarp",
            "--listen",
            "127.0.0.1:0",
            "--mount-port",
            "0",
        ];
        for (options, option) in [
            (["--listen", &addr], "--listen ADDR:PORT"),
            (["--tcp", &port], "--tcp [ADDR:]PORT"),
            (["--mount-port", &port], "--mount-port"),
            (["--metrics", &port], "--metrics"),
        ] {
            let others = free.chunks(2).filter(|pair| pair[0] != options[0]);
            let all: Vec<&str> = others.flatten().copied().chain(options).collect();
            let said = refused(&all).await;
            let says = format!("port {port} of 127.0.0.1 is in use: stop the server that has it");
            assert!(said.starts_with(&says) && said.ends_with(option), "{said}");
        }
    }
}
