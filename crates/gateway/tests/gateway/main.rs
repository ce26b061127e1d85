//! Gateways between real transports: software iWARP and TCP on loopback.

mod files;
mod stage;
