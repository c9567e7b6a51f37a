//! A publisher that is killed, or stands, at each point.

use std::{path::Path, time::Duration};

use super::play::{Others, Play, Seen, Witness};
use crate::{
    outcome::{Outcome, ensure},
    roles::ring::{STEPS, open},
    scenario::Run,
    stepper::{Point, Section, sweep},
    streams::End,
    text,
};

pub(super) fn publishing(
    run: &mut Run,
    operation: &'static str,
    lens: &'static [u64],
    others: Others,
) -> Outcome {
    let (_, ring) = open(&run.path("arena"), STEPS);
    let mut section = Publishing {
        operation,
        lens,
        others,
        play: Play::new(run, &ring),
        readers: Vec::new(),
        seen: Seen::default(),
    };
    let swept = sweep(run, &mut section, &[])?;
    let seen = section.seen;
    run.detail(&format!(
        "{} instructions, {} points: {seen:?}",
        swept.instructions, swept.points
    ));
    // One that is killed before it commits has begun; one that drops may end it by its last instruction.
    let must = match others {
        Others::Wait => seen.abandoned > 0 && seen.stood > 0,
        Others::Withdraw => seen.withdrawn > 0,
        Others::Lap | Others::WithdrawAndLap => operation == "ring-drop" || seen.lapsed > 0,
    };
    ensure!(must && seen.whole > 0, "too little happened: {seen:?}");
    Ok(())
}

/// Goal: a record is whole for all or for none, whatever its publisher comes to; nobody is held up by more than a record that is unfinished
/// by one who lives. Method: at each point this process publishes, and reads with one cursor that is always there, one that reads only in the
/// end, and one without patience; when the child has come to its end, all that was said is judged.
struct Publishing<'a> {
    operation: &'static str,
    lens: &'static [u64],
    others: Others,
    play: Play<'a>,
    /// Who reads at once, who reads in the end, and who has no patience.
    readers: Vec<Witness>,
    seen: Seen,
}

impl Publishing<'_> {
    fn said(&mut self, result: &str) -> Outcome<(u64, End)> {
        let (word, seq) = result.split_once(' ').unwrap_or((result, ""));
        let right = match (word, self.others) {
            ("committed", _) => self.operation != "ring-drop",
            ("dropped", _) => self.operation == "ring-drop",
            ("withdrawn", others) => others.withdraw(),
            ("lapsed", others) => others.go_around(),
            _ => false,
        };
        ensure!(right, "it said {result:?}");
        match word {
            "withdrawn" => self.seen.withdrawn += 1,
            "lapsed" => self.seen.lapsed += 1,
            _ => self.seen.whole += 1,
        }
        let end = match word {
            "committed" => End::Committed,
            _ => End::Not,
        };
        Ok((text::number(seq)?, end))
    }

    fn end(&mut self, ended: Option<(u64, End)>) -> Outcome {
        for reader in &mut self.readers {
            reader.drain()?;
        }
        let begun = u64::try_from(self.lens.len())?;
        let readers = std::mem::take(&mut self.readers);
        self.play.judge((begun, ended), &readers, None)
    }
}

impl Section for Publishing<'_> {
    fn name(&self) -> &'static str {
        self.operation
    }

    fn prepare(&mut self, _run: &mut Run, _slow: bool) -> Outcome<String> {
        self.play.next_point();
        let hasty = self.others.withdraw().then_some(Duration::ZERO);
        self.readers = [None, None, hasty]
            .map(|patience| self.play.witness(patience))
            .into();
        let lens: Vec<String> = self.lens.iter().map(u64::to_string).collect();
        let (path, number) = (self.play.path.display(), self.play.number + 1);
        Ok(format!("{path} {number} {}", lens.join(" ")))
    }

    fn shared_file(&self) -> Option<&Path> {
        Some(&self.play.path)
    }

    fn judge(&mut self, point: &Point) -> Outcome {
        self.play.publish(40)?;
        let quick = &mut self.readers[0];
        quick.drain()?;
        match quick.cursor.waits_for() {
            Some(by) => {
                ensure!(
                    point.stands() && self.play.is_child(by, point),
                    "a reader stands behind {by}, which is not a child that stands still"
                );
                self.seen.stood += 1;
            }
            None => ensure!(
                quick.is_at_the_end(),
                "a reader stands behind nobody: {:?}",
                quick.cursor.stats()
            ),
        }
        if !point.stands() {
            self.seen.abandoned += u32::from(quick.cursor.stats().abandoned > 0);
            self.play.others(Others::Lap)?;
            return self.readers[0].drain();
        }
        if self.others.withdraw() {
            self.readers[2].drain()?;
        }
        self.play.others(self.others)?;
        let quick = &mut self.readers[0];
        quick.drain()?;
        ensure!(
            self.others == Others::Wait || quick.is_at_the_end(),
            "a reader is held up by a record that is over: {:?}",
            quick.cursor.stats()
        );
        Ok(())
    }

    fn finished(&mut self, result: &str) -> Outcome {
        let ended = self.said(result)?;
        self.end(Some(ended))
    }

    fn over(&mut self) -> Outcome {
        // Of one that was killed nothing is known; the other one was judged with what it said.
        if !self.readers.is_empty() {
            self.end(None)?;
        }
        self.play.slots_are_back()?;
        self.play.arena.reap();
        Ok(())
    }
}
