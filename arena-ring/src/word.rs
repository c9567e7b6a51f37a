//! The two words that decide everything: a slot's, and the ring's tail.
//!
//! A *position* counts slots from the ring's creation on and never repeats. Position `p` of a ring of `N` slots
//! is slot `p % N` in its *turn* `p / N + 1`; in turn 0 a slot was never claimed.
//!
//! ```text
//! bits of u128   field            meaning
//!   0 ..   4     state            see below
//!   4 ..  39     owner            slot + 1 and epoch of a peer, 0 for nobody
//!  39 ..  55     slots, behind    of a head: how many slots its records take; of a part: how far before it its head is
//!  55 ..  71     records          of a head: how many records it carries, published together
//!  71 .. 128     turn             grows with each claim of the slot
//!
//! state          meaning in this turn                              who may change it next
//! 0 void         no record, nobody's bytes                         who claims the slot's next turn
//! 1 writing      a head, whose owner stores the records            its owner, to committed or let go; a reader, with
//!                                                                  proof of death to abandoned, out of patience to
//!                                                                  withdrawn; who claims the next turn: to kept, or, the
//!                                                                  owner being dead, to anything
//! 2 committed    a head, whose records are whole                   who claims the next turn
//! 3 abandoned    a head, whose owner died before it committed      who claims the next turn
//! 4 withdrawn    a head that readers gave up; the bytes are still  its owner, to let go; who claims the next turn, as for
//!                its owner's                                       writing
//! 5 let go       a head that its owner gave up                     who claims the next turn
//! 6 part         a slot of the head that many slots before it      who claims the next turn: to kept if its head was kept;
//!                                                                  its owner, then, to void
//! 7 kept         no record, and the bytes are *still an earlier    its owner, to void; who claims the next turn, to kept
//!                writer's*                                         again, or, the owner being dead, to anything
//! ```
//!
//! Any other combination was not written by this library, and decodes to `None`. A turn never comes back, and within
//! one a word goes through these states one way, so no value of a slot's word comes back.
//!
//! The tail is the position that is claimed next, and how many records were numbered before it. All zero is a ring in
//! which nothing was published.

use std::fmt::Debug;

use crate::PeerId;

const STATE_BITS: u32 = 4;
const OWNER_BITS: u32 = PeerId::SLOT_BITS + PeerId::GENERATION_BITS;

/// An integer that can hold a word. The real one is `u128`; models use fewer counts and turns.
pub(crate) trait Bits: Copy + Eq + Debug + 'static {
    const WORD_BITS: u32;
    /// Width of the number of slots, and of that of records.
    const COUNT_BITS: u32;
    /// The most slots, and the most records, of a head.
    const MAX_COUNT: u64 = (1 << Self::COUNT_BITS) - 1;
    const MAX_TURN: u64 =
        (1 << (Self::WORD_BITS - 2 * Self::COUNT_BITS - OWNER_BITS - STATE_BITS)) - 1;
    /// The largest position and number that the tail can hold.
    const MAX_HALF: u64 = u64::MAX >> (64 - Self::WORD_BITS / 2);

    fn widen(self) -> u128;
    /// `None` when it does not fit.
    fn narrow(wide: u128) -> Option<Self>;
}

impl Bits for u128 {
    const WORD_BITS: u32 = 128;
    const COUNT_BITS: u32 = 16;

    fn widen(self) -> u128 {
        self
    }

    fn narrow(wide: u128) -> Option<Self> {
        Some(wide)
    }
}

/// A slot's word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    pub(crate) turn: u64,
    pub(crate) what: What,
}

/// What a slot is in its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Void,
    Head(Head),
    Part {
        owner: PeerId,
        behind: u16,
    },
    /// Nobody's record, and still an earlier writer's bytes.
    Kept {
        owner: PeerId,
    },
}

/// The first slot of records that were published together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) stage: Stage,
    pub(crate) owner: PeerId,
    /// At least 1.
    pub(crate) slots: u16,
    /// At least 1.
    pub(crate) records: u16,
}

/// How far a head's records are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Writing,
    Committed,
    Abandoned,
    Withdrawn,
    LetGo,
}

/// The tail, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tail {
    /// The position that is claimed next.
    pub(crate) pos: u64,
    /// How many records were numbered; the next one's number is one more.
    pub(crate) records: u64,
}

impl Word {
    /// `None` when this library does not write such a word.
    pub(crate) fn decode<B: Bits>(bits: B) -> Option<Self> {
        let wide = bits.widen();
        let field = |shift: u32, mask: u64| {
            u64::try_from((wide >> shift) & u128::from(mask)).expect("the mask has 64 bits")
        };
        let count = |shift| u16::try_from(field(shift, B::MAX_COUNT)).ok();
        let state = field(0, (1 << STATE_BITS) - 1);
        let owner = field(STATE_BITS, (1 << OWNER_BITS) - 1);
        let slots = count(STATE_BITS + OWNER_BITS)?;
        let records = count(STATE_BITS + OWNER_BITS + B::COUNT_BITS)?;
        let turn = field(STATE_BITS + OWNER_BITS + 2 * B::COUNT_BITS, B::MAX_TURN);
        let what = match (state, PeerId::from_bits(owner), slots, records) {
            (0, None, 0, 0) if owner == 0 => What::Void,
            (1..=5, Some(owner), 1.., 1..) => What::Head(Head {
                stage: Stage::decode(state)?,
                owner,
                slots,
                records,
            }),
            (6, Some(owner), behind @ 1.., 0) => What::Part { owner, behind },
            (7, Some(owner), 0, 0) => What::Kept { owner },
            _ => return None,
        };
        (turn > 0 || what == What::Void).then_some(Self { turn, what })
    }

    /// `None` when a field is too large for the word, or a head has no slots or no records, or a part is its own head,
    /// or an unborn slot is anything.
    pub(crate) fn encode<B: Bits>(self) -> Option<B> {
        let (state, owner, slots, records) = match self.what {
            What::Void => (0, 0, 0, 0),
            What::Head(head) if head.slots == 0 || head.records == 0 => return None,
            What::Head(head) => (
                head.stage.code(),
                head.owner.to_bits(),
                head.slots,
                head.records,
            ),
            What::Part { behind: 0, .. } => return None,
            What::Part { owner, behind } => (6, owner.to_bits(), behind, 0),
            What::Kept { owner } => (7, owner.to_bits(), 0, 0),
        };
        let fits = |count: u16| u64::from(count) <= B::MAX_COUNT;
        if self.turn > B::MAX_TURN || !fits(slots) || !fits(records) {
            return None;
        }
        if self.turn == 0 && self.what != What::Void {
            return None;
        }
        let mut wide = u128::from(self.turn);
        wide = wide << B::COUNT_BITS | u128::from(records);
        wide = wide << B::COUNT_BITS | u128::from(slots);
        wide = wide << OWNER_BITS | u128::from(owner);
        B::narrow(wide << STATE_BITS | u128::from(state))
    }
}

impl Stage {
    fn code(self) -> u64 {
        match self {
            Self::Writing => 1,
            Self::Committed => 2,
            Self::Abandoned => 3,
            Self::Withdrawn => 4,
            Self::LetGo => 5,
        }
    }

    fn decode(code: u64) -> Option<Self> {
        Some(match code {
            1 => Self::Writing,
            2 => Self::Committed,
            3 => Self::Abandoned,
            4 => Self::Withdrawn,
            5 => Self::LetGo,
            _ => return None,
        })
    }
}

impl Tail {
    pub(crate) fn decode<B: Bits>(bits: B) -> Self {
        let wide = bits.widen();
        let half = |shift: u32| {
            u64::try_from((wide >> shift) & u128::from(B::MAX_HALF)).expect("the mask has 64 bits")
        };
        Self {
            pos: half(0),
            records: half(B::WORD_BITS / 2),
        }
    }

    /// `None` when a half is too large for the word.
    pub(crate) fn encode<B: Bits>(self) -> Option<B> {
        if self.pos > B::MAX_HALF || self.records > B::MAX_HALF {
            return None;
        }
        B::narrow(u128::from(self.records) << (B::WORD_BITS / 2) | u128::from(self.pos))
    }

    /// The number of the next record.
    pub(crate) fn next(self) -> u64 {
        self.records.saturating_add(1)
    }
}

#[cfg(test)]
mod narrow {
    use super::Bits;

    /// The instance that the model checker runs: 6 bits of each count, 13 of the turn.
    impl Bits for u64 {
        const WORD_BITS: u32 = 64;
        const COUNT_BITS: u32 = 6;

        fn widen(self) -> u128 {
            self.into()
        }

        fn narrow(wide: u128) -> Option<Self> {
            wide.try_into().ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn peer() -> impl Strategy<Value = PeerId> {
        (0..2046_u16, 1..1_u32 << 24).prop_map(|(slot, epoch)| PeerId::new(slot, epoch).unwrap())
    }

    fn stage() -> impl Strategy<Value = Stage> {
        prop_oneof![
            Just(Stage::Writing),
            Just(Stage::Committed),
            Just(Stage::Abandoned),
            Just(Stage::Withdrawn),
            Just(Stage::LetGo),
        ]
    }

    fn word() -> impl Strategy<Value = Word> {
        let what = prop_oneof![
            Just(What::Void),
            (stage(), peer(), 1..=u16::MAX, 1..=u16::MAX).prop_map(
                |(stage, owner, slots, records)| {
                    What::Head(Head {
                        stage,
                        owner,
                        slots,
                        records,
                    })
                }
            ),
            (peer(), 1..=u16::MAX).prop_map(|(owner, behind)| What::Part { owner, behind }),
            peer().prop_map(|owner| What::Kept { owner }),
        ];
        (1..=<u128 as Bits>::MAX_TURN, what).prop_map(|(turn, what)| Word { turn, what })
    }

    proptest! {
        #[test]
        fn every_word_decodes_to_what_was_encoded(word in word()) {
            let bits = word.encode::<u128>().unwrap();
            prop_assert_eq!(Word::decode(bits), Some(word));
        }

        #[test]
        fn any_bits_decode_to_a_word_that_encodes_to_them_or_to_nothing(bits: u128, odd in 0..8_u8) {
            // Most random words have an owner, records and slots; clear fields in turn to meet the other states.
            let bits = match odd {
                0 => bits & !((1 << 71) - 1),
                1 => bits & !(((1 << 32) - 1) << 39),
                2 => bits & !(((1 << 16) - 1) << 55),
                3 => bits & ((1 << 71) - 1),
                4 => bits & !(((1 << 67) - 1) << 4),
                5 => bits & !(((1 << 24) - 1) << 4),
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
        fn every_tail_decodes_to_what_was_encoded(pos: u64, records: u64) {
            let tail = Tail { pos, records };
            prop_assert_eq!(Tail::decode(tail.encode::<u128>().unwrap()), tail);
        }
    }

    fn head(slots: u16, records: u16) -> Word {
        Word {
            turn: 3,
            what: What::Head(Head {
                stage: Stage::Writing,
                owner: PeerId::new(4, 9).unwrap(),
                slots,
                records,
            }),
        }
    }

    #[test]
    fn the_fields_lie_where_the_table_says() {
        let bits = head(0x1234, 0x5678).encode::<u128>().unwrap();
        assert_eq!(bits & 15, 1);
        assert_eq!(bits >> 4 & 0xFF_FFFF, 9);
        assert_eq!(bits >> 28 & 0x7FF, 5);
        assert_eq!(bits >> 39 & 0xFFFF, 0x1234);
        assert_eq!(bits >> 55 & 0xFFFF, 0x5678);
        assert_eq!(bits >> 71, 3);
    }

    #[test]
    fn zero_is_a_slot_and_a_tail_that_nobody_used() {
        let unborn = Word {
            turn: 0,
            what: What::Void,
        };
        assert_eq!(Word::decode(0_u128), Some(unborn));
        assert_eq!(Tail::decode(0_u128), Tail { pos: 0, records: 0 });
    }

    #[test]
    fn encode_refuses_what_decode_would() {
        assert!(head(1, 1).encode::<u128>().is_some());
        assert_eq!(head(0, 1).encode::<u128>(), None);
        assert_eq!(head(1, 0).encode::<u128>(), None);
        assert_eq!(head(64, 1).encode::<u64>(), None);
        assert_eq!(
            Word {
                turn: 0,
                ..head(1, 1)
            }
            .encode::<u128>(),
            None
        );
        let last = <u128 as Bits>::MAX_TURN;
        assert!(
            Word {
                turn: last,
                ..head(1, 1)
            }
            .encode::<u128>()
            .is_some()
        );
        assert_eq!(
            Word {
                turn: last + 1,
                ..head(1, 1)
            }
            .encode::<u128>(),
            None
        );
        let large = Tail {
            pos: 1 << 32,
            records: 0,
        };
        assert_eq!(large.encode::<u64>(), None);
    }

    #[test]
    fn decode_refuses_states_that_lack_what_they_need_or_have_what_they_must_not() {
        let bits = head(1, 1).encode::<u128>().unwrap();
        let owner = ((1_u128 << 35) - 1) << 4;
        assert_eq!(Word::decode(bits & !owner), None, "a head without an owner");
        assert_eq!(
            Word::decode(bits & !15 | 8),
            None,
            "a state that there is not"
        );
        assert_eq!(Word::decode(bits & !15 | 6), None, "a part with records");
        assert_eq!(Word::decode(bits & !15 | 7), None, "kept, with slots");
        assert_eq!(Word::decode(bits & !15), None, "void, with an owner");
        assert_eq!(
            Word::decode(bits & ((1 << 71) - 1)),
            None,
            "unborn, and a head"
        );
    }
}
