//! Owners and groups on the wire (RFC 8881 §5.9).
