//! Each step, interrupted before each of its uses of the ring in turn: others publish there, lap it, die, or read.
//! (xtask does the same to real processes, at every machine instruction.)

use std::rc::Rc;

use super::memory::{Fate, Memory, Reader, peer};
use super::{Ended, Refusal, World as _};
use crate::word::{Stage, What, Word};

const ME: u16 = 0;
const RIVAL: u16 = 1;

/// Runs `verb` again and again, interrupted by `what` one use later each time, until it ends before that; and after each
/// time `check`.
fn at_each_use<P, T>(
    slots: usize,
    prepare: impl Fn(&Memory) -> P,
    what: impl Fn(&Memory) + 'static,
    verb: impl Fn(&Memory, &P) -> T,
    check: impl Fn(&Memory, P, T),
) {
    let what = Rc::new(what);
    for use_number in 0..2_000 {
        let memory = Memory::new(slots, 0, 0);
        let prepared = prepare(&memory);
        let interruption = Rc::clone(&what);
        let boxed: Box<dyn FnOnce(&Memory)> = Box::new(move |memory| interruption(memory));
        *memory.interruption.borrow_mut() = Some((use_number, boxed));
        let outcome = verb(&memory, &prepared);
        let unused = memory.interruption.take();
        check(&memory, prepared, outcome);
        // All readers agree.
        let readers = [(); 2].map(|()| {
            let mut reader = Reader::oldest(&memory);
            reader.drain(&memory);
            reader
        });
        assert_eq!(format!("{:?}", readers[0]), format!("{:?}", readers[1]));
        if unused.is_some() {
            assert!(use_number > 2, "a step uses the ring several times");
            return;
        }
    }
    panic!("the step does not end");
}

fn publish(memory: &Memory, slots: u16, times: usize) {
    for _ in 0..times {
        let (_, ended) = memory.publish(peer(RIVAL), slots).unwrap();
        assert_eq!(ended, Ended::AsAsked);
    }
}

/// Goal: wherever a publisher is stopped while others go around the ring any number of times, its record is whole or
/// counted, its late stores are in nobody's record, and its slots come back.
#[test]
fn a_publisher_stopped_anywhere_while_others_lap_it_disturbs_nobody() {
    for (slots, mine, others) in [
        (2, 1, 1),
        (4, 2, 1),
        (4, 2, 2),
        (5, 2, 2),
        (9, 4, 3),
        (8, 3, 1),
    ] {
        for laps in [1, 2, 5] {
            let lap = move |memory: &Memory| {
                let slots = usize::try_from(memory.slots()).unwrap();
                publish(memory, others, laps * slots / usize::from(others) + 1);
            };
            at_each_use(
                slots,
                Reader::oldest,
                lap,
                |memory, _| memory.publish(peer(ME), mine).unwrap(),
                |memory, mut reader, (number, ended)| {
                    assert_ne!(ended, Ended::Withdrawn);
                    reader.drain(memory);
                    assert_eq!(reader.at.number, memory.tail_now().next());
                    if ended == Ended::Lapsed {
                        assert!(!reader.delivered.contains(&number));
                    }
                    for word in memory.words() {
                        assert!(!matches!(word.what, What::Kept { .. }), "{word:?}");
                    }
                    publish(memory, others, 2 * slots);
                },
            );
        }
    }
}

/// Goal: of a process that dies anywhere nothing is left over: its number, if it took one, is abandoned, and its slots
/// are used by the next. Method: the interruption unwinds out of the step, so nothing of it runs any more.
#[test]
fn a_publisher_killed_anywhere_is_abandoned_once_and_blocks_nobody() {
    for (slots, mine) in [(2, 1), (4, 2), (5, 2), (9, 4)] {
        let kill = |memory: &Memory| {
            memory.dead.borrow_mut().push(peer(ME));
            std::panic::resume_unwind(Box::new("killed"));
        };
        at_each_use(
            slots,
            Reader::oldest,
            kill,
            |memory, _| {
                let publish = || memory.publish(peer(ME), mine).unwrap();
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(publish)).is_ok()
            },
            |memory, mut reader, published| {
                // Whatever it began, and did not hear of.
                memory.note_orphans();
                reader.drain(memory);
                let told = reader.delivered.len() + reader.abandoned.len();
                assert_eq!(told as u64, memory.tail_now().records, "nothing is pending");
                assert!(told <= 1 && (!published || reader.delivered == [1]));
                publish(memory, mine, 3 * slots);
            },
        );
    }
}

#[test]
fn a_reader_stopped_anywhere_while_the_ring_is_overwritten_counts_what_it_missed() {
    for (slots, size) in [(2, 1), (4, 1), (4, 2), (7, 3), (16, 1)] {
        for times in [1, 3, 8, 40] {
            at_each_use(
                slots,
                move |memory| publish(memory, size, slots / usize::from(size)),
                move |memory| publish(memory, size, times),
                |memory, ()| {
                    let mut reader = Reader::oldest(memory);
                    reader.drain(memory);
                    reader
                },
                |memory, (), mut reader| {
                    reader.drain(memory);
                    assert_eq!(reader.at.number, memory.tail_now().next());
                },
            );
        }
    }
}

/// Goal: a process that frees the slots of a lapsed record leaves those alone that another of its threads took since.
#[test]
fn freeing_a_lapsed_record_never_frees_another_threads_slots() {
    // The other thread takes the slot that comes next, and is passed over.
    for (before, halfway) in [(0, false), (1, false), (2, false), (3, false), (0, true)] {
        let other_thread = move |memory: &Memory| {
            publish(memory, 1, before);
            if let Ok(claim) = memory.begin(peer(ME), 1, 1) {
                memory.keep(claim);
            }
            publish(memory, 1, 4);
        };
        at_each_use(
            4,
            |memory| {
                let lapsed = memory.begin(peer(ME), 2, 1).unwrap();
                publish(memory, 1, 2);
                if halfway {
                    // By a publisher that was stopped when it had passed over the first of the two.
                    pass_over(memory);
                } else {
                    publish(memory, 1, 2);
                }
                lapsed
            },
            other_thread,
            |memory, lapsed| memory.finish(lapsed, Stage::Committed),
            |memory, _, ended| {
                assert_eq!(ended, Ended::Lapsed);
                publish(memory, 1, 8);
                if let Some(kept) = memory.kept() {
                    // Had its slot been freed, somebody would have been given it.
                    assert_eq!(memory.finish(&kept, Stage::Committed), Ended::Lapsed);
                }
            },
        );
    }
}

/// Claims the slot of the tail, whose bytes are `ME`'s, and does no more.
fn pass_over(memory: &Memory) {
    let tail = memory.tail_now();
    let (seen, _) = super::load(memory, tail.pos).unwrap();
    let kept = Word {
        turn: memory.turn(tail.pos),
        what: What::Kept { owner: peer(ME) },
    };
    assert!(super::exchange(memory, tail.pos, seen, kept).unwrap());
    super::help(memory, tail, kept).unwrap();
}

#[test]
fn a_commit_interrupted_by_a_withdrawal_says_so() {
    let withdraw = |memory: &Memory| Reader::oldest(memory).withdraw(memory);
    at_each_use(
        4,
        |_| {},
        withdraw,
        |memory, ()| memory.publish(peer(ME), 2).unwrap(),
        |memory, (), (_, ended)| {
            let mut reader = Reader::oldest(memory);
            reader.drain(memory);
            assert_eq!(ended == Ended::Withdrawn, reader.abandoned == [1]);
            assert_eq!(ended == Ended::AsAsked, reader.delivered == [1]);
        },
    );
}

#[test]
fn a_record_with_no_room_between_those_that_are_written_is_blocked_and_overwrites_nothing() {
    let memory = Memory::new(8, 0, 0);
    publish(&memory, 1, 2);
    let slow = memory.begin(peer(ME), 1, 1).unwrap();
    publish(&memory, 1, 3);
    let other = memory.begin(peer(ME), 1, 1).unwrap();
    publish(&memory, 1, 1);
    let before = (memory.words(), memory.tail_now());
    // Between the two are three slots and three, in a ring of eight.
    let blocked = memory.publish(peer(RIVAL), 4);
    assert_eq!(blocked, Err(Refusal::Blocked(peer(ME))));
    assert_eq!((memory.words(), memory.tail_now()), before);
    publish(&memory, 3, 4);
    assert_eq!(memory.finish(&slow, Stage::Committed), Ended::Lapsed);
    publish(&memory, 4, 2);
    assert_eq!(memory.finish(&other, Stage::LetGo), Ended::Lapsed);
    publish(&memory, 4, 2);
    assert_eq!(memory.records.borrow()[2].fate, Fate::Lapsed);
}

/// Goal: a record that was committed leaves no part behind that nobody can free, whatever its head's slot became.
#[test]
fn parts_of_a_committed_record_are_free_also_when_its_head_was_passed_over() {
    let memory = Memory::new(6, 0, 0);
    publish(&memory, 3, 1);
    let slow = memory.begin(peer(ME), 2, 1).unwrap();
    publish(&memory, 1, 1);
    // Three in a row are free, and then two are not: the first three are used for what fits, or passed over.
    publish(&memory, 2, 1);
    publish(&memory, 2, 4);
    assert_eq!(memory.finish(&slow, Stage::Committed), Ended::Lapsed);
    publish(&memory, 3, 4);
}
