//! Attributes on the wire (RFC 8881 §5): values for GETATTR and READDIR, changes of SETATTR and of new objects, comparisons of VERIFY.
