//! What who only looks is told of a table that is damaged, or another's: never that a lease is free.
#![expect(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use std::path::PathBuf;
use std::time::Duration;

use arena_lease::{Arena, ArenaOptions, Lease, LeaseError, LeasesOptions, LeasesView, ViewError};

const ROW: u64 = 128;
const NAME_LEN: u64 = ROW + 128;
const NAMED: u64 = 16;

struct Place {
    _directory: tempfile::TempDir,
    path: PathBuf,
    arena: Arena,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("arena");
        let arena = Arena::open(&path).unwrap();
        Self {
            _directory: directory,
            path,
            arena,
        }
    }

    /// One row, whose lease is held.
    fn held(&self) -> Lease {
        let leases = LeasesOptions::new().rows(4).open(&self.arena).unwrap();
        let lease = leases.lease("x", Duration::from_secs(30)).unwrap();
        assert!(lease.acquire().unwrap().held().is_some());
        lease
    }

    fn store(&self, at: u64, word: u64) {
        let region = self.arena.find(b"leases").unwrap();
        region.write(at, &word.to_le_bytes()).unwrap();
    }

    fn open(&self) -> Result<Option<LeasesView>, ViewError> {
        LeasesView::open(&ArenaOptions::new().view(&self.path).unwrap())
    }

    fn view(&self) -> LeasesView {
        self.open().unwrap().unwrap()
    }
}

#[test]
fn no_table_is_no_error() {
    assert!(Place::new().open().unwrap().is_none());
}

#[test]
fn a_table_of_another_kind_is_told_with_both_kinds() {
    let place = Place::new();
    place.arena.carve(b"leases", 7, 4096).unwrap();
    let error = place.open().unwrap_err();
    assert!(matches!(error, ViewError::Kind { found: 7, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("0x0000000000000007, expected 0x"), "{text}");
}

#[test]
fn a_row_whose_word_means_nothing_is_not_free() {
    let place = Place::new();
    let lease = place.held();
    // A slot that no arena has, under a fence.
    place.store(ROW + 8, u64::MAX);
    place.store(ROW, u64::MAX);
    let view = place.view();
    let error = view.stats("x").unwrap_err();
    assert!(matches!(error, ViewError::Word { row: 0, .. }), "{error}");
    assert!(matches!(
        view.list().unwrap()[..],
        [Err(ViewError::Word { row: 0, .. })]
    ));
    assert!(matches!(lease.stats(), Err(LeaseError::Corrupt { .. })));
    assert_eq!(lease.holder(), None);
}

#[test]
fn a_name_that_no_row_has_may_be_that_of_a_damaged_row() {
    let place = Place::new();
    let _held = place.held();
    assert_eq!(place.view().stats("y").unwrap(), None, "undamaged");
    place.store(NAME_LEN, 97);
    let view = place.view();
    for name in ["x", "y"] {
        let error = view.stats(name).unwrap_err();
        assert!(
            matches!(error, ViewError::Row { row: 0, found: 97 }),
            "{error}"
        );
    }
    assert!(view.list().unwrap()[0].is_err());
}

#[test]
fn an_impossible_count_of_rows_is_told() {
    let place = Place::new();
    let _held = place.held();
    place.store(NAMED, 5);
    let view = place.view();
    let error = view.stats("x").unwrap_err();
    assert!(
        matches!(error, ViewError::Named { found: 5, rows: 4 }),
        "{error}"
    );
    assert!(view.list().is_err());
}

#[test]
fn a_name_that_cannot_be_a_leases_is_an_error_of_its_own() {
    let place = Place::new();
    let _held = place.held();
    let long = [b'x'; 97];
    for name in [&b""[..], &long, b"a\0b"] {
        let error = place.view().stats(name).unwrap_err();
        assert!(matches!(error, ViewError::Name { .. }), "{error}");
    }
}
