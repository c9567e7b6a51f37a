//! Arenas as their users meet them, within one process.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use arena_core::{
    Acquired, Arena, ArenaOptions, AttachmentId, Bell, CarveError, LockWord, OpenError, Probe,
};
use tempfile::TempDir;

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("arena");
    (directory, path)
}

fn small() -> ArenaOptions {
    ArenaOptions::new()
        .usable_bytes(16 << 10)
        .regions(4)
        .slots(4)
}

/// Stores `value` over word `index` of the file, and then the check that is right for it, so that
/// the word itself has to be looked at.
fn patch(path: &PathBuf, index: u64, value: u64) {
    patch_alone(path, index, value);
    let mut words = [0u8; 88];
    let file = std::fs::File::open(path).unwrap();
    file.read_exact_at(&mut words, 0).unwrap();
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    patch_alone(path, 11, words.iter().fold(0xcbf2_9ce4_8422_2325, fnv));
}

fn patch_alone(path: &PathBuf, index: u64, value: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&value.to_le_bytes(), 8 * index).unwrap();
}

/// Method: of an arena by name and of one without.
#[test]
fn who_has_a_stand_in_is_told_until_it_is_closed() {
    let (_directory, path) = place();
    for arena in [
        ArenaOptions::new().open(&path).unwrap(),
        ArenaOptions::new().anonymous().unwrap(),
    ] {
        let me = arena.me().unwrap();
        let another = AttachmentId::new(me.slot(), me.generation() + 1).unwrap();
        assert!(!arena.may_have_stand_in(me));
        let stand_in = arena.stand_in().unwrap();
        assert!(arena.may_have_stand_in(me) && !arena.may_have_stand_in(another));
        if arena.path().is_some() {
            let view = ArenaOptions::new().view(&path).unwrap();
            assert!(view.may_have_stand_in(me) && !view.may_have_stand_in(another));
        }
        drop(stand_in);
        assert!(!arena.may_have_stand_in(me));
    }
}

#[test]
fn first_opener_creates_later_ones_attach_and_attach_never_creates() {
    let (_directory, path) = place();
    assert!(matches!(
        Arena::attach(&path),
        Err(OpenError::NotFound { .. })
    ));
    assert!(!path.exists());
    let first = small().open(&path).unwrap();
    let second = small().usable_bytes(1 << 30).open(&path).unwrap();
    assert!(first.created());
    assert!(!second.created());
    assert_eq!(first.len_bytes(), second.len_bytes());
}

#[test]
fn two_openings_are_two_mappings_of_one_memory_and_one_attachment() {
    let (directory, path) = place();
    symlink(directory.path(), directory.path().join("link")).unwrap();
    let one = small().open(&path).unwrap();
    let two = small().open(directory.path().join("link/arena")).unwrap();
    assert_ne!(one.base_address(), two.base_address());
    assert_eq!(one.me().unwrap(), two.me().unwrap());
    one.carve(b"r", 1, 64).unwrap().write(3, b"hello").unwrap();
    let mut seen = [0; 5];
    two.find(b"r").unwrap().read(3, &mut seen).unwrap();
    assert_eq!(&seen, b"hello");
    let me = one.me().unwrap();
    drop(one);
    assert_eq!(
        two.attachment(me.slot()).unwrap().id,
        me,
        "the other handle keeps it"
    );
    let view = small().view(&path).unwrap();
    drop(two);
    assert!(matches!(view.probe(me), Probe::Gone(_)));
    assert!(view.attachments().is_empty());
}

#[test]
fn region_is_found_by_name_and_another_shape_is_refused() {
    let (_directory, path) = place();
    let arena = small().open(&path).unwrap();
    let carved = arena.carve(b"a", 7, 100).unwrap();
    assert_eq!(arena.carve(b"a", 7, 50).unwrap().offset(), carved.offset());
    for (kind, len) in [(8, 100), (7, 101)] {
        let refused = arena.carve(b"a", kind, len);
        assert!(matches!(
            refused,
            Err(CarveError::OtherShape {
                found_bytes: 100,
                ..
            })
        ));
    }
    assert!(arena.find(b"b").is_none());
    let next = arena.carve(b"b", 0, 1).unwrap();
    assert!(next.offset() >= carved.offset() + 100);
    assert_eq!(next.offset() % 128, 0);
    let names: Vec<_> = arena
        .regions()
        .into_iter()
        .map(|region| region.name)
        .collect();
    assert_eq!(names, [b"a", b"b"]);
}

#[test]
fn carve_that_does_not_fit_takes_nothing() {
    let (_directory, path) = place();
    let arena = small().open(&path).unwrap();
    let refused = arena.carve(b"big", 0, 1 << 20);
    let Err(CarveError::Full { needed, available }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(needed, 1 << 20);
    assert!(available >= 16 << 10);
    assert!(matches!(
        arena.carve(b"all", 0, u64::MAX),
        Err(CarveError::Full { .. })
    ));
    assert!(arena.regions().is_empty());
    arena.carve(b"all", 0, available).unwrap();
    assert!(matches!(
        arena.carve(b"more", 0, 1),
        Err(CarveError::Full { available: 0, .. })
    ));
    for name in [b"1", b"2", b"3"] {
        arena.carve(name, 0, 0).unwrap();
    }
    assert!(matches!(
        arena.carve(b"4", 0, 0),
        Err(CarveError::TooMany { regions: 4 })
    ));
}

#[test]
fn region_names_that_are_no_names_are_refused() {
    let (_directory, path) = place();
    let arena = small().open(&path).unwrap();
    for name in [&b""[..], b"a\0b", b"a/b", &[b'x'; 64]] {
        assert!(matches!(
            arena.carve(name, 0, 1),
            Err(CarveError::Name { .. })
        ));
    }
    arena.carve(&[0xff; 63], 0, 1).unwrap();
    assert!(arena.find(&[0xff; 63]).is_some());
    assert!(arena.find(&[0xff; 62]).is_none());
}

#[test]
fn access_outside_a_region_is_refused_though_the_arena_goes_on() {
    let (_directory, path) = place();
    let arena = small().open(&path).unwrap();
    let region = arena.carve(b"r", 0, 100).unwrap();
    arena.carve(b"next", 0, 100).unwrap();
    let mut bytes = [0; 8];
    assert!(region.read(92, &mut bytes).is_ok());
    for offset in [93, 100, u64::MAX] {
        assert!(region.read(offset, &mut bytes).is_err());
        assert!(region.write(offset, &bytes).is_err());
        assert!(region.at::<LockWord>(offset).is_err());
    }
    assert!(region.array::<LockWord>(0, 13).is_err());
    assert_eq!(region.array::<LockWord>(0, 12).unwrap().len(), 12);
}

#[test]
fn anonymous_arena_is_reached_through_its_descriptor_and_cannot_shrink() {
    let arena = small().anonymous().unwrap();
    let fd = arena.descriptor().unwrap();
    assert_eq!(
        std::fs::File::from(fd.try_clone().unwrap())
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    assert!(nix::unistd::ftruncate(fd.as_fd(), 0).is_err());
    arena.carve(b"r", 1, 8).unwrap();
    let other = Arena::from_fd(fd).unwrap();
    assert!(other.find(b"r").is_some());
    assert_eq!(other.me().unwrap(), arena.me().unwrap());
    assert!(matches!(
        arena.destroy(),
        Err(arena_core::DestroyError::Unnamed)
    ));
}

#[test]
fn memory_that_could_still_shrink_is_refused() {
    let (_directory, path) = place();
    let arena = small().open(&path).unwrap();
    let fd = arena.descriptor().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(
        Arena::from_fd(fd),
        Err(OpenError::Unsealed { .. })
    ));
}

#[test]
fn mode_is_as_asked_whatever_the_umask_and_more_write_permission_is_refused() {
    let (_directory, path) = place();
    let _arena = small().mode(0o660).open(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o660);
    let refused = small().attach(&path);
    assert!(matches!(
        refused,
        Err(OpenError::WritableByOthers {
            found: 0o660,
            allowed: 0,
            ..
        })
    ));
    small().mode(0o660).attach(&path).unwrap();
}

#[test]
fn names_taken_by_other_things_are_refused_by_what_they_are() {
    let (directory, path) = place();
    let refusal = |path: &PathBuf| match small().open(path) {
        Err(OpenError::NotRegular { found, .. }) => found,
        other => panic!("{other:?}"),
    };
    std::fs::create_dir(&path).unwrap();
    assert_eq!(refusal(&path), "a directory");
    let link = directory.path().join("link");
    symlink("/dev/null", &link).unwrap();
    assert_eq!(refusal(&link), "a symbolic link");
    let fifo = directory.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert_eq!(refusal(&fifo), "a FIFO");
    assert_eq!(refusal(&PathBuf::from("/dev/null")), "a device");
    for bytes in [&b""[..], b"short", &[7; 100_000]] {
        let file = directory.path().join("file");
        std::fs::write(&file, bytes).unwrap();
        assert!(matches!(
            small().open(&file),
            Err(OpenError::NotAnArena { .. })
        ));
        assert_eq!(
            std::fs::read(&file).unwrap(),
            bytes,
            "a refused file is not changed"
        );
    }
}

/// Goal: each word of the header that an opener relies on is checked, its refusal says both
/// values, and the file stays as it was. Method: patch one word of a good file at a time.
#[test]
fn patched_header_is_refused_with_both_values_and_stays_as_it_was() {
    type Check = fn(&OpenError) -> bool;
    let (_directory, path) = place();
    let running = small().open(&path).unwrap();
    running.carve(b"r", 1, 8).unwrap();
    let word = |index: u64| {
        let mut bytes = [0; 8];
        std::fs::File::open(&path)
            .unwrap()
            .read_exact_at(&mut bytes, 8 * index)
            .unwrap();
        u64::from_le_bytes(bytes)
    };
    let cases: [(u64, u64, Check); 13] = [
        (0, 1, |e| {
            matches!(e, OpenError::NotAnArena { found: 1, .. })
        }),
        (1, 2, |e| {
            matches!(
                e,
                OpenError::Incompatible {
                    what: "format",
                    found: 2,
                    expected: 1,
                    ..
                }
            )
        }),
        (2, 3, |e| {
            matches!(
                e,
                OpenError::Incompatible {
                    what: "layout fingerprint",
                    found: 3,
                    ..
                }
            )
        }),
        (3, 4, |e| matches!(e, OpenError::Damaged { found: 4, .. })),
        (3, u64::MAX, |e| {
            matches!(
                e,
                OpenError::Damaged {
                    found: u64::MAX,
                    ..
                }
            )
        }),
        (4, u64::MAX, |e| matches!(e, OpenError::Damaged { .. })),
        (4, 0, |e| matches!(e, OpenError::Damaged { .. })),
        (5, 500, |e| matches!(e, OpenError::Damaged { .. })),
        (5, 2_047, |e| matches!(e, OpenError::Damaged { .. })),
        (6, u64::MAX, |e| matches!(e, OpenError::Damaged { .. })),
        (9, 7, |e| {
            matches!(e, OpenError::TimeNamespace { found: 7, .. })
        }),
        (12, 1, |e| {
            matches!(
                e,
                OpenError::Damaged {
                    what: "reserved words",
                    ..
                }
            )
        }),
        (7, 7, |e| matches!(e, OpenError::OtherBoot { .. })),
    ];
    for (index, value, expected) in cases {
        let good = word(index);
        patch(&path, index, value);
        let before = std::fs::read(&path).unwrap();
        let refused = small().attach(&path).unwrap_err();
        assert!(expected(&refused), "word {index} = {value}: {refused:?}");
        assert!(small().view(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), before, "word {index}");
        patch(&path, index, good);
        assert!(
            running.find(b"r").is_some(),
            "a running process is unaffected"
        );
    }
    let good = word(5);
    patch_alone(&path, 5, good + 1);
    let refused = small().attach(&path).unwrap_err();
    assert!(
        matches!(
            refused,
            OpenError::Damaged {
                what: "check of the header",
                ..
            }
        ),
        "a count that leaves the length as it is: {refused:?}"
    );
    patch_alone(&path, 5, good);
    small().attach(&path).unwrap();
}

#[test]
fn file_of_another_length_than_it_states_is_refused_without_a_signal() {
    let (_directory, path) = place();
    drop(small().open(&path).unwrap());
    let len = std::fs::metadata(&path).unwrap().len();
    for other in [0, 8, 383, 384, 4096, len - 4096, len + 4096] {
        let copy = path.with_extension("copy");
        std::fs::copy(&path, &copy).unwrap();
        std::fs::OpenOptions::new()
            .write(true)
            .open(&copy)
            .unwrap()
            .set_len(other)
            .unwrap();
        let refused = small().attach(&copy).unwrap_err();
        assert!(
            matches!(
                refused,
                OpenError::Damaged { .. } | OpenError::NotAnArena { .. }
            ),
            "{other}: {refused:?}"
        );
    }
}

#[test]
fn arena_of_another_boot_is_replaced_by_open_and_refused_by_attach() {
    let (_directory, path) = place();
    let old = small().open(&path).unwrap();
    let fence = old.fence_minimum() + 5_000_000;
    assert!(old.reserve_fence(fence));
    patch(&path, 7, 7);
    let refused = small().open(&path);
    assert!(
        matches!(refused, Err(OpenError::OtherBoot { .. })),
        "somebody holds a byte, so the boot ids are two views of one boot: {refused:?}"
    );
    assert!(!old.is_gone() && !old.is_unlinked());
    drop(old);
    assert!(matches!(
        small().attach(&path),
        Err(OpenError::OtherBoot { .. })
    ));
    let new = small().open(&path).unwrap();
    assert!(new.created());
    assert!(new.fence_minimum() > fence);
}

#[test]
fn destroyed_arena_is_gone_for_its_users_and_fences_of_the_next_one_are_above() {
    let (directory, path) = place();
    let old = small().open(&path).unwrap();
    let fence = old.fence_minimum() + 7_000_000;
    assert!(old.reserve_fence(fence));
    assert!(!old.is_gone() && !old.is_unlinked());
    old.destroy().unwrap();
    assert!(old.is_gone() && old.is_unlinked());
    assert!(!path.exists());
    old.destroy().unwrap();
    let new = small().open(&path).unwrap();
    assert!(new.created() && !new.is_gone());
    assert!(new.fence_minimum() > fence, "the floor holds");
    assert_ne!(new.path().unwrap(), directory.path());
    old.destroy().unwrap();
    assert!(
        path.exists(),
        "destroying the old one again leaves the new one alone"
    );
}

/// Raises the floor of this directory far above what the clock says.
fn put_the_floor_ahead_of_the_clock(path: &Path) {
    let earlier = small().open(path).unwrap();
    assert!(earlier.reserve_fence(earlier.fence_minimum() + (1 << 45)));
    earlier.destroy().unwrap();
}

#[test]
fn fences_grow_past_a_file_that_was_removed_while_the_floor_is_ahead_of_the_clock() {
    let (_directory, path) = place();
    put_the_floor_ahead_of_the_clock(&path);
    let mut last = 0;
    // Fences of the creator's claim, and beyond it.
    for more in [0, 1_000, 1 << 18, 1 << 22] {
        let arena = small().open(&path).unwrap();
        assert!(arena.created() && arena.fence_minimum() > last);
        last = arena.fence_minimum() + more;
        assert!(arena.reserve_fence(last));
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn fence_that_could_not_be_claimed_is_claimed_by_the_next_who_can() {
    let (directory, path) = place();
    put_the_floor_ahead_of_the_clock(&path);
    let arena = small().open(&path).unwrap();
    let used_up = arena.fence_minimum() + (1 << 20);
    let floor = std::fs::read_dir(directory.path()).unwrap().flatten();
    let floor = floor.map(|entry| entry.path()).find(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("arena-floor."))
    });
    let (floor, aside) = (floor.unwrap(), directory.path().join("aside"));
    std::fs::rename(&floor, &aside).unwrap();
    // Whatever is in its place is refused.
    std::fs::create_dir(&floor).unwrap();
    assert!(arena.reserve_fence(used_up));
    std::fs::remove_dir(&floor).unwrap();
    std::fs::rename(&aside, &floor).unwrap();
    assert!(arena.reserve_fence(used_up + 1));
    std::fs::remove_file(&path).unwrap();
    assert!(small().open(&path).unwrap().fence_minimum() > used_up + 1);
}

#[test]
fn damaged_least_fence_does_not_make_fences_fall() {
    let (_directory, path) = place();
    let arena = small().open(&path).unwrap();
    let least = arena.fence_minimum();
    patch(&path, 17, 0);
    assert!(arena.fence_minimum() + 1_000_000 > least);
}

#[test]
fn opening_with_a_second_floor_again_and_again_does_not_move_the_fences() {
    let (directory, path) = place();
    let floors = directory.path().join("floors");
    std::fs::create_dir(&floors).unwrap();
    let options = small().floor_directory(&floors);
    let other = directory.path().join("other");
    let open = |path: &Path| options.open(path).unwrap().fence_minimum();
    let (one, two) = (open(&path), open(&other));
    for _ in 0..3 {
        assert_eq!((open(&path), open(&other)), (one, two));
    }
}

#[test]
fn first_opener_of_a_late_creators_arena_is_above_all_that_was_given_out_meanwhile() {
    let (directory, path) = place();
    put_the_floor_ahead_of_the_clock(&path);
    // As a creator leaves it who is killed between its claim and its first look at the floor; and another had the
    // name meanwhile.
    for more in [1_000, 1 << 22] {
        drop(small().open(&path).unwrap());
        let aside = directory.path().join("aside");
        std::fs::rename(&path, &aside).unwrap();
        patch(&aside, 19, 0);
        let between = small().open(&path).unwrap();
        let given = between.fence_minimum() + more;
        assert!(between.reserve_fence(given));
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&aside, &path).unwrap();
        assert!(small().open(&path).unwrap().fence_minimum() > given);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn opening_again_does_not_move_the_fences_whatever_other_names_claim() {
    let (directory, path) = place();
    let first = small().open(&path).unwrap();
    let least = first.fence_minimum();
    let other = small().open(directory.path().join("other")).unwrap();
    assert!(other.fence_minimum() > least);
    assert!(other.reserve_fence(other.fence_minimum() + (1 << 22)));
    assert_eq!(small().open(&path).unwrap().fence_minimum(), least);
}

#[test]
fn gone_arena_under_its_name_is_finished_by_the_next_opener() {
    let (_directory, path) = place();
    let old = small().open(&path).unwrap();
    let fence = old.fence_minimum() + 9_000_000;
    assert!(old.reserve_fence(fence));
    patch(&path, 16, 1);
    assert!(old.is_gone());
    assert!(matches!(
        small().attach(&path),
        Err(OpenError::NotFound { .. })
    ));
    assert!(!path.exists());
    let new = small().open(&path).unwrap();
    assert!(new.fence_minimum() > fence);
}

#[test]
fn removed_file_is_noticed_and_the_next_arena_is_another() {
    let (_directory, path) = place();
    let old = small().open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(old.is_unlinked());
    let new = small().open(&path).unwrap();
    assert!(new.created());
    assert!(!new.is_unlinked());
}

#[test]
fn fences_end_at_53_bits() {
    let (_directory, path) = place();
    let arena = small().open(&path).unwrap();
    assert!(!arena.reserve_fence(arena_core::MAX_FENCE));
    assert!(!arena.reserve_fence(u64::MAX));
    assert!(arena.reserve_fence(arena_core::MAX_FENCE - 1));
}

#[test]
fn lock_in_a_region_excludes_and_tells_who_holds_it() {
    let (_directory, path) = place();
    let arena = small().open(&path).unwrap();
    let region = arena.carve(b"lock", 1, 8).unwrap();
    let word: &LockWord = region.at(0).unwrap();
    let held = arena.try_lock(word).unwrap();
    assert!(matches!(held, Acquired::Clean(_)));
    match arena.try_lock(word) {
        Err(arena_core::LockError::Busy { holder, pid }) => {
            assert_eq!(holder, arena.me().unwrap());
            assert_eq!(pid, std::process::id());
        }
        other => panic!("{other:?}"),
    }
    drop(held);
    assert!(arena.try_lock(word).is_ok());
}

#[test]
fn view_reads_and_takes_no_slot() {
    let (_directory, path) = place();
    let arena = small().open(&path).unwrap();
    let region = arena.carve(b"r", 1, 64).unwrap();
    region.write(16, &0x1122_u128.to_le_bytes()).unwrap();
    let view = small().view(&path).unwrap();
    let seen = view.find(b"r").unwrap();
    assert_eq!(seen.wide(16).unwrap(), 0x1122);
    assert_eq!(seen.word(16).unwrap(), 0x1122);
    assert!(seen.word(64).is_err() && seen.wide(56).is_err());
    assert_eq!(view.attachments().len(), 1);
    assert_eq!(
        view.attachments()[0].identity.unwrap().pid,
        std::process::id()
    );
    assert_eq!(view.probe(arena.me().unwrap()), Probe::Held);
}

#[test]
fn moved_file_is_noticed_and_so_is_one_with_another_in_its_place() {
    let (_directory, path) = place();
    let old = small().open(&path).unwrap();
    std::fs::rename(&path, path.with_extension("moved")).unwrap();
    assert!(old.is_unlinked());
    let new = small().open(&path).unwrap();
    assert!(new.created() && !new.is_unlinked());
    assert!(old.is_unlinked());
}

#[test]
fn nothing_is_carved_while_it_is_not_known_what_is_free() {
    let (_directory, path) = place();
    let arena = small().open(&path).unwrap();
    let kept = arena.carve(b"kept", 1, 128).unwrap();
    let entry = 384 + 4 * 128;
    patch_alone(&path, (entry + 16) / 8, u64::MAX - 127);
    assert_eq!(arena.refused(), 1);
    let refused = arena.carve(b"new", 1, 128);
    assert!(
        matches!(refused, Err(CarveError::Damaged { refused: 1 })),
        "{refused:?}"
    );
    patch_alone(&path, (entry + 16) / 8, kept.offset());
    assert!(arena.carve(b"new", 1, 128).unwrap().offset() > kept.offset());
}

#[test]
fn process_that_opens_and_drops_in_many_threads_always_finds_its_one_slot() {
    let (_directory, path) = place();
    drop(small().slots(1).open(&path).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    small().attach(&path).unwrap().me().unwrap();
                }
            });
        }
    });
}

#[test]
fn destroy_that_cannot_raise_the_floor_changes_nothing() {
    let (directory, path) = place();
    let arena = small().open(&path).unwrap();
    let floor = directory
        .path()
        .join(format!("arena-floor.{}", nix::unistd::geteuid()));
    std::fs::write(&floor, [7; 4096]).unwrap();
    assert!(matches!(
        arena.destroy(),
        Err(arena_core::DestroyError::Floor(_))
    ));
    assert!(!arena.is_gone() && path.exists());
    std::fs::remove_file(&floor).unwrap();
    arena.destroy().unwrap();
}

#[test]
fn floor_in_another_directory_is_kept_besides_and_not_instead() {
    let (directory, path) = place();
    let elsewhere = directory.path().join("floors");
    std::fs::create_dir(&elsewhere).unwrap();
    let with = small().floor_directory(&elsewhere);
    for (destroyer, opener) in [(&with, small()), (&small(), with.clone())] {
        let old = destroyer.open(&path).unwrap();
        let fence = old.fence_minimum() + 1_000_000_000;
        assert!(old.reserve_fence(fence));
        old.destroy().unwrap();
        assert!(opener.open(&path).unwrap().fence_minimum() > fence);
    }
}

#[test]
#[should_panic(expected = "through the handle of its own arena")]
fn lock_of_another_arena_is_refused() {
    let (_directory, path) = place();
    let arena = small().open(&path).unwrap();
    let word = LockWord::new();
    let _ = arena.try_lock(&word);
}

#[test]
fn bell_hangs_from_the_first_call_until_the_last_handle_is_dropped() {
    let bells = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.starts_with(b"arena-bell")).count()
    };
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("arena");
    let arena = ArenaOptions::new().usable_bytes(4096).open(&path).unwrap();
    let again = ArenaOptions::new().usable_bytes(4096).open(&path).unwrap();
    let view = ArenaOptions::new().view(&path).unwrap();
    let slot = arena.me().unwrap().slot();
    assert_eq!(
        (arena.bell(slot), view.bell(slot)),
        (Some(Bell::None), Some(Bell::None))
    );
    for handle in [&arena, &again, &arena] {
        handle.hang_bell().unwrap();
        assert_eq!(
            (arena.bell(slot), view.bell(slot)),
            (Some(Bell::Hung), Some(Bell::Hung))
        );
    }
    assert_eq!(arena.bell(arena.slots()), None);
    assert!(Bell::is_offered());
    drop(arena);
    assert_eq!(view.bell(slot), Some(Bell::Hung));
    assert_eq!(bells(), 1, "one a process and arena");
    drop(again);
    assert_eq!(view.bell(slot), Some(Bell::None));
    assert_eq!(bells(), 0, "its thread has ended");
}
