//! A process that is attached to the arena, as people and scripts are told of it.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;

use arena_ring::peers::core::command::json::Object;
use arena_ring::peers::core::command::shown;
use arena_ring::peers::{Attachment, Verdict, verdict_in};
use arena_ring::{Arena, ArenaView, PeerId};

/// Who it is, as far as its row says.
pub(crate) struct Known {
    id: PeerId,
    /// `None` when its row is damaged, or another's by now.
    pid: Option<u32>,
    name: Option<Vec<u8>>,
}

impl Known {
    pub(crate) fn in_arena(arena: &Arena, id: PeerId) -> Self {
        Self::new(id, arena.attachment(id.slot()))
    }

    fn new(id: PeerId, row: Option<Attachment>) -> Self {
        let row = row.filter(|row| row.id == id);
        Self {
            id,
            pid: row
                .as_ref()
                .and_then(|row| row.identity)
                .map(|known| known.pid),
            name: row.map(|row| row.name),
        }
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = shown(OsStr::from_bytes(self.name.as_deref().unwrap_or_default()));
        let pid = self.pid.map_or("unknown".into(), |pid| pid.to_string());
        let (slot, epoch) = (self.id.slot(), self.id.generation());
        write!(f, "pid {pid} ({name}; slot {slot}, epoch {epoch})")
    }
}

/// Who it is, and whether it lives.
pub(crate) struct Judged {
    known: Known,
    verdict: &'static str,
}

impl Judged {
    pub(crate) fn in_view(view: &ArenaView, id: PeerId) -> Self {
        Self {
            known: Known::new(id, view.attachment(id.slot())),
            verdict: match verdict_in(view, id) {
                Verdict::Alive => "alive",
                Verdict::Dead(_) => "dead",
                Verdict::Unknown => "unknown",
            },
        }
    }

    /// The object that `stat --help` describes.
    pub(crate) fn json(&self) -> String {
        Object::new()
            .field("pid", self.known.pid)
            .bytes("name", self.known.name.as_deref())
            .field("slot", Some(self.known.id.slot()))
            .field("epoch", Some(self.known.id.generation()))
            .bytes("verdict", Some(self.verdict.as_bytes()))
            .end()
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.known, self.verdict)
    }
}
