//! The rows of the table: who gets which, and what a damaged one does.
#![expect(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use std::thread;
use std::time::{Duration, Instant};

use arena_lease::{
    Acquire, Arena, ArenaOptions, LeaseError, Leases, LeasesOptions, Lost, Refused, Renewed,
    TableError,
};

const TTL: Duration = Duration::from_secs(30);

fn arena() -> Arena {
    ArenaOptions::new().anonymous().unwrap()
}

fn leases() -> Leases {
    Leases::open(&arena()).unwrap()
}

/// A table of two rows, named and free.
fn two_free_rows() -> (Leases, [arena_lease::Lease; 2]) {
    let leases = LeasesOptions::new().rows(2).open(&arena()).unwrap();
    let both = ["one", "two"].map(|name| leases.lease(name, TTL).unwrap());
    for lease in &both {
        let _ = lease.acquire().unwrap();
        assert!(lease.release().unwrap());
    }
    (leases, both)
}

/// Where a row is in the region.
fn row(index: u64) -> u64 {
    128 + 256 * index
}

#[test]
fn a_row_that_was_waited_for_goes_last() {
    let (leases, [one, two]) = two_free_rows();
    let region = leases.arena().find(b"leases").unwrap();
    region
        .write(row(0) + 16, &one.fence().to_le_bytes())
        .unwrap();
    let three = leases.lease("three", TTL).unwrap();
    let _ = three.acquire().unwrap();
    assert_ne!(one.fence(), 0, "it kept its row");
    assert_eq!(two.fence(), 0);
    assert!(
        leases.lease("four", TTL).is_ok(),
        "that somebody waited once keeps no row for ever"
    );
    assert_eq!(one.fence(), 0);
}

#[test]
fn a_row_whose_namer_was_killed_half_way_is_named_first_and_keeps_its_fence() {
    let (leases, [one, two]) = two_free_rows();
    let region = leases.arena().find(b"leases").unwrap();
    // The word is retired, and the new name is written in part.
    let last = one.fence();
    let retired = u128::from(last) << 75 | 2047 << 64;
    region.write(row(0), &retired.to_le_bytes()).unwrap();
    region.write(row(0) + 136, b"thr").unwrap();
    assert!(!one.mine() && two.fence() != 0);
    let three = leases.lease("three", TTL).unwrap();
    let hold = three.acquire().unwrap().held().unwrap();
    assert!(hold.fence > last && hold.took_over.is_none());
    assert_ne!(two.fence(), 0, "the other row was not touched");
    assert_eq!(leases.list().len(), 2);
}

#[test]
fn a_row_that_was_retired_under_its_own_name_is_found_again_by_name() {
    let (leases, [one, _two]) = two_free_rows();
    let region = leases.arena().find(b"leases").unwrap();
    let last = one.fence();
    let retired = u128::from(last) << 75 | 2047 << 64;
    region.write(row(0), &retired.to_le_bytes()).unwrap();
    let hold = one.acquire().unwrap().held().unwrap();
    assert!(hold.fence > last);
    assert!(one.mine());
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
