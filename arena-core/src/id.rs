//! Who is attached: a slot of the arena's table and the generation that occupied it.

use core::fmt;

/// The most attachments an arena can have at one time: as many as an 11-bit field can name, less
/// "nobody" and "retired".
pub const MAX_SLOTS: u16 = 2046;

/// The largest generation that fits the 24 bits which every word reserves for one.
pub const MAX_GENERATION: u32 = (1 << 24) - 1;

/// One attachment of one process to one arena: never a pid, and never reused.
///
/// A slot is taken again when its occupant is gone, but under a greater generation, so an id that was
/// read from an old word can be told from whoever sits in that slot now. A process that leaves and
/// attaches again, and a child made by `fork`, get ids of their own.
///
/// Ids are ordered by slot, then generation; the order says nothing about who came first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttachmentId {
    slot: u16,
    generation: u32,
}

impl AttachmentId {
    /// The width in bits of the field that [`slot_field`](Self::slot_field) fills.
    pub const SLOT_BITS: u32 = 11;
    /// The width in bits of a generation.
    pub const GENERATION_BITS: u32 = 24;
    /// The slot field of a word that names nobody.
    pub const NOBODY: u32 = 0;
    /// The slot field of a word that nobody may take any more. Never an id.
    pub const RETIRED: u32 = (1 << Self::SLOT_BITS) - 1;

    /// The id of `slot` in its `generation`, or `None` when no attachment can have it: the slot is not
    /// below [`MAX_SLOTS`], or the generation is 0 (an unborn row) or above [`MAX_GENERATION`].
    #[must_use]
    pub const fn new(slot: u16, generation: u32) -> Option<Self> {
        if slot < MAX_SLOTS && generation != 0 && generation <= MAX_GENERATION {
            Some(Self { slot, generation })
        } else {
            None
        }
    }

    /// The row and the liveness byte that this attachment holds, counted from 0.
    #[must_use]
    pub const fn slot(self) -> u16 {
        self.slot
    }

    /// Which occupant of the slot this is: 1 to [`MAX_GENERATION`], growing with each.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// The slot as words carry it: slot + 1 in [`SLOT_BITS`](Self::SLOT_BITS) bits, so neither
    /// [`NOBODY`](Self::NOBODY) nor [`RETIRED`](Self::RETIRED).
    #[must_use]
    pub const fn slot_field(self) -> u32 {
        self.slot as u32 + 1
    }

    /// The id in a slot field and a generation that were read from shared memory.
    ///
    /// Both are input: `None` for nobody, for retired, and for whatever
    /// [`slot_field`](Self::slot_field) and [`generation`](Self::generation) cannot have made.
    #[must_use]
    pub const fn from_fields(slot_field: u32, generation: u32) -> Option<Self> {
        if slot_field == Self::NOBODY || slot_field >= Self::RETIRED {
            return None;
        }
        // The comparison above leaves 1..=2046, of which the low half is all there is.
        let [low, high, ..] = (slot_field - 1).to_le_bytes();
        Self::new(u16::from_le_bytes([low, high]), generation)
    }

    /// Slot field and generation in the low 35 bits: `slot+1: 11 | generation: 24`.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.slot_field() as u64) << Self::GENERATION_BITS | self.generation as u64
    }

    /// The id that [`to_bits`](Self::to_bits) packed; `None` for any other value, nobody's 0 included.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        let [g0, g1, g2, s0, s1, 0, 0, 0] = bits.to_le_bytes() else {
            return None;
        };
        Self::from_fields(
            u32::from_le_bytes([s0, s1, 0, 0]),
            u32::from_le_bytes([g0, g1, g2, 0]),
        )
    }
}

impl fmt::Display for AttachmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}, generation {}", self.slot, self.generation)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every id there can be.
    pub(crate) fn any_id() -> impl Strategy<Value = AttachmentId> {
        (0..MAX_SLOTS, 1..=MAX_GENERATION)
            .prop_map(|(slot, generation)| AttachmentId::new(slot, generation).unwrap())
    }

    #[test]
    fn display_names_slot_and_generation() {
        let id = AttachmentId::new(3, 7).unwrap();
        assert_eq!(id.to_string(), "slot 3, generation 7");
    }

    #[test]
    fn new_refuses_slots_and_generations_that_no_row_has() {
        assert!(AttachmentId::new(0, 0).is_none());
        assert!(AttachmentId::new(MAX_SLOTS, 1).is_none());
        assert!(AttachmentId::new(0, MAX_GENERATION + 1).is_none());
        assert!(AttachmentId::new(MAX_SLOTS - 1, MAX_GENERATION).is_some());
    }

    #[test]
    fn nobody_and_retired_are_no_ids() {
        assert!(AttachmentId::from_fields(AttachmentId::NOBODY, 1).is_none());
        assert!(AttachmentId::from_fields(AttachmentId::RETIRED, 1).is_none());
        assert!(AttachmentId::from_bits(0).is_none());
    }

    #[test]
    fn a_slot_field_beyond_eleven_bits_is_refused_and_not_cut() {
        assert!(AttachmentId::from_fields((1 << 16) + 1, 1).is_none());
        assert!(AttachmentId::from_fields(u32::MAX, 1).is_none());
    }

    proptest! {
        #[test]
        fn bits_round_trip(id in any_id()) {
            prop_assert_eq!(AttachmentId::from_bits(id.to_bits()), Some(id));
            prop_assert_eq!(AttachmentId::from_fields(id.slot_field(), id.generation()), Some(id));
            prop_assert!(id.to_bits() >> 35 == 0);
        }

        #[test]
        fn from_bits_accepts_only_what_to_bits_makes(bits in prop_oneof![any::<u64>(), 0..1u64 << 36]) {
            if let Some(id) = AttachmentId::from_bits(bits) {
                prop_assert_eq!(id.to_bits(), bits);
            }
        }
    }
}
