//! A number that only the newest leader changes.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use arena_peers::Arena;

use crate::layout::FENCED;
use crate::named_words::{GateOpenError, Named};
use crate::protocol::Cell;
use crate::word::Bits;

/// How often an exchange may fail in a row. A failure means that another's succeeded.
const ATTEMPTS: u32 = 1 << 16;

/// A named value of the arena, together with the fence that it was stored under: a store under an older fence is
/// refused. Both change in one exchange, so nobody is stopped in between.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir_in("/dev/shm")?;
/// # let path = directory.path().join("demo");
/// use arena_lease::{Arena, Fenced, StoreError};
///
/// let offset = Fenced::<u64>::open(&Arena::open(&path)?, "offset")?;
/// # let (older, newer) = (7, 8);
/// offset.store(newer, 1000)?;
/// let late = offset.store(older, 900);
/// assert!(matches!(late, Err(StoreError::Stale { newest }) if newest == newer));
/// assert_eq!(offset.load(), (newer, 1000));
/// # Ok(()) }
/// ```
///
/// It remembers as long as its arena: one that is destroyed and made anew starts with `(0, 0)`.
#[derive(Clone, Debug)]
pub struct Fenced<T> {
    named: Named,
    of: PhantomData<fn() -> T>,
}

/// Why a value was not stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A newer fence was stored: this leader is over. Nothing was changed.
    #[error("refused: fence {newest} was stored, which is newer")]
    Stale {
        /// The newest.
        newest: u64,
    },
    /// No lease issues such a fence.
    #[error("{found} is no fence: 1 to {max}", max = crate::MAX_FENCE)]
    Fence {
        /// What was shown.
        found: u64,
    },
    /// The arena was destroyed. Open it again by name. (The value may have been stored in the old one.)
    #[error("the arena was destroyed: its values are nobody's any more")]
    Removed,
    /// Others stored under each of a bounded number of attempts. Try again.
    #[error("the value was changed by others again and again")]
    Contended,
}

impl Fenced<u64> {
    /// The value of this name: 1 to [`MAX_NAME_BYTES`](crate::MAX_NAME_BYTES) bytes, any but NUL. A new one is 0,
    /// at fence 0.
    ///
    /// A name that is new is given one of 64 rows, for the life of the arena, and only that takes a lock.
    ///
    /// # Errors
    ///
    /// [`GateOpenError`].
    pub fn open(arena: &Arena, name: impl AsRef<[u8]>) -> Result<Self, GateOpenError> {
        Ok(Self {
            named: Named::open(arena, FENCED, name.as_ref())?,
            of: PhantomData,
        })
    }

    /// The fence and the value, as they were at one moment. One load; whatever its writer did before it stored is
    /// visible after.
    #[must_use]
    pub fn load(&self) -> (u64, u64) {
        let bits = load(self.named.word());
        let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).expect("masked");
        (half(bits >> 64), half(bits))
    }

    /// Stores `value`, unless a newer fence has stored. Under the same fence the last store counts.
    ///
    /// Lock-free, no system call. Killed or stopped at any moment, it has stored or not.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn store(&self, fence: u64, value: u64) -> Result<(), StoreError> {
        self.update(fence, |_| value).map(|_| ())
    }

    /// Stores what `change` makes of the value, unless a newer fence has stored; returns what it was before.
    /// `change` is called again when somebody else stored meanwhile.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn update(&self, fence: u64, change: impl FnMut(u64) -> u64) -> Result<u64, StoreError> {
        if !(1..=<u128 as Bits>::MAX_FENCE).contains(&fence) {
            return Err(StoreError::Fence { found: fence });
        }
        let before = update(self.named.word(), fence, change)?;
        match self.named.arena().is_gone() {
            // After the exchange: clear now, nobody had stored in a successor of this arena before.
            true => Err(StoreError::Removed),
            false => Ok(before),
        }
    }
}

/// The step: fence in the high half, value in the low one. `None`: too old, or it does not fit.
fn step<B: Bits>(word: B, fence: u64, change: impl FnOnce(u64) -> u64) -> Result<(u64, B), u64> {
    let half = B::WORD_BITS / 2;
    let low = |bits: u128| u64::try_from(bits & ((1 << half) - 1)).expect("at most 64 bits");
    let (newest, value) = (low(word.widen() >> half), low(word.widen()));
    if fence < newest {
        return Err(newest);
    }
    let to = u128::from(fence) << half | u128::from(low(change(value).into()));
    Ok((value, B::narrow(to).expect("both halves were cut")))
}

fn load<C: Cell>(cell: &C) -> C::Bits {
    // EDGE fenced, acquire half: what the writer did before it stored is visible to whoever reads the value.
    cell.load(Ordering::Acquire)
}

fn update<C: Cell>(
    cell: &C,
    fence: u64,
    mut change: impl FnMut(u64) -> u64,
) -> Result<u64, StoreError> {
    for _ in 0..ATTEMPTS {
        let seen = load(cell);
        let (before, to) =
            step(seen, fence, &mut change).map_err(|newest| StoreError::Stale { newest })?;
        // EDGE fenced, release half. And acquire: the word comes back when the same leader stores the same again,
        // so the load may have read an older store.
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        // Relaxed: (failure) the value is dropped, and the word is loaded again.
        if cell.compare_exchange(seen, to, success, failure).is_ok() {
            return Ok(before);
        }
    }
    Err(StoreError::Contended)
}

#[cfg(test)]
#[path = "fenced_tests.rs"]
mod tests;
