//! A row as it was, copied out by a member or by a viewer.

use std::sync::atomic::Ordering;

use arena_peers::core::OutOfBounds;
use arena_peers::core::RegionView;

use crate::PeerId;
use crate::layout::{HEAD_BYTES, NAME_WORDS, ROW_BYTES, Row, at};
use crate::name::Name;
use crate::protocol::{Cell, Mark};
use crate::word::{Bits, Owner, Word};

const FENCE_BITS: u32 = 24;
const SINCE_MS_BITS: u32 = 40;

/// How often a row that changed hands while it was copied is copied again.
const TRIES: u32 = 8;

/// What a row said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Snapshot {
    pub(crate) word: u128,
    pub(crate) name: Name,
    pub(crate) acquires: u64,
    pub(crate) steals: u64,
    since: u64,
    /// Only where it may matter.
    pub(crate) companion: u128,
}

/// What a viewer finds in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Row(Snapshot),
    /// It has no name, or is being given one.
    Nameless,
    /// Its name cannot be one.
    Damaged {
        name_len: u64,
    },
    /// It changed hands during each look.
    Moving,
}

impl Snapshot {
    /// `None` for a row without a name, or with one that cannot be, and for one that changes hands all the time.
    pub(crate) fn of(row: &Row) -> Option<Self> {
        let counters = [&row.acquires, &row.steals, &row.since];
        let copy =
            (0..TRIES).find_map(|_| Self::try_of(&row.word, &row.name_len, &row.name, counters));
        copy.map(|copy| Self {
            // Relaxed: it says itself which fence it belongs to.
            companion: row.companion.load(Ordering::Relaxed),
            ..copy
        })
    }

    /// Generic, so that the model checker runs it too.
    pub(crate) fn try_of<C: Cell, M: Mark>(
        word: &C,
        name_len: &M,
        name: &[M],
        counters: [&M; 3],
    ) -> Option<Self> {
        // Relaxed: statistics, and a name that is input.
        let read = |number: &M| number.load(Ordering::Relaxed);
        // EDGE named, acquire half.
        let before = word.load(Ordering::Acquire);
        let mut words = [0; NAME_WORDS];
        for (word, number) in words.iter_mut().zip(name) {
            *word = read(number);
        }
        let name = Name::from_words(read(name_len), words)?;
        let [acquires, steals, since] = counters.map(read);
        // EDGE unnamed, acquire half: the name was read before the word is loaded again.
        name_len.fence(Ordering::Acquire);
        // Relaxed: ordered by the fence.
        let after = word.load(Ordering::Relaxed);
        let handed = |bits: C::Bits| bits.widen() >> C::Bits::LOW_BITS;
        let same = handed(before) == handed(after) && !is_retired(before);
        same.then_some(Self {
            word: before.widen(),
            name,
            acquires,
            steals,
            since,
            companion: 0,
        })
    }

    /// As [`of`](Self::of), from memory that may only be read.
    pub(crate) fn in_view(region: &RegionView, index: u32) -> Seen {
        let looks = (0..TRIES).map(|_| Self::try_in_view(region, index));
        let seen = looks.flatten().find(|seen| !matches!(seen, Seen::Moving));
        seen.unwrap_or(Seen::Moving)
    }

    fn try_in_view(region: &RegionView, index: u32) -> Result<Seen, OutOfBounds> {
        let base = HEAD_BYTES + u64::from(index) * ROW_BYTES;
        // Each of these loads is an acquire, so they happen in this order.
        let before = region.wide(base + at::WORD)?;
        let mut words = [0; NAME_WORDS];
        for (offset, word) in (base + at::NAME..).step_by(8).zip(&mut words) {
            *word = region.word(offset)?;
        }
        let name_len = region.word(base + at::NAME_LEN)?;
        let acquires = region.word(base + at::ACQUIRES)?;
        let steals = region.word(base + at::STEALS)?;
        let since = region.word(base + at::SINCE)?;
        let companion = region.wide(base + at::COMPANION)?;
        let after = region.wide(base + at::WORD)?;
        if before >> 64 != after >> 64 {
            return Ok(Seen::Moving);
        }
        Ok(match Name::from_words(name_len, words) {
            _ if is_retired(before) || name_len == 0 => Seen::Nameless,
            None => Seen::Damaged { name_len },
            Some(name) => Seen::Row(Self {
                word: before,
                name,
                acquires,
                steals,
                since,
                companion,
            }),
        })
    }

    /// When `fence` was acquired, if that was noted.
    pub(crate) fn since_ms(&self, fence: u64) -> Option<u64> {
        let noted = pack_since(fence, self.since & ((1 << SINCE_MS_BITS) - 1));
        (self.since == noted).then_some(self.since & ((1 << SINCE_MS_BITS) - 1))
    }
}

/// Whether the row is being given its name, which may be torn until then.
fn is_retired<B: Bits>(bits: B) -> bool {
    Word::decode(bits).is_some_and(|word| word.owner == Owner::Retired)
}

/// The low bits of a fence, and the moment at which it was acquired.
pub(crate) fn pack_since(fence: u64, now_ms: u64) -> u64 {
    let fence = fence & ((1 << FENCE_BITS) - 1);
    fence << SINCE_MS_BITS | now_ms & ((1 << SINCE_MS_BITS) - 1)
}

/// Whom a release of `fence` favours: the low bits of the fence, and the peer in the 35 below.
pub(crate) fn pack_heir(fence: u64, heir: PeerId) -> u64 {
    const PEER_BITS: u32 = PeerId::SLOT_BITS + PeerId::GENERATION_BITS;
    let fence = fence & ((1 << FENCE_BITS) - 1);
    fence << PEER_BITS | heir.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_that_was_noted_for_another_fence_is_not_believed() {
        let name = Name::new(b"x").unwrap();
        let row = Snapshot {
            word: 0,
            name,
            acquires: 0,
            steals: 0,
            since: pack_since(0x1_0000_0007, 1234),
            companion: 0,
        };
        assert_eq!(row.since_ms(0x1_0000_0007), Some(1234));
        assert_eq!(row.since_ms(0x1_0000_0008), None);
    }
}
