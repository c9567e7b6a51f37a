//! A ring in shared memory, as the protocol and the copying use it.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use arena_peers::core::Region;
use arena_peers::{PeerId, Peers};
use portable_atomic::AtomicU128;

use crate::layout::{CONTENT, HEAD_BYTES, Head, NUMBER, Shape};
use crate::protocol::{Spot, World};

/// What is computed of a ring's shape once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) shape: Shape,
    /// From one slot to the next, in 64-bit words.
    stride: usize,
    /// All slots, likewise.
    words: usize,
    /// The number of slots less 1, and its logarithm, if it is a power of two.
    power: Option<(u64, u32)>,
}

impl Frame {
    pub(crate) fn new(shape: Shape) -> Self {
        let slots = u64::from(shape.slots);
        let stride = shape.stride_words();
        Self {
            shape,
            stride: index(stride),
            words: index(stride * slots),
            power: slots.is_power_of_two().then(|| (slots - 1, slots.ilog2())),
        }
    }
}

/// The parts of a ring's region, found once for an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) head: &'a Head,
    /// The slots as 128-bit words: only the first of each slot is used as one.
    words: &'a [AtomicU128],
    /// The slots as 64-bit words: the first two of each slot are never used as such.
    cells: &'a [AtomicU64],
    frame: &'a Frame,
    peers: &'a Peers,
}

impl<'a> View<'a> {
    /// The region's length is that of the shape.
    pub(crate) fn new(region: &'a Region, frame: &'a Frame, peers: &'a Peers) -> Self {
        let whole = "the region has the length of its shape";
        Self {
            head: region.at(0).expect(whole),
            words: region.array(HEAD_BYTES, frame.words / 2).expect(whole),
            cells: region.array(HEAD_BYTES, frame.words).expect(whole),
            frame,
            peers,
        }
    }

    /// How many words of content a slot has.
    pub(crate) fn content_words(&self) -> usize {
        self.frame.stride - CONTENT
    }

    /// The content of the slot of `pos`.
    #[inline]
    pub(crate) fn content(&self, pos: u64) -> &'a [AtomicU64] {
        let start = self.start_of(self.index(pos));
        &self.cells[start + CONTENT..start + self.frame.stride]
    }

    #[inline]
    fn start_of(&self, slot: u64) -> usize {
        index(slot) * self.frame.stride
    }

    #[inline]
    fn cell(&self, slot: u64, field: usize) -> &'a AtomicU64 {
        &self.cells[self.start_of(slot) + field]
    }

    #[inline]
    fn word(&self, at: Spot) -> &'a AtomicU128 {
        match at {
            Spot::Tail => &self.head.tail,
            Spot::Slot(slot) => &self.words[self.start_of(slot) / 2],
        }
    }
}

impl World for View<'_> {
    type Bits = u128;

    #[inline]
    fn slots(&self) -> u64 {
        self.frame.shape.slots.into()
    }

    #[inline]
    fn load(&self, at: Spot, order: Ordering) -> u128 {
        self.word(at).load(order)
    }

    #[inline]
    fn compare_exchange(
        &self,
        at: Spot,
        seen: u128,
        to: u128,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u128, u128> {
        self.word(at).compare_exchange(seen, to, success, failure)
    }

    #[inline]
    fn number(&self, slot: u64) -> u64 {
        // Relaxed: payload, whose head is looked at again (EDGE overtaken).
        self.cell(slot, NUMBER).load(Ordering::Relaxed)
    }

    #[inline]
    fn set_number(&self, slot: u64, number: u64) {
        // Relaxed: payload, published with it (EDGE written).
        self.cell(slot, NUMBER).store(number, Ordering::Relaxed);
    }

    fn is_dead(&self, peer: PeerId) -> bool {
        self.peers.is_dead(peer)
    }

    #[inline]
    fn fence(&self, order: Ordering) {
        fence(order);
    }

    #[inline]
    fn index(&self, pos: u64) -> u64 {
        match self.frame.power {
            Some((mask, _)) => pos & mask,
            None => pos % self.slots(),
        }
    }

    #[inline]
    fn turn(&self, pos: u64) -> u64 {
        match self.frame.power {
            Some((_, shift)) => (pos >> shift) + 1,
            None => pos / self.slots() + 1,
        }
    }
}

/// A number of words that lie in a mapping, as an index.
#[inline]
pub(crate) fn index(words: u64) -> usize {
    usize::try_from(words).expect("a mapping fits the address space, which has 64 bits")
}
