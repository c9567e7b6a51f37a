//! Limits and standbys between real processes: each a copy of this test binary that does what it is told.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::num::{NonZeroU16, NonZeroU32};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arena_lease::{
    Arena, Cancel, ConcurrencyLimit, LatestStandby, Lead, LeadOptions, Leases, LimitError,
    Patience, Place, Standby, Succession, WithStandby,
};
use common::{Actor, place, role, threads};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// Nothing here may be found out by the passing of it.
const HOUR: Duration = Duration::from_secs(3600);

fn rules() -> Lead {
    LeadOptions::new().ttl(HOUR).build().unwrap()
}

fn leases(path: &Path) -> Leases {
    Leases::open(&Arena::open(path).unwrap()).unwrap()
}

fn number(text: &str) -> NonZeroU16 {
    text.parse().unwrap()
}

fn shown(place: Option<&Place>) -> String {
    place.map_or("none".into(), |place| place.id().to_string())
}

fn refusal(error: &LimitError) -> String {
    match error {
        LimitError::Disagreed { found, asked, .. } => format!("{found}, not {asked}"),
        error => format!("{error:?}"),
    }
}

/// Has the limit in this mode and in that, 2,000 times. How often somebody was found there who must not be.
fn mix(arena: &Arena, alone: &ConcurrencyLimit, shared: &ConcurrencyLimit, parity: u32) -> String {
    let inside = arena.carve(b"inside", 1, 16).unwrap();
    let [alone_at, shared_at] = [0, 8].map(|at| inside.at::<AtomicU64>(at).unwrap());
    let mut wrong = 0;
    for turn in parity..parity + 2_000 {
        let is_alone = turn % 2 == 0;
        let (limit, own, other) = match is_alone {
            true => (alone, alone_at, shared_at),
            false => (shared, shared_at, alone_at),
        };
        let place = limit.acquire_timeout(HOUR).unwrap().unwrap();
        let before = own.fetch_add(1, Ordering::SeqCst);
        let beside = other.load(Ordering::SeqCst);
        wrong += u64::from(beside > 0 || (is_alone && before > 0));
        std::thread::yield_now();
        own.fetch_sub(1, Ordering::SeqCst);
        place.release().unwrap();
    }
    wrong.to_string()
}

/// A test only in name: what a copy of this binary does that was started with a role.
#[test]
fn a_role_is_played_when_it_is_asked_for() {
    let Some((_, path)) = role() else {
        return;
    };
    let leases = leases(&path);
    let mut place: Option<Place> = None;
    let mut last: Option<LatestStandby> = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let limit = |places| ConcurrencyLimit::open(&leases, "jobs", number(places), &rules());
        let shared = |sharers| {
            let (places, sharers) = (number("1"), number(sharers));
            ConcurrencyLimit::open_shared(&leases, "jobs", places, sharers, &rules())
        };
        let answer = match words[..] {
            ["try", places] => match limit(places).and_then(|limit| limit.try_acquire()) {
                Ok(got) => {
                    place = got;
                    shown(place.as_ref())
                }
                Err(error) => refusal(&error),
            },
            ["wait", places] => {
                println!("at waiting");
                place = limit(places).unwrap().acquire_timeout(HOUR).unwrap();
                shown(place.as_ref())
            }
            ["standby", places, standbys] => {
                let (places, standbys) = (number(places), number(standbys));
                let limit = WithStandby::open(&leases, "jobs", places, standbys, &rules());
                println!("at entering");
                let how = limit.unwrap().acquire(&Patience::new()).unwrap();
                match how {
                    Standby::Held(got) => place.insert(got).id().to_string(),
                    other => format!("{other:?}"),
                }
            }
            ["serve"] => {
                // Works until it is asked to make room.
                let latest = LatestStandby::open(&leases, "jobs", &rules()).unwrap();
                let wanted = latest.wait_wanted(HOUR).unwrap();
                let released = place.take().unwrap().release();
                format!("{} {released:?}", wanted.is_some())
            }
            [how @ ("latest" | "replace" | "shown")] => {
                let mut latest = LatestStandby::open(&leases, "jobs", &rules()).unwrap();
                latest = latest.replace(how == "replace");
                if how == "shown" {
                    latest = latest.show_state();
                }
                println!("at entering");
                match last.insert(latest).acquire(&Patience::new()).unwrap() {
                    Succession::Primary(got) => {
                        place = Some(got);
                        "primary".to_owned()
                    }
                    Succession::Replaced { .. } => "replaced".to_owned(),
                    other => format!("{other:?}"),
                }
            }
            ["share", sharers] => match shared(sharers).and_then(|limit| limit.try_acquire()) {
                Ok(got) => {
                    place = got;
                    shown(place.as_ref())
                }
                Err(error) => refusal(&error),
            },
            ["share-later", sharers] => {
                println!("at waiting");
                place = shared(sharers).unwrap().acquire_timeout(HOUR).unwrap();
                shown(place.as_ref())
            }
            ["mix", parity] => {
                let parity: u32 = parity.parse().unwrap();
                mix(
                    leases.arena(),
                    &limit("1").unwrap(),
                    &shared("4").unwrap(),
                    parity,
                )
            }
            ["companion", pid] => {
                let place = place.as_ref().unwrap();
                let companion = place.lease().companion(place.fence()).unwrap();
                companion.is(pid.parse().unwrap(), None);
                "named".to_owned()
            }
            ["restore"] => {
                last.as_ref().unwrap().restore_name();
                "restored".to_owned()
            }
            ["release"] => format!("{:?}", place.take().unwrap().release()),
            ["beat"] => format!("{:?}", place.as_ref().unwrap().heartbeat()),
            _ => panic!("no such command: {line}"),
        };
        println!("at {answer}");
    }
}

/// A process that does what it is told.
fn member(path: &Path) -> Actor {
    Actor::start("member", path)
}

/// Returns when somebody has this place of the limit `jobs`.
fn until_held(path: &Path, suffix: &str) {
    let lease = leases(path).lease(format!("jobs#{suffix}"), HOUR).unwrap();
    while lease.holder().is_none() {
        std::thread::yield_now();
    }
}

#[test]
fn so_many_have_a_place_and_no_more() {
    let (_directory, path) = place();
    let [mut one, mut two, mut three] = [(); 3].map(|()| member(&path));
    assert_eq!(one.ask("try 2"), "1");
    assert_eq!(two.ask("try 2"), "2");
    assert_eq!(three.ask("try 2"), "none");
    assert_eq!(one.ask("beat"), "Ok(())");
    assert_eq!(one.ask("release"), "Ok(())");
    assert_eq!(three.ask("try 2"), "1");
    assert_eq!(one.ask("try 2"), "none");
    let limit = ConcurrencyLimit::open(&leases(&path), "jobs", number("2"), &rules()).unwrap();
    assert_eq!(limit.in_use(), 2);
    let holders = limit.places();
    let pid = |index: usize| holders[index].holder.as_ref().unwrap().pid;
    assert_eq!(
        [pid(0), pid(1)],
        [three.child.id(), two.child.id()].map(Some)
    );
}

#[test]
fn a_process_that_has_a_place_gets_the_same_again_and_the_last_handle_gives_it_up() {
    let (_directory, path) = place();
    let limit = ConcurrencyLimit::open(&leases(&path), "jobs", number("3"), &rules()).unwrap();
    let first = limit.try_acquire().unwrap().unwrap();
    let again = limit.clone().try_acquire().unwrap().unwrap();
    assert_eq!((first.id(), first.fence()), (again.id(), again.fence()));
    assert_eq!(limit.in_use(), 1);
    drop(first);
    assert_eq!(again.heartbeat(), Ok(()));
    drop(again);
    assert_eq!(limit.in_use(), 0);
}

#[test]
fn a_place_whose_holder_was_killed_is_free_at_once() {
    let (_directory, path) = place();
    let mut survivor = member(&path);
    assert_eq!(survivor.ask("try 2"), "1");
    for _ in 0..20 {
        let mut victim = member(&path);
        assert_eq!(victim.ask("try 2"), "2");
        victim.kill_unreaped();
        let mut next = member(&path);
        assert_eq!(next.ask("try 2"), "2");
        assert_eq!(next.ask("release"), "Ok(())");
    }
}

#[test]
fn a_waiter_is_woken_by_a_release_and_by_the_death_of_any_holder() {
    let (_directory, path) = place();
    for (index, by_death) in [(0, true), (1, true), (0, false), (1, false)] {
        let mut holders = [(); 2].map(|()| member(&path));
        let [first, second] = &mut holders;
        assert_eq!(first.ask("try 2"), "1");
        assert_eq!(second.ask("try 2"), "2");
        let mut waiter = member(&path);
        assert_eq!(waiter.ask("wait 2"), "waiting");
        match by_death {
            true => holders[index].kill_unreaped(),
            false => assert_eq!(holders[index].ask("release"), "Ok(())"),
        }
        assert_eq!(waiter.at(), (index + 1).to_string());
    }
}

#[test]
fn many_share_and_nobody_has_a_place_beside_them_until_the_last_has_ended() {
    let (_directory, path) = place();
    let [mut one, mut two, mut three, mut writer] = [(); 4].map(|()| member(&path));
    assert_eq!(one.ask("share 2"), "1");
    assert_eq!(two.ask("share 2"), "2");
    assert_eq!(three.ask("share 2"), "none");
    assert_eq!(writer.ask("try 1"), "none");
    let limit = ConcurrencyLimit::open(&leases(&path), "jobs", number("1"), &rules()).unwrap();
    assert_eq!(limit.in_use(), 2);
    assert_eq!(limit.places()[1].lease, b"jobs#shared2");
    assert_eq!(writer.ask("wait 1"), "waiting");
    assert_eq!(one.ask("release"), "Ok(())");
    two.kill_unreaped();
    assert_eq!(writer.at(), "1");
    assert_eq!(three.ask("share 2"), "none");
    assert_eq!(limit.in_use(), 1);
    assert_eq!(three.ask("share-later 2"), "waiting");
    writer.kill_unreaped();
    assert_eq!(three.at(), "1");
}

#[test]
fn who_shares_and_names_other_numbers_is_refused() {
    let (_directory, path) = place();
    let [mut one, mut other] = [(); 2].map(|()| member(&path));
    assert_eq!(one.ask("share 2"), "1");
    assert_eq!(
        other.ask("share 3"),
        "1 at once, or shared by 2, not 1 at once, or shared by 3"
    );
    assert_eq!(
        other.ask("try 2"),
        "1 at once, or shared by 2, not 2 at once"
    );
    assert_eq!(one.ask("release"), "Ok(())");
    assert_eq!(other.ask("share 3"), "1");
}

#[test]
fn a_process_that_shares_is_in_its_own_way() {
    let (_directory, path) = place();
    let leases = leases(&path);
    let (one, many) = (number("1"), number("9"));
    let shared = ConcurrencyLimit::open_shared(&leases, "jobs", one, many, &rules()).unwrap();
    let alone = ConcurrencyLimit::open(&leases, "jobs", one, &rules()).unwrap();
    let share = shared.try_acquire().unwrap().unwrap();
    assert_eq!(
        shared.try_acquire().unwrap().unwrap().fence(),
        share.fence()
    );
    assert!(alone.try_acquire().unwrap().is_none());
    drop(share);
    let place = alone.try_acquire().unwrap().unwrap();
    assert!(shared.try_acquire().unwrap().is_none());
    assert_eq!(place.heartbeat(), Ok(()));
}

/// Goal: whoever has the limit alone is alone, and all come to their turn. Method: four processes have it in both modes
/// in turns, and count in the arena who is there.
#[test]
fn of_processes_that_change_the_mode_all_the_time_none_is_beside_one_that_is_alone() {
    let (_directory, path) = place();
    let mut members = [(); 4].map(|()| member(&path));
    for (index, member) in members.iter_mut().enumerate() {
        member.tell(&format!("mix {}", index % 2));
    }
    for member in &mut members {
        assert_eq!(member.at(), "0");
    }
}

/// Goal: a place is as taken as its lease: a dead holder is not followed before what works on its behalf has ended.
/// Method: another member plays that part.
#[test]
fn a_dead_holders_place_is_taken_until_its_companion_has_ended() {
    let (_directory, path) = place();
    let [mut holder, companion, mut waiter] = [(); 3].map(|()| member(&path));
    assert_eq!(holder.ask("try 1"), "1");
    assert_eq!(
        holder.ask(&format!("companion {}", companion.pid())),
        "named"
    );
    holder.kill_unreaped();
    let limit = |places| ConcurrencyLimit::open(&leases(&path), "jobs", number(places), &rules());
    assert_eq!(limit("1").unwrap().in_use(), 1);
    assert!(matches!(limit("2"), Err(LimitError::Disagreed { .. })));
    assert_eq!(waiter.ask("wait 1"), "waiting");
    // It sleeps, and does not ask again and again.
    let mut asleep = 0;
    while asleep < 50 {
        let is_asleep = threads(waiter.pid())
            .iter()
            .all(|(_, state, _)| *state == 'S');
        asleep = if is_asleep { asleep + 1 } else { 0 };
    }
    companion.kill_unreaped();
    assert_eq!(waiter.at(), "1");
}

#[test]
fn who_disagrees_is_refused_while_anybody_has_a_place_and_changes_the_limit_after() {
    let (_directory, path) = place();
    let [mut one, mut other] = [(); 2].map(|()| member(&path));
    assert_eq!(one.ask("try 2"), "1");
    assert_eq!(other.ask("try 3"), "2 at once, not 3 at once");
    assert_eq!(one.ask("release"), "Ok(())");
    assert_eq!(other.ask("try 3"), "1");
    assert_eq!(one.ask("try 2"), "3 at once, not 2 at once");
    assert_eq!(one.ask("try 3"), "2");
}

#[test]
#[expect(unsafe_code, reason = "there is no safe fork")]
fn a_child_of_fork_has_no_place_and_takes_none_from_its_parent() {
    let (_directory, path) = place();
    let limit = ConcurrencyLimit::open(&leases(&path), "jobs", number("2"), &rules()).unwrap();
    let place = limit.try_acquire().unwrap().unwrap();
    // SAFETY: the child uses what is made for it, and never returns to the harness.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let lost = place.heartbeat().is_err();
            drop(place);
            let other = limit.try_acquire().unwrap().map(|place| place.id());
            let code = i32::from(!(lost && other == Some(2)));
            // SAFETY: ends this process without running what is the parent's.
            unsafe { nix::libc::_exit(code) }
        }
        ForkResult::Parent { child } => {
            let ended = waitpid(child, None).unwrap();
            assert_eq!(ended, WaitStatus::Exited(child, 0));
        }
    }
    assert_eq!(place.heartbeat(), Ok(()));
    assert_eq!(limit.in_use(), 1);
}

#[test]
fn so_many_wait_and_no_more_and_a_waiter_comes_next() {
    let (_directory, path) = place();
    let [mut one, mut two, mut three] = [(); 3].map(|()| member(&path));
    assert_eq!(one.ask("standby 1 1"), "entering");
    assert_eq!(one.at(), "1");
    assert_eq!(two.ask("standby 1 1"), "entering");
    until_held(&path, "standby1");
    assert_eq!(three.ask("standby 1 1"), "entering");
    assert_eq!(three.at(), "Full");
    assert_eq!(one.ask("release"), "Ok(())");
    assert_eq!(two.at(), "1");
    // The place where it waited is free again.
    assert_eq!(three.ask("standby 1 1"), "entering");
    until_held(&path, "standby1");
    two.kill_unreaped();
    assert_eq!(three.at(), "1");
}

#[test]
fn patience_makes_exactly_so_many_attempts_and_asks_after_each() {
    let (_directory, path) = place();
    let mut holder = member(&path);
    assert_eq!(holder.ask("standby 1 2"), "entering");
    assert_eq!(holder.at(), "1");
    let leases = leases(&path);
    let two = number("2");
    let limit = WithStandby::open(&leases, "jobs", NonZeroU16::MIN, two, &rules()).unwrap();
    for most in [1, 2, 5] {
        let asked = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&asked);
        let patience = Patience::new()
            .attempts(NonZeroU32::new(most).unwrap())
            .every(Duration::from_millis(5))
            .ask(move |waited| {
                assert_eq!(waited.attempts, waited.attempts_here);
                counter.store(waited.attempts, Ordering::SeqCst);
                true
            });
        assert!(matches!(
            limit.acquire(&patience).unwrap(),
            Standby::TimedOut
        ));
        assert_eq!(asked.load(Ordering::SeqCst), most - 1);
    }
    let refuses = Patience::new()
        .ask(|waited| waited.attempts < 3)
        .every(Duration::from_millis(1));
    assert!(matches!(
        limit.acquire(&refuses).unwrap(),
        Standby::TimedOut
    ));
    for zero in [
        Patience::new().timeout(Duration::ZERO),
        Patience::new().every(Duration::ZERO),
    ] {
        assert!(matches!(
            limit.acquire(&zero),
            Err(LimitError::Option { .. })
        ));
    }
    assert_eq!(
        limit.limit().places()[1].holder,
        None,
        "nothing is left of a wait"
    );
}

#[test]
fn of_workers_that_come_one_after_the_other_the_newest_waits_and_leads_next() {
    let (_directory, path) = place();
    let mut master = member(&path);
    assert_eq!(master.ask("latest"), "entering");
    assert_eq!(master.at(), "primary");
    let mut waiting: Option<Actor> = None;
    for _ in 0..5 {
        let mut newer = member(&path);
        assert_eq!(newer.ask("latest"), "entering");
        if let Some(mut older) = waiting.replace(newer) {
            assert_eq!(older.at(), "replaced");
        } else {
            until_held(&path, "standby1");
        }
    }
    // A master that asks again leads on.
    assert_eq!(master.ask("latest"), "entering");
    assert_eq!(master.at(), "primary");
    let mut newest = waiting.unwrap();
    master.kill_unreaped();
    assert_eq!(newest.at(), "primary");
    let mut last = member(&path);
    assert_eq!(last.ask("latest"), "entering");
    until_held(&path, "standby1");
    assert_eq!(newest.ask("release"), "Ok(())");
    assert_eq!(last.at(), "primary");
}

#[test]
fn who_was_cancelled_is_told_so_and_not_that_others_are_in_the_way() {
    let (_directory, path) = place();
    let (leases, one) = (leases(&path), number("1"));
    let cancel = Cancel::new();
    let rules = LeadOptions::new()
        .ttl(HOUR)
        .cancel(&cancel)
        .build()
        .unwrap();
    let standby = WithStandby::open(&leases, "jobs", one, one, &rules).unwrap();
    let latest = LatestStandby::open(&leases, "line", &rules).unwrap();
    cancel.cancel();
    let how = standby.acquire(&Patience::new()).unwrap();
    assert!(matches!(how, Standby::Cancelled), "{how:?}");
    let how = latest.acquire(&Patience::new()).unwrap();
    assert!(matches!(how, Succession::Cancelled), "{how:?}");
}

/// The name of the thread that does what the member is told.
fn until_called(member: &Actor, right: &str) {
    while threads(member.pid()).iter().all(|(name, ..)| name != right) {
        std::thread::yield_now();
    }
}

#[test]
fn a_worker_is_called_by_how_far_it_came_and_as_before_when_it_is_told_to() {
    let (_directory, path) = place();
    let [mut one, mut two, mut three] = [(); 3].map(|()| member(&path));
    assert_eq!(one.ask("latest"), "entering");
    assert_eq!(one.at(), "primary");
    let before = threads(one.pid());
    assert!(
        before.iter().all(|(name, ..)| name != "primary"),
        "off unless told"
    );
    assert_eq!(two.ask("shown"), "entering");
    until_called(&two, "standby1");
    assert_eq!(three.ask("shown"), "entering");
    assert_eq!(two.at(), "replaced");
    until_called(&two, "no-lock-retired");
    until_called(&three, "standby1");
    assert_eq!(one.ask("release"), "Ok(())");
    assert_eq!(three.at(), "primary");
    until_called(&three, "primary");
    assert_eq!(three.ask("restore"), "restored");
    // The harness calls its thread by the test's name.
    until_called(&three, &"a_role_is_played_when_it_is_asked_for"[..15]);
}

#[test]
fn of_workers_that_come_all_at_once_one_waits_and_leads_next() {
    for _ in 0..5 {
        let (_directory, path) = place();
        let mut master = member(&path);
        assert_eq!(master.ask("latest"), "entering");
        assert_eq!(master.at(), "primary");
        let mut workers: Vec<Actor> = (0..8).map(|_| member(&path)).collect();
        workers.iter_mut().for_each(|worker| worker.tell("latest"));
        for worker in &mut workers {
            assert_eq!(worker.at(), "entering");
        }
        let pids: Vec<u32> = workers.iter().map(|worker| worker.child.id()).collect();
        // All but one end by themselves.
        let (said, heard) = std::sync::mpsc::channel();
        let readers: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let said = said.clone();
                std::thread::spawn(move || {
                    let answer = worker.at();
                    said.send((worker.child.id(), answer)).unwrap();
                    worker
                })
            })
            .collect();
        let mut ended = Vec::new();
        for _ in 0..7 {
            let (pid, answer) = heard.recv().unwrap();
            assert!(["replaced", "EntryTaken"].contains(&&*answer), "{answer}");
            ended.push(pid);
        }
        let waits = pids.iter().find(|pid| !ended.contains(pid)).unwrap();
        let first = leases(&path).lease("jobs#standby1", HOUR).unwrap();
        while first.holder().and_then(|holder| holder.pid) != Some(*waits) {
            std::thread::yield_now();
        }
        assert_eq!(master.ask("release"), "Ok(())");
        assert_eq!(heard.recv().unwrap(), (*waits, "primary".to_owned()));
        readers
            .into_iter()
            .for_each(|reader| drop(reader.join().unwrap()));
    }
}

#[test]
fn the_one_that_works_is_asked_to_make_room_and_gives_it_to_who_asked() {
    let (_directory, path) = place();
    let [mut old, mut new] = [(); 2].map(|()| member(&path));
    assert_eq!(old.ask("latest"), "entering");
    assert_eq!(old.at(), "primary");
    old.tell("serve");
    assert_eq!(new.ask("replace"), "entering");
    assert_eq!(old.at(), "true Ok(())");
    assert_eq!(new.at(), "primary");
    let latest = LatestStandby::open(&leases(&path), "jobs", &rules()).unwrap();
    assert_eq!(latest.wanted_by(), None, "the wish is fulfilled");
}
