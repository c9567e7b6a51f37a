//! Gates and fenced values between real processes: each a copy of this test binary that waits where it is told, or
//! a child of fork.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arena_lease::{
    Arena, ArenaOptions, Enter, EnterError, Fenced, Gate, GateGuard, GateOpenError, MAX_FENCE,
    StoreError,
};
use common::{Actor, at, place, role};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

const LONG: Duration = Duration::from_secs(30);

fn gate_in(path: &Path) -> Gate {
    Gate::open(&Arena::open(path).unwrap(), "ledger").unwrap()
}

fn entered(outcome: Enter) -> GateGuard {
    match outcome {
        Enter::Entered(guard) => guard,
        other => panic!("{other:?}"),
    }
}

/// A test only in name: what a copy of this binary does that was started with a role.
#[test]
fn a_role_is_played_when_it_is_asked_for() {
    let Some((role, path)) = role() else {
        return;
    };
    let (name, fence) = role.split_once(' ').unwrap();
    let fence: u64 = fence.parse().unwrap();
    let gate = gate_in(&path);
    match name {
        "inside" => {
            let guard = entered(gate.enter(fence, LONG).unwrap());
            at("inside");
            drop(guard);
            at("outside");
            println!("at {:?}", gate.enter(fence, LONG).unwrap());
        }
        "wait" => {
            println!("at waiting");
            let outcome = gate.enter(fence, LONG).unwrap();
            let recovered =
                matches!(&outcome, Enter::Entered(guard) if guard.recovered_from().is_some());
            let shown = match outcome {
                Enter::Entered(_) => format!("entered {recovered}"),
                other => format!("{other:?}"),
            };
            at(&shown);
        }
        other => panic!("no such role: {other}"),
    }
}

/// Waits until somebody barred the gate, which is done in one exchange with saying that he waits.
fn until_barred(gate: &Gate) {
    while !gate.state().unwrap().is_barred {
        std::thread::yield_now();
    }
}

#[test]
fn who_was_killed_inside_is_followed_at_once() {
    let (_directory, path) = place();
    let gate = gate_in(&path);
    let mut leader = Actor::start("inside 5", &path);
    assert_eq!(leader.at(), "inside");
    let inside = gate.state().unwrap().inside.unwrap();
    leader.kill_unreaped();
    let started = Instant::now();
    let guard = entered(gate.enter(6, LONG).unwrap());
    assert_eq!(guard.recovered_from(), Some(inside));
    assert!(started.elapsed() < LONG / 2);
}

#[test]
fn a_waiter_follows_one_that_is_killed_inside_while_it_waits() {
    let (_directory, path) = place();
    let gate = gate_in(&path);
    let mut leader = Actor::start("inside 5", &path);
    assert_eq!(leader.at(), "inside");
    let mut newer = Actor::start("wait 6", &path);
    assert_eq!(newer.at(), "waiting");
    until_barred(&gate);
    let started = Instant::now();
    leader.kill_unreaped();
    assert_eq!(newer.at(), "entered true");
    assert!(started.elapsed() < LONG / 2);
}

#[test]
fn a_waiter_is_let_in_when_the_older_one_leaves() {
    let (_directory, path) = place();
    let gate = gate_in(&path);
    let guard = entered(gate.enter(5, LONG).unwrap());
    let mut newer = Actor::start("wait 6", &path);
    assert_eq!(newer.at(), "waiting");
    until_barred(&gate);
    drop(guard);
    assert_eq!(newer.at(), "entered false");
}

/// Goal: a leader that is stopped inside keeps the newer one out, who is told who it is; continued, it leaves, and
/// does not come in again.
#[test]
fn who_is_stopped_inside_keeps_a_newer_one_out_until_its_bound_and_is_refused_later() {
    let (_directory, path) = place();
    let gate = gate_in(&path);
    let mut leader = Actor::start("inside 5", &path);
    assert_eq!(leader.at(), "inside");
    let inside = gate.state().unwrap().inside.unwrap();
    leader.stop();
    let bound = Duration::from_millis(150);
    let started = Instant::now();
    match gate.enter(6, bound).unwrap() {
        Enter::Busy { by, guards } => assert_eq!((by, guards), (inside, 1)),
        other => panic!("{other:?}"),
    }
    assert!(started.elapsed() >= bound, "never early");
    leader.go_on();
    leader.signal(Signal::SIGCONT);
    assert_eq!(leader.at(), "outside");
    // Nobody entered with 6: showing it was enough.
    leader.go_on();
    assert_eq!(leader.at(), "Stale { newest: 6 }");
    let guard = entered(gate.enter(6, Duration::ZERO).unwrap());
    assert_eq!(guard.recovered_from(), None);
}

#[test]
fn who_waits_with_a_fence_in_the_middle_is_refused_when_a_newer_one_is_shown() {
    let (_directory, path) = place();
    let gate = gate_in(&path);
    let _guard = entered(gate.enter(5, LONG).unwrap());
    let mut middle = Actor::start("wait 6", &path);
    assert_eq!(middle.at(), "waiting");
    until_barred(&gate);
    // A newer thread of this process, which does not wait for its older one.
    let newest = gate.enter(7, Duration::ZERO).unwrap();
    assert!(matches!(newest, Enter::Busy { .. }));
    assert_eq!(middle.at(), "Stale { newest: 7 }");
}

#[test]
fn another_process_under_the_same_fence_waits_for_its_turn() {
    let (_directory, path) = place();
    let gate = gate_in(&path);
    let guard = entered(gate.enter(5, LONG).unwrap());
    let beside = entered(gate.enter(5, Duration::ZERO).unwrap());
    let mut other = Actor::start("wait 5", &path);
    assert_eq!(other.at(), "waiting");
    drop(guard);
    assert_eq!(gate.state().unwrap().guards, 1);
    drop(beside);
    assert_eq!(other.at(), "entered false");
    other.go_on();
}

#[test]
fn a_guard_that_a_child_of_fork_inherited_leaves_nothing() {
    let (_directory, path) = place();
    let gate = gate_in(&path);
    let guard = entered(gate.enter(5, LONG).unwrap());
    let before = gate.state();
    // SAFETY: the child runs only code of this crate and the system's, and ends by _exit.
    #[expect(unsafe_code, reason = "a fork is what is tested")]
    let forked = unsafe { fork() }.unwrap();
    match forked {
        ForkResult::Child => {
            let parents = gate.state().and_then(|state| state.inside);
            drop(guard);
            let mut wrong = i32::from(gate.state() != before);
            // From here on it has a slot of its own, and waits for its parent as any other process does.
            let busy = gate.enter(6, Duration::ZERO);
            wrong |=
                i32::from(!matches!(busy, Ok(Enter::Busy { by, .. }) if Some(by) == parents)) << 1;
            // SAFETY: ends the process without running anything of its parent's.
            #[expect(unsafe_code, reason = "exit would run the harness's destructors")]
            unsafe {
                nix::libc::_exit(wrong)
            }
        }
        ForkResult::Parent { child } => {
            let status = waitpid(child, None).unwrap();
            assert_eq!(status, WaitStatus::Exited(child, 0));
            let state = gate.state().unwrap();
            assert_eq!((state.guards, state.newest, state.is_barred), (1, 6, true));
            drop(guard);
            assert_eq!(gate.state().unwrap().inside, None);
        }
    }
}

#[test]
fn a_gate_remembers_the_newest_fence_when_nobody_is_inside() {
    let arena = ArenaOptions::new().anonymous().unwrap();
    let gate = Gate::open(&arena, "ledger").unwrap();
    drop(entered(gate.enter(9, Duration::ZERO).unwrap()));
    let again = Gate::open(&arena, "ledger").unwrap();
    let stale = again.enter(8, LONG).unwrap();
    assert!(matches!(stale, Enter::Stale { newest: 9 }));
    let other = Gate::open(&arena, "another").unwrap();
    drop(entered(other.enter(8, Duration::ZERO).unwrap()));
}

#[test]
fn numbers_that_no_lease_issues_are_refused_and_change_nothing() {
    let arena = ArenaOptions::new().anonymous().unwrap();
    let gate = Gate::open(&arena, "ledger").unwrap();
    let value = Fenced::<u64>::open(&arena, "offset").unwrap();
    for fence in [0, MAX_FENCE + 1, u64::MAX] {
        let refused = gate.enter(fence, LONG);
        assert!(matches!(refused, Err(EnterError::Fence { found }) if found == fence));
        let refused = value.store(fence, 1);
        assert!(matches!(refused, Err(StoreError::Fence { found }) if found == fence));
    }
    assert_eq!(gate.state().unwrap().newest, 0);
    assert_eq!(value.load(), (0, 0));
    drop(entered(gate.enter(MAX_FENCE, Duration::ZERO).unwrap()));
}

#[test]
fn a_destroyed_arenas_gates_and_values_are_no_longer_used() {
    let (_directory, path) = place();
    let arena = Arena::open(&path).unwrap();
    let gate = Gate::open(&arena, "ledger").unwrap();
    let value = Fenced::<u64>::open(&arena, "offset").unwrap();
    arena.destroy().unwrap();
    assert!(matches!(gate.enter(1, LONG), Err(EnterError::Removed)));
    assert_eq!(gate.state().unwrap().inside, None);
    assert!(matches!(value.store(1, 1), Err(StoreError::Removed)));
}

/// Goal: who waits behind a stopped one learns that the arena is no longer the one of its name. Method: a thread
/// waits behind this process's own older guard, and the arena is destroyed, or its file removed with rm.
#[test]
fn a_waiter_learns_that_the_arena_was_destroyed_or_its_file_removed() {
    for by_rm in [false, true] {
        let (_directory, path) = place();
        let gate = gate_in(&path);
        let guard = entered(gate.enter(5, LONG).unwrap());
        let started = Instant::now();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| gate.enter(6, LONG));
            until_barred(&gate);
            match by_rm {
                true => std::fs::remove_file(&path).unwrap(),
                false => gate.arena().destroy().unwrap(),
            }
            let told = waiter.join().unwrap();
            assert!(matches!(told, Err(EnterError::Removed)), "{told:?}");
        });
        assert!(started.elapsed() < LONG / 2);
        drop(guard);
    }
}

/// Goal: who leaves and is stopped before it wakes its waiters delays them by a second or so. Method: the word that
/// it leaves behind is stored, and nobody is woken.
#[test]
fn a_waiter_that_was_not_woken_looks_by_itself() {
    let (_directory, path) = place();
    let gate = gate_in(&path);
    let _guard = entered(gate.enter(5, LONG).unwrap());
    let mut newer = Actor::start("wait 6", &path);
    assert_eq!(newer.at(), "waiting");
    until_barred(&gate);
    let region = gate.arena().find(b"gates").unwrap();
    let word: &portable_atomic::AtomicU128 = region.at(128).unwrap();
    let started = Instant::now();
    word.store(6 << 75 | 9 << 12, Ordering::SeqCst);
    assert_eq!(newer.at(), "entered false");
    assert!(started.elapsed() < LONG / 2);
}

#[test]
fn a_damaged_word_is_an_error_and_lets_nobody_in() {
    let arena = ArenaOptions::new().anonymous().unwrap();
    let gate = Gate::open(&arena, "ledger").unwrap();
    let region = arena.find(b"gates").unwrap();
    let word = 5_u128 << 75 | 1 << 32;
    region.write(128, &word.to_le_bytes()).unwrap();
    let error = gate.enter(6, LONG).unwrap_err();
    assert!(matches!(error, EnterError::Corrupt { found } if found == word));
    assert_eq!(gate.state(), None);
}

#[test]
fn names_are_given_once_and_to_as_many_as_there_are_rows() {
    let arena = ArenaOptions::new().anonymous().unwrap();
    for number in 0..64_u32 {
        Gate::open(&arena, number.to_le_bytes().map(|byte| byte + 1)).unwrap();
    }
    let full = Gate::open(&arena, "one more");
    assert!(matches!(full, Err(GateOpenError::TableFull { rows: 64 })));
    assert!(Gate::open(&arena, [1, 1, 1, 1]).is_ok());
    assert!(matches!(
        Gate::open(&arena, ""),
        Err(GateOpenError::Name { .. })
    ));
    assert!(Fenced::<u64>::open(&arena, "one more").is_ok());
}

#[test]
fn a_late_store_of_an_older_leader_is_refused_in_every_process() {
    let (_directory, path) = place();
    let value = Fenced::<u64>::open(&Arena::open(&path).unwrap(), "offset").unwrap();
    value.store(5, 100).unwrap();
    // SAFETY: as above.
    #[expect(unsafe_code, reason = "a fork is what is tested")]
    let forked = unsafe { fork() }.unwrap();
    match forked {
        ForkResult::Child => {
            let wrong = value.load() != (5, 100) || value.store(6, 200).is_err();
            // SAFETY: as above.
            #[expect(unsafe_code, reason = "exit would run the harness's destructors")]
            unsafe {
                nix::libc::_exit(wrong.into())
            }
        }
        ForkResult::Parent { child } => {
            let status = waitpid(child, None).unwrap();
            assert_eq!(status, WaitStatus::Exited(child, 0));
            let late = value.store(5, 101);
            assert!(matches!(late, Err(StoreError::Stale { newest: 6 })));
            assert_eq!(value.load(), (6, 200));
            assert_eq!(value.update(6, |value| value + 1).unwrap(), 200);
            assert_eq!(value.load(), (6, 201));
        }
    }
}
