//! The bell: a word in a process's row that the kernel changes the moment the process begins to die.
//!
//! Bytes, pidfds and sockets speak only after the kernel has freed a dead one's memory. Before that it
//! walks the robust lists of its threads. So a thread that does nothing else registers a list that
//! leads to the word, which then says within a tenth of a millisecond that it is time to ask.
//!
//! A bell that rings proves nothing: the thread can end alone, and exec rings it too. A bell that
//! hangs unrung proves nothing either.

#[cfg(test)]
mod loom_tests;
mod rope;

use core::sync::atomic::{AtomicU32, Ordering};
use std::io;

use crate::error::JoinError;
use crate::futex::{self, Word};
pub(crate) use rope::BellRope;

/// What a row's bell says.
///
/// ```text
/// state  word                   written by                             next
/// none   0                      who joins, and who left: wakes all     hung
/// none   WAITERS                the bell's thread when it takes it     0
///                               down: nobody will ring
/// hung   thread id | WAITERS    the bell's thread: wakes all           rung, or taken down
/// rung   OWNER_DIED | WAITERS   the kernel: wakes one                  0, by the next occupant
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bell {
    /// Nobody has hung one, or it was taken down: the row's process can die in silence.
    None,
    /// It will ring when the process begins to die.
    Hung,
    /// It rang: ask whether the process is gone.
    Rung,
}

impl Bell {
    /// Whether the kernel, and whatever filters calls to it, offer what a bell hangs on (a robust
    /// list). One system call.
    #[must_use]
    pub fn is_offered() -> bool {
        rope::is_offered()
    }

    /// What a word says; it came from another process and may be anything.
    pub(crate) const fn decode(word: u32) -> Bell {
        if word & OWNER_DIED != 0 {
            Bell::Rung
        } else if word & WAITERS != 0 && word & TID_MASK != 0 {
            Bell::Hung
        } else {
            Bell::None
        }
    }
}

/// A bell as it was at one moment, and what it takes to sleep until it is otherwise.
///
/// Whoever means to sleep looks at the bell *first*, then at whether the row is still the one he
/// cares for ([`Arena::outlived`](crate::Arena::outlived)), and then sleeps on [`futex`](Self::futex).
#[derive(Debug, Clone, Copy)]
pub struct SeenBell<'a> {
    word: &'a AtomicU32,
    seen: u32,
}

impl<'a> SeenBell<'a> {
    pub(crate) fn look(word: &'a AtomicU32) -> SeenBell<'a> {
        let seen = look(word);
        SeenBell { word, seen }
    }

    /// What it said.
    #[must_use]
    pub fn state(&self) -> Bell {
        Bell::decode(self.seen)
    }

    /// The word and the value to sleep on, for [`futex::wait_any`] or [`futex::wait`].
    #[must_use]
    pub fn futex(&self) -> (Word<'a>, u32) {
        (Word::of(self.word), self.seen)
    }

    /// Whether it is otherwise by now. One load.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        look(self.word) != self.seen
    }

    /// Wakes all who still sleep on the bell, and says how many there were: the kernel wakes *one* when
    /// a bell rings, so whoever wakes first wakes the rest. One system call.
    pub fn wake_rest(&self) -> usize {
        wake_rest(self.word)
    }
}

/// Why there is no bell. The process can do without one: its death is then known when the kernel
/// has freed its memory (about 0.15 s a GiB), and calls that could have believed the bell ask instead.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum BellError {
    /// No thread could be started for it: raise the limit of threads, or try again.
    #[error("no thread could be started for the bell")]
    Thread {
        /// What the system said.
        source: io::Error,
    },
    /// The kernel refused the list: a seccomp filter that does not know `set_robust_list`.
    #[error("the kernel refused the bell's robust list")]
    RobustList {
        /// What the system said.
        source: io::Error,
    },
    /// This process is not attached and could not join.
    #[error("this process could not join the arena")]
    Join(#[from] JoinError),
}

/// The operations of a 32-bit atomic that the protocol uses, so that a model checker can run it.
pub(crate) trait BellCell {
    fn load(&self, order: Ordering) -> u32;
    fn swap(&self, new: u32, order: Ordering) -> u32;
    /// Whether `current` was replaced.
    fn exchange(&self, current: u32, new: u32, order: Ordering) -> bool;
    fn rouse(&self) -> usize;
}

impl BellCell for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    fn swap(&self, new: u32, order: Ordering) -> u32 {
        self.swap(new, order)
    }

    fn exchange(&self, current: u32, new: u32, order: Ordering) -> bool {
        // Relaxed on failure: what was found is not looked at.
        self.compare_exchange(current, new, order, Ordering::Relaxed)
            .is_ok()
    }

    fn rouse(&self) -> usize {
        futex::wake_all(self)
    }
}

const NONE: u32 = 0;
const TAKEN_DOWN: u32 = WAITERS;

/// `FUTEX_WAITERS`: without it the kernel would wake nobody.
const WAITERS: u32 = 0x8000_0000;
/// `FUTEX_OWNER_DIED`.
const OWNER_DIED: u32 = 0x4000_0000;
/// `FUTEX_TID_MASK`.
const TID_MASK: u32 = 0x3fff_ffff;

fn look<C: BellCell>(cell: &C) -> u32 {
    // EDGE bell-occupant, acquire half: whose bell this is, or that its occupant left, is seen in the
    // row by who looks there afterwards.
    cell.load(Ordering::Acquire)
}

/// There is no bell: said by who has just claimed the row, and by who has just left it and still
/// holds its byte. Those who sleep on an earlier occupant's bell look again.
pub(crate) fn silence<C: BellCell>(cell: &C) {
    // EDGE bell-occupant, release half: the row's generation moved on before this line.
    cell.swap(NONE, Ordering::Release);
    cell.rouse();
}

/// The bell hangs, and rings when the thread `tid`, which called this, ends: its list leads here.
fn hang<C: BellCell>(cell: &C, tid: u32) {
    // EDGE bell-occupant, release half: its process claimed the row before this line.
    cell.swap(tid | WAITERS, Ordering::Release);
    // Those who sleep by other means, because there was no bell, may now sleep on this one.
    cell.rouse();
}

/// Nobody will ring: said by the thread `tid` itself. Sleepers are left asleep, since its process is
/// about to leave and to [`silence`] the bell; if it is killed before it does, they are where they
/// would be without a bell.
fn take_down<C: BellCell>(cell: &C, tid: u32) {
    // Relaxed: nothing is concluded from "none", and the exchange hands on what `hang` released.
    let _was_unrung = cell.exchange(tid | WAITERS, TAKEN_DOWN, Ordering::Relaxed);
}

pub(crate) fn wake_rest<C: BellCell>(cell: &C) -> usize {
    cell.rouse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_of_any_bits_says_something_and_only_a_waited_on_thread_id_hangs() {
        assert_eq!(Bell::decode(NONE), Bell::None);
        assert_eq!(Bell::decode(TAKEN_DOWN), Bell::None);
        assert_eq!(
            Bell::decode(77),
            Bell::None,
            "the kernel would wake nobody for it"
        );
        assert_eq!(Bell::decode(77 | WAITERS), Bell::Hung);
        assert_eq!(Bell::decode(OWNER_DIED | WAITERS), Bell::Rung);
        assert_eq!(Bell::decode(u32::MAX), Bell::Rung);
    }

    #[test]
    fn taking_down_leaves_a_bell_that_rang_as_it_is() {
        let word = AtomicU32::new(OWNER_DIED | WAITERS);
        take_down(&word, 7);
        assert_eq!(SeenBell::look(&word).state(), Bell::Rung);
    }
}
