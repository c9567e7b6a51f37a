//! Words with names: the rows of the regions `gates`, `fenced` and `limits`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arena_peers::Arena;
use arena_peers::core::{Acquired, CarveError, LockError, Region};
use portable_atomic::AtomicU128;

use crate::MAX_NAME_BYTES;
use crate::layout::{NamedWord, NamedWords};
use crate::name::Name;

/// How many names a new table has room for.
const ROWS: u64 = 64;

/// The most rows that are looked at.
const MAX_ROWS: u64 = 1 << 16;

/// How long the naming of a row waits for another process that is stopped in the middle of one.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

const HEAD_BYTES: u64 = 128;
const ROW_BYTES: u64 = 128;

/// Why a gate, a fenced value or a limit was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GateOpenError {
    /// The name cannot be one. Choose another.
    #[error("{name:?} is no name: it must have 1 to {MAX_NAME_BYTES} bytes without NUL")]
    Name {
        /// What was asked for, shown as text.
        name: String,
    },
    /// The region is not there and could not be made, or is another's. Give the arena more room.
    #[error("cannot carve the table out of the arena")]
    Carve(#[from] CarveError),
    /// The region is too short for a table: the arena is damaged. Destroy it.
    #[error("the table is damaged: its region has {found} bytes, expected at least {expected}")]
    Damaged {
        /// The length of the region.
        found: u64,
        /// The length of a table with one row.
        expected: u64,
    },
    /// Every row has a name, and they are never given to another. Use fewer names.
    #[error("all {rows} names are taken")]
    TableFull {
        /// How many there are.
        rows: u64,
    },
    /// The lock, which only giving a new name takes, could not be had.
    #[error("cannot give the name a row of the table")]
    Lock(#[from] LockError),
}

/// A row of one of the two tables.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    region: Region,
    at: u64,
    pub(crate) name: Name,
}

impl Named {
    /// The row of this name; the region and the row are made when there is none.
    pub(crate) fn open(
        arena: &Arena,
        (region, kind): (&[u8], u64),
        name: &[u8],
    ) -> Result<Self, GateOpenError> {
        let name = Name::new(name).ok_or_else(|| GateOpenError::Name {
            name: String::from_utf8_lossy(name).into_owned(),
        })?;
        let region = match arena.find(region) {
            Some(found) if found.kind() == kind => found,
            _ => arena.carve(region, kind, HEAD_BYTES + ROWS * ROW_BYTES)?,
        };
        let rows = rows_in(region.len_bytes());
        if rows == 0 {
            return Err(GateOpenError::Damaged {
                found: region.len_bytes(),
                expected: HEAD_BYTES + ROW_BYTES,
            });
        }
        let at = match find(&region, rows, &name) {
            Some(at) => at,
            None => give(&region, rows, &name)?,
        };
        Ok(Self { region, at, name })
    }

    pub(crate) fn arena(&self) -> &Arena {
        self.region.arena()
    }

    pub(crate) fn row(&self) -> &NamedWord {
        row(&self.region, self.at)
    }

    pub(crate) fn word(&self) -> &AtomicU128 {
        &self.row().word
    }
}

fn row(region: &Region, at: u64) -> &NamedWord {
    region
        .at(at)
        .expect("the rows were counted from the region's length")
}

/// How many rows of a region of this length are looked at.
pub(crate) fn rows_in(len_bytes: u64) -> u64 {
    (len_bytes.saturating_sub(HEAD_BYTES) / ROW_BYTES).min(MAX_ROWS)
}

/// Where the rows are.
pub(crate) fn places(rows: u64) -> impl Iterator<Item = u64> {
    (0..rows).map(|index| HEAD_BYTES + index * ROW_BYTES)
}

/// A name is given once, and never changes.
fn find(region: &Region, rows: u64, name: &Name) -> Option<u64> {
    places(rows).find(|&at| {
        let row = row(region, at);
        // EDGE gate-named, acquire half: a row that has a length has its name.
        row.name_len.load(Ordering::Acquire) != 0 && name.is(&row.name_len, &row.name)
    })
}

/// Killed before the last store, a namer leaves a row without a name, which the next one takes.
fn give(region: &Region, rows: u64, name: &Name) -> Result<u64, GateOpenError> {
    let head: &NamedWords = region
        .at(0)
        .expect("the region was found to hold a row at least");
    let acquired = region.arena().lock(&head.lock, BUSY_TIMEOUT)?;
    let (Acquired::Clean(_lock) | Acquired::Inherited(_lock)) = acquired;
    if let Some(at) = find(region, rows, name) {
        return Ok(at);
    }
    // Relaxed: names are given under the lock.
    let free = |&at: &u64| row(region, at).name_len.load(Ordering::Relaxed) == 0;
    let at = places(rows)
        .find(free)
        .ok_or(GateOpenError::TableFull { rows })?;
    let row = row(region, at);
    // The length goes last, in an order of its own: first to a place that nobody else sees.
    let len = AtomicU64::new(0);
    name.store(&len, &row.name);
    // EDGE gate-named, release half.
    row.name_len.store(len.into_inner(), Ordering::Release);
    Ok(at)
}
