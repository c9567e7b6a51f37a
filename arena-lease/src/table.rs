//! The table of leases: which row has which name.

use std::sync::atomic::Ordering;
use std::time::Duration;

use arena_peers::Arena;
use arena_peers::core::{Acquired, Region, futex};

use crate::clock::Clock;
use crate::error::{LeaseError, TableError};
use crate::layout::{HEAD_BYTES, Head, KIND, ROW_BYTES, Row};
use crate::name::Name;
use crate::naming::{self, Labels, Naming};
use crate::word::{Owner, Word};

/// The region's name.
pub(crate) const REGION: &[u8] = b"leases";

/// The rows of a table that nobody chose a number for.
pub(crate) const DEFAULT_ROWS: u32 = 1024;

/// The most rows a table can have.
pub const MAX_ROWS: u32 = 1 << 20;

/// How often a namer looks for another row because the one that it had found was acquired meanwhile.
const ATTEMPTS: u32 = 16;

/// The table of one arena, in this process.
#[derive(Debug)]
pub(crate) struct Table {
    region: Region,
    rows: u32,
}

/// How many rows a region of this length has.
pub(crate) fn rows_in(len_bytes: u64) -> Option<u32> {
    let rows = len_bytes.checked_sub(HEAD_BYTES)? / ROW_BYTES;
    let rows = u32::try_from(rows).unwrap_or(MAX_ROWS).min(MAX_ROWS);
    (rows > 0).then_some(rows)
}

const fn len_bytes(rows: u32) -> u64 {
    HEAD_BYTES + rows as u64 * ROW_BYTES
}

impl Table {
    /// Whether there is one.
    pub(crate) fn is_in(arena: &Arena) -> bool {
        arena.find(REGION).is_some()
    }

    /// Finds the table, or carves it with `rows` rows.
    pub(crate) fn open(arena: &Arena, rows: Option<u32>) -> Result<Self, TableError> {
        if let Some(asked) = rows.filter(|rows| !(1..=MAX_ROWS).contains(rows)) {
            return Err(TableError::RowsOption { asked });
        }
        let region = match arena.find(REGION) {
            Some(region) if region.kind() == KIND => region,
            _ => arena.carve(REGION, KIND, len_bytes(rows.unwrap_or(DEFAULT_ROWS)))?,
        };
        let found = rows_in(region.len_bytes()).ok_or(TableError::Damaged {
            found: region.len_bytes(),
            expected: len_bytes(1),
        })?;
        match rows {
            Some(expected) if expected != found => Err(TableError::Rows { found, expected }),
            _ => Ok(Self {
                region,
                rows: found,
            }),
        }
    }

    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    fn head(&self) -> &Head {
        self.region.at(0).expect("the region holds a row at least")
    }

    /// `index` is below [`rows`](Self::rows).
    pub(crate) fn row(&self, index: u32) -> &Row {
        self.region
            .at(HEAD_BYTES + u64::from(index) * ROW_BYTES)
            .expect("the rows were counted from the region's length")
    }

    /// How many rows ever had a name; the others are unborn.
    pub(crate) fn named(&self) -> u32 {
        // Relaxed: a row that is named at this moment may be missed. Whoever must not miss it has the lock.
        let named = self.head().named.load(Ordering::Relaxed);
        u32::try_from(named).unwrap_or(u32::MAX).min(self.rows)
    }

    /// What changes whenever a row was given a name, for who looks for one and then sleeps; as it was before the look.
    pub(crate) fn namings(&self) -> (futex::Word<'_>, u32) {
        let namings = &self.head().namings;
        // EDGE renamed, acquire half: who sees the new count finds the row.
        let seen = namings.load(Ordering::Acquire);
        let low = u32::try_from(seen & u64::from(u32::MAX)).expect("the mask has 32 bits");
        (futex::Word::low_half_of(namings), low)
    }

    fn tell_of_naming(&self) {
        let namings = &self.head().namings;
        // EDGE renamed, release half: the row has its name.
        namings.fetch_add(1, Ordering::Release);
        // Killed before this, they look by themselves.
        let _ = futex::Word::low_half_of(namings).wake_all();
    }

    /// The row of this name. Takes no lock; looks at every row that was ever named.
    pub(crate) fn find(&self, name: &Name) -> Option<u32> {
        (0..self.named()).find(|&index| {
            let row = self.row(index);
            name.is(&row.name_len, &row.name) && !is_retired(row)
        })
    }

    /// The row of this name, which is given one if it has none.
    pub(crate) fn find_or_name(
        &self,
        name: &Name,
        clock: &dyn Clock,
        timeout: Duration,
    ) -> Result<u32, LeaseError> {
        match self.find(name) {
            Some(index) => Ok(index),
            None => self.name(name, clock, timeout),
        }
    }

    fn name(&self, name: &Name, clock: &dyn Clock, timeout: Duration) -> Result<u32, LeaseError> {
        let acquired = self.region.arena().lock(&self.head().lock, timeout)?;
        // An owner that was killed half-way left at most a retired row, and one that was not (it panicked) the
        // same; both are named before any other, so there is nothing else to repair.
        let (Acquired::Clean(_lock) | Acquired::Inherited(_lock)) = acquired;
        for _ in 0..ATTEMPTS {
            if let Some(index) = self.find(name) {
                return Ok(index);
            }
            let now_ns = clock.now_ns();
            let Some(index) = self.candidate(now_ns) else {
                return Err(LeaseError::TableFull { rows: self.rows });
            };
            // Relaxed: see `named`; the lock orders namers.
            let named = u64::from(index) + 1;
            self.head().named.fetch_max(named, Ordering::Relaxed);
            let row = self.row(index);
            let labels = Labels {
                name_len: &row.name_len,
                name: &row.name,
                counters: [&row.acquires, &row.steals, &row.since],
            };
            match naming::name_row(&row.word, &self.head().high, now_ns, &labels, name) {
                Naming::Done { .. } => {
                    // Nobody sleeps on a free row for long, but whoever does looks its name up anew.
                    row.wake_all();
                    self.tell_of_naming();
                    return Ok(index);
                }
                Naming::NotFree => {}
                Naming::FenceExhausted => return Err(LeaseError::FenceExhausted),
                Naming::Corrupt(found) => return Err(LeaseError::Corrupt { found }),
            }
        }
        Err(LeaseError::Contended)
    }

    /// The row to give away: one without a name, an unborn one, a free one that nobody ever waited for since it
    /// was acquired, or any free one. (That somebody waited does not say that he still does: he may have given
    /// up. Were he still there, he would be woken, and look his name up again.)
    fn candidate(&self, now_ns: u64) -> Option<u32> {
        let named = self.named();
        let (mut unasked, mut asked) = (None, None);
        for index in 0..named {
            let row = self.row(index);
            // EDGE named, acquire half.
            let Some(word) = Word::decode(row.word.load(Ordering::Acquire)) else {
                continue;
            };
            // Relaxed (both): written under the lock; a registration that comes later is woken.
            let nameless = row.name_len.load(Ordering::Relaxed) == 0;
            let waited_for = row.asked.load(Ordering::Relaxed) >= word.fence;
            match word.owner {
                Owner::Retired => return Some(index),
                _ if !naming::is_free(word, now_ns) => {}
                _ if nameless => return Some(index),
                _ if waited_for => asked = asked.or(Some(index)),
                _ => unasked = unasked.or(Some(index)),
            }
        }
        let unborn = (named < self.rows).then_some(named);
        unborn.or(unasked).or(asked)
    }
}

/// Whether the row is being given a name, or was left so.
fn is_retired(row: &Row) -> bool {
    // EDGE named, acquire half.
    let word = Word::decode(row.word.load(Ordering::Acquire));
    word.is_some_and(|word| word.owner == Owner::Retired)
}

#[cfg(test)]
mod tests {
    use arena_peers::ArenaOptions;

    use super::*;
    use crate::clock::BootClock;

    #[test]
    fn a_namer_that_another_was_faster_than_finds_the_others_row() {
        let arena = ArenaOptions::new().anonymous().unwrap();
        let table = Table::open(&arena, Some(4)).unwrap();
        let name = Name::new(b"nightly").unwrap();
        // Both looked before either had the lock.
        let named = |_| {
            table
                .name(&name, &BootClock, Duration::from_secs(1))
                .unwrap()
        };
        assert_eq!([(), ()].map(named), [0, 0]);
    }

    #[test]
    fn a_region_is_as_many_rows_as_fit_into_it() {
        assert_eq!(rows_in(0), None);
        assert_eq!(rows_in(HEAD_BYTES + ROW_BYTES - 1), None);
        assert_eq!(rows_in(len_bytes(3) + 7), Some(3));
        assert_eq!(rows_in(u64::MAX), Some(MAX_ROWS));
    }
}
