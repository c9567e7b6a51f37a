//! Leading as a future. Alone in its binary, because it counts what the process has.
#![cfg(feature = "tokio")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::future::Future as _;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use arena_lease::{Arena, Cancel, Contest, Lead, LeadOptions, LeaseGuard, Leases, Loss, Refused};
use common::{Actor, at, count, place, role};

/// Longer than a test.
const TTL: Duration = Duration::from_secs(3600);

fn leases_in(path: &Path) -> Leases {
    Leases::open(&Arena::open(path).unwrap()).unwrap()
}

fn rules() -> LeadOptions {
    LeadOptions::new().ttl(TTL)
}

/// A test only in name: what a copy of this binary does that was started with a role.
#[test]
fn a_role_is_played_when_it_is_asked_for() {
    let Some((_, path)) = role() else {
        return;
    };
    let guard = win(&rules().build().unwrap(), &leases_in(&path));
    at("holding");
    guard.release().unwrap();
    at("released");
}

fn win(rules: &Lead, leases: &Leases) -> LeaseGuard {
    rules.contend(leases, "nightly").unwrap().won().unwrap()
}

fn run<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(future)
}

/// What this process has: threads, descriptors, slots.
fn belongings(leases: &Leases) -> [usize; 3] {
    // Those of the dead are theirs.
    leases.arena().reap();
    let slots = leases.arena().attachments().len();
    [count("/proc/self/task"), count("/proc/self/fd"), slots]
}

/// One test: what it counts is the process's.
#[test]
fn futures_lead_and_leave_nothing() {
    if role().is_some() {
        return;
    }
    let (_directory, path) = place();
    let leases = leases_in(&path);
    // The bell's thread stays for as long as the arena is open.
    leases.arena().hang_bell().unwrap();
    let before = belongings(&leases);
    // The harness may have had a thread more at first.
    let more = |(now, before)| now > before;
    let none_left = || {
        while belongings(&leases).into_iter().zip(before).any(more) {
            std::thread::yield_now();
        }
    };
    what_is_free_is_acquired_and_its_loss_awaited(&leases);
    none_left();
    a_cancellation_ends_the_wait_and_the_term(&leases, &path);
    none_left();
    who_awaits_is_next_when_the_holder_releases(&leases, &path);
    none_left();
    a_future_that_is_dropped_anywhere_leaves_nothing(&leases, &path, &none_left);
    what_was_acquired_for_a_future_that_is_dropped_is_released(&leases);
    none_left();
    a_loss_that_is_not_awaited_to_its_end_is_told_to_others(&leases);
    none_left();
}

fn what_is_free_is_acquired_and_its_loss_awaited(leases: &Leases) {
    run(async {
        let guard = Lead::default().acquire(leases, "nightly").await;
        let guard = guard.unwrap().won().unwrap();
        assert!(guard.is_leading());
        let term = guard.clone();
        let dropped = async {
            tokio::task::yield_now().await;
            drop(guard);
        };
        let (loss, ()) = tokio::join!(term.lost(), dropped);
        assert_eq!(loss, Loss::Released);
        assert_eq!(term.lost().await, Loss::Released);
        // Noticed by nobody but the keeper.
        let limit = rules().margin(Duration::ZERO);
        let limit = limit
            .health_limit(Duration::from_millis(20))
            .build()
            .unwrap();
        let guard = limit
            .acquire(leases, "nightly")
            .await
            .unwrap()
            .won()
            .unwrap();
        assert_eq!(guard.lost().await, Loss::Unhealthy);
    });
}

fn a_cancellation_ends_the_wait_and_the_term(leases: &Leases, path: &Path) {
    let mut holder = Actor::start("hold", path);
    holder.at();
    let cancel = Cancel::new();
    let rules = rules().cancel(&cancel).build().unwrap();
    run(async {
        let later = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            cancel.cancel();
        };
        let (refused, ()) = tokio::join!(rules.acquire(leases, "nightly"), later);
        assert!(matches!(
            refused.unwrap(),
            Contest::Refused(Refused::Cancelled)
        ));
    });
    let cancel = Cancel::new();
    let rules = self::rules().cancel(&cancel).build().unwrap();
    run(async {
        let guard = rules
            .acquire(leases, "hourly")
            .await
            .unwrap()
            .won()
            .unwrap();
        cancel.cancel();
        assert_eq!(guard.lost().await, Loss::Cancelled);
    });
}

fn who_awaits_is_next_when_the_holder_releases(leases: &Leases, path: &Path) {
    let mut holder = Actor::start("hold", path);
    holder.at();
    run(async {
        let rules = rules().build().unwrap();
        let mut acquiring = pin!(rules.acquire(leases, "nightly"));
        let early = tokio::time::timeout(Duration::from_millis(5), &mut acquiring).await;
        assert!(early.is_err());
        holder.go_on();
        assert!(acquiring.await.unwrap().won().unwrap().is_leading());
    });
}

/// Goal: 1,000 futures that are dropped before, during and after their registrations leave no thread, descriptor or
/// slot, and nobody who waits. Method: drop them unpolled, and after a delay that grows from none.
fn a_future_that_is_dropped_anywhere_leaves_nothing(
    leases: &Leases,
    path: &Path,
    none_left: &dyn Fn(),
) {
    let mut holder = Actor::start("hold", path);
    holder.at();
    let rules = rules().build().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    drop(rules.acquire(leases, "nightly"));
    for round in 0..1000_u32 {
        let mut acquiring = Box::pin(rules.acquire(leases, "nightly"));
        assert!(acquiring.as_mut().poll(&mut context).is_pending());
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros((round % 100 * 2).into()) {
            std::hint::spin_loop();
        }
        drop(acquiring);
    }
    // Whoever still waited would acquire now.
    holder.go_on();
    assert_eq!(holder.at(), "released");
    drop(holder);
    none_left();
    assert_eq!(leases.lease("nightly", TTL).unwrap().holder(), None);
}

fn what_was_acquired_for_a_future_that_is_dropped_is_released(leases: &Leases) {
    let lease = leases.lease("nightly", TTL).unwrap();
    let rules = rules().build().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    for round in 0..200_u32 {
        let mut acquiring = Box::pin(rules.acquire(leases, "nightly"));
        // Ready at once, now and then: then the guard is dropped here.
        let is_pending = acquiring.as_mut().poll(&mut context).is_pending();
        if is_pending && round % 2 == 0 {
            // It was acquired, and nobody has fetched it.
            while lease.holder().is_none() {
                std::thread::yield_now();
            }
        }
        drop(acquiring);
        while lease.holder().is_some() || count_of("arena-acquire") > 0 {
            std::thread::yield_now();
        }
    }
}

fn count_of(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|found| found.trim() == name).count()
}

fn a_loss_that_is_not_awaited_to_its_end_is_told_to_others(leases: &Leases) {
    let guard = win(&rules().build().unwrap(), leases);
    let term = guard.clone();
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..1000 {
        let mut lost = Box::pin(term.lost());
        assert!(lost.as_mut().poll(&mut context).is_pending());
    }
    let mut lost = pin!(term.lost());
    assert!(lost.as_mut().poll(&mut context).is_pending());
    drop(guard);
    assert_eq!(
        lost.as_mut().poll(&mut context),
        Poll::Ready(Loss::Released)
    );
}
