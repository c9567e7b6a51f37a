//! Publishers that die, stand still, or are not reaped, in the middle of a record.

use std::time::Duration;

use super::cast::{Reader, Scene, committed, publishes, reserves};
use crate::{
    child::{PATIENCE, until, waits},
    outcome::{Outcome, ensure},
    scenario::{Run, Scenario},
    scenarios::cast::Peer,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "ring",
        "R1",
        "a_publisher_killed_in_its_record_costs_each_reader_that_record_and_nothing_else",
        killed,
    )
    .rounds(3, 100),
    Scenario::new(
        "ring",
        "R1",
        "a_publisher_that_nobody_reaped_holds_no_reader_up",
        zombie,
    )
    .rounds(3, 100),
    Scenario::new(
        "ring",
        "R2",
        "eight_readers_that_see_two_publishers_die_count_each_unfinished_record_once",
        together,
    )
    .rounds(10, 500),
    Scenario::new(
        "ring",
        "R3",
        "a_stopped_publishers_record_is_skipped_by_nobody_and_delivered_when_it_goes_on",
        stopped,
    )
    .limit_secs(120),
    Scenario::new(
        "ring",
        "R3",
        "a_record_that_a_reader_withdrew_is_abandoned_for_all_and_its_publisher_is_told",
        withdrawn,
    )
    .rounds(5, 200),
    Scenario::new(
        "ring",
        "R12",
        "the_late_bytes_of_a_publisher_that_was_lapped_are_in_no_record_and_its_slots_come_back",
        lapped,
    )
    .rounds(5, 200),
];

/// What a publisher has done when it is killed.
const POINTS: [&[&str]; 4] = [&[], &["fill first"], &["fill all"], &["fill all", "commit"]];

/// Goal: a record is whole or not at all, and its death is known. Method: a publisher is killed behind its claim, half
/// of its copy, all of it, and its commit; another one publishes on. What a reader is given is looked at byte by byte.
fn killed(run: &mut Run) -> Outcome {
    run.each_round(|run, round| {
        for (point, verbs) in POINTS.iter().enumerate() {
            let mut scene = Scene::new(run, &format!("r{round}.{point}"), 32, 64);
            let span = scene.payload_of(1 + run.rng.below(4));
            let (mut reader, mut other) = (scene.reader(run, "now")?, scene.publisher(run)?);
            let mut doomed = scene.publisher(run)?;
            reserves(&mut doomed, span)?;
            for verb in *verbs {
                doomed.ask(verb)?;
            }
            publishes(&mut other, 8)?;
            doomed.child.kill()?;
            publishes(&mut other, 8)?;
            let stats = reader.stats_after("await 2")?;
            let is_committed = verbs.contains(&"commit");
            if is_committed {
                reader.stats_after("await 1")?;
            }
            let abandoned = u64::from(!is_committed);
            ensure!(
                stats.counts.abandoned == abandoned && stats.counts.lapped == 0,
                "killed after {verbs:?}: {stats:?}"
            );
            let judged = scene.judge([reader])?;
            other.leave()?;
            ensure!(judged.given == 2 + verbs.len() / 2, "{judged:?}");
        }
        Ok(())
    })
}

/// Goal: a zombie is as dead as one that was reaped. Method: a reader sleeps behind a record whose publisher is killed, and
/// left unreaped.
fn zombie(run: &mut Run) -> Outcome {
    run.each_round(|run, round| {
        let mut scene = Scene::new(run, &format!("r{round}"), 32, 64);
        let (mut reader, mut other) = (scene.reader(run, "now")?, scene.publisher(run)?);
        let mut doomed = scene.publisher(run)?;
        reserves(&mut doomed, 100)?;
        publishes(&mut other, 8)?;
        reader.peer.child.tell("await 1")?;
        until(PATIENCE, || waits(reader.peer.child.pid()))?;
        doomed.child.kill_unreaped()?;
        let stats = reader.stats_of("await")?;
        ensure!(
            (stats.counts.delivered, stats.counts.abandoned) == (1, 1),
            "{stats:?}"
        );
        scene.judge([reader])?;
        other.leave()
    })
}

/// Goal: however many notice a death at once, it is counted once by each, and nobody goes back. Method: eight readers
/// sleep behind two records of four publishers; these two are killed together.
fn together(run: &mut Run) -> Outcome {
    let mut scene = Scene::new(run, "together", 64, 64);
    let readers = (0..8).map(|_| scene.reader(run, "now"));
    let mut readers: Vec<Reader> = readers.collect::<Outcome<_>>()?;
    let mut living = [scene.publisher(run)?, scene.publisher(run)?];
    let mut next = 1;
    run.each_round(|run, round| {
        let mut doomed = [scene.publisher(run)?, scene.publisher(run)?];
        let len = scene.payload_of(1 + run.rng.below(3));
        // In turns, so that what is unfinished lies between what is committed.
        for (doomed, living) in doomed.iter_mut().zip(&mut living) {
            reserves(doomed, len)?;
            doomed.ask("fill first")?;
            reserves(living, len)?;
            living.ask("fill all")?;
        }
        for reader in &mut readers {
            reader.peer.child.tell("await 2")?;
        }
        for reader in &readers {
            until(PATIENCE, || waits(reader.peer.child.pid()))?;
        }
        for living in &mut living {
            committed(&living.ask("commit")?)?;
        }
        for doomed in &mut doomed {
            doomed.child.kill_unreaped()?;
        }
        next += 4;
        for reader in &mut readers {
            let stats = reader.stats_of("await")?;
            let counts = stats.counts;
            let rounds = u64::from(round) + 1;
            let right = (2 * rounds, 0, 2 * rounds, 0, next);
            let found = (counts.delivered, counts.lapped, counts.abandoned);
            ensure!(
                (found.0, found.1, found.2, counts.pending, stats.next) == right,
                "{stats:?}, where {right:?} is right"
            );
        }
        Ok(())
    })?;
    let judged = scene.judge(readers)?;
    run.detail(&format!(
        "{} given, {} abandoned",
        judged.given, judged.abandoned
    ));
    living.into_iter().try_for_each(Peer::leave)
}

/// Goal: no clock ends a record. Method: a publisher is stopped in a record for seconds, in which two readers, one of which sleeps, stand
/// before it, though others publish. It goes on, and all comes in its order.
fn stopped(run: &mut Run) -> Outcome {
    let mut scene = Scene::new(run, "stopped", 64, 64);
    let (mut looks, mut sleeps) = (scene.reader(run, "now")?, scene.reader(run, "now")?);
    let (mut slow, mut other) = (scene.publisher(run)?, scene.publisher(run)?);
    let len = scene.payload_of(3);
    reserves(&mut slow, len)?;
    slow.ask("fill first")?;
    slow.child.stop()?;
    let all = 4;
    sleeps.peer.child.tell(&format!("await {all}"))?;
    let time = Duration::from_secs(if run.full { 10 } else { 2 });
    let began = std::time::Instant::now();
    let mut published = 0;
    while began.elapsed() < time || published < all - 1 {
        if published < all - 1 {
            publishes(&mut other, 8)?;
            published += 1;
        }
        let drained = looks.drain()?;
        let stats = looks.stats()?;
        ensure!(
            drained == 0 && stats.next == 1 && stats.waits_for.as_ref() == Some(&slow.id),
            "{drained} records were given while the first stands: {stats:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    ensure!(
        !sleeps.peer.child.speaks(),
        "the sleeper was given something"
    );
    slow.child.cont()?;
    slow.ask("fill second")?;
    let seq = committed(&slow.ask("commit")?)?;
    let stats = sleeps.stats_of("await")?;
    ensure!(
        seq == 1 && stats.counts.delivered == all && stats.counts.abandoned == 0,
        "{stats:?}"
    );
    let drained = looks.drain()?;
    ensure!(drained == all, "{drained} of {all} were given");
    scene.judge([looks, sleeps])?;
    slow.leave()?;
    other.leave()
}

/// Goal: a reader's patience decides for all, and the publisher learns it. Method: a publisher is stopped in a record; of two readers
/// that sleep behind it, one has patience.
fn withdrawn(run: &mut Run) -> Outcome {
    run.each_round(|run, round| {
        let mut scene = Scene::new(run, &format!("r{round}"), 64, 64);
        let (mut patient, mut other) = (scene.reader(run, "now")?, scene.reader(run, "now")?);
        let (mut slow, mut quick) = (scene.publisher(run)?, scene.publisher(run)?);
        let len = scene.payload_of(1 + run.rng.below(4));
        reserves(&mut slow, len)?;
        slow.ask("fill first")?;
        slow.child.stop()?;
        publishes(&mut quick, 8)?;
        let patience = run.rng.below(30);
        patient.peer.ask(&format!("patience {patience}"))?;
        other.peer.child.tell("await 1")?;
        patient.peer.child.tell("await 1")?;
        for reader in [&mut patient, &mut other] {
            let stats = reader.stats_of("await")?;
            ensure!(
                stats.counts.abandoned == 1 && stats.next == 3,
                "{stats:?} with a patience of {patience} ms"
            );
        }
        slow.child.cont()?;
        slow.ask("fill second")?;
        slow.must("commit", "withdrawn 1")?;
        publishes(&mut slow, 8)?;
        scene.judge([patient, other])?;
        slow.leave()?;
        quick.leave()
    })
}

/// Goal: a stalled publisher's stores hit nobody. Method: a publisher is stopped in a record, which in every other round a reader
/// withdraws, and others go around the ring many times; then it stores the rest, while all that the ring holds is read before, between and after. Then its slots are used
/// again: a turn of the ring is as many records as it has slots.
fn lapped(run: &mut Run) -> Outcome {
    run.each_round(|run, round| {
        let slots = 16 + u32::try_from(run.rng.below(17))?;
        let mut scene = Scene::new(run, &format!("r{round}"), slots, 64);
        let mut readers = vec![scene.reader(run, "now")?];
        let (mut slow, mut quick) = (scene.publisher(run)?, scene.publisher(run)?);
        let len = scene.payload_of(1 + run.rng.below(5));
        // Anywhere in the ring.
        quick.must(&format!("burst {} 8", run.rng.below(slots.into())), "true")?;
        let seq = reserves(&mut slow, len)?;
        slow.ask("fill first")?;
        slow.child.stop()?;
        if round % 2 == 1 {
            readers[0].peer.ask("patience 0")?;
            readers[0].drain()?;
            let stats = readers[0].stats()?;
            ensure!(stats.counts.abandoned == 1, "{stats:?} without patience");
        }
        let laps = 2 + run.rng.below(20);
        let burst = format!("burst {} 8", laps * u64::from(slots));
        quick.must(&burst, "true")?;
        readers.push(scene.reader(run, "oldest")?);
        slow.child.cont()?;
        slow.ask("fill all")?;
        readers.push(scene.reader(run, "oldest")?);
        for reader in &mut readers {
            ensure!(reader.drain()? > 0, "nothing is in the ring");
        }
        slow.must("commit", &format!("lapsed {seq}"))?;
        readers.push(scene.reader(run, "oldest")?);
        quick.must(&format!("burst {slots} 8"), "true")?;
        let before = scene.ring.stats().position;
        quick.must(&format!("burst {slots} 8"), "true")?;
        let moved = scene.ring.stats().position - before;
        ensure!(
            moved == slots.into(),
            "{slots} records of a slot each took {moved} positions"
        );
        let judged = scene.judge(readers)?;
        ensure!(judged.lapped > 0 && judged.not_committed == 1, "{judged:?}");
        slow.leave()?;
        quick.leave()
    })
}
