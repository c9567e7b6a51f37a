//! The lock word as a value: what it can say, and nothing about who changes it when.

use crate::id::AttachmentId;

const WAITERS: u32 = 1 << AttachmentId::SLOT_BITS;

/// What a lock word says.
///
/// ```text
/// bits     field
///  0..=10  slot + 1 of the holder; 0 nobody
/// 11       somebody may be asleep on the low half
/// 12..=31  always 0
/// 32..=63  generation of the holder; 0 nobody
///
/// state    meaning                          who may change it next
/// free     all 64 bits are 0                anybody, to held
/// held     by a process, no sleepers        holder, to free; anybody, to held with sleepers;
///                                           after proof of death, anybody, to held by itself with sleepers
/// held,    and who lets go has to wake one  holder, to free, and then wakes one;
/// sleepers                                  after proof of death, anybody, to held by itself with sleepers
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lock {
    Free,
    Held { by: AttachmentId, waiters: bool },
}

impl Lock {
    pub(super) const fn encode(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Held { by, waiters } => {
                let waiters = if waiters { WAITERS } else { 0 };
                (by.generation() as u64) << 32 | (by.slot_field() | waiters) as u64
            }
        }
    }

    /// What a word read from shared memory says; `None` for what [`encode`](Self::encode) cannot have
    /// made.
    pub(super) const fn decode(word: u64) -> Option<Self> {
        if word == 0 {
            return Some(Self::Free);
        }
        let (low, generation) = halves(word);
        match AttachmentId::from_fields(low & !WAITERS, generation) {
            Some(by) => Some(Self::Held {
                by,
                waiters: low & WAITERS != 0,
            }),
            None => None,
        }
    }
}

/// The half of a word that sleepers sleep on.
pub(super) const fn low_half(word: u64) -> u32 {
    halves(word).0
}

const fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::tests::any_id;
    use crate::id::{MAX_GENERATION, MAX_SLOTS};
    use proptest::prelude::*;

    #[test]
    fn a_zeroed_word_is_free() {
        assert_eq!(Lock::decode(0), Some(Lock::Free));
    }

    #[test]
    fn sleepers_without_a_holder_are_corrupt() {
        assert_eq!(Lock::decode(u64::from(WAITERS)), None);
        assert_eq!(Lock::decode(1 << 32), None);
        assert_eq!(Lock::decode(1), None);
    }

    #[test]
    fn the_word_is_laid_out_as_the_table_says() {
        let by = AttachmentId::new(MAX_SLOTS - 1, MAX_GENERATION).unwrap();
        let word = |waiters| Lock::Held { by, waiters }.encode();
        assert_eq!(word(false), 0x00FF_FFFF_0000_07FE);
        assert_eq!(word(true), 0x00FF_FFFF_0000_0FFE);
    }

    proptest! {
        #[test]
        fn encode_round_trips(by in any_id(), waiters in any::<bool>()) {
            let lock = Lock::Held { by, waiters };
            prop_assert_eq!(Lock::decode(lock.encode()), Some(lock));
            let (low, high) = halves(lock.encode());
            prop_assert_eq!(u64::from(high) << 32 | u64::from(low), lock.encode());
        }

        #[test]
        fn decode_accepts_only_what_encode_makes(
            word in prop_oneof![
                any::<u64>(),
                (0..1u64 << 13, 0..1u64 << 25).prop_map(|(low, high)| high << 32 | low),
            ],
        ) {
            if let Some(lock) = Lock::decode(word) {
                prop_assert_eq!(lock.encode(), word);
            }
        }
    }
}
