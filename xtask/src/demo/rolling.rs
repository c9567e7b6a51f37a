//! A rolling restart: new workers come every so often; the newest waits, older ones bow out, and it takes over.

use std::time::{Duration, Instant};

use arena_core::clock;

use super::{GUARD, line, millis};
use crate::{
    child::{Child, Plan},
    outcome::{Outcome, Stop, ensure},
    scratch::Scratch,
    text,
};

/// How long after one worker the next one comes.
const EVERY: Duration = Duration::from_millis(300);

pub(super) fn show() -> Outcome {
    let scratch = Scratch::new("rolling")?;
    let mut line = Line {
        scratch: &scratch,
        began_ns: clock::boot_ns(),
        hired: 0,
        bowed_out: 0,
        fence: 0,
    };
    println!();
    println!("a rolling restart: one works, the newest of the others waits, older ones bow out");
    let mut works = line.hire(false)?;
    line.works(&mut works, None)?;
    let mut newest = line.arrivals(4)?;
    works.child.tell("end")?;
    let ended_ns = line.ends(&mut works, "released", "is told to end, and ends")?;
    line.works(&mut newest, Some(ended_ns))?;
    works = newest;
    newest = line.arrivals(2)?;
    let killed_ns = clock::boot_ns();
    works.child.kill_unreaped()?;
    line.says(killed_ns, &works, "is killed (SIGKILL), and not reaped");
    line.works(&mut newest, Some(killed_ns))?;
    works = newest;
    line.pause();
    newest = line.hire(true)?;
    let made_room_ns = line.ends(&mut works, "made-room", "is asked to make room, and does")?;
    line.works(&mut newest, Some(made_room_ns))?;
    println!(
        "{} workers came, {} bowed out to a newer one, and never did two work",
        line.hired, line.bowed_out
    );
    Ok(())
}

struct Line<'a> {
    scratch: &'a Scratch,
    began_ns: u64,
    hired: usize,
    bowed_out: usize,
    /// The newest that anybody worked under.
    fence: u64,
}

struct Worker {
    number: usize,
    id: String,
    child: Child,
}

impl Line<'_> {
    fn hire(&mut self, replaces: bool) -> Outcome<Worker> {
        self.hired += 1;
        let plan = Plan::new("demo-rolling").arg(self.scratch.path().join("arena"));
        let plan = plan.arg(if replaces { "replace" } else { "wait" });
        let mut child = plan.start(self.scratch.path())?;
        let id = child.expect("peer")?;
        let worker = Worker {
            number: self.hired,
            id,
            child,
        };
        let what = match replaces {
            true => "comes, and asks the one that works to make room",
            false => "comes",
        };
        self.says(clock::boot_ns(), &worker, what);
        Ok(worker)
    }

    /// So many come, one after the other; the one that waits in the end.
    fn arrivals(&mut self, count: usize) -> Outcome<Worker> {
        let mut waits: Option<Worker> = None;
        for _ in 0..count {
            self.pause();
            let newer = self.hire(false)?;
            if let Some(mut older) = waits.take() {
                let said = older.child.expect_within("replaced", GUARD)?;
                let (at, by) = said.split_once(' ').unwrap_or((&said, ""));
                ensure!(
                    by == newer.id,
                    "{} bowed out to {by}, not to {}",
                    older.id,
                    newer.id
                );
                let what = format!("bows out: worker {} is newer", newer.number);
                self.says(text::number(at)?, &older, &what);
                self.bowed_out += 1;
            }
            waits = Some(newer);
        }
        self.pause();
        waits.ok_or_else(|| Stop::failed("nobody came"))
    }

    /// This one works now; nobody has since `since_ns`.
    fn works(&mut self, worker: &mut Worker, since_ns: Option<u64>) -> Outcome {
        let said = worker.child.expect_within("primary", GUARD)?;
        let (at, fence) = said.split_once(' ').unwrap_or((&said, ""));
        let (at_ns, fence) = (text::number(at)?, text::number(fence)?);
        ensure!(
            fence > self.fence,
            "fence {fence} does not exceed {}",
            self.fence
        );
        self.fence = fence;
        let gap = match since_ns {
            None => String::new(),
            Some(since_ns) => {
                ensure!(at_ns >= since_ns, "two worked at once");
                format!(", {} ms later", millis(at_ns - since_ns))
            }
        };
        self.says(at_ns, worker, &format!("WORKS under fence {fence}{gap}"));
        Ok(())
    }

    /// The one that works stops to, and says so; when.
    fn ends(&self, worker: &mut Worker, point: &str, what: &str) -> Outcome<u64> {
        let at_ns = text::number(&worker.child.expect_within(point, GUARD)?)?;
        self.says(at_ns, worker, what);
        Ok(at_ns)
    }

    fn says(&self, at_ns: u64, worker: &Worker, what: &str) {
        let ns = at_ns.saturating_sub(self.began_ns);
        line(ns, worker.number, &worker.child, what);
    }

    /// Nothing is waited for: this is for who watches.
    fn pause(&self) {
        let end = Instant::now() + EVERY;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            std::thread::sleep(left);
        }
    }
}
