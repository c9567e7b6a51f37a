//! Readers that sleep: none is forgotten, and none works for nothing.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

use super::cast::{Reader, Scene, committed, publishes, reserves};
use crate::{
    child::{PATIENCE, Plan, until, waits},
    idleness::{Activity, TICK_NS},
    outcome::{Outcome, Stop, ensure},
    roles::ring as role,
    scenario::{Run, Scenario},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "ring",
        "R8",
        "no_wake_up_is_lost_when_two_wait_for_each_others_records",
        ping_pong,
    )
    .rounds(20, 1_000)
    .limit_secs(120),
    Scenario::new(
        "ring",
        "R8",
        "who_sleeps_behind_a_record_is_woken_by_whatever_ends_it",
        ends,
    )
    .rounds(5, 200),
    Scenario::new(
        "ring",
        "R9",
        "a_reader_that_waits_uses_no_processor_and_looks_once_a_second",
        idle,
    )
    .rounds(1, 5),
];

/// How many records go to and fro in a round.
const TIMES: u64 = 1_000;
/// A sleeper that was forgotten looks after a second by itself; a wake-up takes microseconds.
const FORGOTTEN: Duration = Duration::from_millis(900);

/// Goal: the second look is never what ends a sleep. Method: one record goes to and fro between two processes that sleep for it; a round trip
/// that took as long as a second look is one. Control: both did sleep.
fn ping_pong(run: &mut Run) -> Outcome {
    let path = run.path("arena");
    let [(_arena, ping), (_, pong)] =
        ["ping", "pong"].map(|name| role::open(&path, &format!("{name} 4 8")));
    let mut cursor = pong.cursor();
    let plan = Plan::new("ponger").arg(&path).arg("ping 4 8");
    let mut ponger = run.start(plan.arg("pong 4 8"))?;
    ponger.expect("ponger")?;
    let sleeps =
        || Ok::<_, nix::Error>(getrusage(UsageWho::RUSAGE_SELF)?.voluntary_context_switches());
    let (before, theirs) = (sleeps()?, Activity::of(ponger.pid())?);
    run.each_round(|_, _| {
        ponger.tell(&format!("serve {TIMES}"))?;
        for time in 0..TIMES {
            let began = Instant::now();
            ensure!(
                ping.publish(b"", &time.to_le_bytes())?.is_committed(),
                "not committed"
            );
            let record = cursor.next_timeout(Some(PATIENCE))?;
            let record = record.ok_or_else(|| Stop::failed("no answer came"))?;
            ensure!(
                record.payload == time.to_le_bytes(),
                "{record:?} is no answer to {time}"
            );
            let took = began.elapsed();
            ensure!(
                took < FORGOTTEN,
                "an answer took {took:?}: a sleeper was forgotten"
            );
        }
        ponger.expect("served").map(drop)
    })?;
    let ours = sleeps()? - before;
    let theirs = Activity::of(ponger.pid())?.since(theirs).sleeps;
    let theirs = u64::from(theirs);
    let all = u64::from(run.rounds) * TIMES;
    run.detail(&format!("{all} rounds, {ours} and {theirs} sleeps"));
    ensure!(
        u64::try_from(ours)? > all / 20 && theirs > all / 20,
        "of {all} rounds, {ours} and {theirs} were slept for: nothing is shown"
    );
    ponger.finish()
}

/// What ends a record.
const ENDS: [&str; 4] = ["commit", "drop", "withdraw", "kill"];

/// Goal: nobody who waits for a record is forgotten when it ends. Method: two readers sleep behind one; it is committed, dropped, withdrawn by
/// a third, or its publisher is killed. Both are given what comes next before they would look by themselves.
fn ends(run: &mut Run) -> Outcome {
    run.each_round(|run, round| {
        for end in ENDS {
            let mut scene = Scene::new(run, &format!("{end}{round}"), 16, 64);
            let mut readers = [scene.reader(run, "now")?, scene.reader(run, "now")?];
            let mut hasty = scene.reader(run, "now")?;
            hasty.peer.ask("patience 0")?;
            let (mut slow, mut quick) = (scene.publisher(run)?, scene.publisher(run)?);
            reserves(&mut slow, 8)?;
            slow.ask("fill all")?;
            publishes(&mut quick, 8)?;
            for reader in &mut readers {
                reader.peer.child.tell("await 1")?;
                until(PATIENCE, || waits(reader.peer.child.pid()))?;
            }
            let began = Instant::now();
            match end {
                "commit" => _ = committed(&slow.ask("commit")?)?,
                "drop" => _ = slow.ask("drop")?,
                "withdraw" => _ = hasty.drain()?,
                _ => slow.child.kill_unreaped()?,
            }
            for reader in &mut readers {
                reader.stats_of("await")?;
            }
            let took = began.elapsed();
            ensure!(
                took < FORGOTTEN,
                "{took:?} after {end}: a sleeper was forgotten"
            );
            if end == "withdraw" {
                slow.must("commit", "withdrawn 1")?;
            }
            scene.judge(readers.into_iter().chain([hasty]))?;
            quick.leave()?;
        }
        Ok(())
    })
}

/// Goal: waiting costs nothing. Method: for five seconds one reader sleeps in an empty ring and one behind a stopped publisher's record; all
/// their threads are looked at. Control: both are given a record afterwards.
fn idle(run: &mut Run) -> Outcome {
    const TIME: Duration = Duration::from_secs(5);
    run.each_round(|run, round| {
        let mut empty = Scene::new(run, &format!("empty{round}"), 16, 64);
        let mut behind = Scene::new(run, &format!("behind{round}"), 16, 64);
        let mut readers = [empty.reader(run, "now")?, behind.reader(run, "now")?];
        let (mut publisher, mut stopped) = (empty.publisher(run)?, behind.publisher(run)?);
        reserves(&mut stopped, 8)?;
        stopped.child.stop()?;
        for reader in &mut readers {
            reader.peer.child.tell("await 1")?;
            until(PATIENCE, || waits(reader.peer.child.pid()))?;
        }
        let activity = |readers: &[Reader]| {
            let of = |reader: &Reader| Activity::of(reader.peer.child.pid());
            readers.iter().map(of).collect::<Outcome<Vec<_>>>()
        };
        let before = activity(&readers)?;
        std::thread::sleep(TIME);
        let after = activity(&readers)?;
        for (before, after) in before.into_iter().zip(after) {
            let done = after.since(before);
            // One more: a look may fall on each end of the time.
            ensure!(
                done.ran_ns < TICK_NS && u64::from(done.sleeps) <= TIME.as_secs() + 1,
                "in {TIME:?} a reader with nothing to read did {done:?}"
            );
            run.detail(&format!("in {TIME:?}: {done:?}"));
        }
        stopped.child.cont()?;
        stopped.ask("fill all")?;
        committed(&stopped.ask("commit")?)?;
        publishes(&mut publisher, 8)?;
        for reader in &mut readers {
            ensure!(
                reader.stats_of("await")?.counts.delivered == 1,
                "it was not woken"
            );
        }
        publisher.leave()?;
        stopped.leave()
    })
}
