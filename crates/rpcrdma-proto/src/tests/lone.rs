//! One connection against a peer that is driven by hand, and may do anything.
