//! The lease between real processes: each a copy of this test binary that waits where it is told.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use arena_lease::{
    Acquire, Arena, BootClock, Clock, Hold, Lease, LeaseError, Leases, LeasesOptions, Lost,
    Refused, Renewed, TookOver,
};
use common::{Actor, at, place, role, threads};
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

const TTL: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

fn lease_in(path: &Path, ttl: Duration) -> Lease {
    let leases = Leases::open(&Arena::open(path).unwrap()).unwrap();
    leases.lease("nightly", ttl).unwrap()
}

/// A test only in name: what a copy of this binary does that was started with a role.
#[test]
fn a_role_is_played_when_it_is_asked_for() {
    let Some((name, path)) = role() else {
        return;
    };
    match name.as_str() {
        "hold" | "hold an hour" => {
            let ttl = if name == "hold" { TTL } else { HOUR };
            let lease = lease_in(&path, ttl);
            let hold = lease.acquire().unwrap().held().unwrap();
            at(&hold.fence.to_string());
            println!("at {:?}", lease.renew().unwrap());
            println!("at {}", lease.release().unwrap());
        }
        "short" => {
            let lease = lease_in(&path, Duration::from_millis(50));
            let hold = lease.acquire().unwrap().held().unwrap();
            at(&hold.fence.to_string());
            println!(
                "at {:?} {} {}",
                lease.renew().unwrap(),
                lease.mine(),
                lease.release().unwrap()
            );
        }
        "wait" => {
            let lease = lease_in(&path, TTL);
            println!("at waiting");
            let hold = lease.acquire_timeout(TTL).unwrap().held().unwrap();
            at(&hold.fence.to_string());
        }
        other => panic!("no such role: {other}"),
    }
}

fn hold(outcome: Acquire) -> Hold {
    outcome.held().unwrap_or_else(|| panic!("{outcome:?}"))
}

#[test]
fn a_holder_that_was_killed_and_not_reaped_is_taken_over_at_once() {
    let (_directory, path) = place();
    let mut holder = Actor::start("hold", &path);
    let fence: u64 = holder.at().parse().unwrap();
    let lease = lease_in(&path, TTL);
    let refused = lease.acquire().unwrap();
    assert!(matches!(refused, Acquire::Refused(Refused::Held { fence: of, .. }) if of == fence));
    assert_eq!(lease.holder().unwrap().pid, Some(holder.child.id()));
    holder.kill_unreaped();
    assert_eq!(lease.holder(), None);
    let taken = hold(lease.acquire().unwrap());
    assert_eq!(taken.fence, fence + 1);
    assert!(matches!(taken.took_over, Some(TookOver::Dead { fence: of, .. }) if of == fence));
    let stats = lease.stats().unwrap();
    assert_eq!((stats.acquires, stats.steals), (2, 1));
}

/// Counts how often it is read.
#[derive(Default)]
struct Counting(AtomicU32);

impl Clock for Counting {
    fn now_ns(&self) -> u64 {
        // Relaxed: one thread reads the clock.
        self.0.fetch_add(1, Ordering::Relaxed);
        BootClock.now_ns()
    }
}

#[test]
fn being_refused_without_waiting_reads_the_clock_once() {
    let (_directory, path) = place();
    let mut holder = Actor::start("hold", &path);
    holder.at();
    let clock = Arc::new(Counting::default());
    let options = LeasesOptions::new().clock(clock.clone());
    let leases = options.open(&Arena::open(&path).unwrap()).unwrap();
    let lease = leases.lease("nightly", TTL).unwrap();
    let reads = |outcome: Acquire| {
        assert!(matches!(outcome, Acquire::Refused(_)), "{outcome:?}");
        clock.0.swap(0, Ordering::Relaxed)
    };
    reads(lease.acquire().unwrap());
    assert_eq!(reads(lease.acquire().unwrap()), 1);
    let millisecond = Duration::from_millis(1);
    assert!(reads(lease.acquire_timeout(millisecond).unwrap()) > 1);
}

#[test]
fn a_stopped_holder_is_told_after_the_takeover_and_leaves_its_successor_alone() {
    let (_directory, path) = place();
    let mut holder = Actor::start("short", &path);
    let fence: u64 = holder.at().parse().unwrap();
    holder.signal(Signal::SIGSTOP);
    let lease = lease_in(&path, TTL);
    let taken = hold(lease.acquire_timeout(TTL).unwrap());
    assert!(matches!(taken.took_over, Some(TookOver::Lapsed { fence: of, .. }) if of == fence));
    holder.go_on();
    holder.signal(Signal::SIGCONT);
    let said = holder.at();
    let by = lease.leases().arena().me().unwrap();
    let lost = Renewed::Lost(Lost::Taken {
        by,
        fence: taken.fence,
    });
    assert_eq!(said, format!("{lost:?} false false"));
    assert!(lease.mine());
    assert_eq!(lease.holder().unwrap().until_ms, taken.until_ms);
}

#[test]
fn a_waiter_is_woken_by_a_release_long_before_the_lapse() {
    let (_directory, path) = place();
    let lease = lease_in(&path, TTL);
    let first = hold(lease.acquire().unwrap());
    let mut waiter = Actor::start("wait", &path);
    assert_eq!(waiter.at(), "waiting");
    // It may not sleep yet: then it finds the lease free, which is right too.
    let started = Instant::now();
    assert!(lease.release().unwrap());
    assert_eq!(waiter.at().parse::<u64>().unwrap(), first.fence + 1);
    assert!(started.elapsed() < TTL / 2);
}

#[test]
fn a_waiter_takes_over_from_a_holder_that_dies_while_it_waits() {
    let (_directory, path) = place();
    let mut holder = Actor::start("hold", &path);
    let fence: u64 = holder.at().parse().unwrap();
    let mut waiter = Actor::start("wait", &path);
    assert_eq!(waiter.at(), "waiting");
    let started = Instant::now();
    holder.kill_unreaped();
    assert_eq!(waiter.at().parse::<u64>().unwrap(), fence + 1);
    assert!(started.elapsed() < TTL / 2);
}

/// Goal: who waits behind a lease that is renewed again and again does not wake for it, and polls nothing.
/// Method: count, over 100 renewals, how often any of its threads gave the processor up.
#[test]
fn an_idle_waiter_behind_a_renewed_lease_is_hardly_ever_awake() {
    let (_directory, path) = place();
    let lease = lease_in(&path, TTL);
    hold(lease.acquire().unwrap());
    let mut waiter = Actor::start("wait", &path);
    assert_eq!(waiter.at(), "waiting");
    let watched = |threads: &[(String, char, u64)]| {
        threads.iter().any(|(name, ..)| name == "arena-watcher")
            && threads.iter().all(|(_, state, _)| *state == 'S')
    };
    while !watched(&threads(waiter.pid())) {
        std::thread::yield_now();
    }
    let count = |pid| {
        threads(pid)
            .iter()
            .map(|(.., switches)| switches)
            .sum::<u64>()
    };
    let before = count(waiter.pid());
    for _ in 0..100 {
        assert!(matches!(lease.renew().unwrap(), Renewed::Held { .. }));
        std::thread::sleep(Duration::from_millis(20));
    }
    let switches = count(waiter.pid()) - before;
    assert!(switches <= 5, "{switches} in two seconds");
    assert!(lease.release().unwrap());
    waiter.at();
}

#[test]
fn a_waiters_patience_ends_at_its_deadline() {
    let (_directory, path) = place();
    let mut holder = Actor::start("hold", &path);
    holder.at();
    let lease = lease_in(&path, TTL);
    let wait = Duration::from_millis(120);
    let started = Instant::now();
    let refused = lease.acquire_timeout(wait).unwrap();
    assert!(matches!(refused, Acquire::Refused(Refused::Held { .. })));
    assert!(started.elapsed() >= wait, "never early");
    holder.go_on();
    assert!(
        holder.at().starts_with("Held"),
        "a live holder was not disturbed"
    );
    assert_eq!(holder.at(), "true");
}

#[test]
fn a_child_of_fork_holds_nothing_of_its_parents_and_gives_nothing_of_it_away() {
    let (_directory, path) = place();
    let lease = lease_in(&path, TTL);
    let held = hold(lease.acquire().unwrap());
    // SAFETY: the child runs only code of this crate and the system's, and ends by _exit.
    #[expect(unsafe_code, reason = "a fork is what is tested")]
    let forked = unsafe { fork() }.unwrap();
    match forked {
        ForkResult::Child => {
            let mut wrong = 0;
            wrong |= i32::from(lease.mine());
            wrong |= i32::from(lease.mine_at(held.fence)) << 1;
            wrong |= i32::from(!matches!(lease.release(), Ok(false))) << 2;
            wrong |= i32::from(!matches!(
                lease.renew(),
                Ok(Renewed::Lost(Lost::Taken { .. }))
            )) << 3;
            lease.forfeit_at(held.fence);
            // From here on it has a slot of its own.
            wrong |= i32::from(!matches!(
                lease.acquire(),
                Ok(Acquire::Refused(Refused::Held { .. }))
            )) << 4;
            wrong |= i32::from(lease.mine() || lease.renew().unwrap().is_held()) << 5;
            wrong |= i32::from(!matches!(lease.release_at(held.fence), Ok(false))) << 6;
            // SAFETY: ends the process without running anything of its parent's.
            #[expect(unsafe_code, reason = "exit would run the harness's destructors")]
            unsafe {
                nix::libc::_exit(wrong)
            }
        }
        ForkResult::Parent { child } => {
            let status = waitpid(child, None).unwrap();
            assert_eq!(status, nix::sys::wait::WaitStatus::Exited(child, 0));
            assert!(lease.mine() && lease.renew().unwrap().is_held());
        }
    }
}

#[test]
fn a_holder_that_ends_in_good_order_leaves_nothing_to_take_over() {
    let (_directory, path) = place();
    let mut holder = Actor::start("hold", &path);
    let fence: u64 = holder.at().parse().unwrap();
    holder.go_on();
    assert!(holder.at().starts_with("Held"));
    assert_eq!(holder.at(), "true");
    let lease = lease_in(&path, TTL);
    let next = hold(lease.acquire().unwrap());
    assert_eq!((next.fence, next.took_over), (fence + 1, None));
    assert_eq!(holder.child.wait().unwrap().signal(), None);
}

#[test]
fn a_waiter_is_told_at_once_that_the_arena_was_destroyed() {
    let (_directory, path) = place();
    // One that is not woken sleeps for an hour.
    let mut holder = Actor::start("hold an hour", &path);
    holder.at();
    let lease = lease_in(&path, TTL);
    let thread = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            thread.0.send(nix::unistd::gettid()).unwrap();
            lease.acquire_timeout(HOUR)
        });
        let call = format!("/proc/self/task/{}/syscall", thread.1.recv().unwrap());
        let sleeps = format!("{} ", nix::libc::SYS_futex_waitv);
        while !std::fs::read_to_string(&call).unwrap().starts_with(&sleeps) {
            std::thread::yield_now();
        }
        Arena::attach(&path).unwrap().destroy().unwrap();
        let told = waiter.join().unwrap();
        assert!(matches!(told, Err(LeaseError::Removed)), "{told:?}");
    });
}
