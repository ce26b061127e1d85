//! The experiments as programs: what they print, draw and refuse.

mod counts;
mod invalidation;
mod own;
mod running;
mod schemas;
mod thresholds;
