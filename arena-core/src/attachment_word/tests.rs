//! The row's word by itself: what it can hold, and that whatever happens to a row its generations only grow.

use super::*;
use proptest::prelude::*;

const STATES: [RowState; 4] = [
    RowState::Empty,
    RowState::Joining,
    RowState::Ready,
    RowState::Leaving,
];

struct Taken;

impl HeldByte for Taken {
    fn slot(&self) -> u16 {
        9
    }
}

fn word(generation: u32, state: RowState) -> AttachmentWord {
    AttachmentWord(AtomicU64::new(
        Row::new(generation, state).unwrap().encode(),
    ))
}

fn id(generation: u32) -> AttachmentId {
    AttachmentId::new(9, generation).unwrap()
}

fn not_asked() -> Byte {
    panic!("the generation alone decides")
}

#[test]
fn a_zeroed_row_is_unborn_and_can_be_claimed() {
    let row = AttachmentWord(AtomicU64::new(0));
    assert_eq!(row.load(), Ok(Row::new(0, RowState::Empty).unwrap()));
    assert_eq!(row.claim(&Taken), Ok(id(1)));
    assert_eq!(row.load(), Ok(Row::new(1, RowState::Joining).unwrap()));
}

#[test]
fn only_an_empty_row_is_unborn_or_used_up() {
    for state in &STATES[1..] {
        assert_eq!(Row::new(0, *state), None);
        assert_eq!(Row::new(MAX_GENERATION, *state), None);
    }
    assert!(Row::new(MAX_GENERATION, RowState::Empty).is_some());
    assert_eq!(Row::new(MAX_GENERATION + 1, RowState::Empty), None);
}

#[test]
fn an_occupant_killed_in_any_state_is_succeeded_under_a_greater_generation() {
    for state in &STATES[1..] {
        let row = word(7, *state);
        assert_eq!(row.claim(&Taken), Ok(id(8)));
        assert_eq!(row.life(id(7), not_asked), Life::Gone);
    }
}

#[test]
fn an_occupant_killed_in_any_state_is_reaped_once() {
    for state in &STATES[1..] {
        let row = word(7, *state);
        assert_eq!(row.reap(|| Byte::Held), Reaped::Nothing);
        assert_eq!(row.reap(|| Byte::Unknown), Reaped::Nothing);
        assert_eq!(row.reap(|| Byte::Free), Reaped::Emptied { generation: 7 });
        assert_eq!(row.reap(not_asked), Reaped::Nothing);
        assert_eq!(row.load(), Ok(Row::new(8, RowState::Empty).unwrap()));
    }
}

#[test]
fn a_reaper_that_comes_late_does_not_end_the_next_occupant() {
    let row = word(7, RowState::Ready);
    let late = row.reap(|| {
        assert_eq!(row.claim(&Taken), Ok(id(8)));
        assert!(row.ready(id(8)));
        Byte::Free
    });
    assert_eq!(late, Reaped::Nothing);
    assert_eq!(row.load(), Ok(Row::new(8, RowState::Ready).unwrap()));
}

#[test]
fn a_row_that_was_left_is_over_without_asking_the_kernel() {
    let row = word(3, RowState::Joining);
    assert!(row.ready(id(3)));
    assert!(row.leaving(id(3)));
    assert!(row.leave(id(3)));
    assert_eq!(row.life(id(3), not_asked), Life::Gone);
    assert!(!row.leave(id(3)), "it is left once");
}

#[test]
fn one_that_was_succeeded_changes_nothing_any_more() {
    let row = word(8, RowState::Joining);
    assert!(!row.ready(id(7)));
    assert!(!row.leaving(id(7)));
    assert!(!row.leave(id(7)));
    assert_eq!(row.load(), Ok(Row::new(8, RowState::Joining).unwrap()));
}

#[test]
fn at_the_same_generation_the_byte_decides() {
    let row = word(7, RowState::Ready);
    assert_eq!(row.life(id(7), || Byte::Free), Life::Gone);
    assert_eq!(row.life(id(7), || Byte::Held), Life::Held);
    assert_eq!(row.life(id(7), || Byte::Unknown), Life::Unknown);
}

#[test]
fn an_id_that_the_row_never_had_proves_nothing() {
    assert_eq!(
        word(7, RowState::Ready).life(id(8), not_asked),
        Life::Unknown
    );
    let corrupt = AttachmentWord(AtomicU64::new(u64::MAX));
    assert_eq!(corrupt.life(id(8), not_asked), Life::Unknown);
}

#[test]
fn a_corrupt_row_is_named_and_left_as_it_is() {
    let row = AttachmentWord(AtomicU64::new(4));
    assert_eq!(row.claim(&Taken), Err(ClaimError::Corrupt { found: 4 }));
    assert_eq!(row.reap(not_asked), Reaped::Corrupt { found: 4 });
    assert!(!row.leave(id(1)));
    assert_eq!(row.snapshot(|| ()), None);
    assert_eq!(row.load(), Err(4));
}

#[test]
fn a_row_whose_generations_are_used_up_is_retired() {
    let row = word(MAX_GENERATION - 1, RowState::Empty);
    assert!(row.load().unwrap().is_retired());
    assert_eq!(row.claim(&Taken), Err(ClaimError::Retired));
}

#[test]
fn the_last_occupant_of_a_row_can_leave_and_be_reaped() {
    let last = MAX_GENERATION - 1;
    let row = word(last - 1, RowState::Empty);
    assert!(!row.load().unwrap().is_retired());
    assert_eq!(row.claim(&Taken), Ok(id(last)));
    assert_eq!(
        row.reap(|| Byte::Free),
        Reaped::Emptied { generation: last }
    );
    assert_eq!(row.life(id(last), not_asked), Life::Gone);
    assert!(row.load().unwrap().is_retired());
    assert_eq!(row.claim(&Taken), Err(ClaimError::Retired));
}

#[test]
fn a_copy_made_while_the_row_changed_hands_is_refused() {
    let row = word(7, RowState::Ready);
    assert_eq!(
        row.snapshot(|| 1),
        Some((Row::new(7, RowState::Ready).unwrap(), 1))
    );
    assert_eq!(row.snapshot(|| row.claim(&Taken)), None);
}

/// One thing that may happen to a row, in the order of its life or not.
#[derive(Clone, Copy, Debug)]
enum Step {
    Claim,
    Ready,
    Leaving,
    Leave,
    Reap,
}

fn any_row() -> impl Strategy<Value = Row> {
    (0..=MAX_GENERATION, prop::sample::select(&STATES))
        .prop_filter_map("a row", |(generation, state)| Row::new(generation, state))
}

proptest! {
    #[test]
    fn encode_round_trips(row in any_row()) {
        prop_assert_eq!(Row::decode(row.encode()), Some(row));
    }

    #[test]
    fn decode_accepts_only_what_encode_makes(word in prop_oneof![any::<u64>(), 0..1u64 << 34, 0..2048u64]) {
        if let Some(row) = Row::decode(word) {
            prop_assert_eq!(row.encode(), word);
            prop_assert_eq!(Row::new(row.generation(), row.state()), Some(row));
        }
    }

    #[test]
    fn generations_only_grow_and_no_id_is_given_twice(
        start in prop_oneof![0..4u32, MAX_GENERATION - 6..MAX_GENERATION],
        steps in prop::collection::vec(
            prop::sample::select(&[Step::Claim, Step::Ready, Step::Leaving, Step::Leave, Step::Reap]),
            0..40,
        ),
    ) {
        let row = word(start, RowState::Empty);
        let mut last: Option<AttachmentId> = None;
        for step in steps {
            let before = row.load().unwrap();
            match (step, last) {
                (Step::Claim, _) => {
                    if let Ok(id) = row.claim(&Taken) {
                        prop_assert!(last.is_none_or(|last| last.generation() < id.generation()));
                        last = Some(id);
                    }
                }
                (Step::Reap, _) => drop(row.reap(|| Byte::Free)),
                (Step::Ready, Some(id)) => drop(row.ready(id)),
                (Step::Leaving, Some(id)) => drop(row.leaving(id)),
                (Step::Leave, Some(id)) => drop(row.leave(id)),
                (_, None) => {}
            }
            let after = row.load().expect("every step leaves a row");
            prop_assert!(after.generation() >= before.generation());
            prop_assert!(!before.is_retired() || before == after);
        }
    }
}
