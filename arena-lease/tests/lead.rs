//! Leading: guards, scopes, stepping down, and fork.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::time::Duration;

use arena_lease::{Acquire, Cancel, Contest, Lead, LeadOptions, Led, Loss, Refused};
use common::leading::*;
use common::{Actor, place, role};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// A test only in name: what a copy of this binary does that was started with a role.
#[test]
fn a_role_is_played_when_it_is_asked_for() {
    if let Some((name, path)) = role() {
        play(&name, &path);
    }
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
    assert_eq!(told_all(&heard, 1), [Loss::Released]);
    assert_eq!(win(&rules, &leases).took_over(), None);
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
    assert_eq!(
        told_all(&heard, 3),
        [Loss::Lapsed, Loss::Lapsed, Loss::Released]
    );
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
    assert_eq!(told_all(&heard, 1), [Loss::Released]);
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
