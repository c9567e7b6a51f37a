//! What can go wrong, one variant for each thing to do about it.

use arena_peers::core::CarveError;
use arena_peers::{JoinError, PeerId};

use crate::MAX_NAME_BYTES;
use crate::layout::Shape;
use crate::protocol::{Fault, Refusal};

/// Why a ring was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingOpenError {
    /// The name cannot be one. Choose another.
    #[error("{name:?} is no name: it must have 1 to {MAX_NAME_BYTES} bytes without NUL and '/'")]
    Name {
        /// What was asked for, shown as text.
        name: String,
    },
    /// No ring can have this shape. Ask for one within the limits.
    #[error(
        "a ring of {slots} slots of {slot_bytes} bytes is not possible: it must have {} to {} slots of 1 to {} bytes",
        Shape::MIN_SLOTS,
        Shape::MAX_SLOTS,
        Shape::MAX_SLOT_BYTES
    )]
    Shape {
        /// The number of slots that was asked for.
        slots: u32,
        /// The bytes of a slot that were asked for.
        slot_bytes: u32,
    },
    /// The ring has another shape. Agree on one, ask for none, or use another name.
    #[error(
        "found {found_slots} slots of {found_bytes} bytes, expected {expected_slots} of {expected_bytes}"
    )]
    OtherShape {
        /// How many slots it has.
        found_slots: u32,
        /// For how many bytes each was made.
        found_bytes: u32,
        /// How many slots were asked for; those it has, if that was left open.
        expected_slots: u32,
        /// The bytes of a slot that were asked for; likewise.
        expected_bytes: u32,
    },
    /// The region of that name holds something else, or a ring of another release. Use another name.
    #[error(
        "the region is no ring of this release: found kind {found:#018x}, expected {expected:#018x} or above"
    )]
    OtherKind {
        /// The kind that the region's entry says.
        found: u64,
        /// The kind of a ring, but for the bytes of a slot.
        expected: u64,
    },
    /// The region has a length that no ring has: the arena is damaged. Destroy it.
    #[error("the ring is damaged: its region has {found} bytes")]
    Damaged {
        /// The length of the region.
        found: u64,
    },
    /// There is no such ring, but entries of the arena's table of regions are damaged, and one of them may be the ring's. Destroy
    /// the arena.
    #[error("{refused} entries of the arena's table of regions are damaged, expected none")]
    Regions {
        /// How many.
        refused: u64,
    },
    /// The ring is not there and could not be made. Give the arena more room.
    #[error("cannot carve the ring out of the arena")]
    Carve(#[from] CarveError),
}

/// Why nothing was published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// A record, or a batch, never has room in this ring: it would take more than half of it. Counted as oversize. Publish
    /// less at a time, or make a larger ring.
    #[error("{needed} bytes are needed, and {max} are the most")]
    TooLarge {
        /// What it takes in the ring, lengths and padding included.
        needed: u64,
        /// The most that one publish may take.
        max: u64,
    },
    /// There is no room between the slots that unfinished records have, and their owners are not proven dead: somebody is stopped. Nothing
    /// was overwritten. Try again later, or see to that process.
    #[error("the slots of {by} are in the way, which is not proven dead")]
    Blocked {
        /// One of those.
        by: PeerId,
    },
    /// A child of fork cannot join the arena, or is not who made the reservation.
    #[error("cannot join the arena")]
    Join(#[from] JoinError),
    /// The reservation was made by this process's parent, whose it is.
    #[error("the reservation is of the process that this one was forked from")]
    Forked,
    /// A word of the ring is none that this library writes: the arena is damaged. Destroy it.
    #[error("the ring is damaged: found {found:#034x}")]
    Damaged {
        /// The word.
        found: u128,
    },
    /// Positions or numbers are used up, which takes centuries: the arena is damaged. Destroy it.
    #[error("the ring has no position left")]
    Exhausted,
    /// Others changed the ring under each of very many attempts. Try again.
    #[error("others changed the ring under every attempt")]
    Contended,
}

/// Why a cursor could not look.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A word of the ring, or a record's lengths, are none that this library writes: the arena is damaged. A record that is damaged is
    /// passed over, and counted as abandoned; destroy the arena if it comes again.
    #[error("the ring is damaged: found {found:#034x}")]
    Damaged {
        /// What was found.
        found: u128,
    },
    /// Positions or numbers are used up, which takes centuries: the arena is damaged. Destroy it.
    #[error("the ring has no position left")]
    Exhausted,
    /// Others changed the ring under each of very many attempts. Try again.
    #[error("others changed the ring under every attempt")]
    Contended,
}

impl From<Fault> for PublishError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Corrupt(found) => Self::Damaged { found },
            Fault::Exhausted => Self::Exhausted,
            Fault::Contended => Self::Contended,
        }
    }
}

impl From<Refusal> for PublishError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Blocked(by) => Self::Blocked { by },
            Refusal::Fault(fault) => fault.into(),
        }
    }
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Corrupt(found) => Self::Damaged { found },
            Fault::Exhausted => Self::Exhausted,
            Fault::Contended => Self::Contended,
        }
    }
}
