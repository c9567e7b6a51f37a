//! Publishing records: whole ones, several at once, and ones that are filled in where they lie.

use std::sync::atomic::Ordering;

use arena_peers::core::OutOfBounds;

use crate::content::{Lengths, Pen};
use crate::error::PublishError;
use crate::protocol::{Claim, Ended, claim, end};
use crate::ring::Ring;
use crate::view::{View, index};
use crate::word::Stage;

/// What became of what was published. Of several records at once, they share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "readers may have given the record up"]
pub enum Published {
    /// Readers find it, until it is overwritten.
    Committed {
        /// The number of the (first) record.
        seq: u64,
    },
    /// No reader ever sees it: a reader was out of [patience](crate::Cursor::patience), because this process did not commit for so long.
    /// It has a number, and counts as abandoned.
    Withdrawn {
        /// The number of the (first) record.
        seq: u64,
    },
    /// No reader ever sees it: others went once around the ring before this process committed. It has a number, and counts as
    /// lapped.
    Lapsed {
        /// The number of the (first) record.
        seq: u64,
    },
}

impl Published {
    /// The number of the (first) record, whatever became of it.
    #[must_use]
    pub fn seq(self) -> u64 {
        match self {
            Self::Committed { seq } | Self::Withdrawn { seq } | Self::Lapsed { seq } => seq,
        }
    }

    /// Whether readers find it.
    #[must_use]
    pub fn is_committed(self) -> bool {
        matches!(self, Self::Committed { .. })
    }

    fn of(claim: &Claim, ended: Ended) -> Self {
        let seq = claim.first;
        match ended {
            Ended::AsAsked => Self::Committed { seq },
            Ended::Withdrawn => Self::Withdrawn { seq },
            Ended::Lapsed => Self::Lapsed { seq },
        }
    }
}

impl Ring {
    /// Publishes a record: any bytes, both may be empty. The oldest records are overwritten for it.
    ///
    /// Whole or not at all, also when this process is killed at any instruction; and never waits for another process. Three
    /// exchanges, and the stores of the bytes; no system call, unless a reader sleeps, or somebody's unfinished record is in the
    /// way, who is then judged.
    ///
    /// # Errors
    ///
    /// [`PublishError`]: nothing was published.
    pub fn publish(&self, topic: &[u8], payload: &[u8]) -> Result<Published, PublishError> {
        let words = Self::words_of(topic, payload.len());
        let view = self.view();
        let claim = self.claim(&view, words, 1)?;
        Pen::new(view, claim.pos).record(topic, payload);
        finish(&view, &claim)
    }

    /// Publishes several records (topic, payload) as one: with one claim, so that they have numbers in a row and become visible
    /// together, and at the cost of about one. Together they may be as large as [one record](Self::max_record), each with a word
    /// for its lengths. No record: nothing is published.
    ///
    /// # Errors
    ///
    /// [`PublishError`]: none of them was published.
    pub fn publish_many(
        &self,
        records: &[(&[u8], &[u8])],
    ) -> Result<Option<Published>, PublishError> {
        let words = records.iter().try_fold(0_u64, |words, (topic, payload)| {
            Some(words.saturating_add(Self::words_of(topic, payload.len())?))
        });
        let Ok(count) = u16::try_from(records.len()) else {
            return Err(self.too_large(words));
        };
        if count == 0 {
            return Ok(None);
        }
        let view = self.view();
        let claim = self.claim(&view, words, count)?;
        let mut pen = Pen::new(view, claim.pos);
        for (topic, payload) in records {
            pen.record(topic, payload);
        }
        finish(&view, &claim).map(Some)
    }

    /// Takes room for a record with a payload of `len_bytes`, all zeros, to be filled in where it lies.
    ///
    /// Until it is [committed](Reservation::commit) or dropped, readers stand before it, as before any unfinished record; dropped, it is withdrawn.
    ///
    /// # Errors
    ///
    /// [`PublishError`].
    pub fn reserve(&self, topic: &[u8], len_bytes: usize) -> Result<Reservation<'_>, PublishError> {
        let words = Self::words_of(topic, len_bytes);
        let view = self.view();
        let claim = self.claim(&view, words, 1)?;
        let lengths = Lengths::new(topic.len(), len_bytes).expect("it was looked at");
        let payload_at = lengths.payload_at();
        let mut pen = Pen::new(view, claim.pos);
        pen.head(lengths, topic);
        pen.zeros(lengths.words() - payload_at);
        Ok(Reservation {
            ring: self,
            claim,
            payload_at,
            len_bytes: lengths.payload.into(),
            is_open: true,
        })
    }

    fn claim(
        &self,
        view: &View<'_>,
        words: Option<u64>,
        records: u16,
    ) -> Result<Claim, PublishError> {
        let slots = words.and_then(|words| self.slots_for(words));
        let slots = slots.ok_or_else(|| self.too_large(words))?;
        let me = self.peers().me()?;
        // Refused: others learn of this process's death later, and nothing else changes.
        let _ = self.peers().hang_bell();
        Ok(claim(view, me, slots, records)?)
    }

    fn too_large(&self, words: Option<u64>) -> PublishError {
        // Relaxed: statistics.
        self.view().head.oversize.fetch_add(1, Ordering::Relaxed);
        PublishError::TooLarge {
            needed: words.map_or(u64::MAX, |words| words.saturating_mul(8)),
            max: 8 * self.most_words(),
        }
    }
}

fn finish(view: &View<'_>, claim: &Claim) -> Result<Published, PublishError> {
    let ended = end(view, claim, Stage::Committed)?;
    view.head.wake.wake_all();
    Ok(Published::of(claim, ended))
}

/// A record whose payload is filled in where it lies, in the ring.
///
/// Bytes that are not written are zeros. Dropped, it is withdrawn; leaked, or its process killed, it stands until the process is gone or
/// others went around the ring.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is withdrawn"]
pub struct Reservation<'a> {
    ring: &'a Ring,
    claim: Claim,
    payload_at: u64,
    len_bytes: u64,
    is_open: bool,
}

impl Reservation<'_> {
    /// The number that the record has.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.claim.first
    }

    /// The length of its payload.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Writes bytes of the payload. No system call.
    ///
    /// What others do to the ring meanwhile does not matter: the bytes are this process's until it ends the reservation.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`]: nothing was written.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let count = u64::try_from(bytes.len()).expect("a length fits 64 bits");
        let end = offset.checked_add(count);
        if end.is_none_or(|end| end > self.len_bytes) {
            return Err(OutOfBounds {
                offset,
                len_bytes: self.len_bytes,
            });
        }
        // In a child of fork they are its parent's.
        if self.is_ours() {
            let at = self.payload_at + offset / 8;
            Pen::at(self.ring.view(), self.claim.pos, at).patch(index(offset % 8), bytes);
        }
        Ok(())
    }

    /// Publishes the record.
    ///
    /// # Errors
    ///
    /// [`PublishError::Forked`] in a child of the process that made the reservation; [`PublishError::Damaged`].
    pub fn commit(mut self) -> Result<Published, PublishError> {
        if !self.is_ours() {
            return Err(PublishError::Forked);
        }
        self.is_open = false;
        finish(&self.ring.view(), &self.claim)
    }

    fn is_ours(&self) -> bool {
        self.ring.arena().me_if_joined() == Some(self.claim.owner)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.is_open && self.is_ours() {
            let view = self.ring.view();
            // Refused only by a damaged ring, in which nobody finds the record either.
            let _ = end(&view, &self.claim, Stage::LetGo);
            view.head.wake.wake_all();
        }
    }
}
