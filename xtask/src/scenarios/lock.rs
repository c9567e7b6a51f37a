//! The robust lock and the wake word: K1 to K5.

use super::cast::same;
use crate::{
    child::Child,
    outcome::{Outcome, ensure},
    scenario::{Run, Scenario},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "lock",
        "K1",
        "when_a_lock_holder_is_killed_one_of_four_waiters_inherits_and_all_proceed",
        one_inherits,
    )
    .rounds(5, 100),
    Scenario::new(
        "lock",
        "K2",
        "the_next_owner_is_told_of_a_pair_half_written_and_repairs_it",
        half_pair,
    ),
    Scenario::new(
        "lock",
        "K3",
        "a_child_forked_while_a_thread_holds_the_lock_neither_owns_it_nor_hangs",
        forked_inside,
    ),
    Scenario::new(
        "lock",
        "K3",
        "a_guard_that_a_forked_child_drops_leaves_the_lock_with_its_parent",
        dropped_in_child,
    ),
    Scenario::new(
        "lock",
        "K4",
        "a_waiter_is_woken_by_a_process_that_maps_the_word_elsewhere",
        other_address,
    )
    .rounds(20, 500),
    Scenario::new(
        "lock",
        "K5",
        "a_notifier_never_blocks_and_the_living_waiter_wakes_each_of_100_times",
        living_wakes,
    ),
    Scenario::new(
        "lock",
        "K1",
        "a_stopped_lock_holder_costs_others_a_busy_that_names_it_and_no_more",
        stopped_holder,
    ),
];

fn locker(run: &Run) -> Outcome<(Child, String)> {
    let mut child = run.child("locker", [run.path("arena")])?;
    let id = child.expect("locker")?;
    Ok((child, id))
}

/// Goal: a dead holder's lock goes to one waiter, with the news, and on to the others without it. Method: one
/// holds; four want it by lock, by try-lock without pause, by lock with a short and a long timeout; kill the holder.
fn one_inherits(run: &mut Run) -> Outcome {
    run.each_round(|run, _| {
        let (mut holder, _) = locker(run)?;
        holder.ask("lock 1000", "locked")?;
        let mut waiters = Vec::new();
        for how in ["lock 15000", "insist", "lock 10000", "lock 12000"] {
            let (mut waiter, _) = locker(run)?;
            waiter.tell(how)?;
            waiters.push(waiter);
        }
        // They may be waiting already or not: the outcome must not depend on it.
        holder.kill_unreaped()?;
        let mut inherited = 0;
        while !waiters.is_empty() {
            let next = first_to_speak(&waiters)?;
            let mut waiter = waiters.swap_remove(next);
            let answer = waiter.expect("locked")?;
            inherited += u32::from(answer.starts_with("inherited"));
            ensure!(
                answer.starts_with("inherited") || answer.starts_with("clean"),
                "a waiter did not get the dead holder's lock: {answer}"
            );
            ensure!(
                inherited == 1,
                "{inherited} inherited before the next one had it"
            );
            waiter.ask("unlock", "unlocked")?;
        }
        Ok(())
    })
}

/// The one of `children` that says something first.
fn first_to_speak(children: &[Child]) -> Outcome<usize> {
    let mut found = None;
    crate::child::until(crate::child::PATIENCE, || {
        found = children.iter().position(Child::speaks);
        found.is_some()
    })?;
    Ok(found.expect("until returned Ok, so one speaks"))
}

/// Goal: half a change is never taken for a whole one. Method: the holder is killed between its two stores.
fn half_pair(run: &mut Run) -> Outcome {
    let (mut first, _) = locker(run)?;
    same(
        "a new pair",
        &first.ask("lock 1000", "locked")?,
        "clean 0 0",
    )?;
    first.ask("write 1", "half")?;
    first.go()?;
    first.expect("whole")?;
    first.ask("write 2", "half")?;
    first.kill_unreaped()?;
    let (mut second, _) = locker(run)?;
    same(
        "the next owner",
        &second.ask("lock 5000", "locked")?,
        "inherited 2 1",
    )?;
    second.ask("write 3", "half")?;
    // Killed in the midst of its repair, it is inherited from in its turn.
    second.kill()?;
    let (mut third, _) = locker(run)?;
    same(
        "the owner after a repair cut short",
        &third.ask("lock 5000", "locked")?,
        "inherited 3 1",
    )?;
    third.ask("write 4", "half")?;
    third.go()?;
    third.expect("whole")?;
    third.ask("unlock", "unlocked")?;
    same(
        "after the repair",
        &third.ask("try", "locked")?,
        "clean 4 4",
    )
}

/// Goal: fork inside a critical section leaves no lock behind that nobody can open. Method: a thread holds, the
/// main thread forks, the child attaches and locks with a deadline; then the parent unlocks and another locks.
fn forked_inside(run: &mut Run) -> Outcome {
    let mut child = run.child("forking-locker", [run.path("arena")])?;
    let answer = child.expect("forked")?;
    let words: Vec<&str> = answer.split(' ').collect();
    let [parent, forked, outcome, holder] = words.as_slice() else {
        return same("the child of fork", &answer, "PARENT CHILD busy PARENT");
    };
    ensure!(
        parent != forked,
        "the child took its parent's place {parent}"
    );
    same("the child's attempt", outcome, "busy")?;
    same("the holder that the child saw", holder, parent)?;
    child.go()?;
    child.expect("unlocked")?;
    let (mut other, _) = locker(run)?;
    same(
        "after the parent unlocked",
        &other.ask("try", "locked")?,
        "clean 0 0",
    )
}

/// Goal: a guard is its process's. Method: the holder forks, its child drops the guard that it inherited and exits.
fn dropped_in_child(run: &mut Run) -> Outcome {
    let (mut holder, id) = locker(run)?;
    holder.ask("lock 1000", "locked")?;
    let ended = holder.ask("fork-drop", "forked")?;
    ensure!(
        ended.contains("Exited") && ended.ends_with(", 0))"),
        "the child ended with {ended}"
    );
    let (mut other, _) = locker(run)?;
    same(
        "while the parent holds",
        &other.ask("try", "locked")?,
        &format!("busy {id}"),
    )?;
    holder.ask("unlock", "unlocked")?;
    same(
        "after it unlocked",
        &other.ask("try", "locked")?,
        "clean 0 0",
    )
}

/// Goal: nothing in a wake-up depends on where memory is mapped. Method: the waiter opens the arena three times
/// before, so that its mapping lies elsewhere; it sleeps, the other wakes.
fn other_address(run: &mut Run) -> Outcome {
    let mut sleeper = run.child("waiter", [run.path("arena").into_os_string(), "3".into()])?;
    let mut waker = run.child("waiter", [run.path("arena").into_os_string(), "0".into()])?;
    let (here, there) = (sleeper.expect("waiter")?, waker.expect("waiter")?);
    ensure!(
        here != there,
        "both map the arena at {here}: nothing is shown"
    );
    let mut count = 0;
    run.each_round(|_, _| {
        sleeper.ask("sleep", "sleeps")?;
        waker.ask("wake", "woke")?;
        count += 1;
        same(
            "the sleeper",
            &sleeper.expect("awake")?,
            &format!("changed {count}"),
        )
    })
}

/// Goal: dead waiters cost the living nothing. Method: three sleep, two are killed in their sleep (one is left a
/// zombie); then 100 times: the third sleeps, it is notified, it wakes by the notice and not by its second look.
fn living_wakes(run: &mut Run) -> Outcome {
    let start = |run: &Run| -> Outcome<Child> {
        let mut child = run.child("waiter", [run.path("arena").into_os_string(), "0".into()])?;
        child.expect("waiter")?;
        Ok(child)
    };
    let mut sleepers = [start(run)?, start(run)?, start(run)?];
    for sleeper in &mut sleepers {
        sleeper.ask("sleep", "sleeps")?;
    }
    let [first, second, third] = &mut sleepers;
    first.kill_unreaped()?;
    second.kill()?;
    let mut waker = start(run)?;
    for count in 1..=100 {
        run.note(&format!("notification {count} of 100"));
        waker.ask("wake", "woke")?;
        same(
            "the living waiter",
            &third.expect("awake")?,
            &format!("changed {count}"),
        )?;
        third.ask("sleep", "sleeps")?;
    }
    Ok(())
}

/// Goal: a holder that merely stands still is not robbed. Method: stop it, try and wait; continue it; it unlocks.
fn stopped_holder(run: &mut Run) -> Outcome {
    let (mut holder, id) = locker(run)?;
    holder.ask("lock 1000", "locked")?;
    holder.stop()?;
    let (mut other, _) = locker(run)?;
    for how in ["try", "lock 150"] {
        same(how, &other.ask(how, "locked")?, &format!("busy {id}"))?;
    }
    holder.cont()?;
    holder.ask("unlock", "unlocked")?;
    same(
        "after it went on",
        &other.ask("lock 5000", "locked")?,
        "clean 0 0",
    )
}
