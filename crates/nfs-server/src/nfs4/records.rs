//! Records of clients on stable storage (RFC 8881 §8.4.2.1).
