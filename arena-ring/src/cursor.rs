//! A reader of its own: it sees every record, in order, and counts what it missed.

use std::time::{Duration, Instant};

use arena_peers::core::clock;
use arena_peers::{PeerId, Sleep};

use crate::content::{copy, first_lengths, take_apart};
use crate::error::ReadError;
use crate::protocol::{Fault, World as _, load_tail};
use crate::reading::{Place, Sight, give_up, is_still, land, look, newest};
use crate::ring::Ring;
use crate::view::{View, index};
use crate::word::{Head, Stage};

/// How often one look goes on, beside once a slot, while others overtake it.
const STEPS: u64 = 1 << 12;

/// The longest sleep behind an unfinished record between two looks.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// A record, as a cursor copied it out of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Its number: larger than that of every record before it. Numbers begin at 1.
    pub seq: u64,
    /// Who published it.
    pub publisher: PeerId,
    /// Its topic.
    pub topic: &'a [u8],
    /// Its payload.
    pub payload: &'a [u8],
}

/// What a cursor counted since it began, in records.
///
/// `delivered + lapped + abandoned + pending` is how many records were given a number since then: each of them is counted exactly once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CursorStats {
    /// How many it gave out.
    pub delivered: u64,
    /// How many were overwritten before it came to them.
    pub lapped: u64,
    /// How many were never finished: their publisher died, dropped them, or was withdrawn from them.
    pub abandoned: u64,
    /// How many it has not come to yet.
    pub pending: u64,
    /// The number of the next record that it comes to.
    pub next: u64,
}

/// A position in a ring, of one reader alone: other cursors and publishers know nothing of it.
///
/// It is a value of this process: a child of fork has a copy, which goes its own way.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir_in("/dev/shm")?;
/// # let arena = arena_ring::Arena::open(directory.path().join("demo"))?;
/// let ring = arena_ring::Ring::open(&arena, "events")?;
/// let mut cursor = ring.cursor();
/// let _ = ring.publish(b"greeting", b"hello")?;
/// let record = cursor.next()?.expect("it was published");
/// assert_eq!((record.topic, record.payload), (&b"greeting"[..], &b"hello"[..]));
/// assert!(cursor.next()?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Cursor {
    ring: Ring,
    state: State,
}

/// All that a cursor is, but for the ring.
#[derive(Debug, Clone)]
struct State {
    /// After the records in `batch`.
    at: Place,
    /// Records before this number are none of its concern.
    from: u64,
    batch: Batch,
    delivered: u64,
    lapped: u64,
    abandoned: u64,
    patience_ns: Option<u64>,
    hole: Option<Hole>,
}

/// Records of one head that were copied, and not all given out.
#[derive(Debug, Clone, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where in the bytes the next one begins.
    at: usize,
    /// How many bytes were copied.
    end: usize,
    left: u64,
    publisher: Option<PeerId>,
}

/// An unfinished record that the cursor stands at.
#[derive(Debug, Clone, Copy)]
struct Hole {
    pos: u64,
    since_ns: u64,
    by: PeerId,
}

impl Ring {
    /// A cursor that sees what is published from now on.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        let at = newest(&self.view());
        Cursor::new(self, at, at.number)
    }

    /// A cursor that sees what the ring still holds, and what comes after.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn cursor_from_oldest(&self) -> Result<Cursor, ReadError> {
        let at = land(&self.view(), 0)?;
        Ok(Cursor::new(self, at, at.number))
    }

    /// A cursor that sees the record of this number, and what comes after: for who goes on where he, or another, was.
    ///
    /// Records that are no longer there count as lapped; a number that no record has yet is waited for. Begins with a look at what the ring holds.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn cursor_from(&self, seq: u64) -> Result<Cursor, ReadError> {
        let from = seq.max(1);
        let at = land(&self.view(), 0)?;
        let mut cursor = Cursor::new(self, at, from);
        cursor.state.lapped = at.number.saturating_sub(from);
        Ok(cursor)
    }
}

impl Cursor {
    fn new(ring: &Ring, at: Place, from: u64) -> Self {
        Self {
            ring: ring.clone(),
            state: State {
                at,
                from,
                batch: Batch::default(),
                delivered: 0,
                lapped: 0,
                abandoned: 0,
                patience_ns: None,
                hole: None,
            },
        }
    }

    /// How long it stands at an unfinished record whose publisher is not proven dead; then the record is withdrawn, for all readers. Unset, for ever.
    ///
    /// Counted on `CLOCK_BOOTTIME` from the moment at which this cursor found it unfinished. Its publisher, should it go on, is told.
    /// At zero, whatever is not finished when it is come to is withdrawn.
    #[must_use]
    pub fn patience(mut self, patience: Option<Duration>) -> Self {
        self.state.patience_ns =
            patience.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self
    }

    /// The ring.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The next record, if there is one now. Never sleeps, and never waits at an unfinished record.
    ///
    /// The bytes are copied, into memory that the cursor keeps. No lock, no store to the ring; a system call only at an unfinished record,
    /// whose publisher is judged: none while its bell is believed.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    #[expect(
        clippy::should_implement_trait,
        reason = "the record is borrowed from the cursor, and errors are told"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        match self.is_ready()? {
            true => self.state.give().map(Some),
            false => Ok(None),
        }
    }

    /// The next record, for which it sleeps up to `timeout` (`None`: without limit), also at an unfinished one.
    ///
    /// Woken by whoever commits or ends a record, and by the death of the publisher that it stands behind; looks once a second
    /// otherwise. `timeout` is counted on `CLOCK_MONOTONIC`, which stands still while the machine sleeps. Two system calls a sleep at most.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn next_timeout(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Option<Record<'_>>, ReadError> {
        match self.wait(timeout)? {
            true => self.state.give().map(Some),
            false => Ok(None),
        }
    }

    /// Gives out what there is now, up to `most` records, and says how many those were. Never sleeps.
    ///
    /// # Errors
    ///
    /// [`ReadError`]; the records before were given out.
    pub fn drain(
        &mut self,
        most: usize,
        mut each: impl FnMut(Record<'_>),
    ) -> Result<usize, ReadError> {
        for count in 0..most {
            match self.next()? {
                Some(record) => each(record),
                None => return Ok(count),
            }
        }
        Ok(most)
    }

    /// Whose unfinished record it stood at when it last looked, and found nothing to give out.
    #[must_use]
    pub fn waits_for(&self) -> Option<PeerId> {
        self.state.hole.map(|hole| hole.by)
    }

    /// What it counted. One load of the ring.
    #[must_use]
    pub fn stats(&self) -> CursorStats {
        let state = &self.state;
        let next = state.next_number();
        CursorStats {
            delivered: state.delivered,
            lapped: state.lapped,
            abandoned: state.abandoned,
            pending: load_tail(&self.ring.view()).next().saturating_sub(next),
            next,
        }
    }

    /// Sleeps until there is something to give out; `false` when the time is over.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, ReadError> {
        if self.is_ready()? {
            return Ok(true);
        }
        // A deadline beyond what the clock can say is none.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let Self { ring, state } = self;
        let view = ring.view();
        let wake = &view.head.wake;
        loop {
            let ticket = wake.ticket();
            if state.look(&view)? {
                return Ok(true);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            // Whatever ended the sleep, the loop looks, and then asks the clock.
            match state.hole {
                None => {
                    let _woken = wake.wait(ticket, left);
                }
                Some(hole) => {
                    let most = state.patience_left(hole).unwrap_or(SECOND_LOOK);
                    let most = left.unwrap_or(most).min(most).min(SECOND_LOOK);
                    let _slept = ring.peers().sleep(&Sleep {
                        word: Some(wake.futex(ticket)),
                        peer: Some(hole.by),
                        timeout: Some(most),
                        ..Sleep::default()
                    });
                }
            }
        }
    }

    /// Whether there is something to give out now.
    pub(crate) fn is_ready(&mut self) -> Result<bool, ReadError> {
        match self.state.batch.left {
            0 => self.state.look(&self.ring.view()),
            _ => Ok(true),
        }
    }
}

impl State {
    fn next_number(&self) -> u64 {
        (self.at.number - self.batch.left).max(self.from)
    }

    /// Until the record at the hole is withdrawn; `None`: it never is.
    fn patience_left(&self, hole: Hole) -> Option<Duration> {
        let end = hole.since_ns.saturating_add(self.patience_ns?);
        Some(Duration::from_nanos(end.saturating_sub(clock::boot_ns())))
    }

    /// Looks for a record when all that were copied were given out. Whether one was copied.
    fn look(&mut self, view: &View<'_>) -> Result<bool, ReadError> {
        for _ in 0..view.slots().saturating_add(STEPS) {
            match look(view, self.at)? {
                Sight::Committed { at, seen, head } => {
                    self.at = at;
                    if self.take(view, at, seen, head)? && self.batch.left > 0 {
                        return Ok(true);
                    }
                }
                Sight::Abandoned { at, head } => {
                    self.at = at;
                    self.abandoned += self.count(at.number, at.after(head).number);
                    self.at = at.after(head);
                }
                Sight::Lapped => self.jump(view)?,
                Sight::Writing { at, seen, head } => {
                    self.at = at;
                    if !self.stand(at, head) {
                        return Ok(false);
                    }
                    // It may have been finished meanwhile: look again, whoever was first.
                    if give_up(view, at, seen, Stage::Withdrawn)? {
                        view.head.wake.wake_all();
                    }
                }
                Sight::Empty { at } => {
                    self.at = at;
                    self.hole = None;
                    if load_tail(view).pos <= at.pos {
                        return Ok(false);
                    }
                    // More void slots than one look passes, or a claim that came after it.
                }
            }
        }
        Ok(false)
    }

    /// Notes that it stands at an unfinished record; `true` when it has done so for long enough.
    fn stand(&mut self, at: Place, head: Head) -> bool {
        let now_ns = clock::boot_ns();
        let hole = match self.hole {
            Some(hole) if hole.pos == at.pos => hole,
            _ => Hole {
                pos: at.pos,
                since_ns: now_ns,
                by: head.owner,
            },
        };
        self.hole = Some(hole);
        let stood_ns = now_ns.saturating_sub(hole.since_ns);
        self.patience_ns
            .is_some_and(|patience| stood_ns >= patience)
    }

    /// How many of these numbers are its concern.
    fn count(&self, first: u64, after: u64) -> u64 {
        after.max(self.from) - first.max(self.from)
    }

    /// Copies the records of a committed head; `false` when it was overwritten meanwhile.
    fn take(
        &mut self,
        view: &View<'_>,
        at: Place,
        seen: u128,
        head: Head,
    ) -> Result<bool, ReadError> {
        self.hole = None;
        let after = at.after(head);
        if after.number <= self.from {
            self.at = after;
            return Ok(false);
        }
        let mut words = u64::from(head.slots) * view.content_words() as u64;
        if head.records == 1 {
            // As much as it says; a wrong copy may say anything.
            words = words.min(first_lengths(view, at.pos).words());
        }
        copy(view, at.pos, self.batch.room_for(words));
        if !is_still(view, at.pos, seen) {
            self.jump(view)?;
            return Ok(false);
        }
        self.batch.at = 0;
        self.batch.left = head.records.into();
        self.batch.publisher = Some(head.owner);
        self.at = after;
        // Of records that were published together, the first may be none of its concern.
        while self.at.number - self.batch.left < self.from {
            let copied = &self.batch.bytes[..self.batch.end];
            let Some((_, _, end)) = take_apart(copied, self.batch.at) else {
                // Told when it is given out.
                break;
            };
            (self.batch.at, self.batch.left) = (end, self.batch.left - 1);
        }
        Ok(true)
    }

    fn give(&mut self) -> Result<Record<'_>, ReadError> {
        let seq = self.at.number - self.batch.left;
        let batch = &mut self.batch;
        let Some((topic, payload, end)) = take_apart(&batch.bytes[..batch.end], batch.at) else {
            let error = batch.damaged();
            self.abandoned += std::mem::take(&mut batch.left);
            return Err(error);
        };
        batch.at = end;
        batch.left -= 1;
        self.delivered += 1;
        Ok(Record {
            seq,
            publisher: batch.publisher.expect("it was noted with the copy"),
            topic,
            payload,
        })
    }

    /// Goes to where the ring still holds records, and counts what was lost.
    fn jump(&mut self, view: &View<'_>) -> Result<(), ReadError> {
        self.hole = None;
        let to = land(view, view.slots() / 8)?;
        let to = Place {
            pos: to.pos.max(self.at.pos),
            number: to.number.max(self.at.number),
        };
        self.lapped += self.count(self.at.number, to.number);
        self.at = to;
        Ok(())
    }
}

impl Batch {
    /// Room for so many words. The buffer never shrinks, and what it held is not kept.
    fn room_for(&mut self, words: u64) -> &mut [u8] {
        self.end = index(8 * words);
        if self.bytes.len() < self.end {
            self.bytes.resize(self.end, 0);
        }
        &mut self.bytes[..self.end]
    }

    fn damaged(&self) -> ReadError {
        let lengths = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<8>);
        let found = lengths.map_or(0, |word| u64::from_le_bytes(*word)).into();
        Fault::Corrupt(found).into()
    }
}
