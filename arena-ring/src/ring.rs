//! The ring: opening it, its limits, and what is known of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena_peers::core::{CarveError, Region};
use arena_peers::{Arena, PeerId, Peers};

use crate::content::Lengths;
use crate::error::RingOpenError;
use crate::layout::{KIND, Shape};
use crate::protocol::{load, load_tail};
use crate::reading::unfinished;
use crate::view::{Frame, View};

/// What a ring's region is called besides: the ring "x" is the region "ring.x".
const PREFIX: &[u8] = b"ring.";

/// The longest name of a ring, in bytes.
pub const MAX_NAME_BYTES: usize = 58;

/// A ring: the newest records that any process published, in one order for all.
///
/// A handle; clones share it. Usable in a child of fork, which publishes as another process than its parent.
#[derive(Clone, Debug)]
pub struct Ring {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: Vec<u8>,
    region: Region,
    peers: Peers,
    frame: Frame,
}

/// How to open a ring.
#[derive(Clone, Copy, Debug)]
#[must_use = "options open nothing by themselves"]
pub struct RingOptions {
    slots: Option<u32>,
    slot_bytes: Option<u32>,
}

/// A ring's counts. Each number is right at some moment during the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RingStats {
    /// How many records were given a number, withdrawn ones included: the newest number, since they begin at 1.
    pub published: u64,
    /// How many publishes were refused because they were too large. May trail.
    pub oversize: u64,
    /// How many slots were ever claimed or passed over. Beyond what the records took, these are slots that were passed over because an
    /// unfinished record still had them, or to make room in a row.
    pub position: u64,
    /// Whose unfinished record is the oldest that readers can still find; `None`: all is finished.
    pub unfinished: Option<PeerId>,
}

impl Default for RingOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl RingOptions {
    /// The defaults: the shape that the ring has; 1,024 slots of 64 bytes when it is new.
    pub const fn new() -> Self {
        Self {
            slots: None,
            slot_bytes: None,
        }
    }

    /// How many slots: 2 to 16,777,216; a power of two is a little faster. Unset, a ring is taken as it is; set, one that
    /// has another number is refused.
    pub const fn slots(mut self, slots: u32) -> Self {
        self.slots = Some(slots);
        self
    }

    /// For how many bytes of payload a slot is made: 1 to 1,048,576. With what is kept beside them they are rounded up to a multiple of 64
    /// bytes of the arena, so a slot has room for a little more. Unset and set as for [`slots`](Self::slots).
    ///
    /// A record may take up to half of the slots. Where a stopped publisher must not be in the way of others, the largest takes an
    /// eighth at most.
    pub const fn slot_bytes(mut self, bytes: u32) -> Self {
        self.slot_bytes = Some(bytes);
        self
    }

    /// Opens the ring of this name, which is made when there is none: 1 to [`MAX_NAME_BYTES`] bytes, any but NUL and '/'.
    ///
    /// Takes the arena's lock only to make one. A maker that is killed has made it whole, or not at all.
    ///
    /// # Errors
    ///
    /// [`RingOpenError`].
    pub fn open(self, arena: &Arena, name: impl AsRef<[u8]>) -> Result<Ring, RingOpenError> {
        let full = region_name(name.as_ref())?;
        let region = match arena.find(&full) {
            Some(region) => region,
            None => self.make(arena, &full)?,
        };
        self.ring(name.as_ref(), region)
    }

    fn ring(self, name: &[u8], region: Region) -> Result<Ring, RingOpenError> {
        let shape = self.shape_of(region.kind(), region.len_bytes())?;
        Ok(Ring {
            inner: Arc::new(Inner {
                name: name.to_vec(),
                peers: Peers::new(region.arena()),
                region,
                frame: Frame::new(shape),
            }),
        })
    }

    fn make(self, arena: &Arena, name: &[u8]) -> Result<Region, RingOpenError> {
        let shape = self.asked(Shape {
            slots: 1_024,
            slot_bytes: 64,
        });
        if !shape.is_valid() {
            let Shape { slots, slot_bytes } = shape;
            return Err(RingOpenError::Shape { slots, slot_bytes });
        }
        match arena.carve(name, shape.kind(), shape.len_bytes()) {
            // Somebody else made it meanwhile, of a shape that may still do.
            Err(error @ CarveError::OtherShape { .. }) => Ok(arena.find(name).ok_or(error)?),
            made => Ok(made?),
        }
    }

    /// What is asked for, and what is there where nothing is.
    fn asked(self, there: Shape) -> Shape {
        Shape {
            slots: self.slots.unwrap_or(there.slots),
            slot_bytes: self.slot_bytes.unwrap_or(there.slot_bytes),
        }
    }

    /// The shape of the ring in a region of this kind and length, if it is as asked.
    pub(crate) fn shape_of(self, kind: u64, len_bytes: u64) -> Result<Shape, RingOpenError> {
        if kind & !u64::from(u32::MAX) != KIND {
            return Err(RingOpenError::OtherKind {
                found: kind,
                expected: KIND,
            });
        }
        let found = Shape::of_region(kind, len_bytes);
        let found = found.ok_or(RingOpenError::Damaged { found: len_bytes })?;
        let expected = self.asked(found);
        if found == expected {
            return Ok(found);
        }
        Err(RingOpenError::OtherShape {
            found_slots: found.slots,
            found_bytes: found.slot_bytes,
            expected_slots: expected.slots,
            expected_bytes: expected.slot_bytes,
        })
    }
}

/// The name of the region in which the ring of this name lies.
pub(crate) fn region_name(name: &[u8]) -> Result<Vec<u8>, RingOpenError> {
    let bad = name.is_empty() || name.len() > MAX_NAME_BYTES;
    if bad || name.iter().any(|&byte| byte == 0 || byte == b'/') {
        return Err(RingOpenError::Name {
            name: String::from_utf8_lossy(name).into_owned(),
        });
    }
    Ok([PREFIX, name].concat())
}

/// That there is no region of a ring's name; unless entries are damaged, and one of them may be the ring's.
pub(crate) fn none<T>(refused: u64) -> Result<Option<T>, RingOpenError> {
    match refused {
        0 => Ok(None),
        refused => Err(RingOpenError::Regions { refused }),
    }
}

impl Ring {
    /// Opens the ring of this name as it is, or makes it with the defaults: see [`RingOptions::open`].
    ///
    /// # Errors
    ///
    /// [`RingOpenError`].
    pub fn open(arena: &Arena, name: impl AsRef<[u8]>) -> Result<Self, RingOpenError> {
        RingOptions::new().open(arena, name)
    }

    /// The ring of this name, if there is one, as it is: makes none, takes no lock, and needs no attachment
    /// ([`ArenaOptions::unattached`](crate::ArenaOptions::unattached)). Neither do its cursors.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn find(arena: &Arena, name: impl AsRef<[u8]>) -> Result<Option<Self>, RingOpenError> {
        match arena.find(&region_name(name.as_ref())?) {
            Some(region) => RingOptions::new().ring(name.as_ref(), region).map(Some),
            None => none(arena.refused()),
        }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.inner.name
    }

    /// The arena.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        self.inner.region.arena()
    }

    /// How many slots it has.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.inner.frame.shape.slots
    }

    /// For how many bytes of payload each slot was made.
    #[must_use]
    pub fn slot_bytes(&self) -> u32 {
        self.inner.frame.shape.slot_bytes
    }

    /// The longest payload of a record without a topic. A topic of `n` bytes leaves `n` less, rounded up to a multiple of 8.
    #[must_use]
    pub fn max_record(&self) -> u64 {
        self.inner.frame.shape.max_record()
    }

    /// What is known of it. A look at every slot; no system call while the publishers' bells are believed.
    #[must_use]
    pub fn stats(&self) -> RingStats {
        let view = self.view();
        let tail = load_tail(&view);
        RingStats {
            published: tail.records,
            // Relaxed: statistics.
            oversize: view.head.oversize.load(Ordering::Relaxed),
            position: tail.pos,
            unfinished: unfinished(tail, self.slots(), |pos| Some(load(&view, pos).ok()?.1)),
        }
    }

    pub(crate) fn view(&self) -> View<'_> {
        View::new(&self.inner.region, &self.inner.frame, &self.inner.peers)
    }

    pub(crate) fn peers(&self) -> &Peers {
        &self.inner.peers
    }

    /// How many words one publish may take.
    pub(crate) fn most_words(&self) -> u64 {
        self.inner.frame.shape.most_words()
    }

    /// How many slots so many words take; `None`: more than one publish may.
    pub(crate) fn slots_for(&self, words: u64) -> Option<u16> {
        let slots = words.div_ceil(self.inner.frame.shape.content_words());
        let slots = u16::try_from(slots).ok()?;
        (words <= self.most_words()).then_some(slots)
    }

    /// How many words a record takes; `None`: it has lengths that no record can have.
    pub(crate) fn words_of(topic: &[u8], payload_bytes: usize) -> Option<u64> {
        Lengths::new(topic.len(), payload_bytes).map(Lengths::words)
    }
}
