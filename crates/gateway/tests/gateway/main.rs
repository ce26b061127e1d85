//! Gateways between real transports: software iWARP and TCP on loopback.

mod callbacks;
mod chunks;
mod faults;
mod files;
mod heard;
mod hostile;
mod lifetimes;
mod made_up;
mod mount;
mod pnfs;
mod providers;
mod recovery;
mod sizes;
mod stage;
mod unread;
