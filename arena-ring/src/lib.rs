//! Records that many Linux processes publish and many read, in a shared arena.
//!
//! A [`Ring`] is a part of an [`Arena`] that holds the newest records in one order. Publishing takes no lock and makes no
//! system call unless somebody sleeps. The oldest records are overwritten, and each reader counts exactly what it missed.
//!
//! # A tour
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir_in("/dev/shm")?;
//! # let path = directory.path().join("demo");
//! use arena_ring::{Arena, Ring};
//!
//! // In each process; the first one makes it.
//! let arena = Arena::open(&path)?;
//! let ring = Ring::open(&arena, "orders")?;
//!
//! let mut cursor = ring.cursor();
//! let published = ring.publish(b"new", b"42 apples")?;
//! assert!(published.is_committed());
//!
//! while let Some(record) = cursor.next()? {
//!     println!("{}: {:?}", record.seq, String::from_utf8_lossy(record.payload));
//! }
//! let stats = cursor.stats();
//! assert_eq!((stats.delivered, stats.lapped, stats.pending), (1, 0, 0));
//! # Ok(()) }
//! ```
//!
//! - [`RingOptions`]: how many slots of how many bytes. A record takes one or several in a row.
//! - [`Ring::publish`], [`Ring::publish_many`] (several as one), [`Ring::reserve`] (filled in where it lies).
//! - [`Cursor`]: sees every record from now, from the oldest, or from a number; [sleeps](Cursor::next_timeout) until there is one.
//!
//! The command `arena-ring` (feature `cli`) publishes lines, prints records, and shows how a ring is:
//!
//! ```sh
//! tail -F app.log | arena-ring pub log
//! arena-ring sub log | grep -i error
//! arena-ring stat log
//! ```
//!
//! # Features
//!
//! - `cli`: the command `arena-ring`.
//!
//! # A publisher that dies, or stops
//!
//! Number and intent are one exchange, so a publisher that is killed anywhere leaves nothing, or a record that is known to be
//! its own. Readers that come to that one prove its death and pass over it: it is abandoned, once, for all. A publisher
//! that is alive and slow is waited for, unless a cursor has [`Cursor::patience`]. While it is stopped, others pass over its slots, and whatever it
//! stores when it goes on is in no record.
//!
//! # Counts
//!
//! For each cursor, `delivered + lapped + abandoned + pending` is how many records were given a number since it began.
//!
//! # What it does not do
//!
//! - It does not keep what nobody has read: a full ring overwrites its oldest records, and a slow reader counts them as lapped.
//! - It does not outlive the arena, which lies in memory: records are gone after a reboot.
//! - It does not wait for readers, and does not share the work among a pool: each cursor sees everything.
//! - It does not notice that its arena was destroyed: those who have it open go on among themselves, and
//!   [`Arena::is_gone`] and [`Arena::is_unlinked`] tell.
//! - One stopped publisher's slots are not used until it goes on or dies: with records of up to half a ring, little room may be
//!   left ([`PublishError::Blocked`] says whose they are).

mod content;
mod cursor;
mod error;
mod layout;
mod protocol;
mod publish;
mod reading;
mod ring;
mod ring_view;
mod step;
mod view;
mod word;

/// The crate below, for what is not named here.
pub use arena_peers as peers;
pub use arena_peers::{Arena, ArenaOptions, ArenaView, JoinError, OpenError, PeerId};

pub use cursor::{Cursor, CursorStats, Record};
pub use error::{PublishError, ReadError, RingOpenError};
pub use publish::{Published, Reservation};
pub use ring::{MAX_NAME_BYTES, Ring, RingOptions, RingStats};
pub use ring_view::RingView;
