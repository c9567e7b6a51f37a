//! What can go wrong: one enum for opening the table, one for the verbs, one for who only looks.

use std::io;

use arena_peers::JoinError;
use arena_peers::core::{CarveError, LockError};

use crate::{InvalidTtl, MAX_NAME_BYTES, Ttl};

/// Why the lease table of an arena was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The table's region is not there and could not be made, or is another's. Give the arena more room, or
    /// the table fewer rows.
    #[error("cannot carve the lease table out of the arena")]
    Carve(#[from] CarveError),
    /// The table is there, with another number of rows than was asked for. Ask for that, or for none.
    #[error("the lease table has {found} rows, expected {expected}")]
    Rows {
        /// How many it has.
        found: u32,
        /// How many were asked for.
        expected: u32,
    },
    /// A table of no rows, or of more than 2^20, was asked for.
    #[error("a lease table of {asked} rows is not possible: it must have 1 to {max}", max = crate::MAX_ROWS)]
    RowsOption {
        /// What was asked for.
        asked: u32,
    },
    /// The region is too short for a table: the arena is damaged. Destroy it.
    #[error(
        "the lease table is damaged: its region has {found} bytes, expected at least {expected}"
    )]
    Damaged {
        /// The length of the region.
        found: u64,
        /// The length of a table with one row.
        expected: u64,
    },
}

/// Why a verb of a lease could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The name cannot be a lease's. Choose another.
    #[error("{name:?} is no lease name: 1 to {MAX_NAME_BYTES} bytes without NUL")]
    Name {
        /// What was asked for, shown as text.
        name: String,
    },
    /// The ttl cannot be a lease's.
    #[error(transparent)]
    Ttl(#[from] InvalidTtl),
    /// The ttl would end after the last deadline that a lease can have, which is [`Ttl::MAX`] after the
    /// machine's boot. Ask for a shorter one.
    #[error("the ttl ends more than {max:?} after the machine's boot", max = Ttl::MAX)]
    TtlBeyondClock,
    /// Every row of the table is held, or kept for somebody. Release leases, or create the arena with more rows.
    #[error("the lease table is full: all {rows} rows are in use")]
    TableFull {
        /// How many rows there are.
        rows: u32,
    },
    /// The table's lock, which only the naming of a row takes, could not be had.
    #[error("cannot give the lease a row of the table")]
    Lock(#[from] LockError),
    /// The arena was destroyed, or its file removed. Open it again by name.
    #[error("the arena was destroyed or its file removed: nothing in it is held any more")]
    Removed,
    /// This process, a child of fork, could not attach to the arena.
    #[error("this process cannot join the arena")]
    Join(#[from] JoinError),
    /// The system gives this process no thread or no descriptor for what was asked: to renew a lease, to watch one, to
    /// wait for one. Nothing is held.
    #[error("no thread or descriptor is to be had")]
    Helper(#[source] io::Error),
    /// The lease's word, or a number beside it, is none that this library writes: the arena is damaged. Destroy it.
    #[error("the lease is damaged: {found:#034x} means nothing there")]
    Corrupt {
        /// What was found.
        found: u128,
    },
    /// All 53 bits of fences are used up (or the arena is damaged). Destroy the arena.
    #[error("no fence is left for this lease: all 53 bits are used up")]
    FenceExhausted,
    /// Others changed the lease, or the name of its row, under each of a bounded number of attempts. Try again.
    #[error("the lease was changed by others again and again")]
    Contended,
}

/// Why the leases of an arena that is only read cannot be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// Entries of the arena's table of regions are damaged, and one of them may be the leases'. Destroy the arena.
    #[error("{refused} entries of the arena's table of regions are damaged, expected none")]
    Regions {
        /// How many.
        refused: u64,
    },
    /// The table is another version's. Look with that.
    #[error("the lease table is of kind {found:#018x}, expected {expected:#018x}")]
    Kind {
        /// The kind of the region.
        found: u64,
        /// This version's.
        expected: u64,
    },
    /// The region is too short for a table: the arena is damaged. Destroy it.
    #[error("the lease table has {found} bytes, expected at least {expected}")]
    Length {
        /// The length of the region.
        found: u64,
        /// The length of a table with one row.
        expected: u64,
    },
    /// The table's count of named rows is impossible: the arena is damaged. Destroy it.
    #[error("the lease table says that {found} rows have names, expected at most {rows}")]
    Named {
        /// The count.
        found: u64,
        /// How many rows there are.
        rows: u32,
    },
    /// The name cannot be a lease's. Choose another.
    #[error("{name:?} is no lease name: 1 to {MAX_NAME_BYTES} bytes without NUL")]
    Name {
        /// What was asked for, shown as text.
        name: String,
    },
    /// A row's name is damaged: which lease it was cannot be told. Destroy the arena.
    #[error(
        "row {row} of the lease table is damaged: found a name of {found} bytes, expected one of 1 to \
        {MAX_NAME_BYTES}, NUL-padded"
    )]
    Row {
        /// Which row.
        row: u32,
        /// The length that it says.
        found: u64,
    },
    /// A row's word is none that this library writes: the arena is damaged. Destroy it.
    #[error(
        "row {row} of the lease table is damaged: found the word {found:#034x}, expected a fence and an owner"
    )]
    Word {
        /// Which row.
        row: u32,
        /// The word.
        found: u128,
    },
    /// A limit's word is none that this library writes: the arena is damaged. Destroy it.
    #[error("the limit is damaged: found the word {found:#034x}, expected how many places it has")]
    Limit {
        /// The word.
        found: u128,
    },
    /// A row changed hands during each of a bounded number of looks. Look again.
    #[error("row {row} of the lease table changes hands too fast to be read")]
    Moving {
        /// Which row.
        row: u32,
    },
}
