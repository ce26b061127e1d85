//! NFS version 3 and MOUNT service over a FileSystem trait.
