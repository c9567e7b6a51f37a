//! The contents of an arena are input: whatever they are, opening and using it returns.
//!
//! What a byte can do is independent of how it got there, so the bytes are changed in one process;
//! a signal or a hang of any case fails the whole test.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use arena_core::{Arena, ArenaOptions, LockWord};
use proptest::prelude::*;

const SLOTS: u64 = 4;
const REGIONS: u64 = 4;
/// Header, rows and entries: what is trusted least.
const TABLES: u64 = 384 + 128 * (SLOTS + REGIONS);

fn options() -> ArenaOptions {
    ArenaOptions::new()
        .usable_bytes(4096)
        .slots(4)
        .regions(4)
        .busy_timeout(Duration::from_millis(1))
}

/// Everything that an arena can be asked; what the answers are is not looked at.
fn use_it(arena: &Arena) {
    let _ = arena.me();
    for info in arena.regions() {
        assert!(info.offset + info.len_bytes <= arena.len_bytes());
        if let Some(region) = arena.find(&info.name) {
            let mut bytes = vec![0; usize::try_from(region.len_bytes()).unwrap()];
            region.read(0, &mut bytes).unwrap();
            region.write(0, &bytes).unwrap();
        }
    }
    for row in arena.attachments() {
        let _ = arena.probe(row.id);
    }
    let _ = (
        arena.refused(),
        arena.is_gone(),
        arena.is_unlinked(),
        arena.reaped(),
    );
    let _ = arena.reserve_fence(arena.fence_minimum());
    if let Ok(region) = arena.carve(b"fresh", 9, 64) {
        let word: &LockWord = region.at(0).unwrap();
        let _ = arena.try_lock(word);
    }
    let _ = arena.reap();
    let _ = arena.set_name(b"name");
}

fn fresh() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("arena");
    let arena = options().open(&path).unwrap();
    arena.carve(b"one", 1, 100).unwrap();
    arena.carve(b"two", 2, 200).unwrap();
    (directory, path)
}

fn damage(path: &std::path::Path, at: u64, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

fn open_and_use(path: &std::path::Path) -> bool {
    if let Ok(view) = options().view(path) {
        let _ = (
            view.regions(),
            view.attachments(),
            view.refused(),
            view.is_gone(),
        );
    }
    let attached = options().attach(path);
    if let Ok(arena) = &attached {
        use_it(arena);
    }
    attached.is_ok()
}

#[test]
fn arena_that_nobody_touched_opens_and_works_and_so_does_one_with_other_payload() {
    let (_directory, path) = fresh();
    assert!(open_and_use(&path));
    damage(&path, TABLES + 256, &[0xff; 1024]);
    assert!(open_and_use(&path));
}

#[test]
fn every_byte_of_the_tables_may_be_flipped() {
    let (_directory, path) = fresh();
    let good = std::fs::read(&path).unwrap();
    for at in 0..usize::try_from(TABLES).unwrap() {
        for flip in [0x01, 0x80, 0xff] {
            let fresh = path.with_extension(format!("{at}.{flip}"));
            let mut bytes = good.clone();
            bytes[at] ^= flip;
            std::fs::write(&fresh, &bytes).unwrap();
            std::fs::set_permissions(&fresh, std::os::unix::fs::PermissionsExt::from_mode(0o600))
                .unwrap();
            open_and_use(&fresh);
            let _ = std::fs::remove_file(&fresh);
        }
    }
}

#[test]
fn tables_may_be_damaged_under_a_process_that_uses_them() {
    let (_directory, path) = fresh();
    let arena = options().attach(&path).unwrap();
    let good = std::fs::read(&path).unwrap();
    for at in 0..TABLES {
        damage(&path, at, &[0xa5]);
        use_it(&arena);
        damage(&path, at, &good[usize::try_from(at).unwrap()..][..1]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn blocks_of_any_bytes_are_survived(
        start in 0..TABLES, block in proptest::collection::vec(any::<u8>(), 1..1024)
    ) {
        let (_directory, path) = fresh();
        damage(&path, start, &block);
        open_and_use(&path);
    }

    #[test]
    fn tables_of_any_words_behind_a_good_header_are_survived(
        words in proptest::collection::vec(
            prop_oneof![any::<u64>(), 0..4u64, Just(u64::MAX), (0..64u64).prop_map(|bit| 1 << bit)],
            128..129,
        )
    ) {
        let (_directory, path) = fresh();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        damage(&path, 384, &bytes);
        open_and_use(&path);
    }
}
