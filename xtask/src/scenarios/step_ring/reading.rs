//! A reader that is killed, or stands, at each point.

use std::path::Path;

use arena_ring::{Published, Reservation};

use super::play::{Others, Play, Seen, Witness};
use crate::{
    outcome::{Outcome, Stop, ensure},
    roles::ring::{STEPS, open},
    scenario::Run,
    stepper::{Point, Section, sweep},
    streams::{Counts, End, Reader},
    text,
};

pub(super) fn reading(run: &mut Run, operation: &'static str, others: Others) -> Outcome {
    let (_, ring) = open(&run.path("arena"), STEPS);
    let mut section = Reading {
        operation,
        others,
        play: Play::new(run, &ring),
        open: None,
        witness: None,
        child: None,
        seen: Seen::default(),
    };
    let swept = sweep(run, &mut section, &[])?;
    let seen = section.seen;
    run.detail(&format!(
        "{} instructions, {} points: {seen:?}",
        swept.instructions, swept.points
    ));
    let must = match (operation, others) {
        ("ring-drain", Others::Wait) => seen.withdrawn > 0 && seen.whole > 0,
        ("ring-drain", _) => seen.lapsed > 0,
        _ => seen.whole > 0,
    };
    ensure!(must, "too little happened: {seen:?}");
    Ok(())
}

/// Goal: a reader harms nobody, and is given or counts each record once, wherever it is interrupted. Method: the child reads what this process
/// published, with an unfinished record between, or sleeps for what comes; at each point this process publishes and reads.
struct Reading<'a> {
    operation: &'static str,
    others: Others,
    play: Play<'a>,
    /// This process's unfinished record, and its place among its own.
    open: Option<(Reservation<'a>, usize)>,
    witness: Option<Witness>,
    child: Option<Reader>,
    seen: Seen,
}

impl Reading<'_> {
    fn reserve(&mut self) -> Outcome {
        let label = self.play.label(150);
        let payload = label.payload();
        let mut open = self.play.ring.reserve(&label.topic(), payload.len())?;
        open.write(0, &payload)?;
        let seq = open.seq();
        self.open = Some((open, self.play.mine.len()));
        self.play.mine.push((seq, End::Not));
        Ok(())
    }

    fn witness(&mut self) -> &mut Witness {
        self.witness.as_mut().expect("it was made before the child")
    }

    fn commit(&mut self) -> Outcome {
        let Some((open, at)) = self.open.take() else {
            return Ok(());
        };
        match open.commit()? {
            Published::Committed { .. } => {
                self.play.mine[at].1 = End::Committed;
                self.seen.whole += 1;
            }
            Published::Withdrawn { .. } => self.seen.withdrawn += 1,
            Published::Lapsed { .. } => self.seen.lapsed += 1,
        }
        Ok(())
    }
}

impl Section for Reading<'_> {
    fn name(&self) -> &'static str {
        self.operation
    }

    fn prepare(&mut self, _run: &mut Run, _slow: bool) -> Outcome<String> {
        self.play.next_point();
        self.child = None;
        self.witness = Some(self.play.witness(None));
        match self.operation {
            "ring-drain" => {
                self.play.publish(40)?;
                self.play.publish(130)?;
                self.reserve()?;
                self.play.publish(10)?;
            }
            "ring-wait-behind" => self.reserve()?,
            _ => {}
        }
        let (path, next) = (self.play.path.display(), self.play.before + 1);
        Ok(format!("{path} {next}"))
    }

    fn shared_file(&self) -> Option<&Path> {
        Some(&self.play.path)
    }

    fn judge(&mut self, _point: &Point) -> Outcome {
        self.play.others(self.others)?;
        self.witness().drain()?;
        if self.operation == "ring-wait-behind" {
            self.commit()?;
        }
        Ok(())
    }

    fn finished(&mut self, result: &str) -> Outcome {
        let words: Vec<&str> = result.split(' ').collect();
        let numbers = words[1..].iter().map(|word| text::number(word));
        let numbers: Vec<u64> = numbers.collect::<Outcome<_>>()?;
        let ("read", [delivered, lapped, abandoned, pending, given @ ..]) =
            (words[0], &numbers[..])
        else {
            return Err(Stop::failed(format!("it said {result:?}")));
        };
        ensure!(
            *pending == 0 || self.open.is_some(),
            "it left {pending} records, and nothing is in the way"
        );
        let name = |one: &[u64]| Ok((one[0], (u32::try_from(one[1])?, one[2])));
        self.child = Some(Reader {
            from: 1,
            given: given.chunks(3).map(name).collect::<Outcome<_>>()?,
            counts: Some(Counts {
                delivered: *delivered,
                lapped: *lapped,
                abandoned: *abandoned,
                pending: *pending,
            }),
        });
        Ok(())
    }

    fn over(&mut self) -> Outcome {
        // The trace's own runs are not judged, and have nothing open but what the child withdrew.
        self.commit()?;
        self.witness().drain()?;
        let witness = self.witness.take().expect("it was there above");
        self.play
            .judge((0, None), &[witness], self.child.as_ref())?;
        if self.operation.starts_with("ring-wait") && self.child.is_some() {
            self.seen.whole += 1;
        }
        self.play.slots_are_back()?;
        self.play.arena.reap();
        Ok(())
    }
}
