//! A lock between processes that outlives its holder's death, and says so.

mod protocol;
mod word;

#[cfg(test)]
mod loom_tests;
#[cfg(test)]
mod tests;

use crate::JoinError;
use crate::attachment_word::Life;
use crate::id::AttachmentId;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use nix::time::{ClockId, clock_gettime};
use protocol::{Refusal, Taken};
use word::Lock;

/// The word of a robust lock: eight bytes of an arena, of which zero is a lock that nobody holds.
///
/// The word names its holder, and the holder's death can be proven, so a holder that is killed delays
/// the next one by a fraction of a second instead of for ever; and the next one is told, because what
/// the lock guards may be half changed ([`Acquired::Inherited`]). A holder that is merely *stopped* keeps
/// the lock: those who want it get [`LockError::Busy`] at their deadline, with its name.
///
/// A process holds it, not a thread, and it is not re-entrant: other threads of the holding process
/// wait like everybody else, and a thread that locks what it holds already waits for itself until its
/// deadline.
///
/// It is taken through [`Arena::lock`](crate::Arena::lock) and [`Arena::try_lock`](crate::Arena::try_lock).
#[repr(transparent)]
#[derive(Default)]
// layout: one AtomicU64, written by whoever locks, unlocks and waits.
pub struct LockWord(AtomicU64);

impl LockWord {
    /// A lock that nobody holds.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Who holds the lock at this instant, dead or alive; `None` when nobody does, and for a word that
    /// makes no sense.
    ///
    /// One load. It may be over before the caller looks at the answer: good for a report, not for a
    /// decision.
    #[must_use]
    pub fn holder(&self) -> Option<AttachmentId> {
        // Relaxed: a report, on which nothing is built.
        match Lock::decode(self.0.load(Ordering::Relaxed)) {
            Some(Lock::Held { by, .. }) => Some(by),
            Some(Lock::Free) | None => None,
        }
    }

    /// Takes the lock for this process, whose attachment is `me`, waiting at most for `timeout`.
    ///
    /// A timeout of zero tries: it does not sleep, but does inherit from a holder that is proven gone.
    /// One exchange when nobody holds the lock. Otherwise two exchanges, a clock, a probe of the holder
    /// and a sleep for each slice of the wait; see [`protocol`].
    pub(crate) fn acquire<'a>(
        &'a self,
        me: AttachmentId,
        env: &'a dyn Environment,
        timeout: Duration,
    ) -> Result<Acquired<'a>, LockError> {
        match protocol::acquire(&self.0, me, env, timeout) {
            Ok(taken) => {
                let guard = LockGuard {
                    word: self,
                    me,
                    env,
                };
                Ok(match taken {
                    Taken::Clean => Acquired::Clean(guard),
                    Taken::Inherited => Acquired::Inherited(guard),
                })
            }
            Err(Refusal::Busy { holder }) => Err(LockError::Busy {
                holder,
                pid: env.pid_of(holder),
            }),
            Err(Refusal::Corrupt { found }) => Err(LockError::Corrupt { found }),
        }
    }
}

impl fmt::Debug for LockWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: a report, on which nothing is built.
        let word = self.0.load(Ordering::Relaxed);
        match Lock::decode(word) {
            Some(lock) => write!(f, "LockWord({lock:?})"),
            None => write!(f, "LockWord(corrupt {word:#x})"),
        }
    }
}

/// What the lock asks of the process that uses it.
pub(crate) trait Environment: Sync {
    /// Whether the attachment `id` of another process is gone. When the answer is [`Life::Gone`],
    /// everything that `id` ever stored happens before the answer.
    fn life(&self, id: AttachmentId) -> Life;

    /// The pid that `id` wrote down when it joined, or 0 when its row is no longer its own. For messages.
    fn pid_of(&self, id: AttachmentId) -> u32;

    /// The attachment of the process that asks; never joins. A child of `fork` is not its parent, and
    /// has none until it joins.
    fn me_now(&self) -> Option<AttachmentId>;

    /// The time on the clock that the kernel uses for the sleeps of [`futex`](crate::futex).
    fn now(&self) -> Duration {
        clock_gettime(ClockId::CLOCK_MONOTONIC)
            .expect("every kernel has CLOCK_MONOTONIC")
            .into()
    }
}

/// The lock, and in what state its last holder left what it guards.
#[must_use = "a lock is let go at once when its guard is dropped, and an inheritor has to repair first"]
#[derive(Debug)]
pub enum Acquired<'a> {
    /// The last holder let go of the lock itself.
    Clean(LockGuard<'a>),
    /// The last holder died, and what the lock guards may be half changed: repair it before anything
    /// else. This is told once; an inheritor that dies before it lets go is inherited from in its turn, but
    /// one that drops the guard without having repaired loses the news.
    Inherited(LockGuard<'a>),
}

impl<'a> Acquired<'a> {
    /// Whether the last holder died.
    #[must_use]
    pub const fn is_inherited(&self) -> bool {
        matches!(self, Self::Inherited(_))
    }

    /// The guard, by whatever way it came; for callers to whom a half state makes no difference.
    pub fn into_guard(self) -> LockGuard<'a> {
        match self {
            Self::Clean(guard) | Self::Inherited(guard) => guard,
        }
    }
}

/// Holds a [`LockWord`] until it is dropped.
///
/// Dropping it is one exchange; if somebody waits, two and a system call that wakes one of them. It never
/// blocks. In a child of `fork` it does nothing: the lock is the parent's. A panic that unwinds through
/// it lets go of the lock, and the next holder is not told.
#[must_use = "a lock is let go at once when its guard is dropped"]
pub struct LockGuard<'a> {
    word: &'a LockWord,
    me: AttachmentId,
    env: &'a dyn Environment,
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        if self.env.me_now() == Some(self.me) {
            protocol::release(&self.word.0, self.me);
        }
    }
}

impl fmt::Debug for LockGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockGuard({})", self.me)
    }
}

/// Why a lock was not taken.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody held it until the deadline and is not proven dead. Try again later; if it is stopped,
    /// continue or kill it.
    #[error("the lock is held by {holder} (pid {pid})")]
    Busy {
        /// Who held it when it was last looked at: perhaps this process itself, in another thread.
        holder: AttachmentId,
        /// Its pid as it knows it itself, in its own PID namespace; 0 when its row no longer says.
        pid: u32,
    },
    /// The word is none that this crate writes. Something else wrote to the arena, and nothing that the
    /// lock guards can be relied on: use another arena.
    #[error("the lock word {found:#018x} is corrupt")]
    Corrupt {
        /// The word.
        found: u64,
    },
    /// This process is not attached and could not join.
    #[error("this process could not join the arena")]
    Join(#[from] JoinError),
}
