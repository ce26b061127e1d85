//! The tests every provider passes.
