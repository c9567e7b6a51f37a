//! Every byte of a ring that processes share.
//!
//! A ring is a region: one [`Head`], and then as many slots as its length holds. All zero is a ring in which nothing was
//! published, so carving is all there is to making one. Its shape is in the region's entry: the bytes of a slot in the
//! kind, the number of slots in the length.
//!
//! A slot is a multiple of 64 bytes:
//!
//! ```text
//! offset  size  field    written by                             read by
//!      0    16  word     see `word.rs`                          everybody
//!     16     8  number   who claims, of a head: the number of   readers that look for their place
//!                        its first record
//!     24  rest  content  who claimed, until it ends its claim   readers
//! ```
//!
//! The contents of a head's slots, one after the other, are its records, each of which begins at a word: a word with the
//! length of its topic in the low half and of its payload in the high one, then the topic, then the payload, both padded
//! to whole words with zeros.

use std::sync::atomic::AtomicU64;

use arena_peers::core::layout::SharedLayout;
use arena_peers::core::{WakeWord, layout};
use portable_atomic::AtomicU128;

/// The first two lines of a ring.
///
/// ```text
/// offset  size  field          written by                       read by
///      0    16  tail           who claims: see `word.rs`        everybody
///     16   112  reserved_tail  nobody                           nobody
///    128     8  wake           who sleeps, who has committed    the same, and the kernel for them
///    136     8  oversize       who was refused a record that    statistics (may trail)
///                              is too large, + 1
///    144   112  reserved       nobody                           nobody
/// ```
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) tail: AtomicU128,
    pub(crate) reserved_tail: [AtomicU64; 14],
    pub(crate) wake: WakeWord,
    pub(crate) oversize: AtomicU64,
    pub(crate) reserved: [AtomicU64; 14],
}
layout!(Head is 256 {
    tail @ 0, reserved_tail @ 16, wake @ 128, oversize @ 136, reserved @ 144,
});

pub(crate) const HEAD_BYTES: u64 = 256;

/// What a slot's size is a multiple of.
const LINE_BYTES: u64 = 64;

/// Where a slot's fields are, in words of 64 bits.
pub(crate) const NUMBER: usize = 2;
pub(crate) const CONTENT: usize = 3;
const CONTENT_WORDS: u64 = 3;

/// Of the format of slots and contents; a change of what is written above changes it.
const FORMAT: u64 = 1;

/// The high half of the kind of a region that is a ring; the low half is the shape's `slot_bytes`.
pub(crate) const KIND: u64 = (Head::FINGERPRINT ^ FORMAT) & !(u32::MAX as u64);

/// How many slots a ring has, and for how many bytes each was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) slots: u32,
    pub(crate) slot_bytes: u32,
}

impl Shape {
    pub(crate) const MIN_SLOTS: u32 = 2;
    pub(crate) const MAX_SLOTS: u32 = 1 << 24;
    pub(crate) const MAX_SLOT_BYTES: u32 = 1 << 20;

    pub(crate) fn is_valid(self) -> bool {
        (Self::MIN_SLOTS..=Self::MAX_SLOTS).contains(&self.slots)
            && (1..=Self::MAX_SLOT_BYTES).contains(&self.slot_bytes)
    }

    /// From one slot to the next, in words: a record of `slot_bytes` has room in one, without a topic.
    pub(crate) fn stride_words(self) -> u64 {
        let content = 8 + u64::from(self.slot_bytes).next_multiple_of(8);
        (8 * CONTENT_WORDS + content).next_multiple_of(LINE_BYTES) / 8
    }

    /// How many words of content a slot has.
    pub(crate) fn content_words(self) -> u64 {
        self.stride_words() - CONTENT_WORDS
    }

    /// How many words one publish may take.
    pub(crate) fn most_words(self) -> u64 {
        let most_slots = u64::from(self.slots / 2).min(u16::MAX.into());
        most_slots * self.content_words()
    }

    /// The longest payload of a record without a topic.
    pub(crate) fn max_record(self) -> u64 {
        (8 * (self.most_words() - 1)).min(u32::MAX.into())
    }

    /// Where the slot of this index begins, in bytes from the start of the region.
    pub(crate) fn slot_at(self, index: u64) -> u64 {
        HEAD_BYTES + 8 * self.stride_words() * index
    }

    /// The length of the region.
    pub(crate) fn len_bytes(self) -> u64 {
        self.slot_at(self.slots.into())
    }

    pub(crate) fn kind(self) -> u64 {
        KIND | u64::from(self.slot_bytes)
    }

    /// The shape of the ring in a region of this kind and length; `None` when it cannot be one.
    pub(crate) fn of_region(kind: u64, len_bytes: u64) -> Option<Self> {
        let slot_bytes = u32::try_from(kind ^ KIND).ok()?;
        let one = Self {
            slots: 1,
            slot_bytes,
        };
        let slots = len_bytes.checked_sub(HEAD_BYTES)? / (8 * one.stride_words());
        let shape = Self {
            slots: u32::try_from(slots).ok()?,
            slot_bytes,
        };
        (shape.is_valid() && shape.len_bytes() == len_bytes).then_some(shape)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn layout_tables_are_those_that_were_reviewed() {
        insta::assert_snapshot!(format!(
            "{}\nslot: word @ 0, number @ {}, content @ {}\nkind {KIND:016x}\n",
            layout::table::<Head>("Head"),
            8 * NUMBER,
            8 * CONTENT,
        ));
    }

    proptest! {
        #[test]
        fn the_shape_of_a_region_is_what_it_was_made_with(slots in 2..=Shape::MAX_SLOTS, slot_bytes in 1..=Shape::MAX_SLOT_BYTES) {
            let shape = Shape { slots, slot_bytes };
            prop_assert_eq!(Shape::of_region(shape.kind(), shape.len_bytes()), Some(shape));
            prop_assert!(8 * shape.content_words() >= u64::from(slot_bytes) + 8);
            prop_assert_eq!(8 * shape.stride_words() % LINE_BYTES, 0);
        }

        #[test]
        fn what_is_no_region_of_a_ring_has_no_shape(kind: u64, low: u32, len_bytes: u64, is_ring: bool) {
            let kind = if is_ring { KIND | u64::from(low) } else { kind };
            if let Some(shape) = Shape::of_region(kind, len_bytes) {
                prop_assert_eq!((shape.kind(), shape.len_bytes()), (kind, len_bytes));
            }
        }
    }
}
