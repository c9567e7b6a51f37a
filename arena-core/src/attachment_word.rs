//! The word of an attachment's row that says which occupant the row has, and how far it is.
//!
//! An attachment is a row and a byte of the file under a lock that the kernel drops when the process is
//! gone. Whoever holds the byte owns the row; the word tells everybody else which occupant that is. Its
//! generation only ever grows, so a word elsewhere that names an older one is provably stale.

#[cfg(test)]
pub(crate) mod loom_tests;
#[cfg(test)]
mod tests;

use crate::id::{AttachmentId, MAX_GENERATION};
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// How far the occupant of a row is.
///
/// ```text
/// state    meaning                                   who may change it next
/// empty    nobody; the generation is used up         who holds the byte: generation + 1, joining
/// joining  claimed, identity not yet whole           its owner: ready
/// ready    identity whole                            its owner: leaving
/// leaving  still attached, about to go               its owner: generation + 1, empty
/// any of   its byte is free: the owner is dead       who takes the byte: generation + 1, joining;
/// those 3                                            anybody, after it saw the byte free: generation + 1, empty
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowState {
    /// Nobody is here, or nobody ever was.
    Empty,
    /// A process took the row and is writing down who it is.
    Joining,
    /// A process is attached, and what the row says about it is whole.
    Ready,
    /// A process is still attached but has begun to go.
    Leaving,
}

/// What an [`AttachmentWord`] holds.
///
/// ```text
/// bits     field
///  0..=7   state: 0 empty, 1 joining, 2 ready, 3 leaving
///  8..=31  generation: 0 only as empty (unborn), MAX_GENERATION only as empty (used up)
/// 32..=63  always 0
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    generation: u32,
    state: RowState,
}

impl Row {
    const fn new(generation: u32, state: RowState) -> Option<Self> {
        let valid = match state {
            RowState::Empty => generation <= MAX_GENERATION,
            _ => generation > 0 && generation < MAX_GENERATION,
        };
        if valid {
            Some(Self { generation, state })
        } else {
            None
        }
    }

    /// The row in a word that was read from shared memory; `None` for what [`encode`](Self::encode)
    /// cannot have made.
    pub(crate) const fn decode(word: u64) -> Option<Self> {
        let [state, g0, g1, g2, 0, 0, 0, 0] = word.to_le_bytes() else {
            return None;
        };
        let state = match state {
            0 => RowState::Empty,
            1 => RowState::Joining,
            2 => RowState::Ready,
            3 => RowState::Leaving,
            _ => return None,
        };
        Self::new(u32::from_le_bytes([g0, g1, g2, 0]), state)
    }

    pub(crate) const fn encode(self) -> u64 {
        let state = match self.state {
            RowState::Empty => 0,
            RowState::Joining => 1,
            RowState::Ready => 2,
            RowState::Leaving => 3,
        };
        (self.generation as u64) << 8 | state
    }

    pub(crate) const fn generation(self) -> u32 {
        self.generation
    }

    pub(crate) const fn state(self) -> RowState {
        self.state
    }

    /// Whether nobody can ever claim this row again: a claim needs a generation for itself and another
    /// one to say that it ended.
    pub(crate) const fn is_retired(self) -> bool {
        matches!(self.state, RowState::Empty) && self.generation + 1 >= MAX_GENERATION
    }

    /// The row once whoever holds its byte has claimed it, over an occupant that died if there is one.
    /// `None`: the generations are used up.
    const fn claimed(self) -> Option<Self> {
        Self::new(self.generation + 1, RowState::Joining)
    }

    /// The row once its occupant is gone; an empty row stays as it is.
    const fn ended(self) -> Self {
        match self.state {
            RowState::Empty => self,
            // An occupant's generation is below MAX_GENERATION, so this one exists.
            _ => Self {
                generation: self.generation + 1,
                state: RowState::Empty,
            },
        }
    }
}

/// What is known about the process behind an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// Proven gone: it left, or its program is no more. Whatever it stored happens before this answer.
    Gone,
    /// Its byte is held.
    Held,
    /// Nothing is proven. To be treated as alive.
    Unknown,
}

/// What the kernel says about the lock on a row's byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Byte {
    /// Nobody holds it. Everything that the last one who did ever stored happens before this answer.
    Free,
    /// Somebody holds it.
    Held,
    /// The kernel could not be asked, or not about this file.
    Unknown,
}

/// A byte that this process holds. Only the type whose existence means that may implement it.
pub(crate) trait HeldByte {
    /// The row that belongs to the byte.
    fn slot(&self) -> u16;
}

/// Why a row whose byte is held could not be claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClaimError {
    /// Its generations are used up: let the byte go and take another row.
    Retired,
    /// The word makes no sense, or changes though nobody else may change it: take another row.
    Corrupt {
        /// The word.
        found: u64,
    },
}

/// What came of reaping a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reaped {
    /// This call emptied it. The id is that of the dead occupant.
    Emptied {
        /// Its generation.
        generation: u32,
    },
    /// There was no dead occupant to clear away, or somebody else was faster.
    Nothing,
    /// The word makes no sense.
    Corrupt {
        /// The word.
        found: u64,
    },
}

/// The operations of a 64-bit atomic that the protocols use, so that a model checker can run them.
pub(crate) trait AtomicWord {
    fn load(&self, order: Ordering) -> u64;
    /// Returns the value found when it was not `current`.
    fn exchange(&self, current: u64, new: u64, success: Ordering) -> Result<(), u64>;
    fn fence(order: Ordering);
}

impl AtomicWord for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn exchange(&self, current: u64, new: u64, success: Ordering) -> Result<(), u64> {
        // Relaxed on failure: the value found is only decoded, and exchanged in its turn.
        self.compare_exchange(current, new, success, Ordering::Relaxed)
            .map(drop)
    }

    fn fence(order: Ordering) {
        fence(order);
    }
}

/// The `gen_state` of a row: a [`Row`] that processes change by the rules of [`RowState`].
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct AttachmentWord<W = AtomicU64>(W);

impl<W: AtomicWord> AttachmentWord<W> {
    /// A claim loses at most one exchange, to a reaper that saw the byte free before it was taken: an
    /// exchange that succeeds spoils those of all other such reapers, and later ones see the byte held.
    const CLAIM_TRIES: u32 = 4;

    /// The row as it is at this instant, or the undecodable word.
    ///
    /// Who sees a generation, or that it is over, also sees what happened before: see
    /// [`life`](Self::life).
    pub(crate) fn load(&self) -> Result<Row, u64> {
        // EDGE row-claimed, row-ready, row-left, row-reaped, acquire half.
        let found = self.0.load(Ordering::Acquire);
        Row::decode(found).ok_or(found)
    }

    /// Makes the holder of the row's byte its occupant, under a generation that nobody had.
    ///
    /// To be called first thing after the byte was taken, and before anything else of the row is
    /// written. From here on every word that names an earlier occupant is provably stale.
    pub(crate) fn claim(&self, byte: &impl HeldByte) -> Result<AttachmentId, ClaimError> {
        // Relaxed: the exchange decides, and the kernel ordered the taking of the byte after the death
        // of its last holder.
        let mut found = self.0.load(Ordering::Relaxed);
        for _ in 0..Self::CLAIM_TRIES {
            let row = Row::decode(found).ok_or(ClaimError::Corrupt { found })?;
            let claimed = row.claimed().ok_or(ClaimError::Retired)?;
            let id = AttachmentId::new(byte.slot(), claimed.generation)
                .expect("a byte has the number of a slot, and an occupant's generation is not 0");
            // EDGE row-claimed, release half: the byte was taken before this line, so who sees the new
            // generation and then asks for the byte finds it held, and who concludes that the earlier
            // occupant is gone sees all that it stored.
            match self.0.exchange(found, claimed.encode(), Ordering::Release) {
                Ok(()) => {
                    // EDGE row-identity, release half: who reads a word of the identity that is written
                    // after this line, and then looks at the row again, sees the generation above.
                    W::fence(Ordering::Release);
                    return Ok(id);
                }
                Err(now) => found = now,
            }
        }
        Err(ClaimError::Corrupt { found })
    }

    /// Says that the identity in the row of `id`, which is this process, is whole.
    ///
    /// `false`: the row is not `id`'s, joining; strange, since nobody else may have changed it.
    #[must_use]
    pub(crate) fn ready(&self, id: AttachmentId) -> bool {
        // EDGE row-ready, release half: who sees the row ready sees the identity.
        self.step(id, RowState::Joining, RowState::Ready)
    }

    /// Says that `id`, which is this process, is about to leave. `false` as in [`ready`](Self::ready).
    #[must_use]
    pub(crate) fn leaving(&self, id: AttachmentId) -> bool {
        // EDGE row-ready, release half, again: a row that is leaving still has its identity.
        self.step(id, RowState::Ready, RowState::Leaving)
    }

    fn step(&self, id: AttachmentId, from: RowState, to: RowState) -> bool {
        let row = |state| Row {
            generation: id.generation(),
            state,
        };
        // Release: for the edges that the two callers name.
        self.0
            .exchange(row(from).encode(), row(to).encode(), Ordering::Release)
            .is_ok()
    }

    /// Ends the generation of `id`, which is this process and must still hold the byte.
    ///
    /// From here on every word that names `id` is provably stale. `false`: the row was not its own.
    pub(crate) fn leave(&self, id: AttachmentId) -> bool {
        // Relaxed: only this process changes the row of `id`.
        let found = self.0.load(Ordering::Relaxed);
        let Some(row) = Row::decode(found).filter(|row| row.generation == id.generation()) else {
            return false;
        };
        // EDGE row-left, release half: who sees that `id` is over sees all that it stored.
        row.state != RowState::Empty
            && self
                .0
                .exchange(found, row.ended().encode(), Ordering::Release)
                .is_ok()
    }

    /// Ends the generation of an occupant that died.
    ///
    /// `ask` asks the kernel for the row's byte and is called at most once, after the row was read: the
    /// exchange then succeeds only if the row still has the occupant whose byte was free. A reaper that
    /// is stopped in between therefore harms nobody who took the row meanwhile, and one that is killed
    /// leaves nothing half done.
    pub(crate) fn reap(&self, ask: impl FnOnce() -> Byte) -> Reaped {
        let row = match self.load() {
            Err(found) => return Reaped::Corrupt { found },
            Ok(row) => row,
        };
        if row.state == RowState::Empty || ask() != Byte::Free {
            return Reaped::Nothing;
        }
        // EDGE row-reaped, release half: the byte was seen free before this line, so who sees that the
        // occupant is over sees all that it stored.
        match self
            .0
            .exchange(row.encode(), row.ended().encode(), Ordering::Release)
        {
            Ok(()) => Reaped::Emptied {
                generation: row.generation,
            },
            Err(_) => Reaped::Nothing,
        }
    }

    /// Whether the attachment `id`, of this row's slot, is gone.
    ///
    /// A greater generation in the row is proof by one load. At the same generation `ask` asks the
    /// kernel for the byte, after the row was read; and a free byte is proof even if the row was taken
    /// meanwhile, because `id` held it for as long as it was attached. A smaller generation is corrupt,
    /// or `id` was read by a relaxed load that overtook this one: nothing is proven.
    pub(crate) fn life(&self, id: AttachmentId, ask: impl FnOnce() -> Byte) -> Life {
        match self.load() {
            Ok(row) if row.generation > id.generation() => Life::Gone,
            Ok(row) if row.generation == id.generation() => match ask() {
                Byte::Free => Life::Gone,
                Byte::Held => Life::Held,
                Byte::Unknown => Life::Unknown,
            },
            _ => Life::Unknown,
        }
    }

    /// A copy of what the row says, together with the occupant that said it.
    ///
    /// `copy` reads the identity by relaxed loads. `None`: the word makes no sense, or the row changed
    /// hands or state under the copy; the caller may try again, a bounded number of times.
    pub(crate) fn snapshot<T>(&self, copy: impl FnOnce() -> T) -> Option<(Row, T)> {
        let row = self.load().ok()?;
        let copied = copy();
        // EDGE row-identity, acquire half: if the copy has anything of a later occupant, the load below
        // sees its generation.
        W::fence(Ordering::Acquire);
        // Relaxed: ordered by the fence.
        (self.0.load(Ordering::Relaxed) == row.encode()).then_some((row, copied))
    }
}
