//! How the lock word is taken and let go, over any atomic that can be slept on.
//!
//! A waiter looks, and looks again after each slice of sleep: is the lock free, is its holder proven
//! dead, is the deadline over. It sleeps only on a word that has WAITERS set, and whoever lets go of such
//! a word wakes one. The slices (1, 2, 4 … 50 ms) bound what a kill between those two steps costs, and
//! how long a death goes unnoticed.

use super::Environment;
use super::word::{Lock, low_half};
use crate::attachment_word::{AtomicWord, Life};
use crate::futex::{self, Wait};
use crate::id::AttachmentId;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

const FIRST_SLICE: Duration = Duration::from_millis(1);
const LAST_SLICE: Duration = Duration::from_millis(50);

/// How many exchanges may fail in a row before a contender looks at the clock although it has not
/// slept. Each failure means that another one got ahead, or set WAITERS, so honest processes stay below.
const RACES: u32 = 16;

/// An atomic word whose low half can be slept on.
pub(super) trait LockCell: AtomicWord {
    /// Sleeps while the low half is `expected`, for about `slice` at most. May end early, for no reason.
    fn sleep(&self, expected: u32, slice: Duration);
    /// Wakes one sleeper, if there is one.
    fn wake_one(&self);
}

impl LockCell for AtomicU64 {
    fn sleep(&self, expected: u32, slice: Duration) {
        if let Wait::Refused(_) = futex::wait_low(self, expected, Some(slice)) {
            // Without futexes a waiter polls: correct, and later by a slice.
            std::thread::sleep(slice);
        }
    }

    fn wake_one(&self) {
        futex::wake_one_low(self);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    Clean,
    Inherited,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    Busy { holder: AttachmentId },
    Corrupt { found: u64 },
}

/// Takes the lock, or says after `timeout` at the latest who has it.
pub(super) fn acquire<C: LockCell>(
    cell: &C,
    me: AttachmentId,
    env: &dyn Environment,
    timeout: Duration,
) -> Result<Taken, Refusal> {
    let alone = Lock::Held {
        by: me,
        waiters: false,
    };
    // EDGE unlocked, acquire half.
    match cell.exchange(Lock::Free.encode(), alone.encode(), Ordering::Acquire) {
        Ok(()) => Ok(Taken::Clean),
        Err(found) => contend(cell, me, env, timeout, found),
    }
}

#[cold]
fn contend<C: LockCell>(
    cell: &C,
    me: AttachmentId,
    env: &dyn Environment,
    timeout: Duration,
    mut found: u64,
) -> Result<Taken, Refusal> {
    let deadline = env.now().saturating_add(timeout);
    let mut slice = FIRST_SLICE;
    let mut slept = false;
    let mut races = 0;
    loop {
        let Some(lock) = Lock::decode(found) else {
            return Err(Refusal::Corrupt { found });
        };
        let Lock::Held { by, waiters } = lock else {
            // One wake-up is meant for all who sleep: whoever slept passes it on when it lets go.
            let mine = Lock::Held {
                by: me,
                waiters: slept,
            };
            // EDGE unlocked, acquire half.
            match cell.exchange(found, mine.encode(), Ordering::Acquire) {
                Ok(()) => return Ok(Taken::Clean),
                // Not free, so this arm is not taken twice in a row.
                Err(now) => found = now,
            }
            continue;
        };
        if by != me && races < RACES && env.life(by) == Life::Gone {
            // Who slept under the dead holder is not known, so somebody may have.
            let mine = Lock::Held {
                by: me,
                waiters: true,
            };
            // Relaxed: the proof of death put all that the dead holder did before this line, and the word
            // is exactly as that holder, or a waiter under it, left it: nobody held the lock in between.
            match cell.exchange(found, mine.encode(), Ordering::Relaxed) {
                Ok(()) => return Ok(Taken::Inherited),
                Err(now) => found = now,
            }
            races += 1;
            continue;
        }
        let left = deadline.saturating_sub(env.now());
        if left.is_zero() && !slept {
            return Err(Refusal::Busy { holder: by });
        }
        let awaited = Lock::Held { by, waiters: true }.encode();
        if !waiters {
            // Also by one that is about to give up after it slept: it may have used up the only wake-up
            // while others sleep on.
            // Relaxed: nothing is published; the exchange itself makes the holder's own one fail.
            match cell.exchange(found, awaited, Ordering::Relaxed) {
                Err(now) if !left.is_zero() => {
                    found = now;
                    continue;
                }
                Ok(()) | Err(_) => {}
            }
        }
        if left.is_zero() {
            return Err(Refusal::Busy { holder: by });
        }
        cell.sleep(low_half(awaited), slice.min(left));
        slice = (slice * 2).min(LAST_SLICE);
        slept = true;
        races = 0;
        // Relaxed: decides nothing, whatever follows is an exchange of exactly this value.
        found = cell.load(Ordering::Relaxed);
    }
}

/// Lets go of the lock that `me` holds, and wakes one waiter if there may be any.
///
/// A word that is not `me`'s is left alone: somebody who must not have changed it.
pub(super) fn release<C: LockCell>(cell: &C, me: AttachmentId) {
    let held = |waiters| Lock::Held { by: me, waiters }.encode();
    let free = Lock::Free.encode();
    // EDGE unlocked, release half: who takes the free lock sees what was stored under it.
    let Err(found) = cell.exchange(held(false), free, Ordering::Release) else {
        return;
    };
    if found != held(true) {
        return;
    }
    // EDGE unlocked, release half: the same, with waiters.
    if cell.exchange(found, free, Ordering::Release).is_ok() {
        // Killed before this line: the waiters' slices end by themselves.
        cell.wake_one();
    }
}
