//! How long after a kill of the holder a process that waits has what it held, beside one that waits for a file's lock.

use arena_core::clock;
use nix::sys::signal::Signal;

use super::series::Series;
use crate::{
    child::{Child, PATIENCE, Plan, until, waits},
    outcome::Outcome,
    scratch::Scratch,
    text,
};

pub(super) fn small(scratch: &Scratch, rounds: u32) -> Outcome<Vec<Series>> {
    let names = ["takeover-flock", "takeover-lease", "takeover-standby"];
    measure(scratch, rounds, 0, names)
}

pub(super) fn large(scratch: &Scratch, rounds: u32) -> Outcome<Vec<Series>> {
    let names = [
        "takeover-flock-1GiB",
        "takeover-lease-1GiB",
        "takeover-standby-1GiB",
    ];
    measure(scratch, rounds, 1_024, names)
}

/// What is waited for: the reference first. `standby`: to work, as the latest standby of one that does.
pub(super) const KINDS: [&str; 3] = ["flock", "lease", "standby"];

fn measure(
    scratch: &Scratch,
    rounds: u32,
    mib: u32,
    names: [&'static str; KINDS.len()],
) -> Outcome<Vec<Series>> {
    let mut series = names.map(|name| Series::new(name, "ms"));
    let mut waiters = Vec::new();
    for kind in KINDS {
        waiters.push(waiter(scratch, kind)?);
    }
    for _ in 0..rounds {
        for ((kind, waiter), series) in KINDS.into_iter().zip(&mut waiters).zip(&mut series) {
            let mut holder = holder(scratch, kind, mib, 0)?;
            waiter.tell("wait")?;
            asleep(waiter)?;
            let killed_ns = clock::boot_ns();
            holder.signal(Signal::SIGKILL)?;
            let took_ns = text::number(&waiter.expect("took")?)?;
            let late_us = u32::try_from(took_ns.saturating_sub(killed_ns) / 1_000)?;
            series.push(f64::from(late_us) / 1_000.0);
            waiter.ask("leave", "left")?;
            // The next is not disturbed by what is still freed of this one.
            holder.reap()?;
        }
    }
    Ok(series.into())
}

/// A process that holds; it renews so often.
pub(super) fn holder(scratch: &Scratch, kind: &str, mib: u32, renew_ms: u32) -> Outcome<Child> {
    let plan = Plan::new("bench-holder")
        .arg(kind)
        .arg(scratch.path().join(kind))
        .arg(mib.to_string())
        .arg(renew_ms.to_string());
    let mut holder = plan.start(scratch.path())?;
    holder.expect("holds")?;
    Ok(holder)
}

pub(super) fn waiter(scratch: &Scratch, kind: &str) -> Outcome<Child> {
    let plan = Plan::new("bench-waiter")
        .arg(kind)
        .arg(scratch.path().join(kind));
    let mut waiter = plan.start(scratch.path())?;
    waiter.expect("waiter")?;
    Ok(waiter)
}

/// Waits until the child's main thread sleeps in a call that waits for another process.
pub(super) fn asleep(child: &Child) -> Outcome {
    until(PATIENCE, || waits(child.pid())).map_err(|stop| stop.within("until a waiter sleeps"))
}
