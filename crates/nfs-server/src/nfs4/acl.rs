//! Access control lists of NFSv4 as the POSIX lists of a file system, and the other way round (RFC 8881 §6).
