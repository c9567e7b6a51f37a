//! Who is here, and who is proven gone: P1 to P12 as far as no lease is needed.

use super::cast::{Peer, same};
use crate::{
    child::Plan,
    namespaces::Rooms,
    outcome::{Outcome, Stop, ensure},
    scenario::{Need, Run, Scenario},
    tracee,
};
use nix::unistd::Pid;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new("peers", "P1", "a_zombie_is_dead", zombie),
    Scenario::new(
        "peers",
        "P2",
        "a_process_with_a_dead_ones_pid_does_not_keep_it_alive",
        recycled,
    )
    .in_own_pids(),
    Scenario::new(
        "peers",
        "P3",
        "of_two_peers_with_one_pid_in_turn_the_old_is_never_alive_nor_the_new_dead",
        recycled_fast,
    )
    .in_own_pids()
    .rounds(200, 5_000),
    Scenario::new(
        "peers",
        "P4",
        "two_peers_that_are_both_pid_1_are_told_apart_and_each_ones_death_is_seen",
        both_pid_1,
    )
    .needs(&[Need::Namespaces]),
    Scenario::new(
        "peers",
        "P5",
        "a_live_peer_is_not_dead_to_another_user",
        other_user,
    )
    .needs(&[Need::OtherUser]),
    Scenario::new(
        "peers",
        "P5",
        "a_live_peer_is_not_dead_to_one_without_proc",
        without_proc,
    )
    .needs(&[Need::Namespaces]),
    Scenario::new(
        "peers",
        "P5",
        "a_process_that_never_saw_proc_does_not_replace_an_arena_in_use",
        never_saw_proc,
    )
    .needs(&[Need::Namespaces]),
    Scenario::new(
        "peers",
        "P11",
        "a_process_whose_main_thread_ended_can_attach",
        late_headless,
    ),
    Scenario::new(
        "peers",
        "P5",
        "a_live_peer_with_a_garbled_record_is_not_dead",
        garbled,
    )
    .rounds(20, 1_000),
    Scenario::new(
        "peers",
        "P6",
        "a_process_of_another_time_namespace_is_refused_and_told_so",
        other_clock,
    )
    .needs(&[Need::TimeNamespace]),
    Scenario::new(
        "peers",
        "P7",
        "a_table_of_eight_dead_takes_a_ninth_and_one_of_eight_living_is_full",
        full_table,
    ),
    Scenario::new(
        "peers",
        "P7",
        "clean_exits_leave_every_row_free",
        clean_exits,
    )
    .rounds(40, 400),
    Scenario::new(
        "peers",
        "P8",
        "of_two_handles_in_one_process_one_dropped_leaves_the_other_attached",
        two_handles,
    ),
    Scenario::new(
        "peers",
        "P10",
        "neither_closed_descriptors_nor_living_children_change_when_a_peer_is_dead",
        closed_and_cloned,
    ),
    Scenario::new(
        "peers",
        "P11",
        "a_peer_whose_main_thread_ended_is_alive",
        headless,
    ),
    Scenario::new(
        "peers",
        "P11",
        "a_peer_that_keeps_starting_threads_is_never_dead",
        churning,
    )
    .rounds(2_000, 100_000),
    Scenario::new(
        "peers",
        "P12",
        "a_peer_that_became_another_program_is_dead",
        became_another,
    ),
    Scenario::new(
        "peers",
        "C3",
        "a_forked_child_is_a_peer_of_its_own_and_ends_without_harm_to_its_parent",
        forked,
    ),
];

/// Goal: death is seen before anybody reaps. Method: kill, leave the zombie, ask; reap, reap the row, ask again.
fn zombie(run: &mut Run) -> Outcome {
    let (mut one, mut other) = (Peer::new(run)?, Peer::new(run)?);
    let about = format!("verdict {}", one.id);
    other.must(&about, "alive")?;
    one.child.kill_unreaped()?;
    dead(&mut other, &one.id)?;
    one.child.reap()?;
    dead(&mut other, &one.id)?;
    other.must("reap", "1")?;
    other.must(&about, "dead epoch")
}

fn dead(judge: &mut Peer, id: &str) -> Outcome {
    let answer = judge.ask(&format!("verdict {id}"))?;
    ensure!(
        answer.starts_with("dead"),
        "the verdict on a dead peer is {answer:?}"
    );
    Ok(())
}

/// Makes the next process of this PID namespace get `pid`.
fn next_pid(pid: Pid) -> Outcome {
    let last = pid.as_raw() - 1;
    std::fs::write("/proc/sys/kernel/ns_last_pid", last.to_string())
        .map_err(|e| Stop::failed(format!("ns_last_pid: {e}")))
}

/// Goal: a pid is no identity. Method: kill and reap a peer, give its pid to a process that never attaches, ask.
fn recycled(run: &mut Run) -> Outcome {
    let (mut one, mut other) = (Peer::new(run)?, Peer::new(run)?);
    let pid = one.child.pid();
    one.child.kill()?;
    next_pid(pid)?;
    let mut stranger = run.start(Plan::new("rest"))?;
    stranger.expect("rest")?;
    ensure!(
        stranger.pid() == pid,
        "the stranger got pid {}, wanted was {pid}",
        stranger.pid()
    );
    dead(&mut other, &one.id)
}

/// Goal: as before when even the start time is equal, which it often is at this speed. Method: each round the new
/// process with the old pid attaches itself.
fn recycled_fast(run: &mut Run) -> Outcome {
    let mut judge = Peer::new(run)?;
    let mut old = Peer::new(run)?;
    run.each_round(|run, _| {
        let pid = old.child.pid();
        old.child.kill()?;
        next_pid(pid)?;
        let mut new = Peer::new(run)?;
        ensure!(
            new.child.pid() == pid,
            "the new peer got pid {}, wanted was {pid}",
            new.child.pid()
        );
        ensure!(new.id != old.id, "both were {}", old.id);
        dead(&mut judge, &old.id)?;
        judge.must(&format!("verdict {}", new.id), "alive")?;
        new.must(&format!("verdict {}", new.id), "alive")?;
        dead(&mut new, &old.id)?;
        old = new;
        Ok(())
    })
}

fn in_container(run: &Run) -> Outcome<Peer> {
    let rooms = Rooms {
        pid: true,
        fresh_proc: true,
        ..Rooms::default()
    };
    Peer::started(
        run,
        Plan::new("peer")
            .arg("")
            .arg(run.path("arena"))
            .in_rooms(rooms),
    )
}

/// Goal: pids of two namespaces mean nothing to each other. Method: two containers' first processes judge each
/// other and are judged from outside; one is killed.
fn both_pid_1(run: &mut Run) -> Outcome {
    let (mut one, mut two, mut outside) = (in_container(run)?, in_container(run)?, Peer::new(run)?);
    ensure!(one.id != two.id, "both are {}", one.id);
    let (about_one, about_two) = (format!("verdict {}", one.id), format!("verdict {}", two.id));
    one.must(&about_two, "alive")?;
    two.must(&about_one, "alive")?;
    outside.must(&about_one, "alive")?;
    two.must("reap", "0")?;
    one.child.kill()?;
    two.must(&about_one, "dead byte")?;
    outside.must(&about_one, "dead byte")?;
    outside.must(&about_two, "alive")
}

/// Goal: a permission that is missing is not a death. Method: another uid attaches to root's arena and asks.
fn other_user(run: &mut Run) -> Outcome {
    let plan = |run: &Run| {
        Plan::new("peer")
            .arg("mode=666,owner=0")
            .arg(run.path("arena"))
    };
    let mut one = Peer::started(run, plan(run))?;
    let mut other = Peer::started(run, plan(run).by_user(1_001))?;
    other.must(&format!("verdict {}", one.id), "alive")?;
    one.must(&format!("verdict {}", other.id), "alive")?;
    one.child.kill_unreaped()?;
    dead(&mut other, &one.id)
}

/// Goal: /proc that says nothing is not a death. Method: a peer covers /proc after it attached, judges and is judged.
fn without_proc(run: &mut Run) -> Outcome {
    let (mut one, mut blind) = (Peer::new(run)?, Peer::new(run)?);
    blind.must("hide-proc", "hidden")?;
    let seen = blind.ask(&format!("verdict {}", one.id))?;
    ensure!(
        seen == "alive" || seen == "unknown",
        "without /proc a live peer is {seen:?}"
    );
    one.must(&format!("verdict {}", blind.id), "alive")?;
    one.child.kill()?;
    dead(&mut blind, &one.id)
}

/// Goal: who cannot read the boot id does not take a living arena for one of an earlier boot. Method: a process that
/// never saw /proc opens the arena of a live peer; whatever it is told, it did not replace it.
fn never_saw_proc(run: &mut Run) -> Outcome {
    let mut one = Peer::new(run)?;
    let rooms = Rooms {
        hidden_proc: true,
        ..Rooms::default()
    };
    let plan = Plan::new("opener")
        .arg("open")
        .arg("")
        .arg(run.path("arena"));
    let mut blind = run.start(plan.in_rooms(rooms))?;
    blind.expect("start")?;
    let answer = blind.ask("go", "opened")?;
    ensure!(
        !answer.starts_with("created"),
        "it replaced the arena of a live peer"
    );
    one.must("gone", "false false")
}

/// Goal: what a record says kills nobody. Method: random bytes over the words behind a row's first, which holds its
/// generation, at the place that the layout table gives; the verdict on the living is not death.
fn garbled(run: &mut Run) -> Outcome {
    const ROWS: u64 = 384;
    const ROW: u64 = 128;
    let mut one = Peer::new(run)?;
    let mut other = Peer::new(run)?;
    let slot = crate::text::parse_id(&one.id)?.slot();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(run.path("arena"))?;
    run.each_round(|run, _| {
        let noise: Vec<u8> = (8..ROW).map(|_| run.rng.byte()).collect();
        let at = ROWS + ROW * u64::from(slot) + 8;
        std::os::unix::fs::FileExt::write_all_at(&file, &noise, at)?;
        let seen = other.ask(&format!("verdict {}", one.id))?;
        ensure!(
            seen == "alive" || seen == "unknown",
            "with {noise:02x?} in its row a live peer is {seen:?}"
        );
        let reaped = other.ask("reap")?;
        same("rows reaped", &reaped, "0")
    })?;
    one.child.kill()?;
    dead(&mut other, &one.id)
}

/// Goal: deadlines of two clocks never meet. Method: a process a day ahead tries to attach.
fn other_clock(run: &mut Run) -> Outcome {
    let mut one = Peer::new(run)?;
    let rooms = Rooms {
        clock_ahead: Some(86_400),
        ..Rooms::default()
    };
    let plan = Plan::new("opener")
        .arg("attach")
        .arg("")
        .arg(run.path("arena"))
        .in_rooms(rooms);
    let mut ahead = run.start(plan)?;
    ahead.expect("start")?;
    let answer = ahead.ask("go", "opened")?;
    ensure!(
        answer.starts_with("refused TimeNamespace"),
        "it was {answer:?}"
    );
    one.must("counts", "1 1")
}

/// Goal: the dead make room, the living do not. Method: a table of 8; 8 attach and are killed (half of them stay
/// zombies), a ninth attaches; it leaves, 8 live ones attach, the next is refused.
fn full_table(run: &mut Run) -> Outcome {
    let plan = |run: &Run| Plan::new("peer").arg("slots=8").arg(run.path("arena"));
    let mut killed = Vec::new();
    for index in 0..8 {
        let mut peer = Peer::started(run, plan(run))?;
        match index % 2 {
            0 => peer.child.kill_unreaped()?,
            _ => peer.child.kill()?,
        }
        killed.push(peer);
    }
    Peer::started(run, plan(run))
        .map_err(|stop| stop.within("the ninth"))?
        .leave()?;
    let living: Vec<Peer> = (0..8)
        .map(|_| Peer::started(run, plan(run)))
        .collect::<Outcome<_>>()?;
    let mut ninth = run.start(plan(run))?;
    let answer = ninth.expect("peer")?;
    ensure!(
        answer.contains("TableFull") || answer.contains("all 8 slots"),
        "the ninth living one: {answer:?}"
    );
    drop(living);
    Peer::started(run, plan(run)).map(drop)
}

/// Goal: a worker that ends well leaves nothing, however many came and went. Method: in a table of 4, join and leave.
fn clean_exits(run: &mut Run) -> Outcome {
    let plan = |run: &Run| Plan::new("peer").arg("slots=4").arg(run.path("arena"));
    let mut judge = Peer::started(run, plan(run))?;
    run.each_round(|run, _| {
        let peer = Peer::started(run, plan(run))?;
        let id = peer.id.clone();
        judge.must("counts", "2 2")?;
        peer.leave()?;
        judge.must("counts", "1 1")?;
        judge.must(&format!("verdict {id}"), "dead epoch")
    })
}

/// Goal: the process is attached, not the handle. Method: open again, close the second; another judges.
fn two_handles(run: &mut Run) -> Outcome {
    let (mut one, mut other) = (Peer::new(run)?, Peer::new(run)?);
    let path = run.path("arena").display().to_string();
    let again = one.ask(&format!("open-again {path}"))?;
    same(
        "the second handle",
        &again,
        &format!("{} other-address", one.id),
    )?;
    one.must("close-again", "closed")?;
    one.must("me", &one.id.clone())?;
    other.must(&format!("verdict {}", one.id), "alive")?;
    other.must("reap", "0")?;
    other.must("counts", "2 2")
}

/// Goal: the byte lives exactly as long as the program. Method: a peer forks a child that sleeps, raw-clones another,
/// closes all its descriptors (its pipe's end shows when); it is alive; it is killed; it is dead, the children live.
fn closed_and_cloned(run: &mut Run) -> Outcome {
    let (mut one, mut other) = (Peer::new(run)?, Peer::new(run)?);
    let about = format!("verdict {}", one.id);
    let mut sleepers = Vec::new();
    for how in ["fork", "raw-clone"] {
        let pid = one.ask(how)?;
        sleepers.push(Pid::from_raw(
            pid.parse()
                .map_err(|_| Stop::failed(format!("{how}: {pid}")))?,
        ));
    }
    let judged = (|| {
        one.child.tell("close-all")?;
        crate::child::until(crate::child::PATIENCE, || {
            let open = std::fs::read_dir(format!("/proc/{}/fd", one.child.pid()));
            open.is_ok_and(|open| open.count() == 0)
        })
        .map_err(|stop| stop.within("closing every descriptor"))?;
        other.must(&about, "alive")?;
        other.must("reap", "0")?;
        one.child.kill()?;
        for &pid in &sleepers {
            let states = crate::child::states(pid);
            let lives = !states.is_empty() && !states.contains(&'Z');
            ensure!(lives, "a child does not live on: {states:?}");
        }
        // Not by its pid alone, which other namespaces cannot ask: its byte is free.
        other.must(&about, "dead byte")?;
        other.must("reap", "1")
    })();
    for pid in sleepers {
        tracee::end(pid)?;
    }
    judged
}

/// Goal: a process is its threads, not its first one. Method: the main thread ends (/proc says Z), another goes on.
fn headless(run: &mut Run) -> Outcome {
    let mut other = Peer::new(run)?;
    let mut one = Peer::started(
        run,
        Plan::new("headless-peer").arg("").arg(run.path("arena")),
    )?;
    let about = format!("verdict {}", one.id);
    crate::child::until(crate::child::PATIENCE, || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", one.child.pid()));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    })
    .map_err(|stop| stop.within("the end of the main thread"))?;
    other.must(&about, "alive")?;
    other.must("reap", "0")?;
    one.must(&about, "alive")?;
    one.must(&format!("verdict {}", other.id), "alive")?;
    one.child.kill_unreaped()?;
    dead(&mut other, &one.id)
}

/// Goal: /proc/self of such a process shows little; attaching must not need it. Method: as above, attached later.
fn late_headless(run: &mut Run) -> Outcome {
    let mut other = Peer::new(run)?;
    let plan = Plan::new("late-headless-peer")
        .arg("")
        .arg(run.path("arena"));
    let mut one = Peer::started(run, plan)?;
    other.must(&format!("verdict {}", one.id), "alive")?;
    one.must(&format!("verdict {}", other.id), "alive")
}

/// Goal: no scan that races with threads kills a peer. Method: it starts threads without pause, the verdict is asked.
fn churning(run: &mut Run) -> Outcome {
    let (mut one, mut other) = (Peer::new(run)?, Peer::new(run)?);
    one.must("churn", "churns")?;
    other.must(&format!("verdicts {} {}", one.id, run.rounds), "alive")
}

/// Goal: exec ends the peer though the pid lives on. Method: it becomes a program that waits.
fn became_another(run: &mut Run) -> Outcome {
    let (mut one, mut other) = (Peer::new(run)?, Peer::new(run)?);
    one.child.ask("exec", "rest")?;
    dead(&mut other, &one.id)?;
    other.must("reap", "1")
}

/// Goal: fork shares nothing of an attachment. Method: a child asks for its id; another child returns through main
/// and so drops every handle that it inherited. The parent stays what it was.
fn forked(run: &mut Run) -> Outcome {
    let (mut one, mut other) = (Peer::new(run)?, Peer::new(run)?);
    let child = one.ask("fork-me")?;
    ensure!(
        child != one.id && crate::text::parse_id(&child).is_ok(),
        "the child of {} is {child}",
        one.id
    );
    dead(&mut other, &child)?;
    let ended = one.ask("fork-return")?;
    ensure!(
        ended.contains("Exited") && ended.ends_with(", 0))"),
        "the second child ended with {ended}"
    );
    one.must("me", &one.id.clone())?;
    let about = format!("verdict {}", one.id);
    other.must(&about, "alive")?;
    one.child.kill()?;
    dead(&mut other, &one.id)
}
