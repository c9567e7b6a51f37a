//! The verbs and the table in one process: names, rows, fences, options.
#![expect(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arena_lease::{
    Acquire, Arena, ArenaOptions, Clock, InvalidTtl, LeaseError, Leases, LeasesOptions, LeasesView,
    Lost, Refused, Renewed, TableError, TookOver, Verdict,
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
    let stats = lease.stats();
    assert_eq!((stats.held, stats.acquires, stats.steals), (true, 1, 0));

    assert!(lease.release().unwrap());
    assert!(!lease.mine());
    assert!(!lease.release().unwrap());
    assert_eq!(lease.renew().unwrap(), Renewed::Lost(Lost::Released));
    assert_eq!(lease.holder(), None);
    assert_eq!(lease.stats().lapses_in, None);
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
    assert_eq!(three.stats().acquires, 1);
    assert!(two.mine_at(second.fence));

    // The old name has no row now, and its handle finds none.
    assert!(!one.mine() && !one.mine_at(third.fence));
    assert_eq!(one.renew().unwrap(), Renewed::Lost(Lost::Released));
    assert!(!one.release().unwrap());
    assert_eq!((one.holder(), one.fence()), (None, 0));
    assert_eq!(one.stats().name, b"one");
    assert!(matches!(one.acquire(), Err(LeaseError::TableFull { .. })));

    // It gets one again, and its fences go on above all that the row had.
    assert!(three.release().unwrap());
    let back = one.acquire().unwrap().held().unwrap();
    assert!(back.fence > first.fence.max(third.fence));
    assert!(one.mine());
}

#[test]
fn a_row_that_is_waited_for_goes_last() {
    let (leases, clock) = stopped(2);
    let [one, two] = ["one", "two"].map(|name| leases.lease(name, TTL).unwrap());
    let _ = (one.acquire().unwrap(), two.acquire().unwrap());
    assert!(one.release().unwrap() && two.release().unwrap());
    let _ = clock;
    let three = leases.lease("three", TTL).unwrap();
    let _ = three.acquire().unwrap();
    assert!(
        leases.lease("four", TTL).is_ok(),
        "the second row is free too"
    );
}

#[test]
fn rows_of_another_number_are_refused_and_any_number_is_taken_unasked() {
    let arena = arena();
    assert!(matches!(
        LeasesOptions::new().rows(0).open(&arena),
        Err(TableError::RowsOption { asked: 0 })
    ));
    let eight = LeasesOptions::new().rows(8).open(&arena).unwrap();
    assert_eq!(eight.rows(), 8);
    assert_eq!(Leases::open(&arena).unwrap().rows(), 8);
    for expected in [7, 9] {
        let refused = LeasesOptions::new()
            .rows(expected)
            .open(&arena)
            .unwrap_err();
        assert!(matches!(
            refused,
            TableError::Rows { found: 8, .. } | TableError::Carve(_)
        ));
    }
}

#[test]
fn a_region_of_that_name_which_is_no_table_is_refused() {
    let arena = arena();
    arena.carve(b"leases", 7, 4096).unwrap();
    assert!(matches!(Leases::open(&arena), Err(TableError::Carve(_))));
}

#[test]
fn a_waiter_is_refused_at_its_deadline_and_not_before() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("arena");
    let leases = Leases::open(&Arena::open(&path).unwrap()).unwrap();
    // Somebody of another generation, so that nobody but the clock can end it.
    let lease = leases.lease("nightly", TTL).unwrap();
    let hold = lease.acquire().unwrap().held().unwrap();
    let started = Instant::now();
    let wait = Duration::from_millis(30);
    // A process waits for others, never for itself.
    let own = lease.acquire_timeout(wait).unwrap().held().unwrap();
    assert_eq!(own.fence, hold.fence);
    assert!(started.elapsed() < wait);
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
fn a_view_sees_what_a_member_sees_and_joins_nothing() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("arena");
    let arena = Arena::open(&path).unwrap();
    let leases = Leases::open(&arena).unwrap();
    let lease = leases.lease("nightly", TTL).unwrap();
    let _ = lease.acquire().unwrap();
    let rows = arena.attachments().len();
    let view = ArenaOptions::new().view(&path).unwrap();
    let seen = LeasesView::open(&view).unwrap();
    assert_eq!((seen.list().len(), seen.rows()), (1, leases.rows()));
    let (theirs, ours) = (seen.stats("nightly").unwrap(), lease.stats());
    let without_clock = |mut stats: arena_lease::Stats| {
        stats.lapses_in = None;
        stats.holder.as_mut().unwrap().lapses_in = Duration::ZERO;
        stats
    };
    assert_eq!(without_clock(theirs), without_clock(ours));
    assert_eq!(seen.stats("other"), None);
    assert_eq!(arena.attachments().len(), rows);
}

#[test]
fn sixteen_threads_that_name_rows_at_once_make_one_row_a_name() {
    let leases = leases();
    thread::scope(|scope| {
        for thread in 0..16_usize {
            let leases = leases.clone();
            scope.spawn(move || {
                for name in 0..20_usize {
                    let name = format!("lease-{}", (name + thread) % 20);
                    let lease = leases.lease(name, TTL).unwrap();
                    assert!(matches!(lease.acquire().unwrap(), Acquire::Held(_)));
                }
            });
        }
    });
    let mut names: Vec<_> = leases.list().into_iter().map(|stats| stats.name).collect();
    names.sort();
    names.dedup();
    assert_eq!((names.len(), leases.list().len()), (20, 20));
}

#[test]
fn a_word_that_nobody_writes_is_an_error_and_not_a_panic() {
    let arena = arena();
    let leases = Leases::open(&arena).unwrap();
    let lease = leases.lease("nightly", TTL).unwrap();
    let _ = lease.acquire().unwrap();
    let region = arena.find(b"leases").unwrap();
    // The first row's word: an epoch without a slot.
    region.write(128, &(1_u128 << 40).to_le_bytes()).unwrap();
    assert!(matches!(lease.acquire(), Err(LeaseError::Corrupt { .. })));
    assert!(matches!(
        lease.renew(),
        Ok(Renewed::Lost(Lost::Corrupt { .. }))
    ));
    assert!(matches!(lease.release(), Err(LeaseError::Corrupt { .. })));
    assert!(!lease.mine());
    assert_eq!((lease.holder(), lease.fence()), (None, 0));
    assert_eq!(leases.list(), []);
}

#[test]
fn a_holder_in_a_slot_that_there_is_not_holds_until_it_lapses() {
    let arena = arena();
    let leases = Leases::open(&arena).unwrap();
    let lease = leases.lease("nightly", TTL).unwrap();
    let now_ms = u128::from(arena_lease::peers::core::clock::boot_ms());
    let word = 5_u128 << 75 | 2046 << 64 | 1 << 40 | (now_ms + 40);
    let region = arena.find(b"leases").unwrap();
    region.write(128, &word.to_le_bytes()).unwrap();
    let refused = lease.acquire().unwrap();
    assert!(matches!(
        refused,
        Acquire::Refused(Refused::Held { fence: 5, .. })
    ));
    let started = Instant::now();
    let hold = lease
        .acquire_timeout(Duration::from_secs(20))
        .unwrap()
        .held()
        .unwrap();
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(hold.fence > 5);
}
