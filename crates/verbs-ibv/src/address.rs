//! Socket addresses, as the C library lays them out.

#![expect(unsafe_code, reason = "the layouts are those of the C library")]

use libc::{
    AF_INET, AF_INET6, in_addr, in6_addr, sa_family_t, sockaddr_in, sockaddr_in6, sockaddr_storage,
};
use std::mem::zeroed;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// An address in the layout of the C library.
pub(crate) fn to_storage(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: The structure has numbers only, for which zero is valid.
    let mut storage: sockaddr_storage = unsafe { zeroed() };
    let place = &raw mut storage;
    match address {
        SocketAddr::V4(address) => {
            let of_c = sockaddr_in {
                sin_family: family(AF_INET),
                sin_port: address.port().to_be(),
                sin_addr: in_addr {
                    s_addr: u32::from_ne_bytes(address.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: The storage is large enough for any address, and aligned for it.
            unsafe { place.cast::<sockaddr_in>().write(of_c) };
        }
        SocketAddr::V6(address) => {
            let of_c = sockaddr_in6 {
                sin6_family: family(AF_INET6),
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo().to_be(),
                sin6_addr: in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: The storage is large enough for any address, and aligned for it.
            unsafe { place.cast::<sockaddr_in6>().write(of_c) };
        }
    }
    storage
}

/// The address in this storage, if it is one of IP.
pub(crate) fn from_storage(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let place = &raw const *storage;
    if storage.ss_family == family(AF_INET) {
        // SAFETY: The storage is large enough for any address, aligned for it, and has one of this family. Any bytes
        // are valid numbers.
        let of_c = unsafe { place.cast::<sockaddr_in>().read() };
        let ip = Ipv4Addr::from(of_c.sin_addr.s_addr.to_ne_bytes());
        Some((ip, u16::from_be(of_c.sin_port)).into())
    } else if storage.ss_family == family(AF_INET6) {
        // SAFETY: As above.
        let of_c = unsafe { place.cast::<sockaddr_in6>().read() };
        let address = SocketAddrV6::new(
            Ipv6Addr::from(of_c.sin6_addr.s6_addr),
            u16::from_be(of_c.sin6_port),
            u32::from_be(of_c.sin6_flowinfo),
            of_c.sin6_scope_id,
        );
        Some(address.into())
    } else {
        None
    }
}

/// A constant of the C library in the type of the field, which is narrower.
fn family(number: i32) -> sa_family_t {
    sa_family_t::try_from(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_layout_of_the_c_library() {
        for text in [
            "10.1.2.3:20049",
            "[fe80::1%7]:20049",
            "[2001:db8::2]:1",
            "0.0.0.0:0",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(from_storage(&to_storage(address)), Some(address));
        }
    }

    #[test]
    fn address_of_another_family_is_none() {
        let mut storage = to_storage(([127, 0, 0, 1], 1).into());
        storage.ss_family = 0;
        assert_eq!(from_storage(&storage), None);
    }
}
