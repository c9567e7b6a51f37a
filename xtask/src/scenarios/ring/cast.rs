//! A ring, the processes that publish in it and read from it, and what comes of it in the end.

use std::path::PathBuf;

use arena_ring::Ring;

use crate::{
    child::Plan,
    outcome::{Outcome, Stop, ensure},
    roles::ring as role,
    scenario::Run,
    scenarios::cast::Peer,
    streams::{self, Counts, Judged, Streams},
    text,
};

/// A ring whose publishers and readers note what they do.
pub(super) struct Scene {
    pub(super) ring: Ring,
    path: PathBuf,
    described: String,
    /// Of the processes so far, the files of their notes.
    publishers: Vec<PathBuf>,
    readers: Vec<(PathBuf, u64)>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        // There are up to a thousand in a run, whose directory is removed at its end.
        let _ = self.ring.arena().destroy();
    }
}

/// A process that reads.
pub(super) struct Reader {
    pub(super) peer: Peer,
    /// Which of the scene's readers it is.
    number: usize,
}

/// What a reader says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stats {
    pub(super) counts: Counts,
    pub(super) next: u64,
    /// Whose unfinished record it stands at.
    pub(super) waits_for: Option<String>,
}

impl Scene {
    /// The ring `name` in an arena of its own.
    pub(super) fn new(run: &Run, name: &str, slots: u32, slot_bytes: u32) -> Self {
        let path = run.path(&format!("arena.{name}"));
        let described = format!("{name} {slots} {slot_bytes}");
        let (_, ring) = role::open(&path, &described);
        Self {
            ring,
            path,
            described,
            publishers: Vec::new(),
            readers: Vec::new(),
        }
    }

    pub(super) fn slots(&self) -> u64 {
        self.ring.slots().into()
    }

    /// The longest payload beside the label that the publishers put into each topic.
    pub(super) fn max_payload(&self) -> u64 {
        self.ring.max_record() - role::LABEL_BYTES as u64
    }

    /// A payload whose record takes so many slots.
    pub(super) fn payload_of(&self, slots: u64) -> u64 {
        let each = (self.ring.max_record() + 8) / (self.slots() / 2);
        slots * each - 8 - role::LABEL_BYTES as u64
    }

    pub(super) fn published(&self) -> u64 {
        self.ring.stats().published
    }

    pub(super) fn publisher(&mut self, run: &mut Run) -> Outcome<Peer> {
        let number = self.publishers.len();
        let file = self.file(run, "publisher", number);
        let plan = self
            .plan("publisher")
            .arg(number.to_string())
            .arg(run.rng.next().to_string())
            .arg(&file);
        let peer = Peer::started(run, plan)?;
        self.publishers.push(file);
        Ok(peer)
    }

    /// A reader from `now`, from the `oldest`, or from a number.
    pub(super) fn reader(&mut self, run: &mut Run, from: &str) -> Outcome<Reader> {
        let number = self.readers.len();
        let file = self.file(run, "reader", number);
        let plan = self.plan("reader").arg(from);
        let plan = plan.arg(run.rng.next().to_string()).arg(&file);
        let mut peer = Peer::started(run, plan)?;
        let from = text::number(&peer.child.expect("from")?)?;
        self.readers.push((file, from));
        Ok(Reader { peer, number })
    }

    fn plan(&self, role: &str) -> Plan {
        Plan::new(role).arg(&self.path).arg(&self.described)
    }

    fn file(&self, run: &Run, role: &str, number: usize) -> PathBuf {
        let name = String::from_utf8_lossy(self.ring.name());
        run.path(&format!("{name}.{role}.{number}"))
    }

    /// All publishers are done or dead: `readers`, those that live, read on to the end; all is judged, and the notes are removed.
    pub(super) fn judge(self, readers: impl IntoIterator<Item = Reader>) -> Outcome<Judged> {
        let published = self.published();
        let mut counts: Vec<Option<Counts>> = vec![None; self.readers.len()];
        for mut reader in readers {
            let stats = reader.stats_after(&format!("until {published}"))?;
            let (counted, next) = (stats.counts, stats.next);
            ensure!(
                counted.pending == 0 && next == published + 1,
                "{} has read up to {next} of {published}, and all is quiet: {counted:?}",
                reader.peer.id
            );
            counts[reader.number] = Some(counted);
            reader.peer.leave()?;
        }
        ensure!(self.published() == published, "not all was quiet");
        let mut streams = Streams::default();
        for (number, file) in self.publishers.iter().enumerate() {
            let notes = role::read_publisher(file)?;
            role::add_publisher(&mut streams, number.try_into()?, &notes);
        }
        for (number, ((file, from), counts)) in self.readers.iter().zip(counts).enumerate() {
            let reader = streams::Reader {
                from: *from,
                given: role::given(file)?,
                counts,
            };
            streams.reader(format!("reader {number}"), reader);
        }
        let judged = streams.judge(published).map_err(Stop::failed)?;
        for file in self
            .publishers
            .iter()
            .chain(self.readers.iter().map(|(file, _)| file))
        {
            std::fs::remove_file(file)?;
        }
        Ok(judged)
    }
}

impl Reader {
    /// Tells it something that it answers with what it counted.
    pub(super) fn stats_after(&mut self, line: &str) -> Outcome<Stats> {
        stats(&self.peer.ask(line)?)
    }

    pub(super) fn stats(&mut self) -> Outcome<Stats> {
        self.stats_after("stats")
    }

    /// Gives it all that there is now; how much that was.
    pub(super) fn drain(&mut self) -> Outcome<u64> {
        text::number(&self.peer.ask("drain")?)
    }

    /// What it answers to what it was told before.
    pub(super) fn stats_of(&mut self, verb: &str) -> Outcome<Stats> {
        stats(&self.peer.child.expect(verb)?)
    }
}

fn stats(answer: &str) -> Outcome<Stats> {
    let words: Vec<&str> = answer.split(' ').collect();
    let [delivered, lapped, abandoned, pending, next, by] = words[..] else {
        return Err(Stop::failed(format!("no counts: {answer:?}")));
    };
    let counts = Counts {
        delivered: text::number(delivered)?,
        lapped: text::number(lapped)?,
        abandoned: text::number(abandoned)?,
        pending: text::number(pending)?,
    };
    Ok(Stats {
        counts,
        next: text::number(next)?,
        waits_for: (by != "nobody").then(|| by.to_owned()),
    })
}

/// Reserves a record of so many bytes; its number.
pub(super) fn reserves(publisher: &mut Peer, len: u64) -> Outcome<u64> {
    text::number(&publisher.ask(&format!("reserve {len}"))?)
}

/// Publishes a record of so many bytes; its number.
pub(super) fn publishes(publisher: &mut Peer, len: u64) -> Outcome<u64> {
    committed(&publisher.ask(&format!("publish {len}"))?)
}

/// The number of what was committed.
pub(super) fn committed(answer: &str) -> Outcome<u64> {
    match answer.strip_prefix("committed ") {
        Some(seq) => text::number(seq),
        None => Err(Stop::failed(format!("not committed: {answer}"))),
    }
}
