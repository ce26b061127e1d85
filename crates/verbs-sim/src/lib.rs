//! A provider in memory, in virtual time, for tests.
