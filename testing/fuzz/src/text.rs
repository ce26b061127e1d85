//! Text of people and other programs: URLs (RFC 2224), universal addresses (RFC 5665),
//! networks.

use crate::memory::within;
use nfs_client::{NfsUrl, host_and_port, printable};
use nfs_server::Network;
use oncrpc_tcp::rpcbind::{parse_universal_address, universal_address};

/// Memory for each byte: one that is no text becomes three bytes, and URLs have as many for each of these.
const MEMORY_PER_BYTE: usize = 48;
const MEMORY: usize = 4 << 10;

/// A text.
pub fn text(bytes: &[u8]) {
    within(MEMORY + MEMORY_PER_BYTE * bytes.len(), || {
        let text = String::from_utf8_lossy(bytes);
        url(&text);
        url(&format!("nfs://{text}"));
        if let Ok((host, port)) = host_and_port(&text) {
            assert!(!host.is_empty() && host.is_ascii() && port > 0);
            let address = host.split('%').next().unwrap_or_default();
            assert!(text.contains(address));
        }
        if let Some(addr) = parse_universal_address(&text) {
            let again = universal_address(addr);
            assert_eq!(parse_universal_address(&again), Some(addr));
        }
        if let Ok(network) = text.parse::<Network>() {
            assert_eq!(network.to_string().parse(), Ok(network));
        }
    });
    let shown = printable(bytes).to_string();
    assert!(shown.chars().all(|c| !c.is_control()), "{shown:?}");
}

fn url(text: &str) {
    match text.parse::<NfsUrl>() {
        Ok(url) => {
            assert!(url.path.starts_with(b"/") && !url.path.contains(&0));
            assert!(url.port > 0 && !url.host.is_empty());
            assert_eq!(url.to_string().parse(), Ok(url), "{text:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
