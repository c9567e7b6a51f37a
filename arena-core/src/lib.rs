//! Memory that several Linux processes map, carve into regions and lock, with proof of death.
//!
//! An [`Arena`] is one mapping, shared by processes that need no server, no socket and no lock file:
//! a file in /dev/shm with a name, or sealed memory without one. It is carved into named
//! [`Region`]s, in which nothing is a pointer; reading and writing them is plain memory access,
//! no system call. Each process that has it open has an *attachment*, and whether that process is
//! gone can be proven, not guessed.
//!
//! This is the bottom of four crates: `arena-peers` judges who is dead, `arena-lease` elects one
//! holder at a time, `arena-ring` carries records. Use it alone for shared memory with a lock that
//! survives its holder.
//!
//! # A tour
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir_in("/dev/shm")?;
//! # let name = directory.path().join("tour");
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::time::Duration;
//!
//! use arena_core::{Acquired, Arena, LockWord, SharedLayout};
//!
//! // Two numbers that change together, and the lock that keeps them so.
//! #[repr(C)]
//! struct Pair {
//!     lock: LockWord,
//!     a: AtomicU64,
//!     b: AtomicU64,
//! }
//! arena_core::layout!(Pair is 24 { lock @ 0, a @ 8, b @ 16 });
//!
//! // Whoever comes first creates; every other process attaches.
//! let arena = Arena::open(&name)?;
//! let region = arena.carve(b"pair", Pair::FINGERPRINT, 24)?;
//! let pair: &Pair = region.at(0)?;
//!
//! let guard = match arena.lock(&pair.lock, Duration::from_secs(1))? {
//!     Acquired::Clean(guard) => guard,
//!     // The last holder died, perhaps between the two stores: repair, then go on.
//!     Acquired::Inherited(guard) => {
//!         pair.b.store(pair.a.load(Ordering::Relaxed), Ordering::Relaxed);
//!         guard
//!     }
//! };
//! pair.a.fetch_add(1, Ordering::Relaxed);
//! pair.b.fetch_add(1, Ordering::Relaxed);
//! drop(guard);
//!
//! arena.destroy()?;
//! # Ok(()) }
//! ```
//!
//! # What holds
//!
//! - **Created whole or not at all.** A creator that is killed at any instruction leaves nothing, or
//!   a complete arena. A file system that is too full is an error with the numbers in it.
//! - **Attaching trusts nothing.** Every refusal is an [`OpenError`] of its own that says what was
//!   found and what was expected, and leaves the file as it is.
//! - **Contents are input.** A damaged arena gives errors and wrong answers, never an access outside
//!   the mapping, an endless loop or an allocation without bound.
//! - **A death is proven.** An attachment is a row and one byte of the file, under a lock that the
//!   kernel drops when the program's memory is gone: not earlier (a daemon that closes all its
//!   descriptors keeps it), not later (a child that lives on does not keep it), and visible from
//!   every namespace. [`Arena::probe`] asks.
//! - **A death is announced.** A process that hung its [bell](Arena::hang_bell) is known to be dying a
//!   tenth of a millisecond after the kill, whatever the size of its memory. That is a reason to ask
//!   for a proof, and not one.
//! - **A stopped process blocks nothing that exists.** Only carving a new region waits for the
//!   arena's lock, and says who holds it when its time is over.
//!
//! # Fork and exec
//!
//! A child made by fork is another process: handles it inherited work, it gets an attachment of its
//! own when it first needs one, and it holds none of its parent's locks. The child is recognised by a
//! page that the kernel empties in it, so raw `clone` calls are covered; one that happens in another
//! thread *while* an arena is being opened can inherit a descriptor and keep the parent's byte
//! locked, because only fork waits for that moment. Exec ends the attachment.
//!
//! # Features
//!
//! `cli`: the command `arena`, which lists, shows and removes arenas.
//!
//! # What it does not do
//!
//! - It does not share memory between machines, nor between users unless told
//!   ([`ArenaOptions::mode`], [`ArenaOptions::allow_owner`]).
//! - It does not protect against a process that may write to the arena and means harm: such a one
//!   can change the contents, and can cut the file short, which ends every user with SIGBUS.
//! - It frees no region.
//! - /dev/shm is a container's own unless it is shared on purpose: without that, each container has
//!   its own arena of a name.
//!
//! # Platforms
//!
//! Linux on x86-64 and aarch64, glibc and musl; 32-bit and big-endian do not compile. The oldest
//! kernel is 4.14 (`MADV_WIPEONFORK`). From 5.3 on a row's process can be asked by pidfd, from 6.9 on
//! its identity is unique; before, [`Attachment`] says 0 there and the byte alone decides.

#[cfg(not(all(
    target_os = "linux",
    target_endian = "little",
    target_pointer_width = "64"
)))]
compile_error!("arenas need Linux on a 64-bit little-endian processor (x86-64 or aarch64)");
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("arenas need x86-64 or aarch64");

#[doc(hidden)]
pub use bytemuck;
#[doc(hidden)]
pub use static_assertions;

mod arena;
mod attachment;
mod attachment_word;
mod bell;
pub mod clock;
#[cfg(feature = "command")]
#[doc(hidden)]
pub mod command;
mod create;
mod destroy;
mod error;
mod file;
mod floor;
pub mod futex;
mod host;
mod id;
mod inspect;
pub mod layout;
mod lock;
mod map;
mod options;
mod pidfd;
mod probe;
mod region;
#[doc(hidden)]
pub mod thread;
mod view;
mod wake;
#[doc(hidden)]
pub mod wiped;

pub use arena::Arena;
pub use attachment::{Attachment, Identity};
pub use attachment_word::RowState;
pub use bell::{Bell, BellError, SeenBell};
pub use error::{CarveError, DestroyError, JoinError, OpenError, OutOfBounds};
pub use floor::MAX_FENCE;
pub use host::{proc_is_ours, start_ticks};
pub use id::{AttachmentId, MAX_GENERATION, MAX_SLOTS};
pub use layout::SharedLayout;
pub use lock::{Acquired, LockError, LockGuard, LockWord};
pub use options::ArenaOptions;
pub use pidfd::{Memory, PidFd};
pub use probe::{Gone, GoneBy, Probe};
pub use region::{Region, RegionInfo};
pub use view::{ArenaView, RegionView};
pub use wake::{Ticket, WakeWord, Woken};
