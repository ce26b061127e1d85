//! The daemon that reserves TCP ports of iWARP cards in the kernel (iwpmd(8)).
//!
//! An iWARP card has connections of its own at the kernel's IP address. Without the daemon, the kernel gives the card ports
//! that other programs may have, and the packets of one go to the other. Linux' siw uses sockets of the kernel and needs
//! no daemon.

use std::fs;
use std::io;
use std::sync::Once;

/// UDP port of the daemon.
const PORT: u16 = 3935;

/// Lists of UDP sockets of the kernel.
const TABLES: [&str; 2] = ["/proc/net/udp", "/proc/net/udp6"];

/// Says once whether the daemon is there, for an iWARP card.
pub(crate) fn look_once(device: &str) {
    static SAID: Once = Once::new();
    SAID.call_once(|| match is_running() {
        Ok(true) => tracing::debug!(device, "iwpmd reserves the ports of the iWARP card"),
        Ok(false) => tracing::warn!(
            device,
            "iwpmd does not run: nothing keeps other programs from TCP ports of the iWARP card; install rdma-core and \
             start iwpmd"
        ),
        Err(error) => tracing::debug!(device, %error, "cannot see whether iwpmd runs"),
    });
}

fn is_running() -> io::Result<bool> {
    let mut found = false;
    for table in TABLES {
        match fs::read_to_string(table) {
            Ok(table) => found |= has_socket(&table, PORT),
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Whether a socket of this table is bound to the port.
fn has_socket(table: &str, port: u16) -> bool {
    table.lines().skip(1).any(|line| {
        let local = line.split_whitespace().nth(1);
        let bound = local.and_then(|local| local.rsplit_once(':'));
        bound.is_some_and(|(_, bound)| u16::from_str_radix(bound, 16) == Ok(port))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn socket_is_found_by_its_local_port() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue\n\
                     \x20 12: 0100007F:0F5F 00000000:0000 07 00000000:00000000\n\
                     \x20 13: 00000000:0044 00000000:0F60 07 00000000:00000000\n";
        assert!(has_socket(table, 3935));
        assert!(has_socket(table, 68));
        assert!(!has_socket(table, 3936), "that is the port of a peer");
        assert!(!has_socket("", 3935));
        assert!(!has_socket("header\n 1: nonsense\n", 3935));
    }

    #[test]
    fn kernel_lists_sockets_in_this_form() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let table = fs::read_to_string(TABLES[0]).unwrap();
        assert!(has_socket(&table, port));
    }
}
