//! Records that many Linux processes publish and many read, in a shared arena.
//!
//! Still to come: this crate reserves its place among the arena crates, and has no items yet. It
//! will hold a ring in an [`Arena`]: publishers that take no lock and make no system call unless
//! somebody sleeps, cursors that see every record, groups whose members share the records, and a count
//! of every record that was lost.
//!
//! # What it does not do
//!
//! Anything, yet. Leases are in `arena-lease`, the memory itself is in `arena-core`.
#![cfg_attr(
    not(test),
    expect(dead_code, reason = "the protocol comes before what is built on it")
)]

mod protocol;
mod reading;
mod step;
mod word;

pub use arena_peers::{Arena, PeerId};
