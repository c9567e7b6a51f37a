//! What publishers and readers of a ring share: the arena and its shape, what a record looks like, and what they note.

mod caller;
pub(super) mod notes;
mod publisher;
mod reader;
mod sections;

use std::path::Path;

use arena_core::{Arena, ArenaOptions};
use arena_ring::{PublishError, Published, Record, Ring, RingOptions};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Role;
use crate::{streams::Name, text, told::Told};

pub(crate) use notes::{add_publisher, given, read_publisher};
pub(super) use sections::SECTIONS;
pub(crate) use sections::STEPS;

pub(super) const ROLES: &[Role] = &[
    ("publisher", publisher::publisher),
    ("reader", reader::reader),
    ("ponger", reader::ponger),
    ("ring-caller", caller::caller),
    ("sleeper", caller::sleeper),
];

/// The options of these arenas: room for the rings of one scenario.
pub(crate) fn options() -> ArenaOptions {
    super::peer::options().usable_bytes(1 << 20)
}

/// Opens the arena at a path and the ring in it that is described by `NAME SLOTS BYTES`.
pub(crate) fn open(path: &Path, ring: &str) -> (Arena, Ring) {
    let arena = options().open(path).expect("the scenario's arena opens");
    let words: Vec<&str> = ring.split(' ').collect();
    let [name, slots, bytes] = words[..] else {
        panic!("no ring is described by {ring:?}");
    };
    let number = |text: &str| text.parse().expect("the scenario gives a number here");
    let ring = RingOptions::new()
        .slots(number(slots))
        .slot_bytes(number(bytes))
        .open(&arena, name)
        .expect("there is room for the ring");
    (arena, ring)
}

/// What the arguments say: the arena's path and the ring.
fn opened(told: &mut Told) -> (Arena, Ring) {
    let path = told.arg();
    open(Path::new(&path), &told.arg())
}

/// Whether the parent has said something that was not heard yet.
fn is_spoken_to() -> bool {
    let stdin = std::io::stdin();
    let mut fds = [PollFd::new(
        std::os::fd::AsFd::as_fd(&stdin),
        PollFlags::POLLIN,
    )];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Who went on by itself was told to stop: that line is heard now.
fn hear_stop(told: &Told, verb: &str) {
    if verb == "free" {
        assert_eq!(told.hear(), "stop", "the scenario says nothing else");
    }
}

/// What became of what was published, in words.
fn ended_as(published: Result<Published, PublishError>) -> String {
    match published {
        Ok(Published::Committed { seq }) => format!("committed {seq}"),
        Ok(Published::Withdrawn { seq }) => format!("withdrawn {seq}"),
        Ok(Published::Lapsed { seq }) => format!("lapsed {seq}"),
        Err(e) => text::error(&e),
    }
}

/// What a record says of itself, in its topic; its payload is one byte, repeated.
///
/// ```text
/// offset  size  field
///      0     4  publisher
///      4     4  length of the payload
///      8     8  count: how many records the publisher had begun before
///     16     8  checksum of these three, and its low byte is the payload's
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) name: Name,
    pub(crate) len: u32,
}

/// The bytes of a label.
pub(crate) const LABEL_BYTES: usize = 24;

impl Label {
    pub(crate) fn new(publisher: u32, count: u64, len: usize) -> Self {
        Self {
            name: (publisher, count),
            // Longer ones are refused.
            len: len.try_into().unwrap_or(u32::MAX),
        }
    }

    fn checksum(self) -> u64 {
        let mut rng = crate::rng::Rng::new(u64::from(self.name.0) << 32 | u64::from(self.len), "");
        rng.next() ^ crate::rng::Rng::new(self.name.1, "count").next()
    }

    pub(crate) fn topic(self) -> [u8; LABEL_BYTES] {
        let mut topic = [0; LABEL_BYTES];
        topic[..4].copy_from_slice(&self.name.0.to_le_bytes());
        topic[4..8].copy_from_slice(&self.len.to_le_bytes());
        topic[8..16].copy_from_slice(&self.name.1.to_le_bytes());
        topic[16..].copy_from_slice(&self.checksum().to_le_bytes());
        topic
    }

    pub(crate) fn payload(self) -> Vec<u8> {
        vec![self.checksum().to_le_bytes()[0]; self.bytes()]
    }

    fn bytes(self) -> usize {
        self.len.try_into().expect("64 bits hold it")
    }

    /// Whose record it is, if all of its bytes are as its publisher wrote them.
    pub(crate) fn of(record: &Record<'_>) -> Result<Self, String> {
        let field = |at: usize, len: usize| record.topic.get(at..at + len);
        let number = |at| field(at, 4)?.try_into().ok().map(u32::from_le_bytes);
        let wide = |at| field(at, 8)?.try_into().ok().map(u64::from_le_bytes);
        let label = number(0).zip(number(4)).zip(wide(8));
        let label = label.map(|((publisher, len), count)| Self {
            name: (publisher, count),
            len,
        });
        match label {
            Some(label)
                if record.topic == label.topic()
                    && record.payload == label.payload().as_slice() =>
            {
                Ok(label)
            }
            _ => Err(format!("record {record:?} is not as it was published")),
        }
    }
}
