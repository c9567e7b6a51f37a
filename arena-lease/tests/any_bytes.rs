//! Whatever the bytes of the table, every verb returns: an error or a wrong answer, no panic, no hang.

use std::time::{Duration, Instant};

use arena_lease::{Arena, ArenaOptions, Leases, LeasesOptions, LeasesView};
use proptest::prelude::*;

const TTL: Duration = Duration::from_millis(20);
const ROWS: u32 = 3;
const TABLE_BYTES: u64 = 128 + 256 * 3;

fn use_everything(arena: &Arena) {
    let Ok(leases) = Leases::open(arena) else {
        return;
    };
    for stats in leases.list() {
        let _ = (stats.name, stats.holder);
    }
    for name in ["one", "two", "three", "four"] {
        let Ok(lease) = leases.lease(name, TTL) else {
            continue;
        };
        let _ = lease.acquire();
        let _ = lease.acquire_timeout(Duration::from_millis(2));
        let _ = (lease.mine(), lease.fence(), lease.holder(), lease.stats());
        let _ = lease.renew();
        lease.forfeit_at(lease.fence());
        let _ = lease.release();
    }
}

/// A word that is more often nearly right than random bytes are.
fn word() -> impl Strategy<Value = u128> {
    let fence = prop_oneof![0..4_u128, Just((1 << 53) - 1), 0..1_u128 << 53];
    let slot = prop_oneof![0..4_u128, 2045..2048_u128];
    let epoch = prop_oneof![0..3_u128, Just((1 << 24) - 1)];
    let until = prop_oneof![Just(0), 0..1_u128 << 40, Just((1 << 40) - 1)];
    (fence, slot, epoch, until)
        .prop_map(|(fence, slot, epoch, until)| fence << 75 | slot << 64 | epoch << 40 | until)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_in_the_table_are_survived(
        at in 0..TABLE_BYTES - 64,
        bytes in prop::collection::vec(any::<u8>(), 1..64),
        word in prop::option::of((word(), 0..u64::from(ROWS))),
        named in prop::option::of(any::<u64>()),
    ) {
        // The lock is core's, and has its own test: random bytes in it name a live holder.
        let at = at.max(8);
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("arena");
        let arena = Arena::open(&path).unwrap();
        let options = LeasesOptions::new().rows(ROWS).busy_timeout(Duration::from_millis(5));
        let leases = options.open(&arena).unwrap();
        for name in ["one", "two"] {
            let _ = leases.lease(name, TTL).unwrap().acquire().unwrap();
        }
        let region = arena.find(b"leases").unwrap();
        region.write(at, &bytes).unwrap();
        if let Some((word, row)) = word {
            region.write(128 + 256 * row, &word.to_le_bytes()).unwrap();
        }
        if let Some(named) = named {
            region.write(16, &named.to_le_bytes()).unwrap();
        }
        let started = Instant::now();
        use_everything(&arena);
        let view = ArenaOptions::new().view(&path).unwrap();
        if let Some(view) = LeasesView::open(&view).unwrap() {
            let _ = (view.list(), view.stats("one"));
        }
        prop_assert!(started.elapsed() < Duration::from_secs(20), "as good as a hang");
    }
}

#[test]
fn a_table_that_nobody_damaged_works() {
    let arena = ArenaOptions::new().anonymous().unwrap();
    let leases = LeasesOptions::new().rows(ROWS).open(&arena).unwrap();
    let lease = leases.lease("one", TTL).unwrap();
    assert!(lease.acquire().unwrap().held().is_some());
}
