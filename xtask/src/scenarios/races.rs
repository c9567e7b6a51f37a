//! Many processes and one lease, for a while: L9, L10, L12, L15, and histories under kills and stops.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    cast::{Peer, same},
    lease::{held, takes, worker},
};
use crate::{
    child::{Child, PATIENCE, Plan, until},
    history::History,
    leftovers,
    outcome::{Outcome, Stop, ensure},
    roles::verbs::now_ms,
    scenario::{Run, Scenario},
    text,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "lease",
        "L9",
        "of_sixteen_that_race_for_a_dead_holders_lease_one_wins_with_the_next_fence",
        one_winner,
    )
    .rounds(60, 500)
    .limit_secs(120),
    Scenario::new(
        "lease",
        "L10",
        "work_of_ten_ttls_with_a_hundred_renewals_is_never_lost_and_keeps_its_fence",
        kept,
    ),
    Scenario::new(
        "lease",
        "L12",
        "of_preforked_workers_one_does_each_ticks_job_though_leaders_are_killed",
        ticks,
    )
    .rounds(20, 100)
    .limit_secs(120),
    Scenario::new(
        "lease",
        "L15",
        "the_fence_grows_over_destroy_and_recreate_after_any_number_of_handovers",
        handovers,
    )
    .rounds(1, 10),
    Scenario::new(
        "chaos",
        "history",
        "no_two_processes_hold_at_one_instant_though_they_are_killed_and_stopped",
        history,
    )
    .rounds(120, 10_000)
    .limit_secs(120),
];

/// Goal: a dead holder has one successor. Method: sixteen are told to acquire at once; the winner is the next to die.
fn one_winner(run: &mut Run) -> Outcome {
    let mut holder = worker(run, 600_000)?;
    let mut racers: Vec<Peer> = (0..16)
        .map(|_| worker(run, 600_000))
        .collect::<Outcome<_>>()?;
    let mut fence = takes(&mut holder, "new")?;
    run.each_round(|run, round| {
        match round % 2 {
            0 => holder.child.kill_unreaped()?,
            _ => holder.child.kill()?,
        }
        racers
            .iter_mut()
            .try_for_each(|racer| racer.child.tell("acquire"))?;
        let mut winner = None;
        for (index, racer) in racers.iter_mut().enumerate() {
            let answer = racer.child.expect("acquire")?;
            if answer.starts_with("refused") {
                continue;
            }
            let next = held(&answer, "dead")?;
            ensure!(winner.is_none(), "two won: {} is the second", racer.id);
            ensure!(
                next == fence + 1,
                "after fence {fence} the winner has {next}"
            );
            fence = next;
            winner = Some(index);
        }
        let winner =
            winner.ok_or_else(|| Stop::failed("none of sixteen got a dead holder's lease"))?;
        holder = racers.swap_remove(winner);
        holder.must("mine", "true")?;
        racers.push(worker(run, 600_000)?);
        Ok(())
    })
}

/// Goal: who renews in time keeps the lease. Method: ttl 1 s, renewals each tenth of it, a rival that asks all along.
fn kept(run: &mut Run) -> Outcome {
    let (mut one, mut rival) = (worker(run, 1_000)?, worker(run, 1_000)?);
    let fence = takes(&mut one, "new")?;
    one.child.tell("keep 100 100")?;
    let mut asked = 0;
    while !one.child.speaks() {
        rival.must("acquire", &format!("refused held {}", one.id))?;
        asked += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    same(
        "after the work",
        &one.child.expect("keep")?,
        &format!("kept {fence}"),
    )?;
    run.detail(&format!("a rival asked {asked} times"));
    one.must("mine", "true")
}

/// Goal: each tick's job is done once, whoever leads. Method: eight workers, forked after the arena and the lease were
/// opened; every other one opens for itself besides. The leader of the moment is killed, as often as there are rounds. A
/// thread that does nothing but sleep from tick to tick tells which ticks this machine gave to nobody.
fn ticks(run: &mut Run) -> Outcome {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let control = scope.spawn(|| sleeper(&stop));
        let journal = ticked(run);
        // Relaxed: the thread's end is awaited below.
        stop.store(true, Ordering::Relaxed);
        let seen = control.join().expect("it only sleeps");
        judge_ticks(run, journal?.lines(), &seen)
    })
}

const TICK_MS: u64 = 100;

/// Sleeps from tick to tick; the ticks that it saw.
fn sleeper(stop: &AtomicBool) -> BTreeSet<u64> {
    let mut seen = BTreeSet::new();
    // Relaxed: see `ticks`.
    while !stop.load(Ordering::Relaxed) {
        let now = now_ms();
        seen.insert(now / TICK_MS);
        std::thread::sleep(Duration::from_millis(TICK_MS - now % TICK_MS));
    }
    seen
}

/// What the pool wrote down.
fn ticked(run: &mut Run) -> Outcome<String> {
    let journal = run.path("journal");
    let mut plan = Plan::new("prefork").arg(run.path("arena"));
    for arg in ["8", &TICK_MS.to_string()] {
        plan = plan.arg(arg);
    }
    let mut parent = run.start(plan.arg(&journal))?;
    parent.expect("prefork")?;
    let mut killed = Vec::new();
    run.each_round(|run, _| {
        let mut leader = None;
        until(PATIENCE, || {
            let text = fs::read_to_string(&journal).unwrap_or_default();
            let last = text
                .rfind('\n')
                .and_then(|end| text[..end].lines().last().map(str::to_owned));
            leader = last.and_then(|line| line.split(' ').nth(1)?.parse().ok());
            leader.is_some_and(|leader| !killed.contains(&leader))
        })
        .map_err(|stop| stop.within("waiting for a new leader"))?;
        let leader: i32 = leader.expect("until returned Ok, so there is one");
        ensure!(leader != parent.pid().as_raw(), "the parent leads");
        // A random moment of the tick.
        std::thread::sleep(Duration::from_micros(run.rng.below(TICK_MS * 1_000)));
        kill(Pid::from_raw(leader), Signal::SIGKILL)?;
        killed.push(leader);
        Ok(())
    })?;
    let end = now_ms() + 3 * TICK_MS;
    until(PATIENCE, || now_ms() > end)?;
    parent.kill()?;
    leftovers::reap_orphans()?;
    Ok(fs::read_to_string(&journal)?)
}

/// Two ticks in a row without a run are a failure, those aside that the plain sleeper missed as well: at most a tenth of
/// all, or the machine showed nothing.
fn judge_ticks<'a>(
    run: &Run,
    lines: impl Iterator<Item = &'a str>,
    seen: &BTreeSet<u64>,
) -> Outcome {
    let mut by_tick: BTreeMap<u64, &str> = BTreeMap::new();
    let (mut last, mut last_fence) = (None, 0);
    let (mut missed, mut excused, mut all) = (0, 0, 0);
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let (tick, fence) = (text::number(words[0])?, text::number(words[2])?);
        if let Some(other) = by_tick.insert(tick, line) {
            return Err(Stop::failed(format!(
                "one tick, two runs: {other:?} and {line:?}"
            )));
        }
        ensure!(fence >= last_fence, "fence {fence} after {last_fence}");
        let between = last.map_or(tick, |last: u64| last + 1)..tick;
        all += between.clone().count() + 1;
        let (without, unseen): (Vec<u64>, Vec<u64>) = between.partition(|tick| seen.contains(tick));
        let without = without.len();
        excused += unseen.len();
        ensure!(
            without <= 1,
            "{without} ticks in a row without a run before {line:?}"
        );
        missed += without;
        (last, last_fence) = (Some(tick), fence);
    }
    run.detail(&format!(
        "{all} ticks, {missed} without a run, {excused} more that a plain sleeper missed too"
    ));
    ensure!(
        excused * 10 <= all,
        "{excused} of {all} ticks were excused: a plain sleeper missed them too"
    );
    Ok(())
}

/// Goal: no speed of handovers outruns the fences' floor. Method: acquire and release without pause (a second a
/// round), destroy, open anew, acquire.
fn handovers(run: &mut Run) -> Outcome {
    let mut one = worker(run, 600_000)?;
    let answer = one.ask(&format!("hand-over {}", u64::from(run.rounds) * 1_000))?;
    let (count, last) = answer
        .split_once(' ')
        .ok_or_else(|| Stop::failed(answer.clone()))?;
    let (count, last) = (text::number(count)?, text::number(last)?);
    one.must("destroy", "destroyed")?;
    let mut new = worker(run, 600_000)?;
    let next = takes(&mut new, "new")?;
    run.detail(&format!("{count} handovers"));
    ensure!(count > 1_000, "only {count} handovers");
    ensure!(next > last, "after fence {last} the new arena gave {next}");
    Ok(())
}

/// Goal: mutual exclusion as the processes themselves saw it. Method: six contend with a ttl of 20 ms, each writes the
/// boot clock around each call; they are killed (and replaced), stopped and continued at random; then the history
/// checker judges what all wrote.
fn history(run: &mut Run) -> Outcome {
    let mut started = 0_u64;
    let mut start = |run: &mut Run| -> Outcome<Child> {
        started += 1;
        let file = run.path(&format!("history.{started}"));
        let plan = Plan::new("contender")
            .arg(run.path("arena"))
            .arg("20")
            .arg(run.rng.next().to_string())
            .arg(file);
        let mut child = run.start(plan)?;
        child.expect("contender")?;
        child.go()?;
        Ok(child)
    };
    let mut children: Vec<Child> = (0..6).map(|_| start(run)).collect::<Outcome<_>>()?;
    let (mut kills, mut stops) = (0, 0);
    run.each_round(|run, _| {
        std::thread::sleep(Duration::from_millis(run.rng.below(20)));
        let index = run.rng.index(children.len());
        if run.rng.below(3) == 0 {
            children[index].kill()?;
            children[index] = start(run)?;
            kills += 1;
        } else {
            children[index].stop()?;
            std::thread::sleep(Duration::from_millis(run.rng.below(50)));
            children[index].cont()?;
            stops += 1;
        }
        Ok(())
    })?;
    drop(children);
    let mut history = History::default();
    for number in 1..=started {
        let text = fs::read_to_string(run.path(&format!("history.{number}")))?;
        history
            .add_lines(format!("process {number}"), &text)
            .map_err(Stop::failed)?;
    }
    let judged = history.judge().map_err(Stop::failed)?;
    run.detail(&format!(
        "{kills} kills, {stops} stops, {} acquisitions, {} times shown as held",
        judged.acquisitions, judged.shown
    ));
    ensure!(
        judged.acquisitions > 20 && judged.shown > 200 && kills > 0 && stops > 0,
        "too little happened"
    );
    Ok(())
}
