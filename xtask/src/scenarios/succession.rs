//! Successions under what happens to those who stand in line: S2, S3, and the faults of the seeds.

use std::{fs, time::Duration};

use arena_core::clock;
use arena_lease::LeasesView;
use nix::unistd::Pid;

use super::{
    cast::Peer,
    places::{Came, come, ends, entering, master, placed, stands, succeeds},
};
use crate::{
    child::{Child, PATIENCE, Plan, states, until},
    idleness::{Activity, TICK_NS},
    outcome::{Outcome, Stop, ensure},
    roles::peer::options,
    scenario::{Run, Scenario},
    standing::Standings,
    tracee,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "lease",
        "S2",
        "a_wait_of_n_attempts_makes_exactly_n_whatever_wakes_it",
        attempts,
    )
    .rounds(2, 50),
    Scenario::new(
        "lease",
        "S3",
        "wherever_one_that_waits_is_cancelled_or_killed_the_others_close_up_and_the_newest_succeeds",
        given_up,
    )
    .rounds(1, 30),
    Scenario::new(
        "lease",
        "S1",
        "a_stopped_master_is_followed_at_its_ttl_and_its_late_store_is_refused",
        stopped,
    )
    .rounds(2, 50),
    Scenario::new(
        "lease",
        "S1",
        "a_killed_master_is_followed_at_once_though_its_forked_child_lives_on",
        forked,
    )
    .rounds(2, 50),
    Scenario::new(
        "lease",
        "S1",
        "whose_name_is_taken_away_is_told_at_work_and_in_line_and_others_begin_anew",
        nameless,
    ),
    Scenario::new(
        "lease",
        "S1",
        "of_workers_started_at_any_distance_the_last_to_enter_waits_and_succeeds",
        spaced,
    )
    .limit_secs(120),
    Scenario::new(
        "lease",
        "S1",
        "whoever_is_killed_or_stopped_one_works_at_most_and_four_have_a_place",
        chaos,
    )
    .rounds(150, 5_000)
    .limit_secs(120),
    Scenario::new(
        "lease",
        "idle",
        "a_standby_that_nothing_happens_to_does_not_run",
        idle,
    ),
];

/// Goal: attempts are counted at their pace, and not by what wakes the waiter. Method: another process takes and gives up
/// places beside it all the while.
fn attempts(run: &mut Run) -> Outcome {
    let mut holder = placed(run)?;
    holder.must("stand-by 1", "held 0")?;
    let [mut waiter, mut other] = [placed(run)?, placed(run)?];
    run.each_round(|_, _| {
        for attempts in [1, 2, 3, 7, 20] {
            other.child.tell("disturb 300")?;
            let began_ns = clock::boot_ns();
            let right = format!("TimedOut {}", attempts - 1);
            waiter.must(&format!("stand-by {attempts}"), &right)?;
            let took_ns = clock::boot_ns() - began_ns;
            ensure!(
                took_ns >= (attempts - 1) * 5_000_000,
                "{attempts} attempts took {took_ns} ns"
            );
            let disturbed = other.child.expect("disturb")?;
            ensure!(disturbed == "300", "the disturber waited {disturbed} times");
        }
        Ok(())
    })
}

/// Goal: nobody waits behind one that is not there. Method: the line is full, because the first in it is stopped; one of the
/// others, or the first itself, is cancelled or killed; the rest is as if it had never come.
fn given_up(run: &mut Run) -> Outcome {
    let mut judge = placed(run)?;
    run.each_round(|run, _| {
        for (place, kills) in [0, 1, 2]
            .into_iter()
            .flat_map(|place| [(place, false), (place, true)])
        {
            let what = if kills { "killed" } else { "cancelled" };
            let note = format!("standby{} is {what}", place + 1);
            run.note(&note);
            without(run, &mut judge, place, kills).map_err(|stop| stop.within(note))?;
        }
        Ok(())
    })
}

fn without(run: &mut Run, judge: &mut Peer, place: usize, kills: bool) -> Outcome {
    let mut master = master(run)?;
    let mut line = Vec::new();
    for index in 0..3 {
        let mut worker = placed(run)?;
        worker.child.tell("succeed-or-cancel")?;
        line.push(worker);
        let at = |index: usize| line.get(index);
        stands(judge, [Some(&master), at(0), at(1), at(2)])?;
        if index == 0 {
            line[0].child.stop()?;
        }
    }
    let mut gone = line.remove(place);
    match kills {
        true => gone.child.kill_unreaped()?,
        false => {
            gone.child.tell("cancel")?;
            if place == 0 {
                gone.child.cont()?;
            }
            let end = gone.child.expect("succeed")?;
            // It goes on as the cancelled one that it is, or has seen first that there is a newer one.
            let right = end == "Cancelled" || (place == 0 && end.starts_with("replaced "));
            ensure!(right, "it ended as {end:?}");
            gone.leave()?;
        }
    }
    if place > 0 {
        line[0].child.cont()?;
    }
    let mut newest = line.pop().expect("two are left");
    let mut older = line.pop().expect("likewise");
    ends(&mut older, &format!("replaced {}", newest.id))?;
    older.child.tell("heard")?;
    older.leave()?;
    stands(judge, [Some(&master), Some(&newest), None, None])?;
    master.child.kill_unreaped()?;
    ends(&mut newest, "primary")?;
    newest.child.tell("heard")?;
    newest.must("beat", "Ok(())")?;
    stands(judge, [Some(&newest), None, None, None])
}

/// Goal: the ttl decides, and the fence protects. Method: a master with a ttl of 300 ms is stopped; the one that waits
/// works, and not before; continued, the old one learns it, and what it stores late is refused.
fn stopped(run: &mut Run) -> Outcome {
    const TTL_MS: u64 = 300;
    let mut judge = placed(run)?;
    run.each_round(|run, round| {
        let mut master = placed(run)?;
        master.must(&format!("ttl {TTL_MS}"), "set")?;
        master.must("succeed", "primary")?;
        master.must(&format!("store {round}"), "stored")?;
        let mut newest = entering(run)?;
        stands(&mut judge, [Some(&master), Some(&newest), None, None])?;
        master.child.stop()?;
        let stopped_ns = clock::boot_ns();
        ends(&mut newest, "primary")?;
        // Renewed last a third of the ttl (less the margin) before it stopped, or later.
        let took_ms = (clock::boot_ns() - stopped_ns) / 1_000_000;
        ensure!(took_ms >= TTL_MS * 6 / 10, "followed after {took_ms} ms");
        newest.must(&format!("store {}", round + 1), "stored")?;
        master.child.cont()?;
        let beat = master.ask("beat")?;
        ensure!(
            beat.starts_with("Err("),
            "the stopped master was told {beat}"
        );
        let late = master.ask("store 0")?;
        ensure!(
            late.starts_with("Stale"),
            "its late store was answered {late:?}"
        );
        newest.must("beat", "Ok(())")?;
        stands(&mut judge, [Some(&newest), None, None, None])
    })
}

/// Goal: a place is the process's, and not its children's. Method: the master's forked child lives on.
fn forked(run: &mut Run) -> Outcome {
    let mut judge = placed(run)?;
    run.each_round(|run, _| {
        let mut master = master(run)?;
        let mut newest = entering(run)?;
        stands(&mut judge, [Some(&master), Some(&newest), None, None])?;
        let child = Pid::from_raw(master.ask("fork")?.parse()?);
        let succeeded = succeeds(&mut judge, &mut master, &mut newest);
        let lives_on = !states(child).is_empty();
        tracee::end(child)?;
        succeeded?;
        ensure!(lives_on, "its child did not live on");
        Ok(())
    })
}

/// Goal: whoever works or waits under a name that leads elsewhere learns it. Method: the arena is destroyed, and its file
/// removed with rm, under a master and one that waits; then another works in a new one.
fn nameless(run: &mut Run) -> Outcome {
    for by_rm in [false, true] {
        let mut master = placed(run)?;
        // It is noticed at a renewal.
        master.must("ttl 300", "set")?;
        master.must("succeed", "primary")?;
        let mut waits = placed(run)?;
        waits.must("ttl 300", "set")?;
        waits.child.tell("succeed")?;
        let mut judge = placed(run)?;
        stands(&mut judge, [Some(&master), Some(&waits), None, None])?;
        match by_rm {
            true => fs::remove_file(run.path("arena"))?,
            false => arena_core::Arena::attach(run.path("arena"))?.destroy()?,
        }
        let end = waits.child.expect("succeed")?;
        ensure!(
            end.contains("Removed") || end.contains("removed"),
            "in line it was told {end:?}"
        );
        let mut beat = Ok(String::new());
        let told = until(PATIENCE, || {
            beat = master.ask("beat");
            beat.as_ref().map_or(true, |beat| beat != "Ok(())")
        });
        let beat = beat?;
        told.map_err(|stop| stop.within("until the master is told"))?;
        ensure!(beat == "Err(Removed)", "at work it was told {beat:?}");
        let mut new = placed(run)?;
        new.must("succeed", "primary")?;
        new.must("beat", "Ok(())")?;
    }
    Ok(())
}

/// Goal: no distance between starts makes another than the newest wait. Method: so many, at such a distance.
fn spaced(run: &mut Run) -> Outcome {
    let mut judge = placed(run)?;
    let mut came = Came::default();
    for count in [2, 4, 8, 16] {
        for spacing_ms in [0, 20, 100, 1_000] {
            // So long in all.
            let most_ms = if run.full { 16_000 } else { 1_600 };
            if count * spacing_ms > most_ms {
                continue;
            }
            let note = format!("{count} workers, {spacing_ms} ms apart");
            run.note(&note);
            let (count, spacing) = (usize::try_from(count)?, Duration::from_millis(spacing_ms));
            come(run, &mut judge, count, spacing, &mut came).map_err(|stop| stop.within(note))?;
        }
    }
    run.detail(&format!(
        "{} replaced, {} refused at the entry",
        came.replaced, came.refused
    ));
    ensure!(came.replaced > 0, "nobody was ever replaced");
    Ok(())
}

/// Goal: at most one works, and at most four have a place, as the workers themselves knew it. Method: six stand in line
/// again and again with a ttl of 100 ms, and note the boot clock whenever they know that they have a place; they are killed
/// (and replaced), stopped and continued at random; then the checker judges what all noted.
fn chaos(run: &mut Run) -> Outcome {
    const TTL_MS: u64 = 100;
    let mut started = 0_u64;
    let mut start = |run: &mut Run| -> Outcome<Child> {
        started += 1;
        let plan = Plan::new("stander")
            .arg(run.path("arena"))
            .arg(TTL_MS.to_string())
            .arg(run.rng.next().to_string())
            .arg(run.path(&format!("moments.{started}")));
        let mut child = run.start(plan)?;
        child.expect("stander")?;
        child.go()?;
        Ok(child)
    };
    let mut children: Vec<Child> = (0..6).map(|_| start(run)).collect::<Outcome<_>>()?;
    let (mut kills, mut stops) = (0, 0);
    run.each_round(|run, _| {
        std::thread::sleep(Duration::from_millis(run.rng.below(20)));
        let any = run.rng.index(children.len());
        // Half of the time it is the one that works.
        let index = match run.rng.below(2) {
            0 => at_work(run, &children)?.unwrap_or(any),
            _ => any,
        };
        match run.rng.below(4) {
            0 => {
                children[index].kill()?;
                children[index] = start(run)?;
                kills += 1;
            }
            how => {
                children[index].stop()?;
                // Some are followed at their ttl.
                let ms = match how {
                    1 => TTL_MS + run.rng.below(TTL_MS / 2),
                    _ => run.rng.below(20),
                };
                std::thread::sleep(Duration::from_millis(ms));
                children[index].cont()?;
                stops += 1;
            }
        }
        Ok(())
    })?;
    drop(children);
    let mut standings = Standings::new(TTL_MS * 1_000_000 / 2);
    for number in 1..=started {
        let text = fs::read_to_string(run.path(&format!("moments.{number}")))?;
        standings
            .add_lines(format!("worker {number}"), &text)
            .map_err(Stop::failed)?;
    }
    let judged = standings.judge().map_err(Stop::failed)?;
    run.detail(&format!(
        "{kills} kills, {stops} stops, {} reigns, {} had a place at once",
        judged.reigns, judged.most
    ));
    ensure!(
        judged.reigns > 20 && judged.most >= 2 && kills > 0 && stops > 0,
        "too little happened"
    );
    Ok(())
}

/// Which of these works, as a viewer sees it.
fn at_work(run: &Run, children: &[Child]) -> Outcome<Option<usize>> {
    let view = options().view(run.path("arena"))?;
    let limit = LeasesView::open(&view)?.map(|leases| leases.limit("line"));
    let limit = limit.transpose()?.flatten();
    let working = limit.and_then(|limit| limit.working.into_iter().next()?.holder?.pid);
    let is_it =
        |child: &Child| working.is_some_and(|pid| i64::from(pid) == child.pid().as_raw().into());
    Ok(children.iter().position(is_it))
}

/// Goal: waiting costs nothing. Method: with the default ttl of 30 s, whoever waits is looked at, all its threads together,
/// for 10 s (3 s in ci): at most 5 voluntary switches in 10 s, and less than a tick of the processor.
fn idle(run: &mut Run) -> Outcome {
    let seconds = if run.full { 10 } else { 3 };
    let started = |run: &Run, line: &str| -> Outcome<Peer> {
        let mut worker = placed(run)?;
        worker.must("ttl 30000", "set")?;
        worker.child.tell(line)?;
        Ok(worker)
    };
    let mut judge = placed(run)?;
    let mut master = started(run, "succeed")?;
    master.child.expect("succeed")?;
    let waits = started(run, "succeed")?;
    stands(&mut judge, [Some(&master), Some(&waits), None, None])?;
    // Whatever its arrival set in motion is over when two looks agree.
    let spent = || Activity::of(waits.child.pid());
    let mut before = spent()?;
    until(PATIENCE, || {
        std::thread::sleep(Duration::from_millis(50));
        let now = spent().unwrap_or_default();
        std::mem::replace(&mut before, now) == before
    })?;
    std::thread::sleep(Duration::from_secs(seconds));
    let Activity { sleeps, ran_ns } = spent()?.since(before);
    let ran_us = ran_ns / 1_000;
    run.detail(&format!("{sleeps} switches, {ran_us} us in {seconds} s"));
    ensure!(sleeps <= 5 && ran_ns < TICK_NS, "it ran");
    succeeds(&mut judge, &mut master, &mut { waits })
}
