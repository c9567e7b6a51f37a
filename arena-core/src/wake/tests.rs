//! The wake word with real futexes and real time.

use super::*;
use std::sync::mpsc;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_waker_leaves_a_word_that_nobody_sleeps_on_untouched() {
    let word = WakeWord::new();
    word.wake_all();
    assert_eq!(word.wake.into_inner(), 0);
}

#[test]
fn a_sleep_ends_at_its_timeout() {
    let word = WakeWord::new();
    let (before, nap) = (Instant::now(), Duration::from_millis(5));
    assert_eq!(word.wait(word.ticket(), Some(nap)), Woken::TimedOut);
    assert!(before.elapsed() >= nap);
}

#[test]
fn a_waker_that_came_after_the_ticket_is_not_missed() {
    let word = WakeWord::new();
    let ticket = word.ticket();
    word.wake_all();
    assert_eq!(word.wait(ticket, Some(LONG)), Woken::Changed);
}

#[test]
fn a_sleeper_whose_waker_was_killed_looks_again_within_a_second() {
    let word = WakeWord::new();
    let ticket = word.ticket();
    // The waker cleared the count and was killed before it raised the other one.
    word.sleepers.store(0, Ordering::Relaxed);
    let before = Instant::now();
    assert_eq!(word.wait(ticket, None), Woken::LookAgain);
    assert!(before.elapsed() < 3 * SECOND_LOOK);
}

#[test]
fn waiters_that_died_cost_one_wake_and_are_forgotten() {
    let word = WakeWord::new();
    for _ in 0..3 {
        let _dead = word.ticket();
    }
    word.wake_all();
    word.wake_all();
    assert_eq!(word.wake.into_inner(), 1);
}

#[test]
fn wait_until_at_zero_looks_twice_and_finds_nothing() {
    let mut looks = 0;
    let found = WakeWord::new().wait_until(Some(Duration::ZERO), || {
        looks += 1;
        None::<()>
    });
    assert_eq!((found, looks), (None, 2));
}

#[test]
fn who_finds_something_at_once_announces_nothing() {
    let word = WakeWord::new();
    assert_eq!(word.wait_until(None, || Some(5)), Some(5));
    assert_eq!(word.sleepers.into_inner(), 0);
}

#[test]
fn a_timeout_beyond_the_clocks_range_is_none() {
    let word = WakeWord::new();
    let mut looks = 0;
    let found = word.wait_until(Some(Duration::MAX), || {
        looks += 1;
        word.wake_all();
        (looks == 3).then_some(())
    });
    assert_eq!(found, Some(()));
}

#[test]
fn a_third_waiter_is_woken_each_time_though_two_died() {
    // K5: a hundred notifications, each awaited, beside two announcements that nobody is behind.
    let (word, count) = (WakeWord::new(), AtomicU32::new(0));
    for _ in 0..2 {
        let _dead = word.ticket();
    }
    let (seen, told) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=100 {
                let look = || (count.load(Ordering::Relaxed) == round).then_some(round);
                seen.send(word.wait_until(Some(LONG), look)).unwrap();
            }
        });
        for round in 1..=100 {
            count.store(round, Ordering::Relaxed);
            word.wake_all();
            assert_eq!(told.recv().unwrap(), Some(round));
        }
    });
}
