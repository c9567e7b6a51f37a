//! Waits that are cancelled. Alone in its binary, because it counts what the process has.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use arena_lease::{Acquire, Arena, Cancel, Lease, Leases, Refused};
use common::{Actor, at, count, place, role};

const TTL: Duration = Duration::from_secs(30);
const CANCELLED: Acquire = Acquire::Refused(Refused::Cancelled);

fn lease_in(path: &Path) -> Lease {
    let leases = Leases::open(&Arena::open(path).unwrap()).unwrap();
    leases.lease("nightly", TTL).unwrap()
}

/// A test only in name: what a copy of this binary does that was started with a role.
#[test]
fn a_role_is_played_when_it_is_asked_for() {
    if let Some((_, path)) = role() {
        let lease = lease_in(&path);
        assert!(lease.acquire().unwrap().held().is_some());
        at("holding");
    }
}

/// Goal: wherever in its wait a thread is when it is cancelled, it ends at once, and leaves nothing.
/// Method: cancel after a delay that grows from none, through the registrations, far into the sleep; count threads
/// and descriptors. A cancellation that is not heard ends in a takeover, half a minute later.
#[test]
fn a_wait_that_is_cancelled_anywhere_ends_as_cancelled_and_leaves_nothing() {
    if role().is_some() {
        return;
    }
    let (_directory, path) = place();
    let mut holder = Actor::start("hold", &path);
    holder.at();
    let lease = lease_in(&path);
    // The harness runs this test in a thread beside its own; all that are to be are there by now.
    let (threads, fds) = (count("/proc/self/task"), count("/proc/self/fd"));
    for round in 0..1000_u32 {
        let (cancel, start) = (Cancel::new(), Barrier::new(2));
        std::thread::scope(|scope| {
            let wait = || {
                start.wait();
                lease.acquire_unless_cancelled(Duration::MAX, &cancel)
            };
            let waiter = scope.spawn(wait);
            start.wait();
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros((round % 100).into()) {
                std::hint::spin_loop();
            }
            cancel.cancel();
            assert_eq!(waiter.join().unwrap().unwrap(), CANCELLED);
        });
    }
    while count("/proc/self/task") > threads || count("/proc/self/fd") > fds {
        std::thread::yield_now();
    }
    assert!(!lease.mine());

    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let wait = || lease.acquire_unless_cancelled(Duration::MAX, &cancel);
        let waiters = [scope.spawn(wait), scope.spawn(wait)];
        cancel.cancel();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap().unwrap(), CANCELLED);
        }
    });
    // What is free is not taken either by who was cancelled before.
    drop(holder);
    assert_eq!(
        lease.acquire_unless_cancelled(TTL, &cancel).unwrap(),
        CANCELLED
    );
    assert!(
        lease
            .acquire_unless_cancelled(TTL, &Cancel::new())
            .unwrap()
            .held()
            .is_some()
    );
}
