//! A lease that is renewed for as long as a guard exists.

use std::hash::{BuildHasher as _, RandomState};
use std::ops::Deref;
use std::time::Duration;

use crate::cancel::Cancel;
use crate::error::LeaseError;
use crate::keeper;
use crate::lead_options::Lead;
use crate::lease::Lease;
use crate::leases::Leases;
use crate::loss::Loss;
use crate::outcome::{Acquire, Hold, Refused};
use crate::term::{Term, nanoseconds};
use crate::wait::{Bedside, On};

/// Keeps a lease alive from a thread, and releases it when it is dropped.
///
/// It is the [`Term`] that it keeps: ask [`is_leading`](Term::is_leading) in the work's inner loop, and
/// [`loss`](Term::loss) or [`wait_lost`](Term::wait_lost) for how it ended. All guards of a process are kept by one
/// thread. A guard that lost its lease gets no other: contend again.
///
/// The *process* holds a lease, so two guards of one process on one name are of the same term of the same lease, and
/// the first that is dropped ends it for both.
///
/// In a child of fork the guard is lost ([`Loss::Forked`]), and dropping it there does nothing to the parent's.
#[derive(Debug)]
#[must_use = "a guard that is dropped releases its lease"]
pub struct LeaseGuard {
    term: Term,
    is_over: bool,
}

/// The outcome of a contest.
#[must_use = "a guard that is dropped releases its lease"]
#[derive(Debug)]
pub enum Contest {
    /// This process leads, for as long as the guard is kept and not lost.
    Won(LeaseGuard),
    /// It does not.
    Refused(Refused),
}

impl Contest {
    /// The guard, if the contest was won.
    #[must_use]
    pub fn won(self) -> Option<LeaseGuard> {
        match self {
            Self::Won(guard) => Some(guard),
            Self::Refused(_) => None,
        }
    }
}

impl Lead {
    /// Waits until this process leads `name`, as long as the options say, and keeps the lease alive from then on.
    ///
    /// Costs what [`Lease::acquire_timeout`] does. The first guard of a process starts a thread, which ends when there
    /// has been none for a fifth of a second.
    ///
    /// # Errors
    ///
    /// As [`Leases::lease`] and [`Lease::acquire`]; [`LeaseError::Helper`] when the system refuses the thread: then
    /// nothing is held.
    pub fn contend(&self, leases: &Leases, name: impl AsRef<[u8]>) -> Result<Contest, LeaseError> {
        let lease = leases.lease(name, self.ttl.duration())?;
        let until_ns = lease.in_ns(self.wait);
        self.jitter(&lease);
        self.contend_until(lease, until_ns)
    }

    /// Waits until `until_ns` (0: not at all).
    pub(crate) fn contend_until(&self, lease: Lease, until_ns: u64) -> Result<Contest, LeaseError> {
        match lease.acquire_until(self.ttl, until_ns, self.cancel.as_ref())? {
            Acquire::Held(hold) => Ok(Contest::Won(self.guard(lease, hold)?)),
            Acquire::Refused(why) => Ok(Contest::Refused(why)),
        }
    }

    /// Sleeps for a random time, unless there is nothing to contend for any more.
    fn jitter(&self, lease: &Lease) {
        let most_ns = nanoseconds(self.jitter.min(self.wait));
        if most_ns == 0 {
            return;
        }
        // The state alone is the same in all children of one parent.
        let unlike = (lease.me_if_joined(), lease.now_ns());
        let random = u128::from(RandomState::new().hash_one(unlike));
        let share_ns = u64::try_from((random * u128::from(most_ns)) >> 64).unwrap_or(most_ns);
        let until_ns = lease.in_ns(Duration::from_nanos(share_ns));
        let cancel = self.cancel.as_ref();
        let bedside = Bedside::heeding(cancel);
        while !cancel.is_some_and(Cancel::is_cancelled) && !lease.is_gone() {
            let left_ns = until_ns.saturating_sub(lease.now_ns());
            if left_ns == 0 {
                return;
            }
            bedside.sleep(lease.peers(), On::default(), Duration::from_nanos(left_ns));
        }
    }

    fn guard(&self, lease: Lease, hold: Hold) -> Result<LeaseGuard, LeaseError> {
        let me = lease
            .me_if_joined()
            .expect("a process that holds has joined");
        let guard = LeaseGuard {
            term: Term::new(lease, hold, me, self),
            is_over: false,
        };
        // Refused: the guard is dropped, and so the lease released.
        keeper::keep(&guard.term).map_err(LeaseError::Helper)?;
        Ok(guard)
    }
}

impl LeaseGuard {
    /// Gives the lease up, and says whether this process led until now.
    ///
    /// The options' minimum hold is kept. What a drop does, with the outcome told.
    ///
    /// # Errors
    ///
    /// The reason, when the leadership had been lost before. Work that was done since is not protected.
    pub fn release(mut self) -> Result<(), Loss> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Loss> {
        self.is_over = true;
        let term = &self.term;
        if term.is_forked() {
            return Err(Loss::Forked);
        }
        keeper::forget(term);
        let told = term.told();
        let min_hold = match told {
            Some(Loss::Unhealthy) => Duration::ZERO,
            _ => term.rules().min_hold,
        };
        // Also when it was lost: the margin need not be waited for any more.
        let released = term
            .lease()
            .release_with(term.fence(), min_hold, term.heir());
        match (told, released) {
            (Some(loss), _) => Err(loss),
            (None, Ok(true)) => match term.settle(Loss::Released) {
                Loss::Released => Ok(()),
                // Told meanwhile by another thread.
                loss => Err(loss),
            },
            (None, Ok(false)) => Err(term.settle(term.standing().err().unwrap_or(Loss::Released))),
            (None, Err(LeaseError::Removed)) => Err(term.settle(Loss::Removed)),
            (None, Err(LeaseError::Corrupt { .. })) => Err(term.settle(Loss::Damaged)),
            // It lapses by itself, and nobody renews it.
            (None, Err(_)) => match term.look() {
                Ok(_) => {
                    term.settle(Loss::Released);
                    Ok(())
                }
                Err(loss) => Err(loss),
            },
        }
    }
}

impl Deref for LeaseGuard {
    type Target = Term;

    fn deref(&self) -> &Term {
        &self.term
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if !self.is_over {
            // Told to whoever asks the term, and to the callback.
            let _how = self.end();
        }
    }
}
