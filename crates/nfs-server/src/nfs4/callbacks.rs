//! Calls to clients (RFC 8881 §20): CB_NOTIFY_LOCK and CB_RECALL_SLOT, each behind CB_SEQUENCE.
