//! What this process does at each point, and how it judges what all saw.

use std::{path::PathBuf, time::Duration};

use arena_core::Arena;
use arena_ring::{Cursor, PeerId, Published, Ring};

use crate::{
    outcome::{Outcome, Stop, ensure},
    roles::ring::Label,
    scenario::Run,
    stepper::Point,
    streams::{Counts, End, Name, Reader, Streams},
};

/// What others do while the child stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// They publish a little, and readers wait for it.
    Wait,
    /// A reader has no patience.
    Withdraw,
    /// They go around the ring three times.
    Lap,
    /// First a reader without patience, then around the ring.
    WithdrawAndLap,
}

impl Others {
    pub(super) fn withdraw(self) -> bool {
        matches!(self, Self::Withdraw | Self::WithdrawAndLap)
    }

    pub(super) fn go_around(self) -> bool {
        matches!(self, Self::Lap | Self::WithdrawAndLap)
    }
}

/// How often each came to pass.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Seen {
    /// A record's publisher was told that it is committed, or that it dropped it.
    pub(super) whole: u32,
    pub(super) withdrawn: u32,
    pub(super) lapsed: u32,
    /// A record of a killed one was abandoned.
    pub(super) abandoned: u32,
    /// A reader stood before a record whose publisher stood.
    pub(super) stood: u32,
}

/// This process's part: it publishes, reads, and judges each point by itself.
pub(super) struct Play<'a> {
    pub(super) path: PathBuf,
    pub(super) arena: Arena,
    pub(super) ring: &'a Ring,
    /// The records of each point have publishers of their own: this process's number, and the child's after it.
    pub(super) number: u32,
    /// How many numbers the ring had given before.
    pub(super) before: u64,
    /// This process's records, with what became of them.
    pub(super) mine: Vec<(u64, End)>,
}

/// A reader of this process.
pub(super) struct Witness {
    pub(super) cursor: Cursor,
    pub(super) given: Vec<(u64, Name)>,
}

impl<'a> Play<'a> {
    pub(super) fn new(run: &Run, ring: &'a Ring) -> Self {
        Self {
            path: run.path("arena"),
            arena: ring.arena().clone(),
            ring,
            number: 0,
            before: 0,
            mine: Vec::new(),
        }
    }

    pub(super) fn slots(&self) -> u64 {
        self.ring.slots().into()
    }

    pub(super) fn next_point(&mut self) {
        self.number += 2;
        self.before = self.ring.stats().published;
        self.mine.clear();
    }

    pub(super) fn label(&self, len: usize) -> Label {
        let count = u64::try_from(self.mine.len()).expect("they are few");
        Label::new(self.number, count, len)
    }

    /// Nothing may keep it from publishing.
    pub(super) fn publish(&mut self, len: usize) -> Outcome {
        let label = self.label(len);
        match self.ring.publish(&label.topic(), &label.payload())? {
            Published::Committed { seq } => {
                self.mine.push((seq, End::Committed));
                Ok(())
            }
            other => Err(Stop::failed(format!("it was published as {other:?}"))),
        }
    }

    /// What others do; the last record takes several slots.
    pub(super) fn others(&mut self, others: Others) -> Outcome {
        self.publish(0)?;
        if others.go_around() {
            for count in 0..3 * self.slots() {
                self.publish(if count % 5 == 0 { 130 } else { 50 })?;
            }
        }
        self.publish(200)
    }

    pub(super) fn witness(&self, patience: Option<Duration>) -> Witness {
        Witness {
            cursor: self.ring.cursor().patience(patience),
            given: Vec::new(),
        }
    }

    /// The child is gone, and all is quiet: judges what all saw. `child`: how many records it may have begun, and what it says became of
    /// them.
    pub(super) fn judge(
        &self,
        child: (u64, Option<(u64, End)>),
        witnesses: &[Witness],
        reader: Option<&Reader>,
    ) -> Outcome {
        let mut streams = Streams::default();
        // Numbered from 1 at each point.
        let number = |seq: u64| seq - self.before;
        streams.begun(self.number, u64::try_from(self.mine.len())?);
        for (count, (seq, end)) in (0..).zip(&self.mine) {
            streams.ended((self.number, count), number(*seq), *end);
        }
        let (begun, ended) = child;
        streams.begun(self.number + 1, begun);
        if let Some((seq, end)) = ended {
            for count in 0..begun {
                streams.ended((self.number + 1, count), number(seq) + count, end);
            }
        }
        let shifted = |given: &[(u64, Name)]| {
            let shift = |(seq, name): &(u64, Name)| (number(*seq), *name);
            given.iter().map(shift).collect()
        };
        for (who, witness) in witnesses.iter().enumerate() {
            let stats = witness.cursor.stats();
            ensure!(
                stats.pending == 0,
                "witness {who} has not read all, and nobody is there: {stats:?}"
            );
            let counts = Counts {
                delivered: stats.delivered,
                lapped: stats.lapped,
                abandoned: stats.abandoned,
                pending: stats.pending,
            };
            let reader = Reader {
                from: 1,
                given: shifted(&witness.given),
                counts: Some(counts),
            };
            streams.reader(format!("witness {who}"), reader);
        }
        if let Some(reader) = reader {
            let given = shifted(&reader.given);
            let counts = reader.counts;
            streams.reader(
                "the child",
                Reader {
                    from: 1,
                    given,
                    counts,
                },
            );
        }
        let published = self.ring.stats().published - self.before;
        streams.judge(published).map(drop).map_err(Stop::failed)
    }

    /// All that the ring holds is whole; and its slots are all used again: a turn is as many records as it has slots.
    pub(super) fn slots_are_back(&mut self) -> Outcome {
        let mut oldest = Witness {
            cursor: self.ring.cursor_from_oldest()?,
            given: Vec::new(),
        };
        oldest.drain()?;
        for _ in 0..self.slots() {
            self.publish(8)?;
        }
        let before = self.ring.stats().position;
        for _ in 0..self.slots() {
            self.publish(8)?;
        }
        let moved = self.ring.stats().position - before;
        ensure!(
            moved == self.slots(),
            "{} records of a slot each took {moved} positions",
            self.slots()
        );
        Ok(())
    }

    /// Whether it is the child of this point.
    pub(super) fn is_child(&self, peer: PeerId, point: &Point) -> bool {
        let row = self.arena.attachment(peer.slot());
        let identity = row
            .filter(|row| row.id == peer)
            .and_then(|row| row.identity);
        identity.map(|identity| i64::from(identity.pid)) == Some(point.child.as_raw().into())
    }
}

impl Witness {
    pub(super) fn drain(&mut self) -> Outcome {
        let mut wrong = None;
        self.cursor
            .drain(usize::MAX, |record| match Label::of(&record) {
                Ok(label) => self.given.push((record.seq, label.name)),
                Err(reason) => wrong = Some(reason),
            })?;
        wrong.map_or(Ok(()), |reason| Err(Stop::failed(reason)))
    }

    pub(super) fn is_at_the_end(&self) -> bool {
        self.cursor.stats().pending == 0
    }
}
