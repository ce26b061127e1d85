//! iWARP without I/O: MPA, DDP and RDMAP as state machines.
