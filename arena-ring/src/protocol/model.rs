//! Publishing and reading under the model checker, on narrow words: every interleaving, and every stale value that the
//! memory model allows, within a few preemptions.
//!
//! Beside the assertions of each test the model holds each claim against a list of who may store where, and each record
//! that is delivered against its number.

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::thread;

use super::modelled::{Reader, Shared, check, peer};
use super::{Ended, World as _, help, load};
use crate::reading::{Sight, give_up, land, look};
use crate::step::Standing;
use crate::word::{Stage, What, Word};

/// What each of a ring's slots is, by its index.
fn words(shared: &Shared) -> Vec<Word> {
    (0..shared.slots())
        .map(|pos| load(shared, pos).unwrap().1)
        .collect()
}

/// Reads all there is, twice, as two readers: they agree.
fn agreed(shared: &Shared) -> Reader {
    let [one, other] = [(); 2].map(|()| {
        let mut reader = Reader::default();
        reader.drain(shared);
        reader.check(shared);
        reader
    });
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    one
}

#[test]
fn edge_claimed_two_publishers_and_a_stalled_helper_number_each_record_once() {
    check(2, || {
        let shared = Shared::new(4);
        // A helper that loaded everything, and was stopped before it began.
        let _first = shared.begin(peer(0), 2).unwrap();
        let stale = super::Tail { pos: 0, records: 0 };
        let word = load(&*shared, 0).unwrap().1;
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.publish(peer(1), 1))
        };
        let helper = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || help(&*shared, stale, word).unwrap())
        };
        let mine = shared.publish(peer(2), 1);
        helper.join().unwrap();
        let others = other.join().unwrap();
        assert_eq!([mine.1, others.1], [Ended::AsAsked; 2]);
        let mut numbers = [mine.0, others.0];
        numbers.sort_unstable();
        assert_eq!(numbers, [2, 3]);
        assert_eq!((shared.now().pos, shared.now().records), (4, 3));
    });
}

#[test]
fn edge_claimed_a_claim_that_its_owner_left_half_done_is_finished_once() {
    check(2, || {
        let shared = Shared::new(4);
        // Killed right after the exchange that claims: neither its second slot nor the tail says so.
        let head = What::Head(crate::word::Head {
            stage: Stage::Writing,
            owner: peer(0),
            slots: 2,
            records: 1,
        });
        let unborn = load(&*shared, 0).unwrap().0;
        let claimed = Word {
            turn: 1,
            what: head,
        };
        assert!(super::exchange(&*shared, 0, unborn, claimed).unwrap());
        shared.die(peer(0));
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut reader = Reader::default();
                reader.drain(&shared);
                assert!(reader.abandoned.starts_with(&[1]), "{reader:?}");
                reader.check(&shared);
            })
        };
        let (number, ended) = shared.publish(peer(1), 1);
        assert_eq!((number, ended), (2, Ended::AsAsked));
        reader.join().unwrap();
        let reader = agreed(&shared);
        assert_eq!((reader.delivered, reader.abandoned), (vec![2], vec![1]));
    });
}

#[test]
fn edge_claimed_whoever_sees_the_tail_sees_every_claim_below_it() {
    check(2, || {
        let shared = Shared::new(2);
        let publisher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for _ in 0..3 {
                    shared.publish(peer(0), 1);
                }
            })
        };
        // A position below the tail that is not claimed would be called damage.
        let place = land(&*shared, 0).unwrap();
        assert_eq!(place.number, place.pos + 1);
        publisher.join().unwrap();
        assert_eq!(
            land(&*shared, 0).unwrap(),
            crate::reading::Place { pos: 1, number: 2 }
        );
    });
}

#[test]
fn edge_written_a_committed_record_is_read_whole_by_all_readers() {
    check(3, || {
        let shared = Shared::new(4);
        let publisher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.publish(peer(0), 2))
        };
        let mut reader = Reader::default();
        reader.drain(&shared);
        publisher.join().unwrap();
        reader.drain(&shared);
        assert_eq!(reader.delivered, [1]);
        reader.check(&shared);
    });
}

#[test]
fn a_commit_against_a_withdrawal_is_one_or_the_other_for_all() {
    check(3, || {
        let shared = Shared::new(2);
        let claim = shared.begin(peer(0), 1).unwrap();
        let impatient = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let place = Reader::default().at;
                if let Sight::Writing { at, seen, .. } = look(&*shared, place).unwrap() {
                    give_up(&*shared, at, seen, Stage::Withdrawn).unwrap()
                } else {
                    false
                }
            })
        };
        shared.store(&claim);
        let ended = shared.finish(&claim, Stage::Committed);
        let withdrawn = impatient.join().unwrap();
        assert_eq!(withdrawn, ended == Ended::Withdrawn);
        let reader = agreed(&shared);
        assert_eq!(reader.abandoned.len(), usize::from(withdrawn));
        // Its slot is nobody's again.
        for _ in 0..3 {
            assert_eq!(shared.publish(peer(1), 1).1, Ended::AsAsked);
        }
    });
}

#[test]
fn a_death_at_any_point_is_abandoned_once_or_was_committed_before() {
    check(3, || {
        let shared = Shared::new(2);
        let dying = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let claim = shared.begin(peer(0), 1).unwrap();
                shared.store(&claim);
                shared.die(peer(0));
            })
        };
        let mut reader = Reader::default();
        reader.drain(&shared);
        let rival = shared.publish(peer(1), 1);
        assert_eq!(rival.1, Ended::AsAsked);
        dying.join().unwrap();
        reader.drain(&shared);
        reader.check(&shared);
        let dead = 3 - rival.0;
        assert_eq!(
            (&*reader.delivered, &*reader.abandoned),
            (&[rival.0][..], &[dead][..])
        );
        assert_eq!(reader.abandoned, agreed(&shared).abandoned);
    });
}

/// Goal: of a record of a dead owner one of the two, a reader or who claims the slot, decides; nobody stores over the
/// living. Method: the ring is full of it.
#[test]
fn a_dead_owners_slots_are_taken_by_a_publisher_while_a_reader_abandons_them() {
    check(2, || {
        let shared = Shared::new(4);
        let _dead = shared.begin(peer(0), 2).unwrap();
        shared.publish(peer(1), 2);
        shared.die(peer(0));
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut reader = Reader::default();
                reader.drain(&shared);
                reader.check(&shared);
                reader
            })
        };
        assert_eq!(shared.publish(peer(1), 2), (3, Ended::AsAsked));
        let mut reader = reader.join().unwrap();
        reader.drain(&shared);
        reader.check(&shared);
        assert!(reader.delivered.ends_with(&[2, 3]), "{reader:?}");
        assert!(reader.abandoned.is_empty() || reader.abandoned == [1]);
    });
}

#[test]
fn edge_overtaken_a_second_look_against_a_lap_delivers_no_mixed_record() {
    check(3, || {
        let shared = Shared::new(2);
        shared.publish(peer(0), 1);
        let publisher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for _ in 0..2 {
                    assert_eq!(shared.publish(peer(0), 1).1, Ended::AsAsked);
                }
            })
        };
        let mut reader = Reader::default();
        reader.step(&shared);
        publisher.join().unwrap();
        reader.drain(&shared);
        reader.check(&shared);
    });
}

#[test]
fn edge_overtaken_a_second_look_at_the_head_covers_its_later_slots() {
    check(2, || {
        let shared = Shared::new(4);
        shared.publish(peer(0), 2);
        shared.publish(peer(0), 1);
        let publisher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                // Into the third and fourth slot, then over the first, then over the second.
                for _ in 0..3 {
                    shared.publish(peer(0), 1);
                }
            })
        };
        let mut reader = Reader::default();
        reader.step(&shared);
        publisher.join().unwrap();
        reader.drain(&shared);
        reader.check(&shared);
    });
}

#[test]
fn a_commit_against_a_claim_over_it_is_committed_or_lapsed_and_its_slots_come_back() {
    check(3, || {
        let shared = Shared::new(2);
        let claim = shared.begin(peer(0), 1).unwrap();
        shared.publish(peer(1), 1);
        let rival = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.publish(peer(1), 1))
        };
        shared.store(&claim);
        let ended = shared.finish(&claim, Stage::Committed);
        let (number, rivals) = rival.join().unwrap();
        assert_eq!((number, rivals), (3, Ended::AsAsked));
        assert_ne!(ended, Ended::Withdrawn);
        assert!(
            !words(&shared)
                .iter()
                .any(|word| matches!(word.what, What::Kept { .. }))
        );
        // Both slots are nobody's.
        for number in 4..7 {
            assert_eq!(shared.publish(peer(1), 1), (number, Ended::AsAsked));
        }
        agreed(&shared);
    });
}

/// Goal: an owner that frees its parts while they are passed over gets all of them back. Method: a record of two
/// slots, and publishers that pass over it once.
#[test]
fn parts_that_are_freed_while_others_pass_over_them_come_back() {
    check(2, || {
        let shared = Shared::new(4);
        let claim = shared.begin(peer(0), 2).unwrap();
        shared.publish(peer(1), 2);
        let rival = {
            let shared = Arc::clone(&shared);
            // Over the first slot, over the second, into the third.
            thread::spawn(move || shared.publish(peer(1), 2))
        };
        shared.store(&claim);
        let ended = shared.finish(&claim, Stage::Committed);
        assert_eq!(rival.join().unwrap(), (3, Ended::AsAsked));
        assert_ne!(ended, Ended::Withdrawn);
        for word in words(&shared) {
            assert!(!matches!(word.what, What::Kept { .. }), "{word:?}");
        }
        for number in 4..7 {
            assert_eq!(shared.publish(peer(1), 2), (number, Ended::AsAsked));
        }
        agreed(&shared);
    });
}

/// Goal: as above, when they are passed over for a second time while they are freed.
#[test]
fn slots_that_are_freed_while_they_are_passed_over_again_come_back() {
    check(2, || {
        let shared = Shared::new(4);
        let claim = shared.begin(peer(0), 2).unwrap();
        // Twice around: positions 2 and 3; over 4 and 5, into 6 and 7.
        shared.publish(peer(1), 2);
        shared.publish(peer(1), 2);
        assert!(matches!(words(&shared)[1].what, What::Kept { .. }));
        let rival = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.publish(peer(1), 1))
        };
        shared.store(&claim);
        assert_eq!(shared.finish(&claim, Stage::Committed), Ended::Lapsed);
        assert_eq!(rival.join().unwrap(), (4, Ended::AsAsked));
        for word in words(&shared) {
            assert!(!matches!(word.what, What::Kept { .. }), "{word:?}");
        }
        agreed(&shared);
    });
}

#[test]
fn edge_freed_a_late_store_is_never_seen_over_the_next_owners() {
    check(3, || {
        let shared = Shared::new(2);
        let claim = shared.begin(peer(0), 1).unwrap();
        let rival = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.publish(peer(1), 1);
                shared.publish(peer(1), 1)
            })
        };
        shared.store(&claim);
        let ended = shared.finish(&claim, Stage::LetGo);
        assert_ne!(ended, Ended::Withdrawn);
        let (number, rivals) = rival.join().unwrap();
        assert_eq!((number, rivals), (3, Ended::AsAsked));
        // The reader holds what it finds against its number.
        let reader = agreed(&shared);
        assert!(reader.delivered.ends_with(&[3]));
    });
}

#[test]
fn a_reader_never_is_beyond_what_was_numbered() {
    check(3, || {
        let shared = Shared::new(2);
        let publisher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let claim = shared.begin(peer(0), 1).unwrap();
                shared.finish(&claim, Stage::LetGo)
            })
        };
        let mut reader = Reader::default();
        reader.drain(&shared);
        assert!(shared.now().next() >= reader.at.number);
        publisher.join().unwrap();
        reader.drain(&shared);
        assert_eq!(reader.abandoned, [1]);
        reader.check(&shared);
    });
}

#[test]
fn a_void_slot_is_nobodys_in_the_model_too() {
    // What the other tests rest on: the model sees a claim over the living.
    let claimed = |kill: bool| {
        std::panic::catch_unwind(|| {
            check(1, move || {
                let shared = Shared::new(2);
                shared.begin(peer(0), 1).unwrap();
                if kill {
                    shared.die(peer(0));
                } else {
                    shared.dead.store(1, Ordering::Relaxed);
                }
                for _ in 0..2 {
                    shared.publish(peer(1), 1);
                }
            });
        })
    };
    assert!(claimed(true).is_ok() && claimed(false).is_err());
    assert_eq!(
        Word {
            turn: 1,
            what: What::Void
        }
        .standing(1),
        Standing::Now(What::Void)
    );
}
