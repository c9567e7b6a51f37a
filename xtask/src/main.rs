//! Builds, checks and cross-process tests of the arena crates.

fn main() {}
