//! Sleeping on several words at once, until one of them is woken.

use core::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::time::{ClockId, clock_gettime};

use super::{Word, timespec};

/// The most words that one sleep can be on here.
pub const MOST_WORDS: usize = 5;

/// Why a sleep on several words ended.
#[must_use = "the words are to be looked at again, and the deadline too"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitAny {
    /// Somebody woke the sleepers on this one of the words, counted from 0: look again.
    Woken(usize),
    /// A word no longer held its expected value, so there was no sleep: look again.
    Changed,
    /// A signal arrived: look again.
    Interrupted,
    /// The timeout is over.
    TimedOut,
    /// The kernel refused, and there was no sleep: it is older than 5.16 (`ENOSYS`), a seccomp filter
    /// does not know the call (`EPERM`, `ENOSYS`), or a page is gone (`EFAULT`).
    Refused(Errno),
}

/// `struct futex_waitv`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Waiter {
    expected: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// `FUTEX2_SIZE_U32`, and not private: as in the rest of [`futex`](super).
const SHARED_U32: u32 = 2;

/// Sleeps while every word is as expected, at most for `timeout` (`None`: without limit).
///
/// As [`wait`](super::wait), on at most [`MOST_WORDS`] words; `futex_waitv`, kernel 5.16. Two system
/// calls at most, of which one is the clock's.
///
/// # Panics
///
/// With no word, or with more than [`MOST_WORDS`].
pub fn wait_any(words: &[(Word<'_>, u32)], timeout: Option<Duration>) -> WaitAny {
    assert!(
        (1..=MOST_WORDS).contains(&words.len()),
        "1 to {MOST_WORDS} words"
    );
    let mut waiters = [Waiter::default(); MOST_WORDS];
    for (waiter, &(word, expected)) in waiters.iter_mut().zip(words) {
        *waiter = Waiter {
            expected: expected.into(),
            address: word.at.addr() as u64,
            flags: SHARED_U32,
            reserved: 0,
        };
    }
    let until = timeout.map(|timeout| {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every kernel has this clock");
        timespec(Duration::from(now).saturating_add(timeout))
    });
    let until = until
        .as_ref()
        .map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: the kernel reads `words.len()` of the waiters above, a timespec or nothing, and four
    // bytes at each address, which lie in an atomic that is borrowed for the call. It writes nothing.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            waiters.as_ptr(),
            words.len(),
            0u32,
            until,
            libc::CLOCK_MONOTONIC,
        )
    };
    match Errno::result(outcome) {
        Ok(index) => WaitAny::Woken(usize::try_from(index).unwrap_or(0)),
        Err(Errno::EAGAIN) => WaitAny::Changed,
        Err(Errno::EINTR) => WaitAny::Interrupted,
        Err(Errno::ETIMEDOUT) => WaitAny::TimedOut,
        Err(errno) => WaitAny::Refused(errno),
    }
}

/// Whether [`wait_any`] is to be had here. One system call; does not sleep.
#[must_use]
pub fn any_is_offered() -> bool {
    let word = core::sync::atomic::AtomicU32::new(0);
    wait_any(&[(Word::of(&word), 1)], None) == WaitAny::Changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::futex::wake_all;
    use core::sync::atomic::AtomicU32;
    use portable_atomic::AtomicU128;

    #[test]
    fn any_word_that_changed_is_not_slept_on() {
        let (one, two) = (AtomicU32::new(1), AtomicU32::new(2));
        let words = |a, b| [(Word::of(&one), a), (Word::of(&two), b)];
        assert_eq!(wait_any(&words(0, 2), None), WaitAny::Changed);
        assert_eq!(wait_any(&words(1, 0), None), WaitAny::Changed);
        let nap = Some(Duration::from_millis(2));
        assert_eq!(wait_any(&words(1, 2), nap), WaitAny::TimedOut);
        assert_eq!(
            wait_any(&words(1, 0), Some(Duration::MAX)),
            WaitAny::Changed
        );
    }

    #[test]
    fn sleeper_is_woken_through_any_word_and_told_which() {
        let words = [const { AtomicU32::new(7) }; MOST_WORDS];
        for (i, woken) in words.iter().enumerate() {
            std::thread::scope(|scope| {
                let on: Vec<_> = words.iter().map(|word| (Word::of(word), 7)).collect();
                let sleeper = scope.spawn(move || wait_any(&on, None));
                while wake_all(woken) == 0 {
                    std::thread::yield_now();
                }
                assert_eq!(sleeper.join().unwrap(), WaitAny::Woken(i));
            });
        }
    }

    #[test]
    fn quarters_are_counted_from_the_lowest() {
        let wide = AtomicU128::new(0x4444_4444_3333_3333_2222_2222_1111_1111);
        let now = Some(Duration::ZERO);
        for (word, value) in [
            (Word::quarter_of::<0>(&wide), 0x1111_1111),
            (Word::quarter_of::<1>(&wide), 0x2222_2222),
            (Word::quarter_of::<2>(&wide), 0x3333_3333),
            (Word::quarter_of::<3>(&wide), 0x4444_4444),
        ] {
            assert_eq!(wait_any(&[(word, value)], now), WaitAny::TimedOut);
            assert_eq!(wait_any(&[(word, value + 1)], now), WaitAny::Changed);
        }
    }
}
