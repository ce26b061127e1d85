//! Our server comes back as another one, under load: inline sizes, remote invalidation, credits and
//! CRC are not what they were. Calls that come again must be planned for the new sizes.

use std::time::Duration;

use anyhow::Result;

use super::load;
use crate::TestRun;
use crate::serve::Serve;

const LIMIT: Duration = Duration::from_secs(600);

/// Options of each server, and what the kernel must have agreed to: inline sizes as send/receive,
/// its own being 4096/4096, and who invalidates.
const SERVERS: [(&[&str], &str); 6] = [
    (&["--inline-size=1024"], "1024/1024 remote"),
    (&["--inline-size=65536", "--crc=off"], "4096/4096 remote"),
    (
        &["--inline-size=2048", "--remote-invalidation=off"],
        "2048/2048 local",
    ),
    (&["--credits=2", "--crc=strict"], "4096/4096 remote"),
    (
        &[
            "--inline-size=3072",
            "--remote-invalidation=off",
            "--crc=off",
        ],
        "3072/3072 local",
    ),
    (&[], "4096/4096 remote"),
];

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let folder = load::export(run)?;
    let mut server = Serve::start(run, &folder)?;
    let ports = server.ports();
    let mut guest = load::boot(run, "inline-sizes.sh", ports, &[], LIMIT)?;
    guest.expect("loaded")?;
    for (options, agreed) in SERVERS {
        server.kill();
        server = Serve::start_on(run, &folder, ports, options)?;
        guest.ask(&format!("agreed {agreed}"))?;
    }
    guest.tell("stop")?;
    guest.finish()?;
    server.stop()
}
