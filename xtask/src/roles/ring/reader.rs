//! A process that reads, as it is told or for itself, looks at every byte, and notes what it was given.

use std::time::Duration;

use arena_ring::{Cursor, Record, Ring};

use super::{Label, hear_stop, is_spoken_to, notes::Notes, opened};
use crate::{rng::Rng, text, told::Told};

/// Attaches, says who it is and the first number that it can be given, and obeys. The arguments: path, ring, where from, seed, the file
/// of its notes.
pub(super) fn reader(mut told: Told) {
    let (arena, ring) = opened(&mut told);
    let me = arena.me().expect("an arena that was opened is attached to");
    let from = told.arg();
    let rng = Rng::new(told.number(), "reader");
    let cursor = start(&ring, &from);
    let mut reader = Reader {
        cursor,
        notes: Notes::new(&told.arg()),
        rng,
    };
    let next = reader.cursor.stats().next;
    told.say(&format!("peer {}", text::id(me)));
    told.say(&format!("from {next}"));
    loop {
        let line = told.hear();
        let (verb, number) = line.split_once(' ').unwrap_or((&line, "0"));
        if verb == "end" {
            return;
        }
        let number = number.parse().expect("the scenario gives a number here");
        let answer = reader.obey(verb, number);
        hear_stop(&told, verb);
        told.say(&format!("{verb} {answer}"));
    }
}

/// A cursor from `now`, from the `oldest`, or from a number.
pub(crate) fn start(ring: &Ring, from: &str) -> Cursor {
    match from {
        "now" => ring.cursor(),
        "oldest" => ring.cursor_from_oldest().expect("the ring is whole"),
        number => {
            let number = number.parse().expect("the scenario gives a number here");
            ring.cursor_from(number).expect("the ring is whole")
        }
    }
}

struct Reader {
    cursor: Cursor,
    notes: Notes,
    rng: Rng,
}

impl Reader {
    fn obey(&mut self, verb: &str, number: u64) -> String {
        match verb {
            "drain" => self.drain(usize::MAX).to_string(),
            "one" => {
                let found = self.cursor.next().expect("the ring is whole");
                let found = found.map(|record| note(&mut self.notes, &record));
                self.notes.write();
                found.unwrap_or_else(|| "none".to_owned())
            }
            // So many, slept for without a timeout.
            "await" => {
                (0..number).for_each(|_| _ = self.sleep(None));
                self.stats()
            }
            // Up to the record of this number, which may be one that is never finished.
            "until" => {
                while self.cursor.stats().next <= number {
                    self.sleep(Some(Duration::from_millis(20)));
                }
                self.stats()
            }
            "patience" => {
                let patience = Duration::from_millis(number);
                self.cursor = self.cursor.clone().patience(Some(patience));
                "set".to_owned()
            }
            "free" => {
                self.free(number);
                self.stats()
            }
            "stats" => self.stats(),
            other => panic!("a reader does not {other}"),
        }
    }

    fn drain(&mut self, most: usize) -> usize {
        let Self { cursor, notes, .. } = self;
        let each = |record: Record<'_>| _ = note(notes, &record);
        let count = cursor.drain(most, each).expect("the ring is whole");
        self.notes.write();
        count
    }

    /// Whether there was a record.
    fn sleep(&mut self, timeout: Option<Duration>) -> bool {
        let found = self.cursor.next_timeout(timeout);
        let found = found.expect("the ring is whole");
        let found = found.map(|record| note(&mut self.notes, &record));
        self.notes.write();
        found.is_some()
    }

    /// Reads until it is told to stop; at times it dawdles for up to so many microseconds, and is overtaken.
    fn free(&mut self, dawdle_us: u64) {
        while !is_spoken_to() {
            if self.drain(64) == 0 {
                self.sleep(Some(Duration::from_millis(20)));
            }
            if dawdle_us > 0 && self.rng.below(16) == 0 {
                let pause = self.rng.below(dawdle_us);
                std::thread::sleep(Duration::from_micros(pause));
            }
        }
    }

    /// What it counted, the next number, and whom it waits for.
    fn stats(&self) -> String {
        let stats = self.cursor.stats();
        let by = self.cursor.waits_for();
        let by = by.map_or_else(|| "nobody".to_owned(), text::id);
        format!(
            "{} {} {} {} {} {by}",
            stats.delivered, stats.lapped, stats.abandoned, stats.pending, stats.next
        )
    }
}

/// Looks at every byte; its number.
fn note(notes: &mut Notes, record: &Record<'_>) -> String {
    let label = Label::of(record).unwrap_or_else(|wrong| panic!("{wrong}"));
    notes.given(record.seq, label.name);
    record.seq.to_string()
}

/// Told `serve N`: answers N records of the first ring in the second. The arguments: path, two rings.
pub(super) fn ponger(mut told: Told) {
    let path = told.arg();
    let [ping, pong] = [0, 1].map(|_| super::open(path.as_ref(), &told.arg()).1);
    let mut cursor = ping.cursor();
    told.say("ponger");
    loop {
        let line = told.hear();
        let times = line.strip_prefix("serve ").and_then(|n| n.parse().ok());
        let times: u64 = times.expect("a ponger serves");
        for _ in 0..times {
            let found = cursor.next_timeout(None).expect("the ring is whole");
            let record = found.expect("without a timeout there is a record in the end");
            let published = pong.publish(record.topic, record.payload);
            assert!(published.is_ok_and(|published| published.is_committed()));
        }
        told.say("served");
    }
}
