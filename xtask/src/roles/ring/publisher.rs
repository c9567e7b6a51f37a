//! A process that publishes, as it is told or as chance has it.

use std::time::Duration;

use arena_ring::{PublishError, Published, Reservation, Ring};

use super::{LABEL_BYTES, Label, ended_as, hear_stop, is_spoken_to, notes::Notes, opened};
use crate::{rng::Rng, text, told::Told};

/// Attaches, says who it is, and obeys. The arguments: path, ring, its number, seed, the file of its notes.
pub(super) fn publisher(mut told: Told) {
    let (arena, ring) = opened(&mut told);
    let number = u32::try_from(told.number()).expect("the scenario numbers few");
    let rng = Rng::new(told.number(), "publisher");
    let me = arena.me().expect("an arena that was opened is attached to");
    let mut publisher = Publisher {
        ring: &ring,
        number,
        count: 0,
        notes: Notes::new(&told.arg()),
        rng,
        open: None,
    };
    told.say(&format!("peer {}", text::id(me)));
    loop {
        let line = told.hear();
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] == "end" {
            return;
        }
        let answer = publisher.obey(&words);
        hear_stop(&told, words[0]);
        told.say(&format!("{} {answer}", words[0]));
    }
}

struct Publisher<'a> {
    ring: &'a Ring,
    number: u32,
    /// How many records were begun; one that was refused is begun again.
    count: u64,
    notes: Notes,
    rng: Rng,
    open: Option<Open<'a>>,
}

/// A record that is filled in where it lies.
struct Open<'a> {
    reservation: Reservation<'a>,
    label: Label,
}

impl<'a> Publisher<'a> {
    fn obey(&mut self, words: &[&str]) -> String {
        let number = |at: usize| -> usize {
            let word = words.get(at).expect("the scenario gives each number");
            word.parse().expect("the scenario gives a number here")
        };
        match words[0] {
            "publish" => ended_as(self.publish(number(1))),
            "many" => {
                let lens: Vec<usize> = (1..words.len()).map(number).collect();
                ended_as(self.many(&lens))
            }
            "burst" => {
                let (times, len) = (number(1), number(2));
                let all = (0..times).all(|_| self.publish(len).is_ok_and(Published::is_committed));
                all.to_string()
            }
            "reserve" => match self.reserve(number(1)) {
                Ok(seq) => seq.to_string(),
                Err(e) => text::error(&e),
            },
            // Of its bytes, the first half; the second; all.
            "fill" => {
                self.fill(words[1]);
                "filled".to_owned()
            }
            "commit" => ended_as(self.commit()),
            "drop" => {
                self.drop_it();
                "dropped".to_owned()
            }
            "run" => {
                (0..number(1)).for_each(|_| _ = self.any());
                self.count.to_string()
            }
            // Until it is told to stop; at most so many microseconds between two records.
            "free" => self.free(number(1)),
            other => panic!("a publisher does not {other}"),
        }
    }

    fn begin(&mut self, lens: &[usize]) -> Vec<Label> {
        self.notes.begun(self.count, wide(lens.len()));
        let counts = self.count..;
        let label = |(count, len): (u64, &usize)| Label::new(self.number, count, *len);
        counts.zip(lens).map(label).collect()
    }

    /// One that was refused was not published, so its place in the row is the next one's.
    fn ended(&mut self, count: usize, published: Published) {
        self.notes.ended(self.count, wide(count), published);
        self.count += wide(count);
    }

    fn publish(&mut self, len: usize) -> Result<Published, PublishError> {
        let label = self.begin(&[len])[0];
        let published = self.ring.publish(&label.topic(), &label.payload())?;
        self.ended(1, published);
        Ok(published)
    }

    fn many(&mut self, lens: &[usize]) -> Result<Published, PublishError> {
        let labels = self.begin(lens);
        let whole = |label: &Label| (label.topic(), label.payload());
        let whole: Vec<_> = labels.iter().map(whole).collect();
        let parts: Vec<(&[u8], &[u8])> = whole.iter().map(|(t, p)| (&t[..], &p[..])).collect();
        let published = self.ring.publish_many(&parts)?;
        let published = published.expect("the scenario publishes one at least");
        self.ended(lens.len(), published);
        Ok(published)
    }

    fn reserve(&mut self, len: usize) -> Result<u64, PublishError> {
        let label = self.begin(&[len])[0];
        let reservation = self.ring.reserve(&label.topic(), len)?;
        let seq = reservation.seq();
        self.count += 1;
        self.open = Some(Open { reservation, label });
        Ok(seq)
    }

    fn fill(&mut self, which: &str) {
        let open = self.open.as_mut().expect("it was reserved");
        let payload = open.label.payload();
        let half = payload.len() / 2;
        let (from, bytes) = match which {
            "first" => (0, &payload[..half]),
            "second" => (half, &payload[half..]),
            "all" => (0, &payload[..]),
            other => panic!("no half of a record is the {other}"),
        };
        let written = open.reservation.write(wide(from), bytes);
        written.expect("the payload is as long as was reserved");
    }

    fn commit(&mut self) -> Result<Published, PublishError> {
        let Open { reservation, label } = self.open.take().expect("it was reserved");
        let published = reservation.commit()?;
        self.notes.ended(label.name.1, 1, published);
        Ok(published)
    }

    fn drop_it(&mut self) {
        let Open { reservation, label } = self.open.take().expect("it was reserved");
        let seq = reservation.seq();
        drop(reservation);
        self.notes.dropped(label.name.1, seq);
    }

    /// From nothing to `most` bytes, short ones oftener.
    fn len(&mut self, most: usize) -> usize {
        let len = self.rng.index(most + 1);
        len >> self.rng.below(8)
    }

    fn room(&self) -> usize {
        let room = usize::try_from(self.ring.max_record()).expect("an address space has 64 bits");
        room.saturating_sub(LABEL_BYTES)
    }

    /// Something of all that can be done. Refused only where the slots of one that stands still are in the way.
    fn any(&mut self) -> bool {
        let room = self.room();
        let outcome = match self.rng.below(20) {
            0..=9 => {
                let len = self.len(room / 4);
                self.publish(len).map(drop)
            }
            10..=13 => {
                let count = 1 + self.rng.index(4);
                // Each with its label and lengths.
                let share = (room / 8 / count).saturating_sub(2 * LABEL_BYTES);
                let lens: Vec<usize> = (0..count).map(|_| self.len(share)).collect();
                match self.many(&lens) {
                    // In the smallest rings a batch may be too much.
                    Err(PublishError::TooLarge { .. }) => Ok(()),
                    outcome => outcome.map(drop),
                }
            }
            14 => {
                let len = self.len(room);
                self.publish(len).map(drop)
            }
            kind => {
                let len = self.len(room / 4);
                self.reserved(kind, len)
            }
        };
        match outcome {
            Ok(()) => true,
            Err(PublishError::Blocked { .. }) => false,
            Err(e) => panic!("not published: {}", text::error(&e)),
        }
    }

    fn reserved(&mut self, kind: u64, len: usize) -> Result<(), PublishError> {
        self.reserve(len)?;
        self.fill("first");
        if kind == 15 {
            self.drop_it();
            return Ok(());
        }
        // Another one overtakes it.
        let between = match kind {
            16 | 17 => self.publish(len).map(drop),
            _ => Ok(()),
        };
        self.fill("second");
        let _whatever_became_of_it = self.commit()?;
        between
    }

    fn free(&mut self, pace_us: usize) -> String {
        let mut refused = 0;
        while !is_spoken_to() {
            if !self.any() {
                refused += 1;
            }
            if pace_us > 0 {
                let pause = self.rng.below(wide(pace_us));
                std::thread::sleep(Duration::from_micros(pause));
            }
        }
        refused.to_string()
    }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).expect("usize is at most 64 bits")
}
