//! What the stepper's children do between their marks: each operation that changes shared memory.

use std::time::Duration;

use arena_core::{Arena, AttachmentId, LockWord};
use arena_lease::{Acquire, Enter, Gate, Lease};
use arena_peers::Peers;

use super::{
    peer::options,
    step::{Ready, Section, nothing},
    verbs,
};
use crate::{text, told::Told};

pub(super) const SECTIONS: &[Section] = &[
    ("create", nothing, open),
    ("attach", nothing, attach),
    ("join", inherit, join),
    ("leave", nothing, leave),
    ("reap", nothing, reap),
    ("carve", nothing, carve),
    ("lock", nothing, lock),
    ("unlock", nothing, unlock),
    ("destroy", nothing, destroy),
    ("acquire", nothing, acquire),
    ("renew", nothing, renew),
    ("release", nothing, release),
    ("name", nothing, name),
    ("enter", nothing, enter),
    ("leave-gate", nothing, leave_gate),
];

/// The zygote is attached, and its children inherit the handle.
fn inherit(told: &mut Told) -> Option<Arena> {
    Some(arena(&told.arg()))
}

pub(super) fn arena(path: &str) -> Arena {
    options().open(path).expect("the scenario's arena opens")
}

/// A section that does `run`, and tells afterwards, outside of the marks, what came of it.
pub(super) fn section<T: 'static>(
    run: impl FnOnce() -> T + 'static,
    tell: impl FnOnce(T) -> String + 'static,
) -> Ready {
    Box::new(move || {
        let outcome = run();
        Box::new(move || tell(outcome))
    })
}

/// Told: a path.
fn open(_: Option<&Arena>, path: &str) -> Ready {
    let path = path.to_owned();
    section(
        move || options().open(&path),
        |opened| match opened {
            Ok(arena) => {
                let how = if arena.created() {
                    "created"
                } else {
                    "attached"
                };
                keep(arena);
                how.to_owned()
            }
            Err(e) => refused(&e),
        },
    )
}

/// Told: a path.
fn attach(_: Option<&Arena>, path: &str) -> Ready {
    let path = path.to_owned();
    section(
        move || options().attach(&path),
        |opened| match opened {
            Ok(arena) => me(keep(arena).me()),
            Err(e) => refused(&e),
        },
    )
}

/// In a child of fork: its own place.
fn join(inherited: Option<&Arena>, _: &str) -> Ready {
    let arena = keep(inherited.expect("the zygote is attached").clone());
    section(|| arena.me(), me)
}

/// Told: a path. Attached before, gone after.
fn leave(_: Option<&Arena>, path: &str) -> Ready {
    let arena = arena(path);
    section(move || drop(arena), |()| "left".to_owned())
}

/// Told: a path.
fn reap(_: Option<&Arena>, path: &str) -> Ready {
    let arena = keep(arena(path));
    section(|| arena.reap(), |reaped| reaped.to_string())
}

/// Told: a path and a name.
fn carve(_: Option<&Arena>, told: &str) -> Ready {
    let (path, name) = two(told);
    let arena = keep(arena(path));
    let name = name.to_owned();
    section(
        move || arena.carve(name.as_bytes(), 7, 1_000),
        |carved| carved.map_or_else(|e| refused(&e), |region| format!("at {}", region.offset())),
    )
}

/// The arena and its region with a lock in its first word, for as long as the process.
fn locks(path: &str) -> (&'static Arena, &'static LockWord) {
    let arena = keep(arena(path));
    let region = keep(arena.carve(b"locks", 1, 64).expect("there is room"));
    (arena, region.at(0).expect("inside the region"))
}

/// Told: a path. Locked for good.
fn lock(_: Option<&Arena>, path: &str) -> Ready {
    let (arena, word) = locks(path);
    section(
        || arena.lock(word, Duration::from_millis(100)),
        |taken| match taken {
            Ok(taken) => {
                let how = if taken.is_inherited() {
                    "inherited"
                } else {
                    "clean"
                };
                std::mem::forget(taken);
                how.to_owned()
            }
            Err(e) => refused(&e),
        },
    )
}

/// Told: a path. Locked before, free after.
fn unlock(_: Option<&Arena>, path: &str) -> Ready {
    let (arena, word) = locks(path);
    let guard = arena
        .lock(word, Duration::from_secs(5))
        .expect("nobody has it")
        .into_guard();
    section(move || drop(guard), |()| "unlocked".to_owned())
}

/// Told: a path.
fn destroy(_: Option<&Arena>, path: &str) -> Ready {
    let arena = keep(arena(path));
    section(
        || arena.destroy(),
        |destroyed| destroyed.map_or_else(|e| refused(&e), |()| "destroyed".to_owned()),
    )
}

/// Returns when every other thread sleeps: one that runs would run into the stepper's breakpoints.
pub(super) fn await_parked() {
    let others_sleep = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
        tasks.flatten().all(|task| {
            let own = task.file_name().to_str() == Some(&std::process::id().to_string());
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            let state = stat
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.chars().next());
            own || matches!(state, Some('S') | None)
        })
    };
    while !others_sleep() {
        std::thread::yield_now();
    }
}

/// Told: a path and the ttl in milliseconds.
fn acquire(_: Option<&Arena>, told: &str) -> Ready {
    let lease = keep(lease(told));
    // The first hold of a process hangs its bell; here before the section, so that one thread runs in it.
    Peers::new(lease.leases().arena())
        .hang_bell()
        .expect("a thread is to be had");
    await_parked();
    section(
        || lease.acquire(),
        |answer| format!("{} {}", verbs::acquired(answer), lease.mine()),
    )
}

/// Told: likewise. Held before.
fn renew(_: Option<&Arena>, told: &str) -> Ready {
    let lease = keep(held(told));
    await_parked();
    section(
        || lease.renew(),
        |answer| format!("{} {}", verbs::renewed(answer), lease.mine()),
    )
}

/// Told: likewise. Held before.
fn release(_: Option<&Arena>, told: &str) -> Ready {
    let lease = keep(held(told));
    await_parked();
    section(
        || lease.release(),
        |answer| format!("{} {}", verbs::released(answer), lease.mine()),
    )
}

/// Told: a path and a name that has no row yet.
fn name(_: Option<&Arena>, told: &str) -> Ready {
    let (path, name) = two(told);
    let leases = keep(verbs::table(keep(arena(path))).expect("the table opens"));
    let name = name.to_owned();
    section(
        move || leases.lease(&name, Duration::from_secs(10)),
        |named| named.map_or_else(|e| refused(&e), |lease| format!("named {}", lease.fence())),
    )
}

/// Told: a path and a fence. Inside for good.
fn enter(_: Option<&Arena>, told: &str) -> Ready {
    let (gate, fence) = gate(told);
    section(
        move || gate.enter(fence, Duration::ZERO),
        |entered| match entered {
            Ok(Enter::Entered(guard)) => {
                keep(guard);
                "entered".to_owned()
            }
            Ok(Enter::Stale { newest }) => format!("stale {newest}"),
            Ok(Enter::Busy { by, .. }) => format!("busy {}", text::id(by)),
            Err(e) => refused(&e),
        },
    )
}

/// Told: likewise. Inside before, outside after.
fn leave_gate(_: Option<&Arena>, told: &str) -> Ready {
    let (gate, fence) = gate(told);
    let entered = gate
        .enter(fence, Duration::ZERO)
        .expect("the gate is whole");
    let guard = entered.entered().expect("nobody is inside");
    section(move || drop(guard), |()| "left".to_owned())
}

fn gate(told: &str) -> (&'static Gate, u64) {
    let (path, fence) = two(told);
    let arena = keep(arena(path));
    // The first to enter in a process hangs its bell; here before the section, so that one thread runs in it.
    arena.hang_bell().expect("a thread is to be had");
    let gate = keep(Gate::open(arena, "ledger").expect("there is room for a name"));
    await_parked();
    let fence = fence.parse().expect("the scenario gives a number here");
    (gate, fence)
}

fn lease(told: &str) -> Lease {
    let (path, ttl) = two(told);
    let ttl = Duration::from_millis(ttl.parse().expect("the scenario gives a number here"));
    let leases = verbs::table(keep(arena(path))).expect("the table opens");
    leases.lease("job", ttl).expect("there is room for a name")
}

fn held(told: &str) -> Lease {
    let lease = lease(told);
    let answer = lease.acquire().expect("the lease can be had");
    assert!(matches!(answer, Acquire::Held(_)), "{answer:?}");
    lease
}

fn two(told: &str) -> (&str, &str) {
    told.split_once(' ').expect("the scenario tells two words")
}

fn me(id: Result<AttachmentId, arena_core::JoinError>) -> String {
    id.map_or_else(|e| refused(&e), text::id)
}

fn refused<E: std::error::Error>(error: &E) -> String {
    format!("refused {}", text::error(error))
}

/// For as long as the process: its end, and no destructor, is what takes it away.
pub(super) fn keep<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}
