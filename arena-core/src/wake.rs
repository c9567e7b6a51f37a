//! Waking those who wait for something to appear in shared memory, at no cost while nobody does.

#[cfg(test)]
mod loom_tests;
#[cfg(test)]
mod tests;

use crate::futex::{self, Wait};
use core::sync::atomic::{AtomicU32, Ordering, fence};
use core::time::Duration;
use std::thread;
use std::time::Instant;

/// The longest sleep between two looks.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// The sleep between two looks where the kernel refuses to put us to sleep on a word.
const POLL: Duration = Duration::from_millis(10);

/// Two words of an arena on which readers sleep until a writer has something for them.
///
/// ```text
/// offset  size  field     written by                                        read by
///      0     4  wake      a waker that saw sleepers: + 1                    sleepers, and the kernel for them
///      4     4  sleepers  who is about to sleep: + 1; a waker that saw      wakers
///                         sleepers, before it raises wake: 0
/// ```
///
/// A waiter takes a [`ticket`](Self::ticket), *then* looks for what it waits for, and only then
/// [`wait`](Self::wait)s; a waker makes the thing visible and *then* calls [`wake_all`](Self::wake_all). In
/// that order no wake-up is lost while the waker runs. [`wait_until`](Self::wait_until) is that loop.
///
/// A waker may be killed or stopped between clearing `sleepers` and waking; those it would have woken
/// notice when they look again, a second later at most. Waiters that died cost the next waker one
/// system call and nothing more. Zero is the state of a new one.
#[repr(C)]
#[derive(Debug, Default)]
// layout: two AtomicU32.
pub struct WakeWord {
    wake: AtomicU32,
    sleepers: AtomicU32,
}

/// Shows that its owner has announced that it is about to sleep, and since when it would be woken.
///
/// A ticket that is not used costs the next waker one system call.
#[must_use = "a ticket that is not waited on costs a waker a system call"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    wake: u32,
}

/// Why a [`WakeWord::wait`] ended.
#[must_use = "the waiter has to take another ticket and look again"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// A waker came after the ticket was taken, and what it stored before it did is visible.
    Changed,
    /// The timeout is not over, nobody is known to have come, and yet it is time to look: a waker may
    /// have been killed before it woke anybody, or a signal arrived.
    LookAgain,
    /// The timeout is over.
    TimedOut,
}

impl WakeWord {
    /// A word on which nobody sleeps.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            wake: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        }
    }

    /// Announces that this thread is about to look, and to sleep if it finds nothing.
    ///
    /// Three atomic operations, no system call. It makes the next [`wake_all`](Self::wake_all) cost a
    /// system call, so look once before: who finds something needs no ticket.
    pub fn ticket(&self) -> Ticket {
        ticket(&self.wake, &self.sleepers)
    }

    /// Sleeps until a waker comes that began after `ticket` was taken.
    ///
    /// Returns after `timeout` (`None`: without limit), counted on `CLOCK_MONOTONIC`, which stands still
    /// while the machine sleeps; but after a second at the latest, so that the caller looks again. One
    /// system call.
    pub fn wait(&self, ticket: Ticket, timeout: Option<Duration>) -> Woken {
        wait(&self.wake, ticket, timeout)
    }

    /// What it takes to sleep on this and other words at once: a word, and what it is until a waker comes that
    /// began after `ticket` was taken.
    ///
    /// Who sleeps by it looks again after a second at the latest, as [`wait`](Self::wait) makes its callers do.
    #[must_use]
    pub fn futex(&self, ticket: Ticket) -> (futex::Word<'_>, u32) {
        (futex::Word::of(&self.wake), ticket.wake)
    }

    /// Calls `look` until it returns something, and sleeps in between; `None` when `timeout` is over first.
    ///
    /// `timeout` is as in [`wait`](Self::wait); at zero this is two looks. `look` is called without a
    /// ticket first, so it costs nothing when there is something to be found, and once a second when
    /// nothing happens.
    pub fn wait_until<T>(
        &self,
        timeout: Option<Duration>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(found) = look() {
            return Some(found);
        }
        // A deadline beyond what the clock can say is none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let ticket = self.ticket();
            if let Some(found) = look() {
                return Some(found);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            // Whatever ended the sleep, the loop looks and then asks the clock.
            let _woken = self.wait(ticket, left);
        }
    }

    /// Wakes all who took a ticket and may sleep, in all processes.
    ///
    /// To be called after what they wait for was made visible. A fence and a load when nobody waits;
    /// otherwise two exchanges more and a system call. Never blocks.
    pub fn wake_all(&self) {
        wake_all(&self.wake, &self.sleepers);
    }
}

/// The operations of a 32-bit atomic that the protocol uses, so that a model checker can run it.
trait WakeCell {
    fn load(&self, order: Ordering) -> u32;
    fn add_one(&self, order: Ordering);
    fn clear(&self, order: Ordering);
    fn fence(order: Ordering);
    fn sleep(&self, expected: u32, timeout: Duration) -> Wait;
    fn rouse(&self);
}

impl WakeCell for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    fn add_one(&self, order: Ordering) {
        self.fetch_add(1, order);
    }

    fn clear(&self, order: Ordering) {
        self.swap(0, order);
    }

    fn fence(order: Ordering) {
        fence(order);
    }

    fn sleep(&self, expected: u32, timeout: Duration) -> Wait {
        futex::wait(self, expected, Some(timeout))
    }

    fn rouse(&self) {
        futex::wake_all(self);
    }
}

fn ticket<C: WakeCell>(wake: &C, sleepers: &C) -> Ticket {
    // First: a waker that clears the count below raises `wake` afterwards, beyond what is read here.
    // EDGE cleared, acquire half. (A model that runs read-modify-writes in program order, as loom does,
    // cannot show what is lost without this edge: they are both about the order of two of them.)
    let seen = wake.load(Ordering::Acquire);
    // Relaxed: ordered by the fence.
    sleepers.add_one(Ordering::Relaxed);
    // EDGE asleep, the sleeper's fence: of this one and the waker's, one comes first. If it is this one, the
    // waker sees the sleeper; if the waker's, the look that follows sees what the waker made visible.
    C::fence(Ordering::SeqCst);
    Ticket { wake: seen }
}

fn wait<C: WakeCell>(wake: &C, ticket: Ticket, timeout: Option<Duration>) -> Woken {
    let (slice, last) = match timeout {
        Some(timeout) if timeout <= SECOND_LOOK => (timeout, true),
        _ => (SECOND_LOOK, false),
    };
    let slept = wake.sleep(ticket.wake, slice);
    // EDGE woken, acquire half.
    if wake.load(Ordering::Acquire) != ticket.wake {
        return Woken::Changed;
    }
    match slept {
        Wait::TimedOut if last => Woken::TimedOut,
        Wait::Refused(_) => {
            thread::sleep(slice.min(POLL));
            Woken::LookAgain
        }
        Wait::TimedOut | Wait::Woken | Wait::Changed => Woken::LookAgain,
    }
}

fn wake_all<C: WakeCell>(wake: &C, sleepers: &C) {
    // EDGE asleep, the waker's fence.
    C::fence(Ordering::SeqCst);
    // Relaxed: ordered by the fence.
    if sleepers.load(Ordering::Relaxed) == 0 {
        return;
    }
    // Cleared before `wake` is raised: who announces itself in between keeps its announcement, and who did
    // so earlier holds a ticket that the increment makes stale. Even if another waker has cleared it
    // meanwhile, this one goes on: the other may be stopped right here.
    // Relaxed: kept before the increment by its release.
    sleepers.clear(Ordering::Relaxed);
    // EDGE cleared, release half: who sees the new count, and announces itself anew, does so after the line
    // above and is not cleared by it.
    // EDGE woken, release half: who sees the new count sees what was made visible before the fence. The
    // fence alone would do for that.
    wake.add_one(Ordering::Release);
    wake.rouse();
}
