//! A ring in shared memory, as the protocol and the copying use it.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use arena_peers::core::{Region, clock};
use arena_peers::{PeerId, Peers, Verdict};
use portable_atomic::AtomicU128;

use crate::layout::{CONTENT, HEAD_BYTES, Head, NUMBER, Shape};
use crate::protocol::{Spot, World};

/// The parts of a ring's region, found once for an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) head: &'a Head,
    /// The slots as 128-bit words: only the first of each slot is used as one.
    words: &'a [AtomicU128],
    /// The slots as 64-bit words: the first two of each slot are never used as such.
    cells: &'a [AtomicU64],
    peers: &'a Peers,
    shape: Shape,
    /// Of a slot, in 64-bit words.
    stride: usize,
    /// The slots' number less 1 and its logarithm, if it is a power of two.
    power: Option<(u64, u32)>,
}

impl<'a> View<'a> {
    /// The region's length is that of the shape.
    pub(crate) fn new(region: &'a Region, peers: &'a Peers, shape: Shape) -> Self {
        let stride = index(shape.stride_words());
        let count = stride * index(shape.slots.into());
        let whole = "the region has the length of its shape";
        let slots = u64::from(shape.slots);
        Self {
            head: region.at(0).expect(whole),
            words: region.array(HEAD_BYTES, count / 2).expect(whole),
            cells: region.array(HEAD_BYTES, count).expect(whole),
            peers,
            shape,
            stride,
            power: slots.is_power_of_two().then(|| (slots - 1, slots.ilog2())),
        }
    }

    pub(crate) fn content_words(&self) -> u64 {
        self.shape.content_words()
    }

    /// `count` words of content from word `from` of the slots at `pos` on, in runs that lie in one slot each.
    pub(crate) fn runs(
        &self,
        pos: u64,
        from: u64,
        count: u64,
    ) -> impl Iterator<Item = &'a [AtomicU64]> + use<'a> {
        let view = *self;
        let content = self.content_words();
        // A position that a damaged word names may be any.
        let (mut pos, mut from, mut left) =
            (pos.wrapping_add(from / content), from % content, count);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let here = left.min(content - from);
            let start = view.start_of(view.index(pos)) + CONTENT + index(from);
            (pos, from, left) = (pos.wrapping_add(1), 0, left - here);
            Some(&view.cells[start..start + index(here)])
        })
    }

    fn start_of(&self, slot: u64) -> usize {
        index(slot) * self.stride
    }

    fn cell(&self, slot: u64, field: usize) -> &'a AtomicU64 {
        &self.cells[self.start_of(slot) + field]
    }

    fn word(&self, at: Spot) -> &'a AtomicU128 {
        match at {
            Spot::Tail => &self.head.tail,
            Spot::Slot(slot) => &self.words[self.start_of(slot) / 2],
        }
    }
}

impl World for View<'_> {
    type Bits = u128;

    fn slots(&self) -> u64 {
        self.shape.slots.into()
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

    fn number(&self, slot: u64) -> u64 {
        // Relaxed: payload, whose head is looked at again (EDGE overtaken).
        self.cell(slot, NUMBER).load(Ordering::Relaxed)
    }

    fn set_number(&self, slot: u64, number: u64) {
        // Relaxed: payload, published with it (EDGE written).
        self.cell(slot, NUMBER).store(number, Ordering::Relaxed);
    }

    fn is_dead(&self, peer: PeerId) -> bool {
        let verdict = self.peers.verdict_cached(peer, clock::boot_ms());
        matches!(verdict, Verdict::Dead(_))
    }

    fn fence(&self, order: Ordering) {
        fence(order);
    }

    #[inline]
    fn index(&self, pos: u64) -> u64 {
        match self.power {
            Some((mask, _)) => pos & mask,
            None => pos % self.slots(),
        }
    }

    #[inline]
    fn turn(&self, pos: u64) -> u64 {
        match self.power {
            Some((_, shift)) => (pos >> shift) + 1,
            None => pos / self.slots() + 1,
        }
    }
}

/// A number of words that lie in a mapping, as an index.
pub(crate) fn index(words: u64) -> usize {
    usize::try_from(words).expect("a mapping fits the address space, which has 64 bits")
}
