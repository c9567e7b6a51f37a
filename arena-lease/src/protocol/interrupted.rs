//! Each verb, interrupted before each of its uses of the row in turn: time passes there, a rival acts, the arena
//! is destroyed, another thread of the process acts. (xtask does the same to real processes, at every machine
//! instruction.)

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::sequential::{Row, ttl};
use super::{Fault, Mark as _, World};
use crate::PeerId;
use crate::outcome::{Acquire, Lost, Refused, Renewed, TookOver};
use crate::word::{Owner, Word};

const TTL_MS: u64 = 100;

fn peer(slot: u16) -> PeerId {
    PeerId::new(slot, 1).unwrap()
}

const ME: u16 = 0;
const RIVAL: u16 = 1;

fn held_by(slot: u16) -> Word {
    Word {
        fence: 1,
        owner: Owner::Peer(peer(slot)),
        until_ms: TTL_MS,
    }
}

fn free() -> Word {
    Word {
        fence: 1,
        owner: Owner::Nobody,
        until_ms: 0,
    }
}

/// Runs `verb` again and again, interrupted by `what` one use later each time, until it ends before that.
fn at_each_use(word: Word, what: impl Fn(&Row) + 'static, verb: impl Fn(&Row)) -> u32 {
    let what = Rc::new(what);
    for use_number in 0..1_000 {
        let row = Row::new(word);
        let interruption = Rc::clone(&what);
        let boxed: Box<dyn FnOnce(&Row)> = Box::new(move |row| interruption(row));
        *row.interruption.borrow_mut() = Some((use_number, boxed));
        verb(&row);
        if row.interruption.borrow().is_some() {
            assert!(use_number > 2, "a verb uses the row several times");
            return use_number;
        }
    }
    panic!("the verb does not end");
}

fn rival_acquires(row: &Row) -> Result<Acquire, Fault> {
    let outcome = super::acquire(row, peer(RIVAL), ttl(TTL_MS))?;
    if let Acquire::Held(hold) = outcome {
        let mut history = row.history.borrow_mut();
        history.claim(peer(RIVAL), hold.fence, hold.until_ms, hold.left);
    }
    Ok(outcome)
}

/// Acquires as this process, and then holds the answer against the row.
fn acquire(row: &Row) -> Result<Acquire, Fault> {
    let outcome = super::acquire(row, peer(ME), ttl(TTL_MS))?;
    if let Acquire::Held(hold) = outcome {
        let mut history = row.history.borrow_mut();
        history.claim(peer(ME), hold.fence, hold.until_ms, hold.left);
        drop(history);
        row.history.borrow().check_claims();
    }
    Ok(outcome)
}

#[test]
fn a_pause_of_any_length_anywhere_in_acquire_never_gives_a_lease_that_is_over() {
    for pause in [TTL_MS / 2, TTL_MS - 1, TTL_MS, TTL_MS + 1, 10 * TTL_MS] {
        at_each_use(
            free(),
            move |row| row.pass(pause),
            |row| {
                let hold = acquire(row).unwrap().held().expect("nobody is in the way");
                assert_eq!(hold.fence, 2);
                // The last use may be before the pause; then the lease was held when the clock was read.
                let left = row.now().left(row.now_ns());
                assert!(hold.left >= Duration::from_millis(TTL_MS / 2) || left == hold.left);
            },
        );
    }
}

#[test]
fn a_rival_that_takes_a_paused_acquirers_lease_is_never_joined_by_it() {
    for pause in [TTL_MS - 1, TTL_MS, 2 * TTL_MS] {
        let lapse_and_takeover = move |row: &Row| {
            row.pass(pause);
            let _ = rival_acquires(row);
        };
        at_each_use(free(), lapse_and_takeover, |row| {
            let outcome = acquire(row).unwrap();
            if let Acquire::Held(hold) = outcome
                && row.now().names(peer(RIVAL))
            {
                // The whole interruption was after the last look at the clock.
                assert!(hold.fence < row.now().fence);
                assert!(!super::mine(row, peer(ME), hold.fence).unwrap());
            }
        });
    }
}

#[test]
fn a_holder_stopped_anywhere_in_renew_leaves_the_rivals_deadline_alone() {
    let lapse_and_takeover = |row: &Row| {
        row.pass(TTL_MS);
        let _ = rival_acquires(row);
    };
    at_each_use(held_by(ME), lapse_and_takeover, |row| {
        let renewed = super::renew(row, peer(ME), 1, ttl(TTL_MS)).unwrap();
        if row.now().names(peer(RIVAL)) {
            assert_eq!(row.now().until_ms, 2 * TTL_MS);
            let by = peer(RIVAL);
            let taken = Renewed::Lost(Lost::Taken { by, fence: 2 });
            let before = matches!(renewed, Renewed::Held { until_ms, .. } if until_ms <= TTL_MS);
            assert!(renewed == taken || before, "{renewed:?}");
            assert!(!super::mine(row, peer(ME), 1).unwrap());
        } else {
            assert!(renewed.is_held());
        }
    });
}

#[test]
fn a_holder_stopped_anywhere_in_release_does_not_free_its_successors_lease() {
    let lapse_and_takeover = |row: &Row| {
        row.pass(TTL_MS);
        let _ = rival_acquires(row);
    };
    at_each_use(held_by(ME), lapse_and_takeover, |row| {
        let _ = super::release(row, peer(ME), 1, 0).unwrap();
        assert!(row.interruption.borrow().is_some() || row.now().names(peer(RIVAL)));
    });
}

#[test]
fn a_death_at_any_point_of_an_acquire_passes_the_lease_on_at_once() {
    // The acquirer takes over from a dead holder while the other rival does the same.
    let takeover = |row: &Row| {
        let _ = rival_acquires(row);
    };
    at_each_use(held_by(2), takeover, |row| {
        row.kill(peer(2));
        match super::acquire(row, peer(ME), ttl(TTL_MS)).unwrap() {
            Acquire::Held(hold) => assert_eq!(hold.fence, 2),
            Acquire::Refused(why) => {
                assert!(matches!(why, Refused::Held { by, fence: 2, .. } if by == peer(RIVAL)));
            }
        }
    });
}

#[test]
fn a_destruction_at_any_point_gives_and_renews_nothing_from_then_on() {
    // The clock moves on, so that an answer of before can be told from one of after.
    let destroy = |row: &Row| {
        row.gone.set(true);
        row.pass(1);
    };
    at_each_use(free(), destroy, |row| {
        match super::acquire(row, peer(ME), ttl(TTL_MS)) {
            Ok(Acquire::Held(hold)) => {
                assert_eq!(
                    hold.left,
                    Duration::from_millis(TTL_MS),
                    "held after the end"
                );
            }
            outcome => assert_eq!(outcome, Err(Fault::Gone)),
        }
    });
    at_each_use(held_by(ME), destroy, |row| {
        match super::renew(row, peer(ME), 1, ttl(TTL_MS)).unwrap() {
            Renewed::Held { left, .. } => assert_eq!(left, Duration::from_millis(TTL_MS)),
            Renewed::Lost(lost) => assert_eq!(lost, Lost::Removed),
        }
        if row.gone.get() {
            assert!(!super::mine(row, peer(ME), 1).unwrap());
        }
    });
}

#[test]
fn a_refusal_in_an_arena_that_is_gone_says_so() {
    let row = Row::new(held_by(RIVAL));
    row.gone.set(true);
    assert_eq!(
        super::acquire(&row, peer(ME), ttl(TTL_MS)),
        Err(Fault::Gone)
    );
}

#[test]
fn a_row_that_changed_its_name_is_not_acquired() {
    let row = Row::new(free());
    row.named.set(false);
    assert_eq!(
        super::acquire(&row, peer(ME), ttl(TTL_MS)),
        Err(Fault::Renamed)
    );
    assert_eq!(row.now(), free());
    let row = Row::new(held_by(ME));
    row.named.set(false);
    let renamed = Err(Fault::Renamed);
    assert_eq!(super::current(&row, peer(ME)), renamed);
    assert_eq!(super::mine(&row, peer(ME), 2), Err(Fault::Renamed));
    assert_eq!(super::release(&row, peer(ME), 2, 0), Err(Fault::Renamed));
    let renewed = super::renew(&row, peer(ME), 2, ttl(TTL_MS));
    assert_eq!(renewed, Err(Fault::Renamed));
}

#[test]
fn a_process_whose_every_look_is_too_late_is_told_so_and_loses_that_fence() {
    // Each use of the row costs the process more than its ttl.
    fn delay(row: &Row) {
        row.pass(TTL_MS);
        *row.interruption.borrow_mut() = Some((0, Box::new(delay)));
    }
    let row = Row::new(free());
    delay(&row);
    let outcome = super::acquire(&row, peer(ME), ttl(TTL_MS)).unwrap();
    assert_eq!(outcome, Acquire::Refused(Refused::TooLate));
    let row = Row::new(held_by(ME));
    delay(&row);
    let renewed = super::renew(&row, peer(ME), 1, ttl(TTL_MS)).unwrap();
    assert_eq!(renewed, Renewed::Lost(Lost::TooLate));
    *row.interruption.borrow_mut() = None;
    let renewed = super::renew(&row, peer(ME), 1, ttl(TTL_MS)).unwrap();
    assert_eq!(renewed, Renewed::Lost(Lost::Told));
}

#[test]
fn a_loss_that_another_thread_is_told_meanwhile_is_no_extension_in_this_one() {
    // The clock moves on, so that an answer of before can be told from one of after.
    let told = |row: &Row| {
        super::tell_lost(row, peer(ME), 1);
        row.pass(1);
    };
    at_each_use(held_by(ME), told, |row| {
        let hold = acquire(row).unwrap().held().unwrap();
        let whole = Duration::from_millis(TTL_MS);
        assert!(hold.fence == 2 || hold.left == whole, "{hold:?}");
    });
    at_each_use(held_by(ME), told, |row| {
        match super::renew(row, peer(ME), 1, ttl(TTL_MS)).unwrap() {
            Renewed::Held { left, .. } => assert_eq!(left, Duration::from_millis(TTL_MS)),
            Renewed::Lost(lost) => assert_eq!(lost, Lost::Told),
        }
    });
}

#[test]
fn telling_a_fence_lost_that_is_anothers_changes_nothing() {
    let row = Row::new(held_by(ME));
    super::tell_lost(&row, peer(RIVAL), 1);
    super::tell_lost(&row, peer(ME), 2);
    assert!(super::mine(&row, peer(ME), 1).unwrap());
}

#[test]
fn only_a_change_that_somebody_asked_for_wakes() {
    let row = Row::new(held_by(ME));
    assert!(super::release(&row, peer(ME), 1, 0).unwrap());
    assert_eq!(row.wakes.get(), 0);

    let row = Row::new(held_by(ME));
    let waiting = super::acquire_until(&row, peer(RIVAL), ttl(TTL_MS), 1_000_000, || Ok(None));
    assert!(matches!(waiting, Ok(Acquire::Refused(_))));
    let _ = super::renew(&row, peer(ME), 1, ttl(TTL_MS)).unwrap();
    assert_eq!(row.wakes.get(), 0, "a renewal wakes nobody");
    assert!(super::release(&row, peer(ME), 1, 0).unwrap());
    assert_eq!(row.wakes.get(), 1);
}

#[test]
fn a_takeover_wakes_those_who_waited_behind_the_last_holder() {
    let row = Row::new(held_by(2));
    let waiting = super::acquire_until(&row, peer(ME), ttl(TTL_MS), 1_000_000, || Ok(None));
    assert!(matches!(waiting, Ok(Acquire::Refused(_))));
    row.kill(peer(2));
    assert!(rival_acquires(&row).unwrap().held().is_some());
    assert_eq!(row.wakes.get(), 1);
}

#[test]
fn a_waiter_gets_the_lease_at_the_lapse_and_never_early() {
    let row = Row::new(held_by(RIVAL));
    let outcome = super::acquire_until(&row, peer(ME), ttl(TTL_MS), u64::MAX, || Ok(None)).unwrap();
    let hold = outcome.held().expect("it lapses");
    assert_eq!(hold.until_ms, 2 * TTL_MS);
    let slept: Duration = row.slept.borrow().iter().sum();
    assert_eq!(slept, Duration::from_millis(TTL_MS));
}

#[test]
fn a_waiter_stops_at_its_own_deadline() {
    let row = Row::new(held_by(RIVAL));
    let end_ns = 7_000_000;
    let outcome = super::acquire_until(&row, peer(ME), ttl(TTL_MS), end_ns, || Ok(None)).unwrap();
    assert!(matches!(outcome, Acquire::Refused(Refused::Held { .. })));
    assert_eq!(row.now_ms.get(), 7);
}

#[test]
fn a_waiter_is_refused_at_once_when_it_has_no_time() {
    let row = Row::new(held_by(RIVAL));
    let outcome = super::acquire_until(&row, peer(ME), ttl(TTL_MS), 0, || Ok(None)).unwrap();
    assert!(matches!(outcome, Acquire::Refused(Refused::Held { .. })));
    assert!(row.slept.borrow().is_empty());
}

#[test]
fn a_takeover_that_another_thread_is_told_lost_meanwhile_is_still_one_from_the_rival() {
    let told = |row: &Row| super::tell_lost(row, peer(ME), row.now().fence);
    at_each_use(held_by(RIVAL), told, |row| {
        row.pass(TTL_MS);
        let hold = acquire(row).unwrap().held().unwrap();
        let from = peer(RIVAL);
        assert_eq!(hold.took_over, Some(TookOver::Lapsed { from, fence: 1 }));
    });
}

#[test]
fn a_damaged_number_beside_the_word_is_named_and_uses_up_one_fence() {
    let row = Row::new(free());
    row.told().fetch_max(u64::MAX, Ordering::Relaxed);
    let damage = Err(Fault::Corrupt(u128::from(u64::MAX).into()));
    assert_eq!(super::acquire(&row, peer(ME), ttl(TTL_MS)), damage);
    let forever = super::acquire_until(&row, peer(RIVAL), ttl(TTL_MS), u64::MAX, || Ok(None));
    assert_eq!(forever, damage);
    assert_eq!(row.now().fence, 3);
}
