//! Sleeping on a word that several processes map, until one of them wakes the sleepers.
//!
//! These are the kernel's *shared* futexes: a sleeper is found by the page of the file and not by an
//! address, so the processes may have mapped it anywhere. A sleep can end for no reason (a signal, a
//! wake meant for another), so a caller always looks at its word again.
#![expect(
    unsafe_code,
    reason = "no safe wrapper offers a shared futex; this file is the only one that calls it"
)]

mod any;

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64};
use core::time::Duration;
use nix::errno::Errno;
use nix::libc;
use portable_atomic::AtomicU128;

pub use any::{MOST_WORDS, WaitAny, any_is_offered, wait_any};

/// Four bytes that can be slept on: all of a 32-bit atomic, or a part of a wider one.
///
/// An address for the kernel alone. The program never loads or stores through it, because accesses
/// of two sizes to one atomic are not defined; it computes the expected value from the whole.
#[derive(Clone, Copy, Debug)]
pub struct Word<'a> {
    at: *mut u32,
    of: PhantomData<&'a AtomicU32>,
}

// SAFETY: the address is dereferenced by the kernel alone, and names memory that is borrowed, shared,
// for 'a.
unsafe impl Send for Word<'_> {}
// SAFETY: likewise.
unsafe impl Sync for Word<'_> {}

#[cfg(target_endian = "little")]
impl<'a> Word<'a> {
    /// A whole 32-bit word.
    #[must_use]
    pub fn of(word: &'a AtomicU32) -> Word<'a> {
        Word::at(word.as_ptr())
    }

    /// The low half of a 64-bit word.
    #[must_use]
    pub fn low_half_of(word: &'a AtomicU64) -> Word<'a> {
        Word::at(word.as_ptr().cast())
    }

    /// A quarter of a 128-bit word: 0 is the lowest, 3 the highest 32 bits.
    #[must_use]
    pub fn quarter_of<const N: usize>(word: &'a AtomicU128) -> Word<'a> {
        const { assert!(N < 4, "there are four quarters") };
        Word::at(word.as_ptr().cast::<u32>().wrapping_add(N))
    }

    fn at(at: *mut u32) -> Word<'a> {
        Word {
            at,
            of: PhantomData,
        }
    }

    /// As [`wait`], on this part of a word.
    pub fn wait(self, expected: u32, timeout: Option<Duration>) -> Wait {
        wait_at(self.at, expected, timeout)
    }

    /// As [`wake_all`], for those who sleep on this part of a word.
    pub fn wake_all(self) -> usize {
        wake_at(self.at, i32::MAX)
    }
}

/// Why a sleep ended.
#[must_use = "the word is to be looked at again, and the deadline too"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Somebody woke the sleepers, or a signal arrived, or nothing happened at all: look again.
    Woken,
    /// The word no longer held the expected value, so there was no sleep: look again.
    Changed,
    /// The timeout is over.
    TimedOut,
    /// The kernel refused, and there was no sleep: a seccomp filter (`ENOSYS`, `EPERM`), or a page that
    /// is gone because somebody cut the file short (`EFAULT`). A caller that would look again at once
    /// has to sleep by other means, or it spins.
    Refused(Errno),
}

/// Sleeps while `word` is `expected`, at most for `timeout` (`None`: without limit).
///
/// The kernel compares and falls asleep in one step, so a wake that follows a change of the word cannot
/// fall between the two. `timeout` is counted on `CLOCK_MONOTONIC`, which stands still while the machine
/// sleeps. Costs one system call. Another process may change the word at any time, before this returns
/// and after.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Wait {
    wait_at(word.as_ptr(), expected, timeout)
}

/// Wakes every sleeper on `word`, in all processes, and returns how many there were.
///
/// One system call, whether anybody sleeps or not; never blocks. Sleepers that were killed are no
/// longer there.
pub fn wake_all(word: &AtomicU32) -> usize {
    wake_at(word.as_ptr(), i32::MAX)
}

/// Wakes one sleeper on `word`, if there is one, and returns how many that was: 0 or 1.
///
/// Costs what [`wake_all`] costs. Which sleeper is the kernel's choice, and it may be one that is killed
/// before it runs: a protocol that wakes one at a time needs sleepers that look for themselves now and then.
pub fn wake_one(word: &AtomicU32) -> usize {
    wake_at(word.as_ptr(), 1)
}

/// As [`wait`], on the low half of a 64-bit word, whose high half the kernel does not look at.
pub(crate) fn wait_low(word: &AtomicU64, expected: u32, timeout: Option<Duration>) -> Wait {
    wait_at(low_half(word), expected, timeout)
}

/// As [`wake_one`], for those who sleep in [`wait_low`].
pub(crate) fn wake_one_low(word: &AtomicU64) -> usize {
    wake_at(low_half(word), 1)
}

/// The address of the low half of `word`, for the kernel alone: this program never loads or stores
/// through it, because accesses of two sizes to one atomic are not defined.
#[cfg(target_endian = "little")]
fn low_half(word: &AtomicU64) -> *mut u32 {
    word.as_ptr().cast()
}

fn wait_at(word: *mut u32, expected: u32, timeout: Option<Duration>) -> Wait {
    let timeout = timeout.map(timespec);
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: FUTEX_WAIT reads four bytes at `word`, which all callers derive from a reference to an
    // atomic that is borrowed for the call, and it is aligned as a u32 because an atomic begins
    // there or a multiple of four bytes before; were the page gone all the same, the kernel answers EFAULT. It reads a timespec
    // at `timeout`, which is null or points to the local above. It writes nothing.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAIT,
            expected,
            timeout,
            ptr::null::<u32>(),
            0u32,
        )
    };
    match Errno::result(outcome) {
        Ok(_) | Err(Errno::EINTR) => Wait::Woken,
        Err(Errno::EAGAIN) => Wait::Changed,
        Err(Errno::ETIMEDOUT) => Wait::TimedOut,
        Err(errno) => Wait::Refused(errno),
    }
}

fn wake_at(word: *mut u32, most: i32) -> usize {
    // SAFETY: FUTEX_WAKE takes `word` as the name of a queue: it looks up the page behind it, and reads
    // and writes nothing there. All callers derive it from a reference borrowed for the call.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, most) };
    // Refused means that nobody was woken, and sleepers look for themselves in time.
    usize::try_from(woken).unwrap_or(0)
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        // More seconds than the kernel counts are as good as for ever.
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;
    use std::thread;

    const LONG: Option<Duration> = Some(Duration::from_secs(60));

    #[test]
    fn a_word_that_changed_is_not_slept_on() {
        let word = AtomicU32::new(2);
        assert_eq!(wait(&word, 1, LONG), Wait::Changed);
    }

    #[test]
    fn a_sleep_ends_at_its_timeout() {
        let word = AtomicU32::new(1);
        let before = std::time::Instant::now();
        let nap = Duration::from_millis(5);
        assert_eq!(wait(&word, 1, Some(nap)), Wait::TimedOut);
        assert!(before.elapsed() >= nap);
        assert_eq!(wait(&word, 1, Some(Duration::ZERO)), Wait::TimedOut);
    }

    #[test]
    fn a_timeout_beyond_the_kernels_range_is_taken_as_for_ever() {
        let word = AtomicU32::new(2);
        assert_eq!(wait(&word, 1, Some(Duration::MAX)), Wait::Changed);
        assert_eq!(timespec(Duration::MAX).tv_sec, libc::time_t::MAX);
    }

    #[test]
    fn nobody_asleep_is_nobody_woken() {
        let word = AtomicU32::new(0);
        assert_eq!(wake_all(&word), 0);
        assert_eq!(wake_one(&word), 0);
    }

    #[test]
    fn a_sleeper_is_woken_and_counted() {
        let word = AtomicU32::new(1);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| wait(&word, 1, LONG));
            // Wakes until the sleeper was there to be woken: no guess about when it falls asleep.
            while wake_one(&word) == 0 {
                thread::yield_now();
            }
            assert_eq!(sleeper.join().unwrap(), Wait::Woken);
        });
    }

    #[test]
    fn a_sleeper_is_found_through_another_mapping_of_the_same_file() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let [here, there] = [(); 2].map(|()| memmap2::MmapRaw::map_raw(&file).unwrap());
        assert_ne!(here.as_ptr(), there.as_ptr());
        // SAFETY: the mapping is page-aligned, 4,096 bytes long, and outlives the reference; it is only
        // accessed as this atomic.
        let here = unsafe { AtomicU32::from_ptr(here.as_mut_ptr().cast()) };
        // SAFETY: as above.
        let there = unsafe { AtomicU32::from_ptr(there.as_mut_ptr().cast()) };
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| wait(here, 0, LONG));
            while wake_all(there) == 0 {
                thread::yield_now();
            }
            assert_eq!(sleeper.join().unwrap(), Wait::Woken);
        });
    }

    #[test]
    fn a_page_that_is_not_there_is_refused_and_not_slept_on() {
        let nowhere = ptr::null_mut();
        assert_eq!(wait_at(nowhere, 0, LONG), Wait::Refused(Errno::EFAULT));
        assert_eq!(wake_at(nowhere, 1), 0);
    }

    #[test]
    fn the_high_half_of_a_wide_word_is_not_compared() {
        let word = AtomicU64::new(5 << 32 | 1);
        assert_eq!(wait_low(&word, 5, LONG), Wait::Changed);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| wait_low(&word, 1, LONG));
            word.store(6 << 32 | 1, Ordering::Relaxed);
            while wake_one_low(&word) == 0 {
                thread::yield_now();
            }
            assert_eq!(sleeper.join().unwrap(), Wait::Woken);
        });
    }
}
