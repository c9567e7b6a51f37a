//! Rings that are found and not made, read and shown without joining.
#![expect(
    clippy::unwrap_used,
    reason = "in a test, what goes wrong ends it where it happens"
)]

use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use arena_ring::{Arena, ArenaOptions, Ring, RingOpenError, RingOptions, RingView};
use tempfile::TempDir;

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("arena");
    (directory, path)
}

fn view(path: &PathBuf) -> Result<Option<RingView>, RingOpenError> {
    RingView::open(&ArenaOptions::new().view(path).unwrap(), "ring")
}

#[test]
fn looking_for_a_ring_does_not_make_it() {
    let (_directory, path) = place();
    let arena = Arena::open(&path).unwrap();
    assert!(Ring::find(&arena, "ring").unwrap().is_none());
    assert!(view(&path).unwrap().is_none());
    assert!(arena.regions().is_empty());
    let made = RingOptions::new().slots(6).slot_bytes(100);
    made.open(&arena, "ring").unwrap();
    let found = Ring::find(&arena, "ring").unwrap().unwrap();
    assert_eq!((found.slots(), found.slot_bytes()), (6, 100));
    assert_eq!(found.name(), b"ring");
    let shown = view(&path).unwrap().unwrap();
    assert_eq!((shown.slots(), shown.slot_bytes()), (6, 100));
    assert_eq!(shown.max_record(), found.max_record());
}

#[test]
fn what_is_no_name_and_what_is_no_ring_is_an_error_also_for_who_looks() {
    let (_directory, path) = place();
    let arena = Arena::open(&path).unwrap();
    let read = ArenaOptions::new().view(&path).unwrap();
    for name in ["", "a/b", "a\0b", &"x".repeat(59)] {
        let refused = [
            Ring::find(&arena, name).map(drop),
            RingView::open(&read, name).map(drop),
        ];
        for refused in refused {
            assert!(matches!(refused, Err(RingOpenError::Name { .. })), "{name}");
        }
    }
    arena.carve(b"ring.ring", 7, 4096).unwrap();
    let refused = [Ring::find(&arena, "ring").map(drop), view(&path).map(drop)];
    for refused in refused {
        assert!(matches!(
            refused,
            Err(RingOpenError::OtherKind { found: 7, .. })
        ));
    }
}

#[test]
fn a_ring_whose_entry_may_be_damaged_is_not_taken_for_none() {
    /// Where the first region's entry begins in an arena of 4 slots, and its `offset`.
    const ENTRY: u64 = 384 + 4 * 128;
    const OFFSET: u64 = ENTRY + 16;
    let (_directory, path) = place();
    let arena = ArenaOptions::new().slots(4).open(&path).unwrap();
    Ring::open(&arena, "ring").unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0xff; 8], OFFSET).unwrap();
    let refused = [Ring::find(&arena, "ring").map(drop), view(&path).map(drop)];
    for refused in refused {
        assert!(matches!(
            refused,
            Err(RingOpenError::Regions { refused: 1 })
        ));
    }
}

#[test]
fn a_view_shows_what_the_ring_says_of_itself() {
    let (_directory, path) = place();
    let arena = Arena::open(&path).unwrap();
    let ring = RingOptions::new().slots(7).slot_bytes(16);
    let ring = ring.open(&arena, "ring").unwrap();
    let view = view(&path).unwrap().unwrap();
    let same = || {
        assert_eq!(view.stats(), ring.stats());
        view.stats()
    };
    same();
    for size in [0, 16, 100, 16, 90, 3] {
        let published = ring.publish(b"", &vec![1; size]).unwrap();
        assert!(published.is_committed());
        same();
    }
    let most = usize::try_from(ring.max_record()).unwrap();
    ring.publish(b"", &vec![1; most + 1]).unwrap_err();
    let open = ring.reserve(b"", 100).unwrap();
    let stats = same();
    assert_eq!((stats.published, stats.oversize), (7, 1));
    assert_eq!(stats.unfinished, arena.me().ok());
    assert!(open.commit().unwrap().is_committed());
    assert_eq!(same().unfinished, None);
}

#[test]
fn reading_needs_no_slot_in_the_arena() {
    let (_directory, path) = place();
    let attached = || ArenaOptions::new().view(&path).unwrap().attachments().len();
    let publish = |payload: &[u8]| {
        let ring = Ring::open(&Arena::open(&path).unwrap(), "ring").unwrap();
        assert!(ring.publish(b"", payload).unwrap().is_committed());
    };
    publish(b"one");
    assert_eq!(attached(), 0, "who published has left");
    let arena = ArenaOptions::new().unattached(&path).unwrap();
    let ring = Ring::find(&arena, "ring").unwrap().unwrap();
    let mut cursor = ring.cursor_from_oldest().unwrap();
    assert_eq!(cursor.next().unwrap().unwrap().payload, b"one");
    let asleep = cursor.next_timeout(Some(std::time::Duration::from_millis(1)));
    assert_eq!(asleep.unwrap(), None);
    publish(b"two");
    assert_eq!(cursor.next_timeout(None).unwrap().unwrap().payload, b"two");
    assert_eq!((attached(), arena.me_if_joined()), (0, None));
    assert_eq!(cursor.stats().delivered, 2);
}
