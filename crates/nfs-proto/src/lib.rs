//! NFS version 3 and MOUNT types, and which of their items are DDP-eligible.
