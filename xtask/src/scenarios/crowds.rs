//! Many who wait for one lease.

use std::{collections::BTreeSet, fs, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    cast::Peer,
    lease::{held, takes},
};
use crate::{
    child::{Child, PATIENCE, Plan, until, waits},
    outcome::{Outcome, Stop, ensure},
    scenario::{Run, Scenario},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "lease",
        "crowd",
        "five_hundred_waiters_behind_one_holder_get_the_lease_in_turn_after_its_release",
        released,
    )
    .rounds(1, 5)
    .limit_secs(240),
    Scenario::new(
        "lease",
        "crowd",
        "five_hundred_waiters_get_the_lease_though_its_holder_and_half_of_them_are_killed",
        killed,
    )
    .rounds(1, 5)
    .limit_secs(240),
];

const CROWD: usize = 500;
const OPTIONS: &str = "slots=600,bytes=1048576";
/// A guard against hanging: with a ttl of ten minutes, a wake-up that is lost is longer away than this.
const GUARD: Duration = Duration::from_secs(200);

/// Goal: no waiter is forgotten. Method: 500 processes sleep behind a holder, which releases; each that has the lease
/// notes it and releases. The notes name each of them once, with fences without a gap.
fn released(run: &mut Run) -> Outcome {
    run.each_round(|run, round| {
        let mut scene = Scene::new(run, round)?;
        scene.holder.must("release", "true")?;
        let ends = scene.crowd.expect_within("gone", GUARD)?;
        ensure!(ends == format!("{CROWD} 0"), "ended well, killed: {ends}");
        let notes = scene.notes()?;
        let pids: BTreeSet<i32> = notes.iter().map(|note| note.pid).collect();
        ensure!(
            pids == scene.pids && notes.len() == CROWD,
            "{} of {CROWD} held, {} times",
            pids.len(),
            notes.len()
        );
        let mut next = scene.fence;
        for note in &notes {
            next += 1;
            ensure!(
                note.how == "new" && note.fence == next,
                "{note:?} where fence {next} was next"
            );
        }
        scene.crowd.finish()
    })
}

/// Goal: nor when those that were woken die. Method: as before, but the holder is killed, and then every other waiter
/// while the lease goes from one to the next. All who live have had it, each under a fence of its own.
fn killed(run: &mut Run) -> Outcome {
    run.each_round(|run, round| {
        let mut scene = Scene::new(run, round)?;
        scene.holder.child.kill_unreaped()?;
        let doomed: BTreeSet<i32> = scene.pids.iter().copied().step_by(2).collect();
        for &pid in &doomed {
            // A random moment: between two turns, or in one.
            std::thread::sleep(Duration::from_micros(run.rng.below(5_000)));
            // The crowd's parent may have reaped it: it had the lease, and ended.
            match kill(Pid::from_raw(pid), Signal::SIGKILL) {
                Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let ends = scene.crowd.expect_within("gone", GUARD)?;
        let notes = scene.notes()?;
        let mut last = scene.fence;
        for note in &notes {
            ensure!(note.fence > last, "{note:?} after fence {last}");
            last = note.fence;
        }
        let pids: BTreeSet<i32> = notes.iter().map(|note| note.pid).collect();
        ensure!(pids.len() == notes.len(), "one held twice");
        let forgotten = scene
            .pids
            .difference(&doomed)
            .filter(|pid| !pids.contains(pid))
            .count();
        ensure!(forgotten == 0, "{forgotten} that live never held");
        let by_death = notes.iter().filter(|note| note.how == "dead").count();
        ensure!(by_death > 0, "nobody took over from the dead");
        run.detail(&format!(
            "{} held, {by_death} from the dead; ended well, killed: {ends}",
            notes.len()
        ));
        scene.crowd.finish()
    })
}

#[derive(Debug)]
struct Note {
    pid: i32,
    fence: u64,
    how: String,
}

/// A holder, and a crowd that sleeps behind it.
struct Scene {
    holder: Peer,
    fence: u64,
    crowd: Child,
    pids: BTreeSet<i32>,
    journal: std::path::PathBuf,
}

impl Scene {
    fn new(run: &Run, round: u32) -> Outcome<Self> {
        let (path, journal) = (run.path("arena"), run.path(&format!("journal.{round}")));
        let mut holder = Peer::started(run, Plan::new("peer").arg(OPTIONS).arg(&path))?;
        holder.must("lease job 600000", "ready")?;
        let fence = takes(&mut holder, "new")?;
        let plan = Plan::new("crowd").arg(OPTIONS).arg(path);
        let mut crowd = run.start(plan.arg(CROWD.to_string()).arg(&journal))?;
        let pids = crowd.expect_within("crowd", GUARD)?;
        let pids: BTreeSet<i32> = pids.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        ensure!(pids.len() == CROWD, "{} were forked", pids.len());
        for &pid in &pids {
            until(PATIENCE, || waits(Pid::from_raw(pid)))
                .map_err(|stop| stop.within("until all of the crowd sleep"))?;
        }
        Ok(Self {
            holder,
            fence,
            crowd,
            pids,
            journal,
        })
    }

    fn notes(&self) -> Outcome<Vec<Note>> {
        let text = fs::read_to_string(&self.journal)?;
        let note = |line: &str| {
            let (pid, answer) = line
                .split_once(' ')
                .ok_or_else(|| Stop::failed(format!("no note: {line:?}")))?;
            let how = answer.rsplit(' ').next().unwrap_or_default();
            Ok(Note {
                pid: pid.parse()?,
                fence: held(answer, how)?,
                how: how.to_owned(),
            })
        };
        text.lines().map(note).collect()
    }
}
