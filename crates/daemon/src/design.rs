//! Decisions behind this crate, with their reasons.
//!
//! - **A server and a gateway are a library** that takes typed options, starts, and is operated until its end
//!   (`RunningServer`, `RunningGateway`). The program converts its command line, prints what runs, and says where
//!   the log goes. The library reads the file, at the start and again when it is asked to (`Configuration`).
//! - **`rpcrdma::any` opens providers, and settings choose them** (`ProviderSetting`). A server gets open ones, which may hold sockets
//!   of the service manager; a gateway opens those of each pair, as pairs come and go. Errors and warnings of `any` know no settings:
//!   their names are added here.
//! - **A reload reads everything before it changes anything.** A file with an error changes nothing. Exports are replaced all or
//!   none; a pair that cannot be started for what the machine lacks keeps the one that it was to replace, or is tried again,
//!   and the others change.
//! - **A command line and a file fill the same settings** (`ServerSettings`, `GatewaySettings`). Each key of a table is a parser
//!   and the setting that it fills, and a test of the program holds the keys against its options: names, order, values and
//!   defaults. A file needs no command line then, and each of its errors has the line and the key. serde reads the tables of
//!   exports and pairs and rejects unknown keys.
//! - **Names are looked up on threads of our own.** The system resolver can take any time, and a runtime waits for its
//!   own threads when it ends.
//! - **A client detects a silent server by looking, four times a second,** at counters that calls change anyway. A time
//!   of the last reply would be one more reading of the clock per reply.
//! - **`bench HOST` asks the server's control socket for the server's work.** A `serve` publishes totals ten times a second, work and
//!   calls at the same moment, so their ratio is exact, and `bench` asks before and after. Nothing travels on the measured
//!   connection, and a server of others needs nothing.
//! - **The crate `prometheus` writes metrics, hyper serves them.** The first writes text from values of a moment, without
//!   its registry. The second has what a small HTTP server needs: bounded heads, timeouts, and many users.
//!   `prometheus-client` writes OpenMetrics, which `promtool check metrics` complains about; `metrics-exporter-prometheus`
//!   has a registry of its own that each call would have to use. `stats` and `clients` use a Unix socket of mode 0600
//!   instead, because not every server exports metrics over HTTP.
