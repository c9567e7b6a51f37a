//! Each way to lose a leadership, which is told once, with its reason.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arena_lease::{
    Arena, ArenaOptions, BootClock, Cancel, Clock as _, Lead, LeadOptions, LeasesOptions, Led,
    Loss, Refused, TookOver,
};
use common::leading::*;
use common::{Actor, place, role};
use nix::sys::signal::Signal;

/// A test only in name: what a copy of this binary does that was started with a role.
#[test]
fn a_role_is_played_when_it_is_asked_for() {
    if let Some((name, path)) = role() {
        play(&name, &path);
    }
}

#[test]
fn a_term_that_was_released_by_another_handle_is_lost_and_told_once() {
    let leases = leases();
    let (rules, heard) = telling(LeadOptions::new());
    let guard = win(&rules, &leases);
    let lease = leases.lease("nightly", TTL).unwrap();
    assert!(lease.release_at(guard.fence()).unwrap());
    assert_eq!(guard.loss(), Some(Loss::Released));
    assert_eq!(guard.release(), Err(Loss::Released));
    assert_eq!(told_all(&heard, 1), [Loss::Released]);
}

#[test]
fn a_term_whose_row_went_to_another_name_was_released() {
    let arena = ArenaOptions::new().anonymous().unwrap();
    let leases = LeasesOptions::new().rows(1).open(&arena).unwrap();
    let guard = win(&Lead::default(), &leases);
    assert!(guard.lease().release_at(guard.fence()).unwrap());
    let other = leases.lease("hourly", TTL).unwrap();
    assert!(other.acquire().unwrap().held().is_some());
    assert_eq!(guard.release(), Err(Loss::Released));
    assert!(other.mine());
}

#[test]
fn an_ordinary_end_is_told_as_a_release() {
    let (rules, heard) = telling(LeadOptions::new());
    let led = rules.lead(&leases(), "nightly", |term| term.is_leading());
    assert!(led.unwrap().done().unwrap());
    assert_eq!(told_all(&heard, 1), [Loss::Released]);
}

#[test]
fn a_panic_in_the_body_releases_and_is_told() {
    let leases = leases();
    let (rules, heard) = telling(LeadOptions::new());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _ = rules.lead(&leases, "nightly", |_| panic!("on purpose"));
    }));
    assert!(panicked.is_err());
    assert_eq!(leases.lease("nightly", TTL).unwrap().holder(), None);
    assert_eq!(told_all(&heard, 1), [Loss::Released]);
}

#[test]
fn a_cancellation_ends_the_term_and_is_told_before_the_body_returns() {
    let leases = leases();
    let cancel = Cancel::new();
    let (rules, heard) = telling(LeadOptions::new().cancel(&cancel));
    let led = rules.lead(&leases, "nightly", |term| {
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| term.wait_lost(Duration::MAX));
            cancel.cancel();
            assert_eq!(waiter.join().unwrap(), Some(Loss::Cancelled));
        });
        // Also to the callback, by whoever was first: this thread or the keeper's.
        while told(&heard).is_empty() {
            std::thread::yield_now();
        }
        assert!(!term.is_leading() && !term.rest(TTL));
        assert!(term.lease().holder().is_some(), "not before the body ended");
    });
    let loss = Loss::Cancelled;
    assert!(matches!(led.unwrap(), Led::Lost { loss: of, .. } if of == loss));
    assert_eq!(told_all(&heard, 1), [loss]);
    let again = rules
        .lead_again(&leases, "nightly", |_| unreachable!())
        .unwrap();
    assert!(matches!(again, Led::Refused(Refused::Cancelled)));
}

/// Goal: the loss to a rival names the rival. Method: this process's clock stands, so it does not see that its time
/// is over; the rival's runs.
#[test]
fn a_takeover_is_told_with_who_took_over_and_under_which_fence() {
    let (_directory, path) = place();
    let arena = Arena::open(&path).unwrap();
    let clock = Arc::new(Stopped(AtomicU64::new(BootClock.now_ns())));
    let leases = LeasesOptions::new().clock(clock).open(&arena).unwrap();
    let (rules, heard) = telling(LeadOptions::new().ttl(40 * MS).renew_every(20 * MS));
    let guard = win(&rules, &leases);
    let mut rival = Actor::start("lead", &path);
    let fence: u64 = rival.at().parse().unwrap();
    assert_eq!(fence, guard.fence() + 1);
    let loss = guard.wait_lost(Duration::MAX).unwrap();
    assert!(
        matches!(loss, Loss::TakenOver { fence: under, by } if under == fence
        && Some(by) == guard.lease().holder().map(|holder| holder.peer))
    );
    assert_eq!(guard.release(), Err(loss));
    assert_eq!(told_all(&heard, 1), [loss]);
    rival.go_on();
    assert!(rival.at().starts_with("Done"), "it was not disturbed");
}

#[test]
fn a_stopped_leader_finds_its_term_lapsed_and_its_successor_undisturbed() {
    let (_directory, path) = place();
    let mut leader = Actor::start("short", &path);
    let fence: u64 = leader.at().parse().unwrap();
    leader.signal(Signal::SIGSTOP);
    let successor = win(&Lead::default(), &leases_in(&path));
    let from = successor.took_over();
    assert!(matches!(from, Some(TookOver::Lapsed { fence: of, .. }) if of == fence));
    leader.go_on();
    leader.signal(Signal::SIGCONT);
    let said = leader.at();
    // On a busy machine it may have lapsed before it was stopped.
    assert!(
        ["TakenOver", "Lapsed"]
            .iter()
            .any(|loss| said.starts_with(&format!("Lost {{ value: false, loss: {loss}"))),
        "{said}"
    );
    assert!(successor.is_leading());
}

#[test]
fn a_destroyed_arena_ends_the_term_at_once_and_a_removed_file_at_the_next_renewal() {
    for destroyed in [true, false] {
        let (_directory, path) = place();
        let leases = leases_in(&path);
        let (rules, heard) = telling(LeadOptions::new().renew_every(10 * MS));
        let guard = win(&rules, &leases);
        if destroyed {
            leases.arena().destroy().unwrap();
            assert!(!guard.is_leading());
        } else {
            std::fs::remove_file(&path).unwrap();
        }
        assert_eq!(guard.wait_lost(Duration::MAX), Some(Loss::Removed));
        let newer = win(&Lead::default(), &leases_in(&path));
        assert!(newer.fence() > guard.fence());
        assert_eq!(guard.release(), Err(Loss::Removed));
        assert_eq!(told_all(&heard, 1), [Loss::Removed]);
        assert!(newer.is_leading());
    }
}

#[test]
fn a_body_that_does_not_look_is_told_of_its_loss_afterwards() {
    let (leases, clock) = stopped();
    let other = leases.lease("nightly", TTL).unwrap();
    let led = Lead::default().lead(&leases, "nightly", |_| {
        clock.pass(2 * TTL);
        // Another handle, for want of another process on this clock: a new fence all the same.
        assert!(other.acquire().unwrap().held().is_some());
    });
    assert!(matches!(
        led.unwrap(),
        Led::Lost {
            loss: Loss::TakenOver { .. },
            ..
        }
    ));
    assert!(other.mine(), "the newer hold is not released");
}

/// L6, on a clock that only the test moves.
#[test]
fn work_that_reports_no_health_loses_the_lease_although_it_is_renewed() {
    let (leases, clock) = stopped();
    let options = LeadOptions::new().ttl(TTL).margin(S).renew_every(MS);
    let (rules, heard) = telling(options.health_limit(10 * S).min_hold(TTL));
    let guard = win(&rules, &leases);
    for _ in 0..4 {
        clock.pass(9 * S - NS);
        assert!(guard.is_leading());
        guard.beat();
        // The keeper renews meanwhile.
        while deadline(&guard) < Duration::from_nanos(clock.now_ns()) + TTL {
            std::thread::yield_now();
        }
    }
    clock.pass(9 * S - NS);
    assert!(guard.is_leading());
    clock.pass(NS);
    assert_eq!(guard.loss(), Some(Loss::Unhealthy));
    guard.beat();
    assert_eq!(guard.loss(), Some(Loss::Unhealthy));
    // The margin is kept, however often the keeper looks.
    let other = LeadOptions::new().ttl(S).renew_every(MS).build().unwrap();
    let other = win(&other, &self::leases());
    let first = deadline(&other);
    while deadline(&other) < first + 10 * MS {
        assert!(guard.lease().holder().is_some());
    }
    // Then the keeper gives it up, long before the deadline and whatever the minimum hold; the body is still at it.
    clock.pass(S);
    while guard.lease().holder().is_some() {
        std::thread::yield_now();
    }
    let next = guard.lease().acquire().unwrap().held().unwrap();
    assert_eq!((next.fence, next.took_over), (guard.fence() + 1, None));
    assert_eq!(guard.release(), Err(Loss::Unhealthy));
    assert_eq!(told_all(&heard, 1), [Loss::Unhealthy]);
}

#[test]
fn work_that_was_unhealthy_and_ends_passes_the_lease_on_at_once() {
    let (leases, clock) = stopped();
    let options = LeadOptions::new().health_limit(10 * S).min_hold(TTL);
    let guard = win(&options.build().unwrap(), &leases);
    clock.pass(9 * S);
    assert_eq!(guard.loss(), Some(Loss::Unhealthy));
    let lease = guard.lease().clone();
    assert_eq!(guard.release(), Err(Loss::Unhealthy));
    assert!(lease.acquire().unwrap().held().is_some());
}

#[test]
fn a_health_limit_is_noticed_by_the_keeper_when_nobody_asks() {
    let options = LeadOptions::new()
        .margin(Duration::ZERO)
        .health_limit(20 * MS);
    let (rules, heard) = telling(options);
    let guard = win(&rules, &leases());
    while told(&heard).is_empty() || guard.lease().holder().is_some() {
        std::thread::yield_now();
    }
    assert_eq!(told_all(&heard, 1), [Loss::Unhealthy]);
}

#[test]
fn a_callback_that_panics_harms_neither_keeper_nor_guard() {
    let leases = leases();
    let options = LeadOptions::new()
        .health_limit(20 * MS)
        .margin(Duration::ZERO);
    let rules = options.on_lost(|_| panic!("on purpose")).build().unwrap();
    let guard = win(&rules, &leases);
    while guard.lease().holder().is_some() {
        std::thread::yield_now();
    }
    assert_eq!(guard.release(), Err(Loss::Unhealthy));
    let rules = LeadOptions::new()
        .ttl(S)
        .renew_every(10 * MS)
        .build()
        .unwrap();
    let guard = win(&rules, &leases);
    let first = deadline(&guard);
    while deadline(&guard) == first {
        assert!(guard.is_leading());
    }
}

#[test]
fn a_callback_that_takes_its_time_holds_up_no_renewal_of_others() {
    let leases = leases();
    let (enter, entered) = std::sync::mpsc::channel();
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let left = Mutex::new(left);
    let options = LeadOptions::new()
        .health_limit(20 * MS)
        .margin(Duration::ZERO);
    let slow = options.on_lost(move |_| {
        enter.send(()).unwrap();
        // Until the other end is gone.
        let _end = left.lock().unwrap().recv();
    });
    // Nobody asks for it: the keeper notices.
    let sick = win(&slow.build().unwrap(), &leases);
    entered.recv().unwrap();
    let rules = LeadOptions::new()
        .ttl(60 * S)
        .renew_every(10 * MS)
        .build()
        .unwrap();
    let guard = rules.contend(&leases, "other").unwrap().won().unwrap();
    for _ in 0..3 {
        let first = deadline(&guard);
        while deadline(&guard) == first {
            std::thread::yield_now();
        }
    }
    drop(leave);
    assert_eq!(sick.release(), Err(Loss::Unhealthy));
}

#[test]
fn a_wait_for_the_loss_ends_at_its_timeout() {
    let guard = win(&Lead::default(), &leases());
    let started = Instant::now();
    assert_eq!(guard.wait_lost(20 * MS), None);
    assert!(started.elapsed() >= 20 * MS);
    assert!(guard.rest(20 * MS));
    assert!(started.elapsed() >= 40 * MS);
}
