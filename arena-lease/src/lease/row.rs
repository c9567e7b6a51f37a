//! What the verbs of a lease find in its row, and the row itself, wherever that is by now.

use std::sync::atomic::Ordering;

use arena_peers::{PeerId, Peers};

use super::Lease;
use crate::error::LeaseError;
use crate::leases::Inner;
use crate::live::{Holding, Live};
use crate::loss::Loss;
use crate::outcome::Lost;
use crate::protocol::{self, Fault};
use crate::trace;
use crate::wait::Bedside;
use crate::word::Word;

/// How often a verb follows its name to another row.
pub(super) const MOVES: u32 = 16;

impl Lease {
    /// The fence that verbs without one are about: this handle's, else whatever the process holds.
    #[inline]
    pub(super) fn current(&self) -> Option<u64> {
        self.acquired().or_else(|| {
            let me = self.me_if_joined()?;
            self.on_row(|row| protocol::current(row, me)).ok()??
        })
    }

    /// How the lease is lost to a process that does not hold it.
    pub(super) fn lost(&self) -> Lost {
        self.word()
            .and_then(Word::lost_to)
            .unwrap_or(Lost::Released)
    }

    /// The word of the row that has the name.
    pub(super) fn word(&self) -> Option<Word> {
        let loaded = self.on_row(|row| protocol::load(row)).ok().flatten();
        loaded.map(|(_, word)| word)
    }

    /// The word, and the largest fence that was told lost; `None` when no row has the name.
    pub(crate) fn seen(&self) -> Result<Option<(Word, u64)>, LeaseError> {
        self.on_row(|row| Ok((protocol::load(row)?.1, protocol::told(row))))
    }

    /// Who holds, and by which word; `None` when nobody does.
    pub(crate) fn holding(&self) -> Result<Option<(Holding, Word)>, LeaseError> {
        let held = self.on_row(|row| {
            let (_, word) = protocol::load(row)?;
            Ok(row.holding(word).map(|holding| (holding, word)))
        })?;
        Ok(held.flatten())
    }

    /// Whether the arena is known to have been destroyed, or its file removed.
    pub(crate) fn is_gone(&self) -> bool {
        self.inner().arena.is_gone() || self.inner().was_removed()
    }

    /// As [`is_gone`](Self::is_gone), asked of the system, though not too often.
    pub(crate) fn is_removed(&self) -> bool {
        self.inner().arena.is_gone() || self.inner().is_removed(self.now_ns())
    }

    /// Whether the arena's file was removed, asked of the system.
    pub(crate) fn is_unlinked(&self) -> bool {
        self.inner().arena.is_unlinked()
    }

    /// Tells that a term under `fence` ended so.
    pub(crate) fn trace_end(&self, fence: u64, loss: Loss) {
        trace::ended(&self.name, fence, loss);
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.inner().clock.now_ns()
    }

    pub(crate) fn peers(&self) -> &Peers {
        &self.inner().peers
    }

    pub(crate) fn me(&self) -> Result<PeerId, LeaseError> {
        Ok(self.inner().arena.me()?)
    }

    pub(crate) fn me_if_joined(&self) -> Option<PeerId> {
        self.inner().arena.me_if_joined()
    }

    /// Runs `verb` on the row that has the name, wherever that is by now. `None`: no row has it.
    pub(super) fn on_row<T>(
        &self,
        verb: impl FnMut(&Live<'_>) -> Result<T, Fault>,
    ) -> Result<Option<T>, LeaseError> {
        self.on_row_beside(&Bedside::default(), verb)
    }

    /// [`on_row`](Self::on_row), for a verb that sleeps.
    pub(crate) fn on_row_beside<T>(
        &self,
        bedside: &Bedside,
        mut verb: impl FnMut(&Live<'_>) -> Result<T, Fault>,
    ) -> Result<Option<T>, LeaseError> {
        for _ in 0..MOVES {
            match verb(&self.live(bedside)) {
                Ok(answer) => return Ok(Some(answer)),
                Err(Fault::Renamed) => match self.inner().table.find(&self.name) {
                    Some(row) => self.move_to(row),
                    None => return Ok(None),
                },
                Err(Fault::Gone) => return Err(LeaseError::Removed),
                Err(Fault::FenceExhausted) => return Err(LeaseError::FenceExhausted),
                Err(Fault::ClockExhausted) => return Err(LeaseError::TtlBeyondClock),
                Err(Fault::Corrupt(odd)) => return Err(LeaseError::Corrupt { found: odd.into() }),
                Err(Fault::Contended) => return Err(LeaseError::Contended),
            }
        }
        Err(LeaseError::Contended)
    }

    pub(crate) fn live<'a>(&'a self, bedside: &'a Bedside) -> Live<'a> {
        Live {
            row: self.inner().table.row(self.row()),
            name: &self.name,
            inner: self.inner(),
            bedside,
        }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.leases.inner
    }

    pub(super) fn row(&self) -> u32 {
        // Relaxed: a hint, whose row is compared with the name.
        self.row.load(Ordering::Relaxed)
    }

    pub(super) fn move_to(&self, row: u32) {
        // Relaxed: see `row`.
        self.row.store(row, Ordering::Relaxed);
    }
}
