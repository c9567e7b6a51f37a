//! What one process sees of its rings.
#![expect(
    clippy::unwrap_used,
    reason = "in a test, what goes wrong ends it where it happens"
)]

use std::collections::VecDeque;
use std::time::Duration;

use arena_ring::{
    Arena, ArenaOptions, Cursor, CursorStats, PublishError, Published, Ring, RingOpenError,
    RingOptions,
};
use proptest::prelude::*;
use tempfile::TempDir;

fn arena() -> (TempDir, Arena) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let arena = ArenaOptions::new().open(directory.path().join("arena"));
    (directory, arena.unwrap())
}

fn ring(arena: &Arena, slots: u32, slot_bytes: u32) -> Ring {
    let options = RingOptions::new().slots(slots).slot_bytes(slot_bytes);
    options.open(arena, "ring").unwrap()
}

fn committed(published: Published) -> u64 {
    assert!(published.is_committed(), "{published:?}");
    published.seq()
}

/// What a cursor gives out now: numbers and payloads.
fn drain(cursor: &mut Cursor) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    let each = |record: arena_ring::Record<'_>| all.push((record.seq, record.payload.to_vec()));
    cursor.drain(usize::MAX, each).unwrap();
    all
}

fn sum(stats: CursorStats) -> u64 {
    stats.delivered + stats.lapped + stats.abandoned + stats.pending
}

#[test]
fn a_record_arrives_as_it_was_published_with_its_topic_number_and_publisher() {
    let (_directory, arena) = arena();
    let ring = Ring::open(&arena, "ring").unwrap();
    let mut cursor = ring.cursor();
    let seq = committed(ring.publish(b"topic", b"payload").unwrap());
    let record = cursor.next().unwrap().unwrap();
    assert_eq!(
        (record.seq, record.topic, record.payload),
        (seq, &b"topic"[..], &b"payload"[..])
    );
    assert_eq!((seq, record.publisher), (1, arena.me().unwrap()));
    assert_eq!(cursor.next().unwrap(), None);
}

#[test]
fn sizes_from_nothing_to_the_most_arrive_and_one_byte_more_is_refused_and_counted() {
    let (_directory, arena) = arena();
    for (slots, slot_bytes) in [(2, 1), (3, 64), (8, 100), (17, 40)] {
        let options = RingOptions::new().slots(slots).slot_bytes(slot_bytes);
        let ring = options.open(&arena, format!("ring {slots}")).unwrap();
        let max = usize::try_from(ring.max_record()).unwrap();
        let mut cursor = ring.cursor();
        for len in [0, 1, 7, 8, 9, max - 1, max] {
            let payload: Vec<u8> = (1..=251).cycle().take(len).collect();
            committed(ring.publish(b"", &payload).unwrap());
            let record = cursor.next().unwrap().unwrap();
            assert_eq!(record.payload, payload, "{len} of {max}");
        }
        let before = ring.stats();
        let huge = [
            max + 1,
            usize::try_from(ring.slots()).unwrap() << 11,
            u32::MAX as usize,
        ];
        for (refusals, len) in (1..).zip(huge) {
            let refused = match len < 1 << 20 {
                true => ring.publish(b"", &vec![0; len]).map(drop),
                false => ring.reserve(b"", len).map(drop),
            };
            assert!(
                matches!(refused, Err(PublishError::TooLarge { .. })),
                "{len}"
            );
            assert_eq!(ring.stats().oversize, before.oversize + refusals);
        }
        assert!(matches!(
            ring.publish(&vec![0; max + 1], b""),
            Err(PublishError::TooLarge { .. })
        ));
        assert_eq!(ring.stats().position, before.position);
        assert_eq!(ring.stats().published, before.published);
    }
}

#[test]
fn records_that_are_published_at_once_have_numbers_in_a_row_and_come_in_order() {
    let (_directory, arena) = arena();
    let ring = ring(&arena, 64, 64);
    let mut cursor = ring.cursor();
    assert_eq!(ring.publish_many(&[]).unwrap(), None);
    let payloads: Vec<Vec<u8>> = (0..8_u8)
        .map(|len| vec![len; 20 * usize::from(len)])
        .collect();
    let batch: Vec<(&[u8], &[u8])> = payloads
        .iter()
        .map(|payload| (&b"t"[..], &payload[..]))
        .collect();
    let first = committed(ring.publish_many(&batch).unwrap().unwrap());
    let expected: Vec<_> = (first..).zip(payloads).collect();
    assert_eq!(drain(&mut cursor), expected);
    assert_eq!(committed(ring.publish(b"", b"").unwrap()), first + 8);
    assert_eq!(cursor.stats().pending, 1);
}

#[test]
fn a_batch_that_is_larger_than_a_record_may_be_is_refused_whole() {
    let (_directory, arena) = arena();
    let ring = ring(&arena, 8, 64);
    let half = vec![1; usize::try_from(ring.max_record() / 2 + 8).unwrap()];
    let batch = [(&b""[..], &half[..]), (&b""[..], &half[..])];
    let refused = ring.publish_many(&batch);
    assert!(
        matches!(refused, Err(PublishError::TooLarge { .. })),
        "{refused:?}"
    );
    assert_eq!((ring.stats().published, ring.stats().oversize), (0, 1));
}

#[test]
fn a_reservation_is_filled_in_anywhere_and_seen_when_it_is_committed() {
    let (_directory, arena) = arena();
    let ring = ring(&arena, 32, 16);
    let mut cursor = ring.cursor();
    let mut reservation = ring.reserve(b"topic", 100).unwrap();
    let mut expected = [0; 100];
    for (offset, len) in [
        (0, 3),
        (5, 1),
        (7, 18),
        (40, 8),
        (63, 1),
        (64, 20),
        (99, 1),
        (100, 0),
    ] {
        let bytes: Vec<u8> = (0..len)
            .map(|at| 1 + u8::try_from(offset + at).unwrap())
            .collect();
        reservation.write(offset as u64, &bytes).unwrap();
        expected[offset..offset + len].copy_from_slice(&bytes);
    }
    assert!(reservation.write(100, b"x").is_err());
    assert!(reservation.write(u64::MAX, b"x").is_err());
    assert!(cursor.next().unwrap().is_none());
    assert_eq!(cursor.waits_for(), arena.me().ok());
    assert_eq!(ring.stats().unfinished, arena.me().ok());
    let seq = committed(reservation.commit().unwrap());
    let record = cursor.next().unwrap().unwrap();
    assert_eq!(
        (record.seq, record.topic, record.payload),
        (seq, &b"topic"[..], &expected[..])
    );
    assert_eq!(ring.stats().unfinished, None);
}

#[test]
fn a_reservation_that_is_dropped_is_abandoned_once_and_holds_nobody_up() {
    let (_directory, arena) = arena();
    let ring = ring(&arena, 8, 64);
    let mut cursor = ring.cursor();
    let reservation = ring.reserve(b"", 8).unwrap();
    committed(ring.publish(b"", b"after").unwrap());
    assert_eq!(drain(&mut cursor), []);
    drop(reservation);
    assert_eq!(drain(&mut cursor), [(2, b"after".to_vec())]);
    let stats = cursor.stats();
    assert_eq!((stats.delivered, stats.abandoned, stats.pending), (1, 1, 0));
}

#[test]
fn a_cursor_without_patience_left_withdraws_and_the_publisher_is_told() {
    let (_directory, arena) = arena();
    let ring = ring(&arena, 8, 64);
    let mut other = ring.cursor();
    let mut cursor = ring.cursor().patience(Some(Duration::ZERO));
    let reservation = ring.reserve(b"", 8).unwrap();
    committed(ring.publish(b"", b"after").unwrap());
    assert_eq!(drain(&mut other), []);
    assert_eq!(drain(&mut cursor), [(2, b"after".to_vec())]);
    assert_eq!(drain(&mut other), [(2, b"after".to_vec())]);
    assert_eq!(
        reservation.commit().unwrap(),
        Published::Withdrawn { seq: 1 }
    );
    assert_eq!((cursor.stats().abandoned, other.stats().abandoned), (1, 1));
}

#[test]
fn a_reservation_that_others_went_around_lapses_and_its_slots_come_back() {
    let (_directory, arena) = arena();
    let ring = ring(&arena, 8, 64);
    let mut cursor = ring.cursor();
    let mut reservation = ring.reserve(b"", 150).unwrap();
    for count in 0..50_u64 {
        committed(ring.publish(b"", &count.to_le_bytes()).unwrap());
    }
    reservation.write(0, &[0xff; 150]).unwrap();
    let lapped = drain(&mut cursor);
    let counts = |all: &[(u64, Vec<u8>)]| -> Vec<u64> {
        all.iter()
            .map(|(_, bytes)| u64::from_le_bytes(bytes[..].try_into().unwrap()))
            .collect()
    };
    assert!(counts(&lapped).is_sorted_by(|a, b| a + 1 == *b));
    assert_eq!(counts(&lapped).last(), Some(&49));
    assert_eq!(reservation.commit().unwrap(), Published::Lapsed { seq: 1 });
    assert_eq!(sum(cursor.stats()), 51);
    let before = ring.stats();
    for count in 0..16_u64 {
        committed(ring.publish(b"", &count.to_le_bytes()).unwrap());
    }
    assert_eq!(
        ring.stats().position,
        before.position + 16,
        "no slot is passed over"
    );
}

#[test]
fn who_is_in_the_way_of_a_record_that_has_no_room_is_named_and_nothing_is_lost() {
    let (_directory, arena) = arena();
    let ring = ring(&arena, 8, 64);
    let kept: Vec<_> = (0..4).map(|_| ring.reserve(b"", 8).unwrap()).collect();
    for _ in 0..2 {
        committed(ring.publish(b"", b"small").unwrap());
    }
    let max = vec![0; usize::try_from(ring.max_record()).unwrap()];
    committed(ring.publish(b"", &max).unwrap());
    let more: Vec<_> = (0..2).map(|_| ring.reserve(b"", 8).unwrap()).collect();
    let mut cursor = ring.cursor_from_oldest().unwrap();
    let before = ring.stats();
    let blocked = ring.publish(b"", &max);
    let me = arena.me().unwrap();
    assert!(
        matches!(blocked, Err(PublishError::Blocked { by }) if by == me),
        "{blocked:?}"
    );
    assert_eq!(ring.stats(), before);
    drop((kept, more));
    committed(ring.publish(b"", &max).unwrap());
    drain(&mut cursor);
    assert_eq!(
        sum(cursor.stats()),
        ring.stats().published - (cursor.stats().next - sum(cursor.stats()) - 1)
    );
}

#[test]
fn another_shape_is_refused_with_both_and_an_open_one_is_taken_as_it_is() {
    let (_directory, arena) = arena();
    let first = ring(&arena, 12, 100);
    let again = Ring::open(&arena, "ring").unwrap();
    assert_eq!((again.slots(), again.slot_bytes()), (12, 100));
    assert_eq!(again.max_record(), first.max_record());
    for (slots, bytes) in [(12, 101), (13, 100), (1_000, 1)] {
        let refused = RingOptions::new()
            .slots(slots)
            .slot_bytes(bytes)
            .open(&arena, "ring");
        assert!(matches!(
            refused,
            Err(RingOpenError::OtherShape { found_slots: 12, found_bytes: 100, expected_slots, expected_bytes })
                if (expected_slots, expected_bytes) == (slots, bytes)
        ));
    }
    for (slots, bytes) in [(1, 64), (0, 64), (8, 0), (8, (1 << 20) + 1), (u32::MAX, 64)] {
        let refused = RingOptions::new()
            .slots(slots)
            .slot_bytes(bytes)
            .open(&arena, "new");
        assert!(
            matches!(refused, Err(RingOpenError::Shape { .. })),
            "{slots} {bytes}"
        );
    }
    for name in [&b""[..], b"a/b", b"a\0b", &[b'x'; 59]] {
        assert!(matches!(
            Ring::open(&arena, name),
            Err(RingOpenError::Name { .. })
        ));
    }
    arena.carve(b"ring.other", 7, 1_024).unwrap();
    let refused = Ring::open(&arena, "other");
    assert!(matches!(
        refused,
        Err(RingOpenError::OtherKind { found: 7, .. })
    ));
    let refused = RingOptions::new().slots(1 << 20).open(&arena, "large");
    assert!(
        matches!(refused, Err(RingOpenError::Carve(_))),
        "{refused:?}"
    );
}

#[test]
fn a_cursor_from_a_number_sees_that_one_first_or_counts_what_is_gone() {
    let (_directory, arena) = arena();
    let ring = ring(&arena, 8, 64);
    for count in 1..=20_u64 {
        committed(ring.publish(b"", &count.to_le_bytes()).unwrap());
    }
    let batch = [(&b""[..], &b"a"[..]), (b"", b"b"), (b"", b"c")];
    committed(ring.publish_many(&batch).unwrap().unwrap());
    let numbers = |from| {
        let mut cursor = ring.cursor_from(from).unwrap();
        let numbers: Vec<u64> = drain(&mut cursor).into_iter().map(|(seq, _)| seq).collect();
        (numbers, cursor.stats())
    };
    let (all, stats) = numbers(0);
    let oldest = all[0];
    assert_eq!(all, (oldest..=23).collect::<Vec<_>>());
    assert_eq!((stats.lapped, sum(stats)), (oldest - 1, 23));
    for from in oldest..=23 {
        let (seen, stats) = numbers(from);
        assert_eq!(seen, (from..=23).collect::<Vec<_>>());
        assert_eq!((stats.lapped, sum(stats)), (0, 24 - from));
    }
    let (seen, stats) = numbers(30);
    assert_eq!((seen.len(), sum(stats)), (0, 0));
    let mut future = ring.cursor_from(25).unwrap();
    committed(ring.publish(b"", b"24").unwrap());
    assert_eq!(drain(&mut future), []);
    committed(ring.publish(b"", b"25").unwrap());
    assert_eq!(drain(&mut future), [(25, b"25".to_vec())]);
}

#[test]
fn a_wait_ends_with_a_record_or_with_the_time() {
    let (_directory, arena) = arena();
    let ring = ring(&arena, 8, 64);
    let mut cursor = ring.cursor();
    assert!(cursor.next_timeout(Some(Duration::ZERO)).unwrap().is_none());
    let began = std::time::Instant::now();
    let short = Duration::from_millis(20);
    assert!(cursor.next_timeout(Some(short)).unwrap().is_none());
    assert!(began.elapsed() >= short);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let record = cursor.next_timeout(None).unwrap().unwrap();
            record.payload.to_vec()
        });
        let published = ring.publish(b"", b"woken").unwrap();
        assert!(published.is_committed());
        assert_eq!(reader.join().unwrap(), b"woken");
    });
}

#[test]
fn a_wait_at_an_unfinished_record_ends_when_it_is_given_up() {
    let (_directory, arena) = arena();
    let ring = ring(&arena, 8, 64);
    let patience = Duration::from_millis(20);
    let mut cursor = ring.cursor().patience(Some(patience));
    let reservation = ring.reserve(b"", 8).unwrap();
    committed(ring.publish(b"", b"after").unwrap());
    let began = std::time::Instant::now();
    let record = cursor.next_timeout(None).unwrap().unwrap();
    assert_eq!(record.seq, 2);
    assert!(began.elapsed() >= patience);
    assert_eq!(
        reservation.commit().unwrap(),
        Published::Withdrawn { seq: 1 }
    );
}

#[derive(Clone, Debug)]
enum Step {
    Publish { topic: usize, payload: usize },
    Many(Vec<usize>),
    Drop(usize),
    Drain(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..20_usize, 0..300_usize).prop_map(|(topic, payload)| Step::Publish { topic, payload }),
        1 => proptest::collection::vec(0..60_usize, 0..6).prop_map(Step::Many),
        1 => (0..100_usize).prop_map(Step::Drop),
        2 => (0..10_usize).prop_map(Step::Drain),
    ]
}

fn filled(len: usize, number: u64) -> Vec<u8> {
    vec![number.to_le_bytes()[0]; len]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Against a list of all that was ever published: what is given out is in it, in order, and what is not is counted.
    #[test]
    fn what_a_cursor_gives_out_and_counts_is_what_was_published(
        slots in 2..40_u32,
        slot_bytes in 1..130_u32,
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        let (_directory, arena) = arena();
        let ring = ring(&arena, slots, slot_bytes);
        let mut cursor = ring.cursor();
        // By number, less 1; `None` was dropped.
        let mut all: Vec<Option<(Vec<u8>, Vec<u8>)>> = Vec::new();
        let mut refused = 0;
        let mut next = 1;
        for step in steps {
            let number = all.len() as u64 + 1;
            match step {
                Step::Publish { topic, payload } => {
                    let record = (filled(topic, number ^ 0x80), filled(payload, number));
                    match ring.publish(&record.0, &record.1) {
                        Ok(published) => {
                            prop_assert_eq!(published, Published::Committed { seq: number });
                            all.push(Some(record));
                        }
                        Err(PublishError::TooLarge { needed, max }) => {
                            prop_assert!(needed > max);
                            refused += 1;
                        }
                        Err(error) => prop_assert!(false, "{error}"),
                    }
                }
                Step::Many(lens) => {
                    let records: Vec<_> = (number..).zip(lens).map(|(number, len)| filled(len, number)).collect();
                    let batch: Vec<_> = records.iter().map(|payload| (&b""[..], &payload[..])).collect();
                    match ring.publish_many(&batch) {
                        Ok(None) => prop_assert!(batch.is_empty()),
                        Ok(Some(published)) => {
                            prop_assert_eq!(published, Published::Committed { seq: number });
                            all.extend(records.into_iter().map(|payload| Some((Vec::new(), payload))));
                        }
                        Err(_) => refused += 1,
                    }
                }
                Step::Drop(len) => match ring.reserve(b"", len) {
                    Ok(reservation) => {
                        prop_assert_eq!(reservation.seq(), number);
                        drop(reservation);
                        all.push(None);
                    }
                    Err(_) => refused += 1,
                },
                Step::Drain(most) => {
                    let mut given = VecDeque::new();
                    let each = |record: arena_ring::Record<'_>| {
                        given.push_back((record.seq, record.topic.to_vec(), record.payload.to_vec()));
                    };
                    cursor.drain(most, each).unwrap();
                    for (seq, topic, payload) in given {
                        prop_assert!(seq >= next);
                        let expected = all[usize::try_from(seq).unwrap() - 1].as_ref();
                        prop_assert_eq!(expected, Some(&(topic, payload)));
                        next = seq + 1;
                    }
                }
            }
            let stats = cursor.stats();
            prop_assert_eq!(sum(stats), all.len() as u64);
            prop_assert_eq!(ring.stats().published, all.len() as u64);
            prop_assert_eq!(ring.stats().oversize, refused);
            if stats.lapped == 0 {
                let before = &all[..usize::try_from(stats.next).unwrap() - 1];
                let dropped = before.iter().filter(|record| record.is_none()).count() as u64;
                prop_assert_eq!(stats.abandoned, dropped);
            }
        }
    }
}
