//! The verbs and the table in one process: names, rows, fences, options.
#![expect(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arena_lease::{
    Acquire, Arena, ArenaOptions, Clock, InvalidTtl, LeaseError, Leases, LeasesOptions, LeasesView,
    Lost, Refused, Renewed, TookOver, Verdict,
};

const TTL: Duration = Duration::from_secs(30);

fn arena() -> Arena {
    ArenaOptions::new().anonymous().unwrap()
}

fn leases() -> Leases {
    Leases::open(&arena()).unwrap()
}

/// A clock that a test moves.
struct Stopped(AtomicU64);

impl Stopped {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(1_000_000_000)))
    }

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

fn stopped(rows: u32) -> (Leases, Arc<Stopped>) {
    let clock = Stopped::new();
    let options = LeasesOptions::new().rows(rows).clock(clock.clone());
    (options.open(&arena()).unwrap(), clock)
}

#[test]
fn a_free_lease_is_acquired_renewed_and_released() {
    let lease = leases().lease("nightly", TTL).unwrap();
    assert!(!lease.mine());
    assert_eq!(lease.holder(), None);
    let hold = lease.acquire().unwrap().held().unwrap();
    assert_eq!(hold.took_over, None);
    assert!(hold.left > TTL / 2 && hold.left <= TTL + Duration::from_millis(1));
    assert!(lease.mine() && lease.mine_at(hold.fence));
    assert!(!lease.mine_at(hold.fence + 1));
    assert_eq!(
        (lease.fence(), lease.acquired()),
        (hold.fence, Some(hold.fence))
    );

    let holder = lease.holder().unwrap();
    assert_eq!(holder.pid, Some(std::process::id()));
    assert_eq!(holder.verdict, Verdict::Alive);
    assert_eq!(holder.fence, hold.fence);
    assert!(holder.since_ms.unwrap() <= hold.until_ms);

    assert!(
        matches!(lease.renew().unwrap(), Renewed::Held { until_ms, .. } if until_ms >= hold.until_ms)
    );
    let stats = lease.stats().unwrap();
    assert_eq!((stats.held, stats.acquires, stats.steals), (true, 1, 0));

    assert!(lease.release().unwrap());
    assert!(!lease.mine());
    assert!(!lease.release().unwrap());
    assert_eq!(lease.renew().unwrap(), Renewed::Lost(Lost::Released));
    assert_eq!(lease.holder(), None);
    assert_eq!(lease.stats().unwrap().lapses_in, None);
}

#[test]
fn acquiring_again_extends_under_the_same_fence_and_never_shortens() {
    let lease = leases().lease("nightly", TTL).unwrap();
    let first = lease.acquire().unwrap().held().unwrap();
    let shorter = lease
        .acquire_for(Duration::from_secs(1))
        .unwrap()
        .held()
        .unwrap();
    assert_eq!(
        (shorter.fence, shorter.until_ms),
        (first.fence, first.until_ms)
    );
    let longer = lease.acquire_for(2 * TTL).unwrap().held().unwrap();
    assert_eq!(longer.fence, first.fence);
    assert!(longer.until_ms > first.until_ms);
    assert_eq!(longer.took_over, None);
}

#[test]
fn every_handle_of_a_process_holds_and_dropping_one_releases_nothing() {
    let arena = arena();
    let one = Leases::open(&arena).unwrap().lease("nightly", TTL).unwrap();
    let other = Leases::open(&arena).unwrap().lease("nightly", TTL).unwrap();
    let hold = one.acquire().unwrap().held().unwrap();
    assert!(other.mine());
    drop(one);
    assert!(other.mine_at(hold.fence));
    assert!(other.renew().unwrap().is_held());
    assert!(other.release().unwrap());
}

#[test]
fn a_handle_does_not_go_on_under_a_fence_that_it_did_not_acquire() {
    let (leases, clock) = stopped(4);
    let worker = leases.lease("nightly", TTL).unwrap();
    let first = worker.acquire().unwrap().held().unwrap();
    clock.pass(TTL);
    assert!(!worker.mine(), "lapsed");
    let other = leases.lease("nightly", TTL).unwrap();
    let second = other.acquire().unwrap().held().unwrap();
    let from = leases.arena().me().unwrap();
    assert_eq!(
        second.took_over,
        Some(TookOver::Lapsed {
            from,
            fence: first.fence
        })
    );
    assert!(other.mine() && !worker.mine());
    let taken = Lost::Taken {
        by: from,
        fence: second.fence,
    };
    assert_eq!(worker.renew().unwrap(), Renewed::Lost(taken));
    assert!(!worker.release().unwrap());
    assert!(other.mine());
}

#[test]
fn a_lapsed_lease_that_nobody_took_is_renewed() {
    let (leases, clock) = stopped(4);
    let lease = leases.lease("nightly", TTL).unwrap();
    let hold = lease.acquire().unwrap().held().unwrap();
    clock.pass(2 * TTL);
    assert!(!lease.mine() && lease.holder().is_none());
    assert!(lease.renew().unwrap().is_held());
    assert!(lease.mine_at(hold.fence));
}

#[test]
fn a_lease_that_was_released_early_is_kept_for_its_minimum_hold_from_its_acquisition() {
    let (leases, clock) = stopped(4);
    let lease = leases.lease("nightly", TTL).unwrap();
    let hold = lease.acquire().unwrap().held().unwrap();
    clock.pass(Duration::from_millis(10));
    assert!(
        lease
            .release_held_for(hold.fence, Duration::from_millis(500))
            .unwrap()
    );
    assert!(!lease.mine() && lease.holder().is_none());
    clock.pass(Duration::from_millis(489));
    let refused = lease.acquire().unwrap();
    assert!(
        matches!(refused, Acquire::Refused(Refused::NotBefore { opens_in, .. })
            if opens_in == Duration::from_millis(1)),
        "{refused:?}"
    );
    clock.pass(Duration::from_millis(1));
    assert_eq!(
        lease.acquire().unwrap().held().unwrap().fence,
        hold.fence + 1
    );
}

#[test]
fn a_minimum_hold_that_is_over_or_zero_keeps_nobody_away_and_one_beyond_the_clock_is_refused() {
    let (leases, clock) = stopped(4);
    let lease = leases.lease("nightly", TTL).unwrap();
    for min_hold in [Duration::ZERO, Duration::from_millis(500)] {
        let hold = lease.acquire().unwrap().held().unwrap();
        clock.pass(Duration::from_millis(500));
        assert!(lease.release_held_for(hold.fence, min_hold).unwrap());
    }
    let hold = lease.acquire().unwrap().held().unwrap();
    assert!(lease.release_held_for(hold.fence, Duration::MAX).is_err());
    assert!(lease.mine_at(hold.fence), "it is what it was");
}

#[test]
fn the_deadline_is_the_boot_clocks_alone() {
    // The boot clock jumps, as it does when the machine sleeps; no other clock moved.
    let (leases, clock) = stopped(4);
    let lease = leases.lease("nightly", TTL).unwrap();
    let _ = lease.acquire().unwrap();
    clock.pass(TTL - Duration::from_nanos(1));
    assert!(lease.mine());
    clock.pass(Duration::from_millis(1));
    assert!(!lease.mine());
}

#[test]
fn a_fence_that_was_forfeited_is_never_renewed_and_acquiring_gives_a_new_one() {
    let lease = leases().lease("nightly", TTL).unwrap();
    let hold = lease.acquire().unwrap().held().unwrap();
    lease.forfeit_at(hold.fence);
    assert!(!lease.mine());
    assert_eq!(lease.renew().unwrap(), Renewed::Lost(Lost::Told));
    let again = lease.acquire().unwrap().held().unwrap();
    assert_eq!(again.fence, hold.fence + 1);
    assert!(lease.mine());
}

#[test]
fn ttls_and_names_outside_their_bounds_are_refused() {
    let leases = leases();
    for ttl in [
        Duration::ZERO,
        Duration::MAX,
        Duration::from_secs(40 * 365 * 86_400),
    ] {
        let refused = leases.lease("nightly", ttl).unwrap_err();
        assert!(matches!(refused, LeaseError::Ttl(InvalidTtl { asked }) if asked == ttl));
    }
    for name in [&b""[..], b"a\0b", &[b'x'; 97]] {
        assert!(matches!(
            leases.lease(name, TTL),
            Err(LeaseError::Name { .. })
        ));
    }
    let lease = leases.lease("nightly", Duration::from_micros(1)).unwrap();
    assert!(matches!(
        lease.acquire_for(Duration::ZERO),
        Err(LeaseError::Ttl(_))
    ));
    let longest = arena_lease::Ttl::MAX;
    assert!(matches!(
        lease.acquire_for(longest),
        Err(LeaseError::TtlBeyondClock)
    ));
}

#[test]
fn a_name_is_compared_byte_for_byte() {
    let leases = leases();
    let names: [&[u8]; 5] = [
        b"a",
        b"a/b",
        b"a\xff",
        b"A",
        b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ];
    let held: Vec<_> = names
        .iter()
        .map(|name| {
            let lease = leases.lease(name, TTL).unwrap();
            assert!(!lease.mine(), "{}", name.escape_ascii());
            let _ = lease.acquire().unwrap();
            lease
        })
        .collect();
    assert!(held.iter().all(arena_lease::Lease::mine));
    assert_eq!(leases.list().len(), 5);
}

#[test]
fn a_full_table_says_so_and_a_free_row_goes_to_another_name() {
    let (leases, _) = stopped(2);
    let [one, two] = ["one", "two"].map(|name| leases.lease(name, TTL).unwrap());
    let first = one.acquire().unwrap().held().unwrap();
    let second = two.acquire().unwrap().held().unwrap();
    let refused = leases.lease("three", TTL).unwrap_err();
    assert!(
        matches!(refused, LeaseError::TableFull { rows: 2 }),
        "{refused}"
    );

    assert!(one.release().unwrap());
    let three = leases.lease("three", TTL).unwrap();
    let third = three.acquire().unwrap().held().unwrap();
    assert_eq!(third.took_over, None);
    assert_eq!(three.stats().unwrap().acquires, 1);
    assert!(two.mine_at(second.fence));

    // The old name has no row now, and its handle finds none.
    assert!(!one.mine() && !one.mine_at(third.fence));
    assert_eq!(one.renew().unwrap(), Renewed::Lost(Lost::Released));
    assert!(!one.release().unwrap());
    assert_eq!((one.holder(), one.fence()), (None, 0));
    assert_eq!(one.stats().unwrap().name, b"one");
    assert!(matches!(one.acquire(), Err(LeaseError::TableFull { .. })));

    // It gets one again, and its fences go on above all that the row had.
    assert!(three.release().unwrap());
    let back = one.acquire().unwrap().held().unwrap();
    assert!(back.fence > first.fence.max(third.fence));
    assert!(one.mine());
}

#[test]
fn a_process_does_not_wait_for_itself() {
    let lease = leases().lease("nightly", TTL).unwrap();
    let hold = lease.acquire().unwrap().held().unwrap();
    let again = lease
        .acquire_timeout(Duration::MAX)
        .unwrap()
        .held()
        .unwrap();
    assert_eq!(again.fence, hold.fence);
}

#[test]
fn a_destroyed_arena_holds_nothing_and_its_successor_starts_above_its_fences() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("arena");
    let arena = Arena::open(&path).unwrap();
    let lease = Leases::open(&arena).unwrap().lease("nightly", TTL).unwrap();
    let hold = lease.acquire().unwrap().held().unwrap();
    arena.destroy().unwrap();
    assert!(!lease.mine());
    assert!(matches!(lease.acquire(), Err(LeaseError::Removed)));
    assert_eq!(lease.renew().unwrap(), Renewed::Lost(Lost::Removed));

    let next = Leases::open(&Arena::open(&path).unwrap()).unwrap();
    let next = next.lease("nightly", TTL).unwrap().acquire().unwrap();
    assert!(next.held().unwrap().fence > hold.fence);
}

#[test]
fn a_file_that_was_removed_is_noticed_at_the_next_renewal() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("arena");
    let clock = Stopped::new();
    let options = LeasesOptions::new().clock(clock.clone());
    let leases = options.open(&Arena::open(&path).unwrap()).unwrap();
    let lease = leases.lease("nightly", TTL).unwrap();
    let _ = lease.acquire().unwrap();
    std::fs::remove_file(&path).unwrap();
    clock.pass(Duration::from_secs(1));
    assert_eq!(lease.renew().unwrap(), Renewed::Lost(Lost::Removed));
    assert!(!lease.mine());
    assert!(matches!(lease.acquire(), Err(LeaseError::Removed)));
}

#[test]
fn a_removal_that_one_lease_was_told_ends_every_other_of_the_table() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("arena");
    let clock = Stopped::new();
    let options = LeasesOptions::new().clock(clock.clone());
    let leases = options.open(&Arena::open(&path).unwrap()).unwrap();
    let [told, other] = ["one", "other"].map(|name| leases.lease(name, TTL).unwrap());
    let (_, hold) = (told.acquire().unwrap(), other.acquire().unwrap());
    std::fs::remove_file(&path).unwrap();
    clock.pass(Duration::from_secs(1));
    assert!(other.mine(), "nobody looked yet, and the clock is no proof");
    assert_eq!(told.renew().unwrap(), Renewed::Lost(Lost::Removed));
    assert!(!other.mine() && !other.mine_at(hold.held().unwrap().fence));
}

#[test]
fn a_view_sees_what_a_member_sees_and_joins_nothing() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("arena");
    let arena = Arena::open(&path).unwrap();
    let leases = Leases::open(&arena).unwrap();
    let lease = leases.lease("nightly", TTL).unwrap();
    let _ = lease.acquire().unwrap();
    let rows = arena.attachments().len();
    let view = ArenaOptions::new().view(&path).unwrap();
    let seen = LeasesView::open(&view).unwrap().unwrap();
    assert_eq!(
        (seen.list().unwrap().len(), seen.rows()),
        (1, leases.rows())
    );
    let (theirs, ours) = (
        seen.stats("nightly").unwrap().unwrap(),
        lease.stats().unwrap(),
    );
    let without_clock = |mut stats: arena_lease::Stats| {
        stats.lapses_in = None;
        stats.holder.as_mut().unwrap().lapses_in = Duration::ZERO;
        stats
    };
    assert_eq!(without_clock(theirs), without_clock(ours));
    assert_eq!(seen.stats("other").unwrap(), None);
    assert_eq!(arena.attachments().len(), rows);
}
