//! The lease word: everything that decides who holds, in one exchange.
//!
//! ```text
//! bits of u128   field      meaning                                           changes on
//!   0 ..  40     deadline   milliseconds of the boot clock                    acquire, renew, release
//!  40 ..  64     epoch      the holder's generation, 0 when nobody holds      acquire, release
//!  64 ..  75     slot + 1   0: free. 1 to 2046: held. 2047: being renamed     acquire, release
//!  75 .. 128     fence      the newest that was issued                        acquire
//!
//! slot + 1   epoch   deadline      state     who may change it next
//!     0        0     not before    free      anybody once the deadline passed, or the row's heir, to held; a namer,
//!                                            once it passed, to retired
//!  1..=2046   > 0    held until    held      its holder, to held (later) or free; anybody once the deadline
//!                                            passed or with proof of death, to held with a larger fence
//!   2047       0         0         retired   the owner of the table's lock, to free with a larger fence
//! ```
//!
//! Any other combination was not written by this library, and decodes to `None`. The word of a row that was
//! never used is zero, which is free at fence 0. Bits 64 to 96 are the half that waiters sleep on: a renewal
//! does not change them.
//!
//! Fences are never issued twice, so no value of the word comes back after it was replaced, with one exception
//! that needs no care: a renewal that would not move the deadline is not written at all.

use std::fmt::Debug;

use crate::PeerId;

pub(crate) const NS_PER_MS: u64 = 1_000_000;

const EPOCH_BITS: u32 = 24;
const SLOT_BITS: u32 = 11;
const RETIRED: u128 = (1 << SLOT_BITS) - 1;

/// An integer that can hold a lease word. The real one is `u128`; models use a narrower fence and deadline.
pub(crate) trait Bits: Copy + Eq + Debug + 'static {
    /// Width of the deadline; of the fence is what the other fields leave.
    const DEADLINE_BITS: u32;
    /// Width of the whole word.
    const WORD_BITS: u32;
    /// The largest fence.
    const MAX_FENCE: u64 =
        (1 << (Self::WORD_BITS - Self::DEADLINE_BITS - EPOCH_BITS - SLOT_BITS)) - 1;
    /// How much of the word a renewal may change, or belongs to what it may not change.
    const LOW_BITS: u32 = Self::DEADLINE_BITS + EPOCH_BITS;
    /// The latest deadline.
    const MAX_UNTIL_MS: u64 = (1 << Self::DEADLINE_BITS) - 1;

    fn widen(self) -> u128;
    /// `None` when it does not fit.
    fn narrow(wide: u128) -> Option<Self>;
}

impl Bits for u128 {
    const DEADLINE_BITS: u32 = 40;
    const WORD_BITS: u32 = 128;

    fn widen(self) -> u128 {
        self
    }

    fn narrow(wide: u128) -> Option<Self> {
        Some(wide)
    }
}

/// Who a word names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Nobody,
    Peer(PeerId),
    /// The owner of the table's lock, which is giving the row another name.
    Retired,
}

/// A lease word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    pub(crate) fence: u64,
    pub(crate) owner: Owner,
    /// Held: the deadline. Free: not before. Retired: 0.
    pub(crate) until_ms: u64,
}

impl Word {
    /// `None` when this library does not write such a word.
    pub(crate) fn decode<B: Bits>(bits: B) -> Option<Self> {
        let wide = bits.widen();
        let field = |shift: u32, mask: u64| {
            u64::try_from((wide >> shift) & u128::from(mask)).expect("the mask has 64 bits")
        };
        let until_ms = field(0, B::MAX_UNTIL_MS);
        let epoch = field(B::DEADLINE_BITS, (1 << EPOCH_BITS) - 1);
        let slot = field(B::DEADLINE_BITS + EPOCH_BITS, (1 << SLOT_BITS) - 1);
        let fence = field(B::DEADLINE_BITS + EPOCH_BITS + SLOT_BITS, B::MAX_FENCE);
        let owner = match (slot, epoch) {
            (0, 0) => Owner::Nobody,
            (_, 0) if u128::from(slot) == RETIRED && until_ms == 0 => Owner::Retired,
            (0, _) | (_, 0) => return None,
            (slot, _) if u128::from(slot) == RETIRED || fence == 0 => return None,
            (slot, epoch) => {
                let slot = u16::try_from(slot - 1).ok()?;
                Owner::Peer(PeerId::new(slot, u32::try_from(epoch).ok()?)?)
            }
        };
        Some(Self {
            fence,
            owner,
            until_ms,
        })
    }

    /// `None` when a field is too large for the word, or a retired word has a deadline.
    pub(crate) fn encode<B: Bits>(self) -> Option<B> {
        let (slot, epoch) = match self.owner {
            Owner::Nobody => (0, 0),
            Owner::Peer(_) if self.fence == 0 => return None,
            Owner::Peer(peer) => (u128::from(peer.slot()) + 1, u128::from(peer.generation())),
            Owner::Retired if self.until_ms == 0 => (RETIRED, 0),
            Owner::Retired => return None,
        };
        if self.fence > B::MAX_FENCE || self.until_ms > B::MAX_UNTIL_MS {
            return None;
        }
        let high = u128::from(self.fence) << SLOT_BITS | slot;
        let low = epoch << B::DEADLINE_BITS | u128::from(self.until_ms);
        B::narrow(high << (EPOCH_BITS + B::DEADLINE_BITS) | low)
    }

    /// The half that waiters sleep on: slot and the low bits of the fence.
    pub(crate) fn half<B: Bits>(self) -> Option<u32> {
        let high = self.encode::<B>()?.widen() >> (EPOCH_BITS + B::DEADLINE_BITS);
        Some(u32::try_from(high & u128::from(u32::MAX)).expect("the mask has 32 bits"))
    }

    /// Whether the deadline (of a free word: the wait) has passed.
    pub(crate) fn is_over(self, now_ns: u64) -> bool {
        self.left_ns(now_ns) == 0
    }

    /// From `now_ns` to the deadline, or zero.
    pub(crate) fn left_ns(self, now_ns: u64) -> u64 {
        self.until_ms
            .saturating_mul(NS_PER_MS)
            .saturating_sub(now_ns)
    }

    /// Whether it names `me`.
    pub(crate) fn names(self, me: PeerId) -> bool {
        self.owner == Owner::Peer(me)
    }
}

#[cfg(test)]
pub(crate) mod narrow {
    use super::{Bits, EPOCH_BITS, SLOT_BITS, Word};

    /// The instance that the model checker runs: 13 bits of fence, 16 of deadline, the rest as in the real one.
    impl Bits for u64 {
        const DEADLINE_BITS: u32 = 16;
        const WORD_BITS: u32 = 64;

        fn widen(self) -> u128 {
            self.into()
        }

        fn narrow(wide: u128) -> Option<Self> {
            wide.try_into().ok()
        }
    }

    pub(crate) fn half_of<B: Bits>(bits: B) -> u32 {
        let high = bits.widen() >> (EPOCH_BITS + B::DEADLINE_BITS);
        u32::try_from(high & u128::from(u32::MAX)).unwrap()
    }

    #[test]
    fn the_narrow_word_has_the_same_slots_and_epochs() {
        assert_eq!(SLOT_BITS + EPOCH_BITS + 16 + 13, 64);
        assert_eq!(<u64 as Bits>::MAX_FENCE, (1 << 13) - 1);
        assert_eq!(Word::decode(0_u64), Word::decode(0_u128));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::narrow::half_of;
    use super::*;

    fn peer() -> impl Strategy<Value = PeerId> {
        (0..2046_u16, 1..1_u32 << 24).prop_map(|(slot, epoch)| PeerId::new(slot, epoch).unwrap())
    }

    fn word() -> impl Strategy<Value = Word> {
        let fence = 0..=<u128 as Bits>::MAX_FENCE;
        let until = 0..=<u128 as Bits>::MAX_UNTIL_MS;
        let owner = prop_oneof![
            Just(Owner::Nobody),
            peer().prop_map(Owner::Peer),
            Just(Owner::Retired)
        ];
        (fence, until, owner).prop_map(|(fence, until_ms, owner)| match owner {
            Owner::Retired => Word {
                fence,
                owner,
                until_ms: 0,
            },
            Owner::Peer(_) => Word {
                fence: fence.max(1),
                owner,
                until_ms,
            },
            Owner::Nobody => Word {
                fence,
                owner,
                until_ms,
            },
        })
    }

    proptest! {
        #[test]
        fn every_word_decodes_to_what_was_encoded(word in word()) {
            let bits = word.encode::<u128>().unwrap();
            prop_assert_eq!(Word::decode(bits), Some(word));
            prop_assert_eq!(word.half::<u128>(), Some(half_of(bits)));
        }

        #[test]
        fn any_bits_decode_to_a_word_that_encodes_to_them_or_to_nothing(bits: u128, odd in 0..8_u8) {
            // Most random words have an owner; clear fields in turn to meet the other states.
            let bits = match odd {
                0 => bits & !(((1 << 11) - 1) << 64),
                1 => bits & !(((1 << 24) - 1) << 40),
                2 => bits & !(((1 << 35) - 1) << 40),
                3 => bits | RETIRED << 64,
                4 => (bits | RETIRED << 64) & !((1 << 64) - 1),
                5 => bits & ((1 << 75) - 1),
                _ => bits,
            };
            if let Some(word) = Word::decode(bits) {
                prop_assert_eq!(word.encode::<u128>(), Some(bits));
            }
        }

        #[test]
        fn the_narrow_word_agrees_with_the_wide_one(bits: u64) {
            if let Some(word) = Word::decode(bits) {
                prop_assert_eq!(word.encode::<u64>(), Some(bits));
                let wide = word.encode::<u128>().unwrap();
                prop_assert_eq!(Word::decode(wide), Some(word));
            }
        }

        #[test]
        fn a_renewal_leaves_the_half_that_waiters_sleep_on(word in word(), until in 0..1_u64 << 40) {
            let renewed = Word { until_ms: until, ..word };
            if let (Some(before), Some(after)) = (word.half::<u128>(), renewed.half::<u128>()) {
                prop_assert_eq!(before, after);
            }
        }
    }

    #[test]
    fn the_fields_lie_where_the_table_says() {
        let word = Word {
            fence: 0x15_5555_5555_5555,
            owner: Owner::Peer(PeerId::new(4, 9).unwrap()),
            until_ms: 0x12_3456_789A,
        };
        let bits = word.encode::<u128>().unwrap();
        assert_eq!(bits & ((1 << 40) - 1), 0x12_3456_789A);
        assert_eq!(bits >> 40 & 0xFF_FFFF, 9);
        assert_eq!(bits >> 64 & 0x7FF, 5);
        assert_eq!(bits >> 75, 0x15_5555_5555_5555);
    }

    #[test]
    fn decode_refuses_an_epoch_without_a_slot_and_a_slot_without_an_epoch() {
        assert_eq!(Word::decode(1_u128 << 40), None);
        assert_eq!(Word::decode(1_u128 << 75 | 1 << 64), None);
    }

    #[test]
    fn decode_refuses_a_holder_without_a_fence() {
        assert_eq!(Word::decode(1_u128 << 64 | 1 << 40 | 77), None);
    }

    #[test]
    fn decode_refuses_a_retired_word_with_an_epoch_or_a_deadline() {
        let retired = 9_u128 << 75 | RETIRED << 64;
        assert!(Word::decode(retired).is_some());
        assert_eq!(Word::decode(retired | 1 << 40), None);
        assert_eq!(Word::decode(retired | 1), None);
    }

    #[test]
    fn encode_refuses_fields_that_do_not_fit() {
        let free = |fence, until_ms| Word {
            fence,
            owner: Owner::Nobody,
            until_ms,
        };
        assert!(
            free((1 << 53) - 1, (1 << 40) - 1)
                .encode::<u128>()
                .is_some()
        );
        assert_eq!(free(1 << 53, 0).encode::<u128>(), None);
        assert_eq!(free(0, 1 << 40).encode::<u128>(), None);
        assert_eq!(free(1 << 13, 0).encode::<u64>(), None);
    }
}
