//! Watches on who leads.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{ThreadId, current};
use std::time::{Duration, Instant};

use arena_lease::{
    Arena, ArenaOptions, Clock, LeaderWatch, Lease, LeaseError, Leases, LeasesOptions, Stats,
};
use common::{Actor, at, place, role, threads};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// Longer than a test: what is told is told by an event, and not by a lapse.
const TTL: Duration = Duration::from_secs(3600);

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
    let lease = leases.lease("nightly", TTL).unwrap();
    let short = leases.lease("nightly", Duration::from_millis(50)).unwrap();
    let hold = match name.as_str() {
        "hold" => lease.acquire(),
        "hold shortly" => short.acquire(),
        "watch" => {
            let mut watch = leases.watch("nightly").unwrap();
            println!("at {:?}", next(&mut watch).0);
            println!("at {:?}", next(&mut watch).0);
            return;
        }
        other => panic!("no such role: {other}"),
    };
    let fence = hold.unwrap().held().unwrap().fence;
    at(&fence.to_string());
    println!("at {}", lease.renew_at(fence).unwrap().is_held());
    at("renewed");
}

fn is_readable(watch: &LeaderWatch, timeout: PollTimeout) -> bool {
    let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, timeout).unwrap() == 1
}

/// How the descriptor is used: what is told next, as pid and fence.
fn polled(watch: &mut LeaderWatch) -> (Option<u32>, u64) {
    loop {
        assert!(is_readable(watch, PollTimeout::from(60_000_u16)));
        if let Some(stats) = watch.try_next().unwrap() {
            return leader(&stats);
        }
    }
}

fn next(watch: &mut LeaderWatch) -> (Option<u32>, u64) {
    leader(&watch.next(Duration::MAX).unwrap().unwrap())
}

fn leader(stats: &Stats) -> (Option<u32>, u64) {
    assert_eq!(stats.held, stats.holder.is_some());
    (
        stats.holder.as_ref().and_then(|holder| holder.pid),
        stats.fence,
    )
}

#[test]
fn every_change_of_leader_is_told_to_who_waits_and_by_the_descriptor() {
    let (_directory, path) = place();
    let leases = leases_in(&path);
    let lease = leases.lease("nightly", TTL).unwrap();
    let before = lease.fence();
    let mut watches = [(); 2].map(|()| leases.watch("nightly").unwrap());
    let [by_fd, waiting] = &mut watches;
    let mut told = |by: Option<u32>, fence| {
        assert_eq!(polled(by_fd), (by, fence));
        assert_eq!(next(waiting), (by, fence));
        assert_eq!(waiting.next(Duration::from_millis(1)).unwrap(), None);
    };
    told(None, before);

    let mine = Some(std::process::id());
    let fence = lease.acquire().unwrap().held().unwrap().fence;
    told(mine, fence);
    assert!(lease.release().unwrap());
    told(None, fence);

    let mut holder = Actor::start("hold", &path);
    let fence: u64 = holder.at().parse().unwrap();
    told(Some(holder.child.id()), fence);
    // Dead, and nobody has taken over.
    holder.kill_unreaped();
    told(None, fence);
    let fence = lease.acquire().unwrap().held().unwrap().fence;
    told(mine, fence);
    assert!(lease.release().unwrap());
    told(None, fence);

    let mut holder = Actor::start("hold shortly", &path);
    let fence: u64 = holder.at().parse().unwrap();
    // It may have lapsed before it was seen to hold.
    let lapsed = |(by, of): (Option<u32>, u64)| {
        assert!(of == fence && by.is_none_or(|by| by == holder.child.id()));
        by.is_none()
    };
    while !lapsed(polled(by_fd)) {}
    while !lapsed(next(waiting)) {}
    // Taken over from one that lapsed.
    let fence = lease.acquire().unwrap().held().unwrap().fence;
    assert_eq!(polled(by_fd), (mine, fence));
    assert_eq!(next(waiting), (mine, fence));
}

/// Goal: a holder that was stopped for longer than its ttl, and renews since nobody took over, is told to lead again.
/// Method: the renewal follows at any time after the lapse was told, so also before the watch sleeps again.
#[test]
fn the_renewal_of_a_lease_that_had_lapsed_is_told() {
    let (_directory, path) = place();
    let leases = leases_in(&path);
    // Longer, so that the holder leads when the watch looks.
    let ours = leases.lease("nightly", TTL).unwrap();
    let mut watch = leases.watch("nightly").unwrap();
    next(&mut watch);
    for _ in 0..50 {
        let short = leases.lease("nightly", Duration::from_millis(1)).unwrap();
        let fence = short.acquire().unwrap().held().unwrap().fence;
        loop {
            if next(&mut watch) == (None, fence) {
                break;
            }
        }
        assert!(ours.renew_at(fence).unwrap().is_held());
        assert_eq!(next(&mut watch), (Some(std::process::id()), fence));
        assert!(ours.release_at(fence).unwrap());
        assert_eq!(next(&mut watch), (None, fence));
    }
}

/// Whose readings, how many until then, and what happens.
type At = (ThreadId, u32, Box<dyn FnOnce() + Send>);

/// A clock that stands, and at one of a thread's readings of which something else happens first.
#[derive(Default)]
struct Late {
    ns: AtomicU64,
    at: Mutex<Option<At>>,
}

impl Clock for Late {
    fn now_ns(&self) -> u64 {
        let mut at = self.at.lock().unwrap();
        if let Some((_, readings, _)) = at.as_mut().filter(|(by, ..)| *by == current().id()) {
            *readings -= 1;
        }
        if let Some((.., happens)) = at.take_if(|(_, readings, _)| *readings == 0) {
            drop(at);
            happens();
        }
        self.ns.load(Ordering::SeqCst)
    }
}

/// Goal: such a renewal is not lost on a watch that looks at that moment.
/// Method: the clock that the watch reads renews, at each of its readings in turn: of the second, the word has been
/// loaded, and the lease is taken for nobody's.
#[test]
fn the_renewal_of_a_lapsed_lease_is_told_wherever_in_its_look_the_watch_is() {
    let arena = ArenaOptions::new().anonymous().unwrap();
    let clock = Arc::new(Late::default());
    let leases = LeasesOptions::new().clock(clock.clone());
    let leases = leases.open(&arena).unwrap();
    let lease = Arc::new(leases.lease("nightly", TTL).unwrap());
    let mut watch = leases.watch("nightly").unwrap();
    next(&mut watch);
    for reading in 1..=2 {
        let fence = lease.acquire().unwrap().held().unwrap().fence;
        assert_eq!(next(&mut watch), (Some(std::process::id()), fence));
        let ttl_ns = u64::try_from(TTL.as_nanos()).unwrap();
        clock.ns.fetch_add(ttl_ns, Ordering::SeqCst);
        assert_eq!(next(&mut watch), (None, fence));
        let holder = Arc::clone(&lease);
        let renews = move || assert!(holder.renew_at(fence).unwrap().is_held());
        *clock.at.lock().unwrap() = Some((current().id(), reading, Box::new(renews)));
        assert_eq!(next(&mut watch), (Some(std::process::id()), fence));
        assert!(clock.at.lock().unwrap().is_none());
        assert!(lease.release().unwrap());
        assert_eq!(next(&mut watch), (None, fence));
    }
}

#[test]
fn a_stopped_holder_that_renews_is_told_by_the_descriptor() {
    let (_directory, path) = place();
    let mut holder = Actor::start("hold shortly", &path);
    let fence: u64 = holder.at().parse().unwrap();
    holder.signal(Signal::SIGSTOP);
    let mut watch = leases_in(&path).watch("nightly").unwrap();
    while polled(&mut watch) != (None, fence) {}
    holder.go_on();
    holder.signal(Signal::SIGCONT);
    assert_eq!(holder.at(), "true");
    assert_eq!(polled(&mut watch), (Some(holder.child.id()), fence));
}

/// Goal: renewals are not told, and wake nobody.
/// Method: count, over 100 of them, how often any thread of a process that watches gave the processor up.
#[test]
fn a_watch_of_a_renewed_lease_is_hardly_ever_awake() {
    let (_directory, path) = place();
    let lease = leases_in(&path).lease("nightly", TTL).unwrap();
    lease.acquire().unwrap().held().unwrap();
    let mut watcher = Actor::start("watch", &path);
    assert_eq!(watcher.at(), format!("Some({})", std::process::id()));
    let asleep = |threads: &[(String, char, u64)]| {
        let both = ["arena-watcher", "arena-leader"].iter();
        both.clone()
            .all(|name| threads.iter().any(|(found, ..)| found == name))
            && threads.iter().all(|(_, state, _)| *state == 'S')
    };
    while !asleep(&threads(watcher.pid())) {
        std::thread::yield_now();
    }
    let count = |threads: &[(String, char, u64)]| threads.iter().map(|(.., n)| n).sum::<u64>();
    let before = count(&threads(watcher.pid()));
    for _ in 0..100 {
        assert!(lease.renew().unwrap().is_held());
        std::thread::sleep(Duration::from_millis(5));
    }
    let switches = count(&threads(watcher.pid())) - before;
    assert!(switches <= 5, "{switches} in half a second");
    assert!(lease.release().unwrap());
    assert_eq!(watcher.at(), "None");
}

/// Goal: who watches a name without a row hears of its naming, and does not find it by his own look once a second.
/// Method: so many watches one after the other, each asleep, that the looks alone would take ten times as long.
#[test]
fn a_name_that_is_given_its_first_row_is_told_at_once() {
    const ROUNDS: u32 = 100;
    let arena = ArenaOptions::new().anonymous().unwrap();
    let leases = Leases::open(&arena).unwrap();
    let own = nix::unistd::getpid();
    let started = Instant::now();
    for round in 0..ROUNDS {
        let name = format!("lease {round}");
        let mut watch = leases.watch(&name).unwrap();
        assert_eq!(polled(&mut watch), (None, 0));
        let asleep =
            |(name, state, _): &(String, char, u64)| name == "arena-leader" && *state == 'S';
        while !threads(own).iter().any(asleep) {
            std::thread::yield_now();
        }
        let lease = leases.lease(&name, TTL).unwrap();
        lease.acquire().unwrap().held().unwrap();
        while polled(&mut watch).0.is_none() {}
    }
    assert!(started.elapsed() < Duration::from_secs(ROUNDS.into()) / 10);
}

#[test]
fn a_watch_of_an_arena_that_was_opened_unattached_joins_nothing() {
    let (_directory, path) = place();
    let unattached = || ArenaOptions::new().unattached(&path).unwrap();
    let attached = || ArenaOptions::new().view(&path).unwrap().attachments().len();
    drop(Arena::open(&path).unwrap());
    assert!(Leases::find(&unattached()).unwrap().is_none(), "none yet");
    drop(leases_in(&path));

    let arena = unattached();
    let leases = Leases::find(&arena).unwrap().unwrap();
    let mut watch = leases.watch("nightly").unwrap();
    assert_eq!(polled(&mut watch), (None, 0), "it has no row");
    assert_eq!(attached(), 0);
    let mut holder = Actor::start("hold", &path);
    let fence: u64 = holder.at().parse().unwrap();
    while polled(&mut watch) != (Some(holder.child.id()), fence) {}
    holder.kill_unreaped();
    assert_eq!(polled(&mut watch), (None, fence), "by its pidfd or bell");
    assert_eq!(leases.list().len(), 1);
    assert_eq!(arena.me_if_joined(), None);
    // The dead one.
    assert_eq!(attached(), 1);
    let me = arena.me().unwrap();
    assert_eq!(arena.me_if_joined(), Some(me), "when it is needed");
    assert_eq!(watch.next(Duration::ZERO).unwrap(), None);
}

#[test]
fn a_watch_ends_when_the_arena_is_destroyed() {
    let (_directory, path) = place();
    let leases = leases_in(&path);
    let mut watch = leases.watch("nightly").unwrap();
    polled(&mut watch);
    std::thread::scope(|scope| {
        let mut waiting = leases.watch("nightly").unwrap();
        next(&mut waiting);
        let waiter = scope.spawn(move || waiting.next(Duration::MAX));
        leases.arena().destroy().unwrap();
        assert!(matches!(waiter.join().unwrap(), Err(LeaseError::Removed)));
    });
    assert!(is_readable(&watch, PollTimeout::from(60_000_u16)));
    assert!(matches!(watch.try_next(), Err(LeaseError::Removed)));
}

#[test]
fn a_damaged_lease_ends_the_watch() {
    let arena = ArenaOptions::new().anonymous().unwrap();
    let leases = LeasesOptions::new().rows(1).open(&arena).unwrap();
    let _named = leases.lease("nightly", TTL).unwrap();
    let mut watch = leases.watch("nightly").unwrap();
    polled(&mut watch);
    let region = arena.find(b"leases").unwrap();
    region.write(128, &u128::MAX.to_le_bytes()).unwrap();
    assert!(matches!(watch.next(TTL), Err(LeaseError::Corrupt { .. })));
}

#[test]
fn a_name_that_lost_its_row_is_nobodys_until_it_has_one_again() {
    let arena = ArenaOptions::new().anonymous().unwrap();
    let leases = LeasesOptions::new().rows(1).open(&arena).unwrap();
    let _named = leases.lease("nightly", TTL).unwrap();
    let mut watch = leases.watch("nightly").unwrap();
    polled(&mut watch);
    let hourly = leases.lease("hourly", TTL).unwrap();
    assert_eq!(polled(&mut watch), (None, 0));
    assert!(hourly.acquire().unwrap().held().is_some());
    assert!(hourly.release().unwrap());
    let nightly: Lease = leases.lease("nightly", TTL).unwrap();
    let fence = nightly.acquire().unwrap().held().unwrap().fence;
    while polled(&mut watch) != (Some(std::process::id()), fence) {}
}

#[test]
fn a_child_of_fork_may_wait_and_takes_nothing_from_its_parent() {
    let (_directory, path) = place();
    let leases = leases_in(&path);
    let lease = leases.lease("nightly", TTL).unwrap();
    let mut watch = leases.watch("nightly").unwrap();
    polled(&mut watch);
    let (mut from, to) = std::io::pipe().unwrap();
    // SAFETY: the child runs only code of this crate and the system's, and ends by _exit.
    #[expect(unsafe_code, reason = "a fork is what is tested")]
    let forked = unsafe { fork() }.unwrap();
    match forked {
        ForkResult::Child => {
            let mut to = to;
            let none = watch.try_next().unwrap().is_none();
            std::io::Write::write_all(&mut to, b"x").unwrap();
            let by = next(&mut watch).0;
            drop(watch);
            let wrong = i32::from(!none)
                | i32::from(by != Some(nix::unistd::getppid().as_raw().cast_unsigned())) << 1;
            // SAFETY: ends the process without running anything of its parent's.
            #[expect(unsafe_code, reason = "exit would run the harness's destructors")]
            unsafe {
                nix::libc::_exit(wrong)
            }
        }
        ForkResult::Parent { child } => {
            std::io::Read::read_exact(&mut from, &mut [0]).unwrap();
            let fence = lease.acquire().unwrap().held().unwrap().fence;
            let status = waitpid(child, None).unwrap();
            assert_eq!(status, WaitStatus::Exited(child, 0));
            assert_eq!(polled(&mut watch), (Some(std::process::id()), fence));
        }
    }
}
