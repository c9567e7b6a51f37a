//! Giving a free row a name, under the table's lock.
//!
//! No verb takes that lock, so each step must leave a row that verbs treat rightly, and whoever owns the lock
//! next must be able to go on from it:
//!
//! ```text
//! step                          a verb that comes now              a namer killed here leaves
//! word (f, free) -> retired     looks the name up again            a row without a name, taken first by the
//!                                                                  next namer
//! high raised above f           the same                           the same
//! name and counters stored      the same                           the same: nobody reads a retired row's name
//! word -> (high, free)          sees the name and acquires         a row that has its name
//! ```
//!
//! A verb that had loaded the word before the first step fails to exchange it after.

use std::sync::atomic::Ordering;

use crate::name::Name;
use crate::protocol::{Cell, Mark};
use crate::word::{Bits, Owner, Word};

/// What became of an attempt to name a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Naming {
    Done {
        /// The fence that the row had before.
        replaced: u64,
    },
    /// The row is not free now; nothing was changed.
    NotFree,
    /// No larger fence is left; nothing was changed.
    FenceExhausted,
    /// Not a word that this library writes; or the lock did not keep others out.
    Corrupt(u128),
}

/// What a namer writes besides the word.
pub(crate) struct Labels<'a, M> {
    pub(crate) name_len: &'a M,
    pub(crate) name: &'a [M],
    /// Of what happened under the name.
    pub(crate) counters: [&'a M; 3],
}

/// Gives the row of `cell` this name. `high` is the table's.
///
/// The caller owns the table's lock: a word that is retired already was left by an earlier owner.
pub(crate) fn name_row<C: Cell, M: Mark>(
    cell: &C,
    high: &M,
    now_ns: u64,
    labels: &Labels<'_, M>,
    name: &Name,
) -> Naming {
    let encode = |word: Word| word.encode::<C::Bits>();
    // EDGE named, acquire half: the next namer continues from what the last one stored.
    let seen = cell.load(Ordering::Acquire);
    let Some(word) = Word::decode(seen) else {
        return Naming::Corrupt(seen.widen());
    };
    if !is_free(word, now_ns) && word.owner != Owner::Retired {
        return Naming::NotFree;
    }
    // Relaxed: only owners of the lock touch it, and the lock orders them.
    let fence = high
        .load(Ordering::Relaxed)
        .max(word.fence.saturating_add(1));
    let named = Word {
        fence,
        owner: Owner::Nobody,
        until_ms: 0,
    };
    let retired = Word {
        owner: Owner::Retired,
        until_ms: 0,
        ..word
    };
    let (Some(named), Some(retired)) = (encode(named), encode(retired)) else {
        return Naming::FenceExhausted;
    };
    if seen != retired && !exchange(cell, seen, retired) {
        return Naming::NotFree;
    }
    // Relaxed: as above. Before the name is another's: a name that comes back later starts above `fence`.
    high.fetch_max(fence, Ordering::Relaxed);
    // EDGE unnamed, release half: whoever reads a byte of the new name, and then passes an acquire fence, does not
    // find the old word any more.
    high.fence(Ordering::Release);
    for counter in labels.counters {
        // Relaxed: statistics, and published with the name.
        counter.store(0, Ordering::Relaxed);
    }
    name.store(labels.name_len, labels.name);
    if exchange(cell, retired, named) {
        Naming::Done {
            replaced: word.fence,
        }
    } else {
        // Relaxed: for the report.
        Naming::Corrupt(cell.load(Ordering::Relaxed).widen())
    }
}

/// Whether nobody holds the row, nor is it kept for somebody.
pub(crate) fn is_free(word: Word, now_ns: u64) -> bool {
    word.owner == Owner::Nobody && word.is_over(now_ns)
}

fn exchange<C: Cell>(cell: &C, seen: C::Bits, to: C::Bits) -> bool {
    // EDGE named, release half: the name is whole for whoever loads this word or a later one. (Not an acquire: the
    // value that it replaces was loaded with one.)
    let success = Ordering::Release;
    // Relaxed: the value of a failure is dropped.
    cell.compare_exchange(seen, to, success, Ordering::Relaxed)
        .is_ok()
}

#[cfg(test)]
mod models;
