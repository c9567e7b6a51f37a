//! A process killed, or left stopped, after every instruction of each move in a line of standbys, and of sharing a limit.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use arena_core::Arena;
use arena_lease::{ConcurrencyLimit, LatestStandby, Leases, Patience, Place, Succession};
use nix::unistd::getpid;

use super::{
    cast::Peer,
    places::master,
    step::{step, swept},
};
use crate::{
    child::{PATIENCE, states, until},
    outcome::{Outcome, Stop, ensure},
    roles::{
        line_sections::{ALONE_AND_SHARED, once, rules},
        peer::options,
        verbs::table,
    },
    scenario::{Run, Scenario},
    stepper::{Point, Section},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    step(
        "wherever_one_that_moves_up_to_work_ends_or_stands_the_next_works_or_is_behind_it",
        "S3",
        |run| alone(run, |run| Line::new(run, "line", None)),
    ),
    step(
        "wherever_one_that_moves_up_behind_a_master_ends_or_stands_the_next_is_next_in_line",
        "S3",
        |run| alone(run, |run| Line::new(run, "line", Some(master(run)?))),
    ),
    step(
        "wherever_one_that_works_and_leaves_ends_or_stands_the_next_works_or_is_behind_it",
        "S3",
        |run| alone(run, |run| Line::new(run, "leave-line", None)),
    ),
    step(
        "wherever_one_that_shares_ends_or_stands_another_has_it_alone_or_is_refused",
        "shared",
        |run| alone(run, Sharing::new),
    ),
];

/// Sweeps a section in which this process holds places, and returns when the threads that renewed them are gone.
fn alone<S: Section>(run: &mut Run, section: impl FnOnce(&Run) -> Outcome<S>) -> Outcome {
    let threads = || states(getpid()).len();
    let before = threads();
    let mut section = section(run)?;
    swept(run, &mut section)?;
    drop(section);
    until(PATIENCE, || threads() == before)
}

/// The arena of the run, and its leases.
fn opened(run: &Run) -> Outcome<(PathBuf, Arena, Leases)> {
    let path = run.path("arena");
    let arena = options().open(&path)?;
    let leases = table(&arena)?;
    Ok((path, arena, leases))
}

/// Goal: nobody waits behind one that is gone, and nobody works beside another. Method: at each point this process enters
/// the line, and moves up as far as it can without waiting; if it comes to work, it stays until the child's end.
#[derive(Debug)]
struct Line {
    operation: &'static str,
    path: PathBuf,
    arena: Arena,
    latest: LatestStandby,
    /// Works all the time.
    master: Option<Peer>,
    /// This process works.
    rival: Option<Place>,
}

impl Line {
    fn new(run: &Run, operation: &'static str, master: Option<Peer>) -> Outcome<Self> {
        let (path, arena, leases) = opened(run)?;
        Ok(Self {
            operation,
            latest: LatestStandby::open(&leases, "line", &rules())?,
            path,
            arena,
            master,
            rival: None,
        })
    }

    /// Enters, and moves up as far as it can. Whether it works, or is next behind the master.
    fn comes_next(&mut self) -> Outcome<bool> {
        if self.master.is_none() {
            return Ok(match self.latest.acquire(&once())? {
                Succession::Primary(place) => {
                    self.rival = Some(place);
                    true
                }
                Succession::TimedOut | Succession::EntryTaken => false,
                other => return Err(Stop::failed(format!("this process was told {other:?}"))),
            });
        }
        let me = self.arena.me()?;
        let first = Arc::new(Mutex::new(None));
        let (seen, latest) = (Arc::clone(&first), self.latest.clone());
        let patience = Patience::new().ask(move |_| {
            let next = latest.limit().places().swap_remove(1).holder;
            *seen.lock().expect("nobody panics with it") = next.map(|next| next.peer);
            false
        });
        match self.latest.acquire(&patience)? {
            Succession::TimedOut | Succession::EntryTaken => {}
            other => {
                return Err(Stop::failed(format!(
                    "behind a master it was told {other:?}"
                )));
            }
        }
        let first = first.lock().expect("nobody panicked with it");
        Ok(*first == Some(me))
    }
}

impl Section for Line {
    fn name(&self) -> &'static str {
        self.operation
    }

    fn prepare(&mut self, _run: &mut Run, _slow: bool) -> Outcome<String> {
        self.rival = None;
        Ok(self.path.display().to_string())
    }

    fn shared_file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn holds_other_threads(&self) -> bool {
        true
    }

    fn judge(&mut self, point: &Point) -> Outcome {
        let comes_next = self.comes_next()?;
        ensure!(
            comes_next || point.stands(),
            "one that is dead is in the way"
        );
        Ok(())
    }

    fn finished(&mut self, result: &str) -> Outcome {
        let right = match (self.operation, &self.master, &self.rival) {
            ("line", None, None) => "primary true",
            ("line", _, _) => "timed-out",
            _ => "left",
        };
        ensure!(result == right, "it said {result:?}, right is {right:?}");
        if let Some(rival) = &self.rival {
            ensure!(rival.heartbeat().is_ok(), "this process works no more");
        }
        Ok(())
    }

    fn over(&mut self) -> Outcome {
        self.rival = None;
        let comes_next = self.comes_next()?;
        ensure!(comes_next, "one that is gone is in the way");
        self.rival = None;
        if let Some(master) = &mut self.master {
            master.must("beat", "Ok(())")?;
        }
        self.arena.reap();
        Ok(())
    }
}

/// Goal: a limit is never shared beside one that has it alone, and a change of the mode that was left half-made holds nobody
/// up. Method: at each point this process asks for it alone, and keeps it until the child's end.
#[derive(Debug)]
struct Sharing {
    path: PathBuf,
    arena: Arena,
    limit: ConcurrencyLimit,
    alone: Option<Place>,
}

impl Sharing {
    fn new(run: &Run) -> Outcome<Self> {
        let (path, arena, leases) = opened(run)?;
        Ok(Self {
            limit: ConcurrencyLimit::open(&leases, "index", ALONE_AND_SHARED.0, &rules())?,
            path,
            arena,
            alone: None,
        })
    }
}

impl Section for Sharing {
    fn name(&self) -> &'static str {
        "share"
    }

    fn prepare(&mut self, _run: &mut Run, _slow: bool) -> Outcome<String> {
        self.alone = None;
        Ok(self.path.display().to_string())
    }

    fn shared_file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn holds_other_threads(&self) -> bool {
        true
    }

    fn judge(&mut self, point: &Point) -> Outcome {
        self.alone = self.limit.try_acquire()?;
        let in_the_way = self.alone.is_none();
        ensure!(!in_the_way || point.stands(), "one that is dead shares it");
        Ok(())
    }

    fn finished(&mut self, result: &str) -> Outcome {
        let right = if self.alone.is_some() { "none" } else { "1" };
        ensure!(
            result == right,
            "it was given {result:?}, right is {right:?}"
        );
        Ok(())
    }

    fn over(&mut self) -> Outcome {
        self.alone = None;
        let alone = self.limit.try_acquire()?;
        ensure!(alone.is_some(), "one that is gone shares it");
        self.arena.reap();
        Ok(())
    }
}
