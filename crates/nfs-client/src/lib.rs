//! Files over NFS version 3.
