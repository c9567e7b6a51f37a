//! Who holds, and who takes over, when holders die, stand still, fork, exec or lose their arena.

use nix::unistd::Pid;

use super::cast::{Peer, same};
use crate::{
    child::{self, PATIENCE, Plan, until},
    namespaces::Rooms,
    outcome::{Outcome, Stop, ensure},
    roles::verbs::now_ms,
    scenario::{Need, Run, Scenario},
    text, tracee,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "lease",
        "P1",
        "a_rival_takes_over_from_a_zombie_at_once",
        zombie,
    ),
    Scenario::new(
        "lease",
        "P2",
        "a_process_with_a_dead_holders_pid_does_not_keep_its_lease",
        recycled,
    )
    .in_own_pids(),
    Scenario::new(
        "lease",
        "P2",
        "a_process_with_a_dead_holders_pid_and_slot_does_not_hold_its_lease",
        recycled_slot,
    )
    .in_own_pids()
    .rounds(20, 1_000),
    Scenario::new(
        "lease",
        "P4",
        "of_two_workers_that_are_both_pid_1_one_holds_and_the_other_succeeds_it",
        containers,
    )
    .needs(&[Need::Namespaces]),
    Scenario::new(
        "lease",
        "X5",
        "a_dead_holders_companion_is_waited_for_in_every_pid_namespace_and_succeeded_at_its_end",
        companions,
    )
    .needs(&[Need::Namespaces]),
    Scenario::new(
        "lease",
        "P8",
        "every_handle_of_a_process_holds_and_a_dropped_one_releases_nothing",
        handles,
    ),
    Scenario::new(
        "lease",
        "P10",
        "a_holder_without_descriptors_and_with_living_children_holds_until_it_is_killed",
        closed,
    ),
    Scenario::new(
        "lease",
        "P11",
        "a_holder_whose_main_thread_ended_still_holds",
        headless,
    ),
    Scenario::new(
        "lease",
        "P12",
        "a_holder_that_became_another_program_holds_no_more",
        became_another,
    ),
    Scenario::new(
        "lease",
        "C3",
        "a_forked_child_neither_holds_nor_renews_nor_releases_its_parents_lease",
        forked,
    ),
    Scenario::new(
        "lease",
        "L1",
        "a_holder_that_was_stopped_until_it_was_replaced_learns_it_from_its_first_renewal",
        stopped,
    ),
    Scenario::new(
        "lease",
        "L2",
        "a_holder_that_was_replaced_releases_nothing",
        stale_release,
    ),
    Scenario::new(
        "lease",
        "lapse",
        "a_lapsed_lease_is_not_mine_and_is_renewed_if_nobody_took_it",
        lapsed,
    ),
    Scenario::new(
        "lease",
        "exit",
        "a_holder_that_exits_without_release_is_succeeded_at_once",
        exits,
    ),
    Scenario::new(
        "lease",
        "wait",
        "a_waiter_holds_after_a_release_a_death_and_a_lapse",
        waits,
    )
    .rounds(3, 50),
    Scenario::new(
        "lease",
        "L14",
        "destroying_the_arena_ends_every_hold_and_the_next_fence_is_larger",
        destroyed,
    )
    .rounds(5, 100),
    Scenario::new(
        "lease",
        "L14",
        "a_holder_whose_arenas_file_was_removed_is_told_so_when_it_renews",
        removed,
    ),
];

/// A peer that has chosen the lease "job".
pub(super) fn worker(run: &Run, ttl_ms: u64) -> Outcome<Peer> {
    chosen(Peer::new(run)?, ttl_ms)
}

/// A peer that has chosen the lease `name`.
pub(super) fn of(run: &Run, name: &str, ttl_ms: u64) -> Outcome<Peer> {
    let mut peer = Peer::new(run)?;
    peer.must(&format!("lease {name} {ttl_ms}"), "ready")?;
    Ok(peer)
}

fn chosen(mut peer: Peer, ttl_ms: u64) -> Outcome<Peer> {
    peer.must(&format!("lease job {ttl_ms}"), "ready")?;
    Ok(peer)
}

/// Has `peer` acquire, which must succeed in this way (`new`, `lapsed`, `dead`); gives the fence.
pub(super) fn takes(peer: &mut Peer, how: &str) -> Outcome<u64> {
    let answer = peer.ask("acquire")?;
    held(&answer, how)
}

/// The fence of an answer that must be `held FENCE HOW`.
pub(super) fn held(answer: &str, how: &str) -> Outcome<u64> {
    match answer.split(' ').collect::<Vec<_>>().as_slice() {
        ["held", fence, found] if *found == how => text::number(fence),
        _ => Err(Stop::failed(format!(
            "acquire said {answer:?}, right is held, {how}"
        ))),
    }
}

/// `rival` is refused because `holder` holds; then the holder is as good as dead: `rival` takes over by its death.
fn refused(rival: &mut Peer, holder: &Peer) -> Outcome {
    rival.must("acquire", &format!("refused held {}", holder.id))
}

fn succeeds(rival: &mut Peer, fence: u64) -> Outcome {
    let next = takes(rival, "dead")?;
    ensure!(
        next == fence + 1,
        "after fence {fence} the successor has {next}"
    );
    rival.must("mine", "true")
}

/// Goal: death counts from the kill, and not from the reaping or the ttl. Method: ttl 10 minutes; kill, do not reap.
fn zombie(run: &mut Run) -> Outcome {
    let (mut one, mut rival) = (worker(run, 600_000)?, worker(run, 600_000)?);
    let fence = takes(&mut one, "new")?;
    refused(&mut rival, &one)?;
    one.child.kill_unreaped()?;
    rival.must("holder", "none")?;
    succeeds(&mut rival, fence)?;
    rival.must("stats", "2 1")
}

fn next_pid(pid: Pid) -> Outcome {
    let last = (pid.as_raw() - 1).to_string();
    std::fs::write("/proc/sys/kernel/ns_last_pid", last)
        .map_err(|e| Stop::failed(format!("ns_last_pid: {e}")))
}

/// Goal: a stranger with the holder's pid is not the holder. Method: kill, reap, start a stranger with the pid.
fn recycled(run: &mut Run) -> Outcome {
    let (mut one, mut rival) = (worker(run, 600_000)?, worker(run, 600_000)?);
    let fence = takes(&mut one, "new")?;
    let pid = one.child.pid();
    one.child.kill()?;
    next_pid(pid)?;
    let mut stranger = run.start(Plan::new("rest"))?;
    stranger.expect("rest")?;
    ensure!(
        stranger.pid() == pid,
        "the stranger got pid {}",
        stranger.pid()
    );
    succeeds(&mut rival, fence)
}

/// Goal: nor is a peer with its pid and its slot. Method: the new process attaches where the dead one was (the row was
/// reaped), asks whether the lease is its own, is told no, and takes over with a larger fence.
fn recycled_slot(run: &mut Run) -> Outcome {
    let mut one = worker(run, 600_000)?;
    let mut fence = takes(&mut one, "new")?;
    let mut rival = worker(run, 600_000)?;
    run.each_round(|run, _| {
        let pid = one.child.pid();
        let old = text::parse_id(&one.id)?;
        one.child.kill()?;
        rival.must("reap", "1")?;
        next_pid(pid)?;
        let mut new = worker(run, 600_000)?;
        ensure!(
            new.child.pid() == pid,
            "the new one got pid {}",
            new.child.pid()
        );
        ensure!(
            text::parse_id(&new.id)?.slot() == old.slot(),
            "{} does not take the slot of {old}",
            new.id
        );
        new.must("mine", "false")?;
        let renewed = new.ask("renew")?;
        ensure!(
            renewed.starts_with("lost"),
            "it renewed a dead one's lease: {renewed}"
        );
        new.must("release", "false")?;
        succeeds(&mut new, fence)?;
        fence += 1;
        one = new;
        Ok(())
    })
}

/// A peer that is pid 1 of a namespace of its own, and has chosen the lease.
fn in_container(run: &Run) -> Outcome<Peer> {
    let rooms = Rooms {
        pid: true,
        fresh_proc: true,
        ..Rooms::default()
    };
    let plan = Plan::new("peer")
        .arg("")
        .arg(run.path("arena"))
        .in_rooms(rooms);
    chosen(Peer::started(run, plan)?, 600_000)
}

/// Goal: who works on a dead holder's behalf is waited for also where it cannot be seen, and no longer than it lives.
/// Method: a holder forks a companion and is killed; rivals beside it and in a container are refused; the one in the
/// container waits, and has the lease when the companion was killed, though the ttl is ten minutes.
fn companions(run: &mut Run) -> Outcome {
    let (mut one, mut beside) = (worker(run, 600_000)?, worker(run, 600_000)?);
    let mut elsewhere = in_container(run)?;
    let fence = takes(&mut one, "new")?;
    let companion = Pid::from_raw(one.ask("companion")?.parse()?);
    let judged = (|| {
        one.child.kill()?;
        for rival in [&mut beside, &mut elsewhere] {
            refused(rival, &one)?;
            same(
                "who holds",
                &rival.ask("holder")?,
                &format!("{} {fence}", one.id),
            )?;
        }
        elsewhere.child.tell("wait 600000")?;
        until(PATIENCE, || child::waits(elsewhere.child.pid()))?;
        ensure!(!elsewhere.child.speaks(), "it did not wait");
        Ok(())
    })();
    tracee::end(companion)?;
    judged?;
    let next = held(&elsewhere.child.expect("wait")?, "dead")?;
    ensure!(next == fence + 1, "after fence {fence} comes {next}");
    refused(&mut beside, &elsewhere)
}

/// Goal: containers that share only the file. Method: two processes, each pid 1 of its own namespace.
fn containers(run: &mut Run) -> Outcome {
    let (mut one, mut two) = (in_container(run)?, in_container(run)?);
    let fence = takes(&mut one, "new")?;
    refused(&mut two, &one)?;
    two.must("mine", "false")?;
    same(
        "who holds",
        &two.ask("holder")?,
        &format!("{} {fence}", one.id),
    )?;
    one.must("renew", "held")?;
    one.child.kill()?;
    succeeds(&mut two, fence)
}

/// Goal: the process holds. Method: a second handle says so; it is dropped; the arena is opened and closed again.
fn handles(run: &mut Run) -> Outcome {
    let (mut one, mut rival) = (worker(run, 600_000)?, worker(run, 600_000)?);
    takes(&mut one, "new")?;
    one.must("again", "true")?;
    one.ask(&format!("open-again {}", run.path("arena").display()))?;
    one.must("close-again", "closed")?;
    one.must("mine", "true")?;
    refused(&mut rival, &one)?;
    one.must("renew", "held")
}

/// Goal: a hold is as long as the program, whatever it does to its descriptors and whoever is its child. Method: as
/// the name says; the rival asks before the kill and after.
fn closed(run: &mut Run) -> Outcome {
    let (mut one, mut rival) = (worker(run, 600_000)?, worker(run, 600_000)?);
    let fence = takes(&mut one, "new")?;
    let mut children = Vec::new();
    for how in ["fork", "raw-clone"] {
        children.push(Pid::from_raw(one.ask(how)?.parse()?));
    }
    let judged = (|| {
        one.child.tell("close-all")?;
        until(PATIENCE, || {
            std::fs::read_dir(format!("/proc/{}/fd", one.child.pid()))
                .is_ok_and(|open| open.count() == 0)
        })?;
        refused(&mut rival, &one)?;
        one.child.kill()?;
        succeeds(&mut rival, fence)
    })();
    children.into_iter().try_for_each(tracee::end)?;
    judged
}

/// Goal: /proc's "Z" is no death. Method: the holder's main thread ends.
fn headless(run: &mut Run) -> Outcome {
    let mut rival = worker(run, 600_000)?;
    let plan = Plan::new("headless-peer").arg("").arg(run.path("arena"));
    let mut one = chosen(Peer::started(run, plan)?, 600_000)?;
    until(PATIENCE, || {
        std::fs::read_to_string(format!("/proc/{}/stat", one.child.pid()))
            .is_ok_and(|stat| stat.contains(") Z "))
    })?;
    let fence = takes(&mut one, "new")?;
    refused(&mut rival, &one)?;
    one.must("renew", "held")?;
    one.child.kill_unreaped()?;
    succeeds(&mut rival, fence)
}

/// Goal: exec ends a hold. Method: the holder becomes a program that knows nothing of leases.
fn became_another(run: &mut Run) -> Outcome {
    let (mut one, mut rival) = (worker(run, 600_000)?, worker(run, 600_000)?);
    let fence = takes(&mut one, "new")?;
    one.child.ask("exec", "rest")?;
    succeeds(&mut rival, fence)
}

/// Goal: leadership is not inherited. Method: a child uses the handle that it inherited, then acquires: it is refused
/// by its parent. Another child returns through main. The parent holds all the while.
fn forked(run: &mut Run) -> Outcome {
    let (mut one, mut rival) = (worker(run, 600_000)?, worker(run, 600_000)?);
    let fence = takes(&mut one, "new")?;
    let answer = one.ask("fork-verbs")?;
    let words: Vec<&str> = answer.split(' ').collect();
    ensure!(
        words[..2] == ["false", "lost"],
        "in the child mine and renew say {answer:?}"
    );
    ensure!(
        !words.contains(&"true"),
        "the child holds or released: {answer:?}"
    );
    ensure!(
        answer.contains(&format!("refused held {}", one.id)),
        "the child's acquire: {answer:?}"
    );
    one.ask("fork-return")?;
    one.must("mine", "true")?;
    refused(&mut rival, &one)?;
    same(
        "who holds",
        &rival.ask("holder")?,
        &format!("{} {fence}", one.id),
    )
}

/// Goal: a stopped holder is replaced after its ttl and then does no harm. Method: ttl 300 ms; stop; the rival waits
/// and holds; continue; the holder renews. The rival's deadline is what it was.
fn stopped(run: &mut Run) -> Outcome {
    let (mut one, mut rival) = (worker(run, 300)?, worker(run, 600_000)?);
    let fence = takes(&mut one, "new")?;
    one.child.stop()?;
    let next = held(&rival.ask("wait 20000")?, "lapsed")?;
    ensure!(
        next == fence + 1,
        "after fence {fence} the successor has {next}"
    );
    let deadline = rival.ask("deadline")?;
    one.child.cont()?;
    one.must("renew", &format!("lost taken {} {next}", rival.id))?;
    one.must("mine", "false")?;
    // The loss is final: not even after the rival is gone is the old fence renewed.
    same("the rival's deadline", &rival.ask("deadline")?, &deadline)?;
    rival.must("mine", "true")?;
    rival.must("release", "true")?;
    let renewed = one.ask("renew")?;
    ensure!(
        renewed.starts_with("lost"),
        "a fence that was lost was renewed: {renewed}"
    );
    let again = takes(&mut one, "new")?;
    ensure!(again > next, "the fence {again} does not exceed {next}");
    Ok(())
}

/// Goal: only the holder releases. Method: as before; the first call after the stop is a release.
fn stale_release(run: &mut Run) -> Outcome {
    let (mut one, mut rival) = (worker(run, 100)?, worker(run, 600_000)?);
    takes(&mut one, "new")?;
    one.child.stop()?;
    held(&rival.ask("wait 20000")?, "lapsed")?;
    let deadline = rival.ask("deadline")?;
    one.child.cont()?;
    one.must("release", "false")?;
    same("the rival's deadline", &rival.ask("deadline")?, &deadline)?;
    rival.must("mine", "true")
}

/// Goal: one meaning of "lapsed". Method: ttl 50 ms; wait for its end; mine, holder and renew, each in turn.
fn lapsed(run: &mut Run) -> Outcome {
    let (mut one, mut rival) = (worker(run, 50)?, worker(run, 600_000)?);
    let fence = takes(&mut one, "new")?;
    let deadline = one.ask("deadline")?;
    if let Ok(deadline) = deadline.parse::<u64>() {
        until(PATIENCE, || now_ms() > deadline)?;
    }
    one.must("mine", "false")?;
    rival.must("holder", "none")?;
    one.must("renew", "held")?;
    same(
        "the fence after a late renewal",
        &one.ask("fence")?,
        &fence.to_string(),
    )?;
    let renewed = now_ms();
    until(PATIENCE, || now_ms() > renewed + 60)?;
    let next = takes(&mut rival, "lapsed")?;
    one.must("renew", &format!("lost taken {} {next}", rival.id))
}

/// Goal: a clean exit without release is a death. Method: the holder leaves.
fn exits(run: &mut Run) -> Outcome {
    let (mut one, mut rival) = (worker(run, 600_000)?, worker(run, 600_000)?);
    let fence = takes(&mut one, "new")?;
    one.leave()?;
    succeeds(&mut rival, fence)
}

/// Goal: whoever waits gets it, however the holder ends. Method: release, kill, lapse; the waiter is let go before.
fn waits(run: &mut Run) -> Outcome {
    run.each_round(|run, _| {
        for (ttl, how) in [(600_000, "new"), (600_000, "dead"), (200, "lapsed")] {
            let (mut one, mut rival) = (worker(run, ttl)?, worker(run, 600_000)?);
            takes(&mut one, "new")?;
            rival.child.tell("wait 20000")?;
            match how {
                "new" => one.must("release", "true")?,
                "dead" => one.child.kill_unreaped()?,
                _ => one.child.stop()?,
            }
            held(&rival.child.expect("wait")?, how)?;
            rival.must("release", "true")?;
        }
        Ok(())
    })
}

/// Goal: the end of an arena is the end of every hold in it, and fences outlive it. Method: destroy under a holder,
/// open anew, acquire; the old holder asks before and after.
fn destroyed(run: &mut Run) -> Outcome {
    let mut last = 0;
    run.each_round(|run, _| {
        let (mut one, mut other) = (worker(run, 600_000)?, Peer::new(run)?);
        let fence = takes(&mut one, "new")?;
        ensure!(
            fence > last,
            "after a destroyed arena fence {last} was followed by {fence}"
        );
        one.must("mine", "true")?;
        other.must("destroy", "destroyed")?;
        one.must("mine", "false")?;
        let renewed = one.ask("renew")?;
        ensure!(
            !renewed.starts_with("held"),
            "renewed in an arena that is gone: {renewed}"
        );
        let mut new = worker(run, 600_000)?;
        let next = takes(&mut new, "new")?;
        ensure!(
            next > fence,
            "after fence {fence} in the old arena, the new one gave {next}"
        );
        one.must("mine", "false")?;
        last = next;
        new.must("destroy", "destroyed")
    })
}

/// Goal: rm(1) is noticed. Method: remove the file under a holder; it renews, as often as keeping alive would.
fn removed(run: &mut Run) -> Outcome {
    let mut one = worker(run, 600_000)?;
    takes(&mut one, "new")?;
    one.must("renew", "held")?;
    std::fs::remove_file(run.path("arena"))?;
    // It asks the system ten times a second at most.
    let start = now_ms();
    until(PATIENCE, || now_ms() > start + 150)?;
    one.must("renew", "lost removed")?;
    one.must("mine", "false")?;
    let renewed = one.ask("renew")?;
    ensure!(
        renewed.starts_with("lost"),
        "renewed after it was told: {renewed}"
    );
    Ok(())
}
