//! Leading, and each way to stop it.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arena_lease::{
    Acquire, Arena, ArenaOptions, BootClock, Cancel, Clock, Contest, Lead, LeadOptions, LeaseGuard,
    Leases, LeasesOptions, Led, Loss, Refused, TookOver,
};
use common::{Actor, at, place, role};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const NS: Duration = Duration::from_nanos(1);
const TTL: Duration = Duration::from_secs(30);

fn leases_in(path: &Path) -> Leases {
    Leases::open(&Arena::open(path).unwrap()).unwrap()
}

/// A test only in name: what a copy of this binary does that was started with a role.
#[test]
fn a_role_is_played_when_it_is_asked_for() {
    let Some((name, path)) = role() else {
        return;
    };
    let leases = leases_in(&path);
    match name.as_str() {
        "lead" => {
            let led = Lead::default().lead(&leases, "nightly", |term| {
                at(&term.fence().to_string());
            });
            println!("at {:?}", led.unwrap());
        }
        "short" => {
            let rules = LeadOptions::new()
                .ttl(50 * MS)
                .margin(5 * MS)
                .build()
                .unwrap();
            let led = rules.lead(&leases, "nightly", |term| {
                at(&term.fence().to_string());
                term.is_leading()
            });
            println!("at {:?}", led.unwrap());
        }
        other => panic!("no such role: {other}"),
    }
}

/// A clock that a test moves.
struct Stopped(AtomicU64);

impl Stopped {
    fn pass(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap();
        self.0.fetch_add(ns, Ordering::SeqCst);
    }
}

impl Clock for Stopped {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

fn stopped() -> (Leases, Arc<Stopped>) {
    let arena = ArenaOptions::new().anonymous().unwrap();
    let clock = Arc::new(Stopped(AtomicU64::new(1_000_000_000)));
    let options = LeasesOptions::new().clock(clock.clone());
    (options.open(&arena).unwrap(), clock)
}

fn leases() -> Leases {
    Leases::open(&ArenaOptions::new().anonymous().unwrap()).unwrap()
}

/// What was told, in order.
type Told = Arc<Mutex<Vec<Loss>>>;

fn telling(options: LeadOptions) -> (Lead, Told) {
    let told = Told::default();
    let to = Arc::clone(&told);
    let options = options.on_lost(move |loss| to.lock().unwrap().push(loss));
    (options.build().unwrap(), told)
}

fn told(told: &Told) -> Vec<Loss> {
    told.lock().unwrap().clone()
}

fn win(rules: &Lead, leases: &Leases) -> LeaseGuard {
    match rules.contend(leases, "nightly").unwrap() {
        Contest::Won(guard) => guard,
        Contest::Refused(why) => panic!("{why:?}"),
    }
}

fn deadline(guard: &LeaseGuard) -> Duration {
    Duration::from_millis(guard.lease().holder().unwrap().until_ms)
}

#[test]
fn a_guard_renews_under_one_fence_and_releases_when_it_is_dropped() {
    let leases = leases();
    let (rules, heard) = telling(LeadOptions::new().ttl(S).renew_every(10 * MS));
    let guard = win(&rules, &leases);
    let (fence, first) = (guard.fence(), deadline(&guard));
    while deadline(&guard) < first + S {
        assert!(guard.is_leading() && guard.goes_on());
        assert_eq!((guard.loss(), guard.fence()), (None, fence));
        std::thread::yield_now();
    }
    assert_eq!(told(&heard), []);
    let (term, lease) = (guard.clone(), guard.lease().clone());
    drop(guard);
    assert_eq!(lease.holder(), None);
    assert_eq!(term.loss(), Some(Loss::Released));
    assert_eq!(told(&heard), [Loss::Released]);
    assert_eq!(win(&rules, &leases).took_over(), None);
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
    assert_eq!(told(&heard), [Loss::Released]);
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
    assert_eq!(told(&heard), [Loss::Released]);
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
    assert_eq!(told(&heard), [Loss::Released]);
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
    assert_eq!(told(&heard), [loss]);
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
    assert_eq!(told(&heard), [loss]);
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
    // Who looks first finds the new word, or the old deadline in it just before.
    assert!(
        said.starts_with("Lost { value: false, loss: TakenOver"),
        "{said}"
    );
    assert!(successor.is_leading());
}

#[test]
fn who_waits_to_lead_does_when_the_leader_dies() {
    let (_directory, path) = place();
    let mut leader = Actor::start("lead", &path);
    let fence: u64 = leader.at().parse().unwrap();
    let mut next = Actor::start("lead", &path);
    let leases = leases_in(&path);
    // It registers before it sleeps; wherever it is when the leader dies, it is to notice.
    leader.kill_unreaped();
    assert_eq!(next.at().parse::<u64>().unwrap(), fence + 1);
    let refused = LeadOptions::new().wait(Duration::ZERO).build().unwrap();
    let refused = refused.contend(&leases, "nightly").unwrap();
    assert!(
        matches!(refused, Contest::Refused(Refused::Held { fence: of, .. }) if of == fence + 1)
    );
    next.go_on();
    assert!(next.at().starts_with("Done"));
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
        assert_eq!(told(&heard), [Loss::Removed]);
        assert!(newer.is_leading());
    }
}

#[test]
fn leading_again_goes_on_after_a_lapse_under_a_new_fence_and_ends_when_the_work_does() {
    let (leases, clock) = stopped();
    let (rules, heard) = telling(LeadOptions::new());
    let mut fences = Vec::new();
    let led = rules.lead_again(&leases, "nightly", |term| {
        fences.push(term.fence());
        if fences.len() < 3 {
            clock.pass(TTL);
            assert_eq!(term.loss(), Some(Loss::Lapsed));
        }
        fences.len()
    });
    assert_eq!(led.unwrap().done(), Some(3));
    assert!(fences.is_sorted_by(|a, b| a < b));
    assert_eq!(told(&heard), [Loss::Lapsed, Loss::Lapsed, Loss::Released]);
}

#[test]
fn leading_again_ends_when_the_arena_is_gone() {
    let (_directory, path) = place();
    let leases = leases_in(&path);
    let led = Lead::default().lead_again(&leases, "nightly", |term| {
        leases.arena().destroy().unwrap();
        term.loss()
    });
    let loss = Loss::Removed;
    assert!(
        matches!(led.unwrap(), Led::Lost { value: Some(of), loss: told } if of == loss && told == loss)
    );
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
    assert_eq!(told(&heard), [Loss::Unhealthy]);
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
    assert_eq!(told(&heard), [Loss::Unhealthy]);
}

#[test]
fn who_is_asked_to_step_down_leads_until_the_work_is_done() {
    let leases = leases();
    let (rules, heard) = telling(LeadOptions::new());
    let led = rules.lead_again(&leases, "nightly", |term| {
        assert!(term.rest(Duration::ZERO));
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| term.rest(Duration::MAX));
            term.clone().step_down();
            assert!(!worker.join().unwrap());
        });
        assert!(term.is_leading() && !term.goes_on());
        assert!(!term.rest(Duration::MAX));
        term.fence()
    });
    assert!(led.unwrap().done().is_some());
    assert_eq!(told(&heard), [Loss::Released]);
}

/// Goal: of two who wait, the one that was named comes next, and the other after it.
#[test]
fn who_steps_down_for_somebody_is_followed_by_that_one() {
    let (_directory, path) = place();
    let leases = leases_in(&path);
    let guard = win(&Lead::default(), &leases);
    let mut others = [(); 2].map(|()| Actor::start("lead", &path));
    let peer_of = |actor: &Actor| loop {
        let rows = leases.arena().attachments();
        let mut of_actor = rows.iter().filter(|row| {
            row.identity
                .is_some_and(|known| known.pid == actor.child.id())
        });
        if let Some(row) = of_actor.next() {
            return row.id;
        }
    };
    let [_, heir] = others.each_ref().map(peer_of);
    guard.step_down_for(heir, TTL * 120);
    assert!(guard.is_leading() && !guard.goes_on());
    let fence = guard.fence();
    guard.release().unwrap();
    let [other, heir] = &mut others;
    assert_eq!(heir.at(), (fence + 1).to_string());
    heir.go_on();
    assert!(heir.at().starts_with("Done"));
    assert_eq!(other.at(), (fence + 2).to_string());
}

#[test]
fn an_heir_that_does_not_come_costs_the_others_the_head_start_and_no_more() {
    let (leases, clock) = stopped();
    let lease = leases.lease("nightly", TTL).unwrap();
    let fence = lease.acquire().unwrap().held().unwrap().fence;
    let nobody = arena_lease::PeerId::new(7, 7).unwrap();
    assert!(!lease.release_to(fence - 1, nobody, TTL).unwrap());
    assert!(lease.release_to(fence, nobody, S).unwrap());
    clock.pass(S);
    let early = lease.acquire().unwrap();
    assert!(
        matches!(early, Acquire::Refused(Refused::NotBefore { opens_in, .. }) if opens_in == MS)
    );
    clock.pass(MS);
    let again = lease.acquire().unwrap().held().unwrap().fence;
    assert_eq!(again, fence + 1);
    // To oneself: no wait.
    let me = leases.arena().me().unwrap();
    assert!(lease.release_to(again, me, TTL).unwrap());
    let again = lease.acquire().unwrap().held().unwrap().fence;
    // That was for that release alone.
    assert!(lease.release_held_for(again, TTL).unwrap());
    assert!(lease.acquire().unwrap().held().is_none());
}

#[test]
fn a_minimum_hold_binds_the_heir() {
    let (leases, clock) = stopped();
    let rules = LeadOptions::new().min_hold(10 * S).build().unwrap();
    let guard = win(&rules, &leases);
    let me = leases.arena().me().unwrap();
    guard.step_down_for(me, TTL);
    let lease = guard.lease().clone();
    guard.release().unwrap();
    let early = lease.acquire().unwrap();
    assert!(
        matches!(early, Acquire::Refused(Refused::NotBefore { opens_in, .. }) if opens_in == 10 * S)
    );
    clock.pass(10 * S);
    assert!(lease.acquire().unwrap().held().is_some());
}

#[test]
fn a_minimum_hold_is_kept_by_the_guard() {
    let (leases, clock) = stopped();
    let rules = LeadOptions::new().min_hold(500 * MS).build().unwrap();
    let guard = win(&rules, &leases);
    clock.pass(10 * MS);
    let lease = guard.lease().clone();
    assert_eq!(guard.release(), Ok(()));
    let kept = lease.acquire().unwrap();
    assert!(
        matches!(kept, Acquire::Refused(Refused::NotBefore { opens_in, .. }) if opens_in == 490 * MS)
    );
    clock.pass(490 * MS);
    assert!(lease.acquire().unwrap().held().is_some());
}

#[test]
fn jitter_delays_a_contest_never_past_its_wait_and_ends_when_it_is_cancelled() {
    let leases = leases();
    let rules = LeadOptions::new().jitter(20 * MS).build().unwrap();
    drop(win(&rules, &leases));
    let years = LeadOptions::new().jitter(365 * 24 * 3600 * S);
    let rules = years.clone().wait(10 * MS).build().unwrap();
    drop(win(&rules, &leases));
    let cancel = Cancel::new();
    let rules = years.cancel(&cancel).build().unwrap();
    std::thread::scope(|scope| {
        let contender = scope.spawn(|| rules.contend(&leases, "nightly").unwrap().won().is_none());
        cancel.cancel();
        assert!(contender.join().unwrap());
    });
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

#[test]
fn a_child_of_fork_leads_nothing_and_takes_nothing_from_its_parent() {
    let (_directory, path) = place();
    let leases = leases_in(&path);
    let cancel = Cancel::new();
    let options = LeadOptions::new()
        .ttl(S)
        .renew_every(10 * MS)
        .cancel(&cancel);
    let (rules, heard) = telling(options);
    let guard = win(&rules, &leases);
    // SAFETY: the child runs only code of this crate and the system's, and ends by _exit.
    #[expect(unsafe_code, reason = "a fork is what is tested")]
    let forked = unsafe { fork() }.unwrap();
    match forked {
        ForkResult::Child => {
            let forked = Some(Loss::Forked);
            let mut wrong = i32::from(guard.loss() != forked);
            wrong |= i32::from(guard.wait_lost(TTL) != forked) << 1;
            let second = LeadOptions::new().wait(Duration::ZERO).build().unwrap();
            let refused = second.contend(&leases, "nightly").unwrap().won().is_none();
            wrong |= i32::from(!refused) << 2;
            // By now it has joined, as somebody else.
            wrong |= i32::from(guard.loss() != forked) << 3;
            // It may keep a lease of its own.
            let own = rules
                .contend(&leases, "of the child")
                .unwrap()
                .won()
                .unwrap();
            let first = deadline(&own);
            while deadline(&own) == first {
                std::thread::yield_now();
            }
            wrong |= i32::from(!own.is_leading()) << 4;
            cancel.cancel();
            wrong |= i32::from(own.loss() != Some(Loss::Cancelled)) << 5;
            drop(own);
            wrong |= i32::from(guard.release() != Err(Loss::Forked)) << 6;
            // SAFETY: ends the process without running anything of its parent's.
            #[expect(unsafe_code, reason = "exit would run the harness's destructors")]
            unsafe {
                nix::libc::_exit(wrong)
            }
        }
        ForkResult::Parent { child } => {
            let status = waitpid(child, None).unwrap();
            assert_eq!(status, WaitStatus::Exited(child, 0));
            let first = deadline(&guard);
            while deadline(&guard) == first {
                assert_eq!(guard.loss(), None);
            }
            assert_eq!(told(&heard), []);
        }
    }
}
