//! What the stepper's children do between their marks in a ring.

use std::path::Path;
use std::time::Duration;

use arena_core::Arena;
use arena_peers::Peers;
use arena_ring::{Cursor, Record, Reservation, Ring};

use super::{Label, ended_as, open};
use crate::roles::{
    sections::{await_parked, keep, section},
    step::{Ready, Section, nothing},
};

pub(in crate::roles) const SECTIONS: &[Section] = &[
    ("ring-publish", nothing, publish),
    ("ring-many", nothing, many),
    ("ring-commit", nothing, commit),
    ("ring-drop", nothing, let_go),
    ("ring-drain", nothing, drain),
    ("ring-wait", nothing, wait),
    ("ring-wait-behind", nothing, wait_behind),
];

/// The ring of the scenarios that are stepped through.
pub(crate) const STEPS: &str = "steps 16 64";

/// How long the child waits: a moment, for nobody comes to wake it while it is stepped.
const MOMENT: Duration = Duration::from_millis(1);

/// What is told: a path, and numbers.
fn told(told: &str) -> (&'static Ring, Vec<u64>) {
    let mut words = told.split(' ');
    let path = words.next().expect("the scenario tells a path");
    let number = |word: &str| word.parse().expect("the scenario tells numbers");
    let numbers = words.map(number).collect();
    let (arena, ring) = open(Path::new(path), STEPS);
    // The first claim of a process hangs its bell; here before the section, so that one thread runs in it.
    let peers = Peers::new(keep(arena));
    peers.hang_bell().expect("a thread is to be had");
    await_parked();
    (keep(ring), numbers)
}

/// The records of a publisher, whose number comes first, of the lengths that follow.
fn labels(numbers: &[u64]) -> Vec<Label> {
    let publisher = u32::try_from(numbers[0]).expect("the scenario numbers few");
    let label = |(count, len): (u64, &u64)| {
        Label::new(publisher, count, usize::try_from(*len).expect("few bytes"))
    };
    (0..).zip(&numbers[1..]).map(label).collect()
}

/// Told: path, publisher, length.
fn publish(_: Option<&Arena>, line: &str) -> Ready {
    let (ring, numbers) = told(line);
    let label = labels(&numbers)[0];
    let (topic, payload) = (label.topic(), label.payload());
    section(move || ring.publish(&topic, &payload), ended_as)
}

/// Told: path, publisher, lengths.
fn many(_: Option<&Arena>, line: &str) -> Ready {
    let (ring, numbers) = told(line);
    let whole = |label: &Label| (label.topic(), label.payload());
    let whole: Vec<_> = labels(&numbers).iter().map(whole).collect();
    let whole = keep(whole);
    let parts: Vec<(&[u8], &[u8])> = whole.iter().map(|(t, p)| (&t[..], &p[..])).collect();
    section(
        move || ring.publish_many(&parts),
        |published| ended_as(published.map(|published| published.expect("it is more than none"))),
    )
}

/// Told: path, publisher, length. Reserved and filled in before.
fn reserved(line: &str) -> Reservation<'static> {
    let (ring, numbers) = told(line);
    let label = labels(&numbers)[0];
    let payload = label.payload();
    let reservation = ring.reserve(&label.topic(), payload.len());
    let mut reservation = reservation.expect("there is room");
    let written = reservation.write(0, &payload);
    written.expect("it is as long as was reserved");
    reservation
}

fn commit(_: Option<&Arena>, line: &str) -> Ready {
    let reservation = reserved(line);
    section(move || reservation.commit(), ended_as)
}

fn let_go(_: Option<&Arena>, line: &str) -> Ready {
    let reservation = reserved(line);
    let seq = reservation.seq();
    section(
        move || drop(reservation),
        move |()| format!("dropped {seq}"),
    )
}

/// What a cursor gave out, to be looked at behind the marks.
#[derive(Default)]
struct Copies(Vec<(u64, Vec<u8>, Vec<u8>, arena_ring::PeerId)>);

impl Copies {
    fn add(&mut self, record: &Record<'_>) {
        let Record {
            seq,
            publisher,
            topic,
            payload,
        } = *record;
        self.0
            .push((seq, topic.to_vec(), payload.to_vec(), publisher));
    }

    /// Reads on to the end; what was given in all, after the counts.
    fn told(mut self, cursor: &mut Cursor) -> String {
        let rest = cursor.drain(usize::MAX, |record| self.add(&record));
        let _how_many = rest.expect("the ring is whole");
        let stats = cursor.stats();
        let mut text = format!(
            "read {} {} {} {}",
            stats.delivered, stats.lapped, stats.abandoned, stats.pending
        );
        for (seq, topic, payload, publisher) in &self.0 {
            let (seq, publisher) = (*seq, *publisher);
            let record = Record {
                seq,
                publisher,
                topic,
                payload,
            };
            let label = Label::of(&record).unwrap_or_else(|wrong| panic!("{wrong}"));
            text.push_str(&format!(" {seq} {} {}", label.name.0, label.name.1));
        }
        text
    }
}

/// Told: path, the number to begin at. Without patience.
fn drain(_: Option<&Arena>, line: &str) -> Ready {
    let (ring, numbers) = told(line);
    let cursor = ring.cursor_from(numbers[0]).expect("the ring is whole");
    let cursor = Box::leak(Box::new(cursor.patience(Some(Duration::ZERO))));
    section(
        move || {
            let mut copies = Copies::default();
            let drained = cursor.drain(usize::MAX, |record| copies.add(&record));
            drained.expect("the ring is whole");
            (copies, cursor)
        },
        |(copies, cursor)| copies.told(cursor),
    )
}

/// Told: path, the number to begin at, which is not published yet.
fn wait(_: Option<&Arena>, line: &str) -> Ready {
    let (ring, numbers) = told(line);
    let cursor = ring.cursor_from(numbers[0]).expect("the ring is whole");
    waiting(cursor)
}

/// Told: path, the number to begin at, which is being published.
fn wait_behind(_: Option<&Arena>, line: &str) -> Ready {
    let (ring, numbers) = told(line);
    let mut cursor = ring.cursor_from(numbers[0]).expect("the ring is whole");
    // What the first such wait of a process sets up is set up before the section.
    let found = cursor
        .next_timeout(Some(MOMENT))
        .expect("the ring is whole");
    assert!(found.is_none(), "{found:?} is not finished");
    await_parked();
    waiting(cursor)
}

fn waiting(cursor: Cursor) -> Ready {
    let cursor = Box::leak(Box::new(cursor));
    section(
        move || {
            let mut copies = Copies::default();
            let found = cursor
                .next_timeout(Some(MOMENT))
                .expect("the ring is whole");
            found.iter().for_each(|record| copies.add(record));
            (copies, cursor)
        },
        |(copies, cursor)| copies.told(cursor),
    )
}
