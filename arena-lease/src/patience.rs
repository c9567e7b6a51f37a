//! How long who waits for a place goes on.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::lease::Lease;
use crate::limit::LimitError;
use crate::term::nanoseconds;

/// How often a [`Patience`] that counts looks, unless told.
const EVERY: Duration = Duration::from_secs(1);

/// How long to wait for a place: by number of attempts, by time, by asking, by any of them together, or without end.
///
/// Waiting does not poll: whatever gives way wakes the waiter, at once, whichever of these is set. *Attempts* are
/// counted at a pace of their own ([`every`](Self::every)), the first at once.
#[derive(Clone, Debug, Default)]
#[must_use = "patience waits for nothing by itself"]
pub struct Patience {
    attempts: Option<NonZeroU32>,
    every: Option<Duration>,
    timeout: Option<Duration>,
    ask: Option<Ask>,
}

/// What a waiter is told about its wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Waited {
    /// How many attempts it has made, all in vain.
    pub attempts: u32,
    /// How many of them since it last moved on to another place.
    pub attempts_here: u32,
    /// Since it began to wait, on the boot clock.
    pub elapsed: Duration,
    /// Since it last moved on.
    pub elapsed_here: Duration,
}

#[derive(Clone)]
struct Ask(Arc<dyn Fn(&Waited) -> bool + Send + Sync>);

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ask")
    }
}

impl Patience {
    /// Without end.
    pub fn new() -> Self {
        Self::default()
    }

    /// At most so many attempts: after the last one in vain, the wait is over.
    pub fn attempts(mut self, attempts: NonZeroU32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// The time between two attempts: a second, unless told. Not zero.
    pub fn every(mut self, interval: Duration) -> Self {
        self.every = Some(interval);
        self
    }

    /// At most so long, on the boot clock. Not zero: that is one attempt.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Asks after each attempt in vain whether to go on.
    ///
    /// Called by the waiting thread, which sees nothing give way meanwhile.
    pub fn ask(mut self, go_on: impl Fn(&Waited) -> bool + Send + Sync + 'static) -> Self {
        self.ask = Some(Ask(Arc::new(go_on)));
        self
    }

    /// # Errors
    ///
    /// [`LimitError::Option`]: a time is zero.
    pub(crate) fn check(&self) -> Result<(), LimitError> {
        let zero = |what, time: Option<Duration>| match time {
            Some(Duration::ZERO) => Err(LimitError::Option {
                what,
                found: "zero".into(),
            }),
            _ => Ok(()),
        };
        zero("the timeout", self.timeout)?;
        zero("the time between two attempts", self.every)
    }
}

/// One wait, as far as it has come.
pub(crate) struct Pace<'a> {
    patience: &'a Patience,
    lease: &'a Lease,
    began_ns: u64,
    moved_ns: u64,
    next_ns: u64,
    attempts: u32,
    attempts_here: u32,
}

impl<'a> Pace<'a> {
    pub(crate) fn new(patience: &'a Patience, lease: &'a Lease) -> Self {
        let now_ns = lease.now_ns();
        Self {
            patience,
            lease,
            began_ns: now_ns,
            moved_ns: now_ns,
            next_ns: now_ns,
            attempts: 0,
            attempts_here: 0,
        }
    }

    /// The waiter came to another place.
    pub(crate) fn moved(&mut self) {
        self.attempts_here = 0;
        self.moved_ns = self.lease.now_ns();
    }

    /// A look was in vain: until when to sleep, on the lease's clock; `None`: no longer at all.
    pub(crate) fn go_on(&mut self) -> Option<u64> {
        let now_ns = self.lease.now_ns();
        let Patience {
            attempts,
            every,
            timeout,
            ask,
        } = self.patience;
        let end_ns = timeout.map_or(u64::MAX, |timeout| {
            self.began_ns.saturating_add(nanoseconds(timeout))
        });
        if now_ns >= end_ns {
            return None;
        }
        if attempts.is_none() && ask.is_none() {
            return Some(end_ns);
        }
        if now_ns >= self.next_ns {
            self.attempts = self.attempts.saturating_add(1);
            self.attempts_here = self.attempts_here.saturating_add(1);
            if attempts.is_some_and(|most| self.attempts >= most.get()) {
                return None;
            }
            let waited = Waited {
                attempts: self.attempts,
                attempts_here: self.attempts_here,
                elapsed: Duration::from_nanos(now_ns.saturating_sub(self.began_ns)),
                elapsed_here: Duration::from_nanos(now_ns.saturating_sub(self.moved_ns)),
            };
            if ask.as_ref().is_some_and(|ask| !(ask.0)(&waited)) {
                return None;
            }
            self.next_ns = now_ns.saturating_add(nanoseconds(every.unwrap_or(EVERY)));
        }
        Some(self.next_ns.min(end_ns))
    }
}
