//! A ring in an arena that is only read.

use std::mem::offset_of;

use arena_peers::ArenaView;
use arena_peers::core::RegionView;

use crate::error::RingOpenError;
use crate::layout::{Head, Shape};
use crate::reading::unfinished;
use crate::ring::{RingOptions, RingStats, none, region_name};
use crate::word::{Tail, Word};

/// A ring, for who looks without joining: takes no slot, and changes nothing. It shows counts; records are read by a
/// [`Cursor`](crate::Cursor), which also needs no slot.
#[derive(Clone, Debug)]
pub struct RingView {
    region: RegionView,
    shape: Shape,
}

impl RingView {
    /// The ring of this name in `view`; `None` when there is none.
    ///
    /// # Errors
    ///
    /// [`RingOpenError`], but for what comes of making one.
    pub fn open(view: &ArenaView, name: impl AsRef<[u8]>) -> Result<Option<Self>, RingOpenError> {
        let Some(region) = view.find(&region_name(name.as_ref())?) else {
            return none(view.refused());
        };
        let info = region.info();
        let shape = RingOptions::new().shape_of(info.kind, info.len_bytes)?;
        Ok(Some(Self { region, shape }))
    }

    /// As [`Ring::slots`](crate::Ring::slots).
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.shape.slots
    }

    /// As [`Ring::slot_bytes`](crate::Ring::slot_bytes).
    #[must_use]
    pub fn slot_bytes(&self) -> u32 {
        self.shape.slot_bytes
    }

    /// As [`Ring::max_record`](crate::Ring::max_record).
    #[must_use]
    pub fn max_record(&self) -> u64 {
        self.shape.max_record()
    }

    /// As [`Ring::stats`](crate::Ring::stats). No system call.
    #[must_use]
    pub fn stats(&self) -> RingStats {
        let tail = Tail::decode(self.wide(offset_of!(Head, tail) as u64));
        let oversize = self.region.word(offset_of!(Head, oversize) as u64);
        RingStats {
            published: tail.records,
            oversize: oversize.expect(WHOLE),
            position: tail.pos,
            unfinished: unfinished(tail, self.shape.slots, |pos| {
                let index = pos % u64::from(self.shape.slots);
                Word::decode(self.wide(self.shape.slot_at(index)))
            }),
        }
    }

    /// A word whose high half never comes back: the tail's is a count, a slot's has its turn.
    fn wide(&self, at: u64) -> u128 {
        self.region.wide(at).expect(WHOLE)
    }
}

const WHOLE: &str = "the region has the length of its shape";
