//! How to lead: options, and the rules that they become once they were found to make sense.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::cancel::Cancel;
use crate::loss::Loss;
use crate::ttl::{InvalidTtl, Ttl};

/// The longest margin that is chosen when none was asked for.
const DEFAULT_MARGIN: Duration = Duration::from_secs(1);

/// The shortest interval of renewals: deadlines are in milliseconds.
const LEAST_RENEW_EVERY: Duration = Duration::from_millis(1);

/// How to lead. All times are measured on the boot clock, which runs on while the machine sleeps.
///
/// ```
/// use std::time::Duration;
/// use arena_lease::LeadOptions;
///
/// let rules = LeadOptions::new()
///     .ttl(Duration::from_secs(10))
///     .margin(Duration::from_secs(1))
///     .health_limit(Duration::from_secs(60))
///     .build()?;
/// # Ok::<(), arena_lease::InvalidLead>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "options lead nothing by themselves"]
pub struct LeadOptions {
    ttl: Duration,
    margin: Option<Duration>,
    renew_every: Option<Duration>,
    min_hold: Duration,
    health_limit: Option<Duration>,
    jitter: Duration,
    wait: Duration,
    cancel: Option<Cancel>,
    on_lost: Option<OnLost>,
}

/// Options that were found to make sense: what [`lead`](Self::lead) and [`contend`](Self::contend) go by.
#[derive(Clone, Debug)]
pub struct Lead {
    pub(crate) ttl: Ttl,
    pub(crate) margin: Duration,
    pub(crate) renew_every: Duration,
    pub(crate) min_hold: Duration,
    pub(crate) health_limit: Option<Duration>,
    pub(crate) jitter: Duration,
    pub(crate) wait: Duration,
    pub(crate) cancel: Option<Cancel>,
    pub(crate) on_lost: Option<OnLost>,
}

/// Options that make no sense together. Nothing is silently replaced by something else, zero included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLead {
    /// The ttl cannot be a lease's.
    #[error(transparent)]
    Ttl(#[from] InvalidTtl),
    /// Nobody would ever lead. Ask for a margin below the ttl.
    #[error("a margin of {asked:?} is not possible: it must be below the ttl of {ttl:?}")]
    Margin {
        /// What was asked for.
        asked: Duration,
        /// The ttl.
        ttl: Duration,
    },
    /// Each renewal would come too late, or they would never end. Renew more often, or choose a longer ttl.
    #[error(
        "renewing every {asked:?} is not possible: it must be at least {least:?} and below {below:?}, the ttl less the margin",
        least = LEAST_RENEW_EVERY
    )]
    RenewEvery {
        /// What was asked for, or a third of `below`.
        asked: Duration,
        /// The ttl less the margin.
        below: Duration,
    },
    /// The work could never be healthy, or for longer than a clock can tell.
    #[error(
        "a health limit of {asked:?} is not possible: it must be above the margin of {margin:?} and at most {max:?}",
        max = Ttl::MAX
    )]
    HealthLimit {
        /// What was asked for.
        asked: Duration,
        /// The margin.
        margin: Duration,
    },
    /// The minimum hold is longer than a lease can be kept.
    #[error("a minimum hold of {asked:?} is not possible: it must be at most {max:?}", max = Ttl::MAX)]
    MinHold {
        /// What was asked for.
        asked: Duration,
    },
    /// The jitter is longer than a clock can tell.
    #[error("a jitter of {asked:?} is not possible: it must be at most {max:?}", max = Ttl::MAX)]
    Jitter {
        /// What was asked for.
        asked: Duration,
    },
}

/// Whom to tell of a loss.
#[derive(Clone)]
pub(crate) struct OnLost(pub(crate) Arc<dyn Fn(Loss) + Send + Sync>);

impl fmt::Debug for OnLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnLost")
    }
}

impl Default for LeadOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl LeadOptions {
    /// The defaults: a ttl of 30 seconds; a tenth of the ttl as margin, but at most a second; three renewals in
    /// what is left; no minimum hold, no health limit, no jitter; waiting without limit.
    pub const fn new() -> Self {
        Self {
            ttl: Ttl::DEFAULT.duration(),
            margin: None,
            renew_every: None,
            min_hold: Duration::ZERO,
            health_limit: None,
            jitter: Duration::ZERO,
            wait: Duration::MAX,
            cancel: None,
            on_lost: None,
        }
    }

    /// How long the lease lasts without being renewed: how late a rival is after this process was stopped.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long before the deadline this process considers the lease lost, so that its work is at rest when
    /// somebody else's begins. Below the ttl.
    pub const fn margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// How often the lease is renewed. At least a millisecond, and below the ttl less the margin.
    pub const fn renew_every(mut self, interval: Duration) -> Self {
        self.renew_every = Some(interval);
        self
    }

    /// How long the lease is kept at least from its acquisition, the end of the work included; a death passes it
    /// on at once, and so does work that was unhealthy. See
    /// [`Lease::release_held_for`](crate::Lease::release_held_for).
    pub const fn min_hold(mut self, min_hold: Duration) -> Self {
        self.min_hold = min_hold;
        self
    }

    /// How long the work may go without [`Term::beat`](crate::Term::beat): when that is over the lease is released,
    /// and lost the margin before. Above the margin. Without a limit, a body that hangs leads for ever.
    pub const fn health_limit(mut self, limit: Duration) -> Self {
        self.health_limit = Some(limit);
        self
    }

    /// Waits for a random time below this before each contest, so that many who lost together do not all contend at
    /// once. Part of [`wait`](Self::wait).
    pub const fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// How long to wait for the lease; zero is one attempt, `Duration::MAX` for ever.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Ends the waiting, and the leadership too ([`Loss::Cancelled`]), when it is cancelled.
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// Calls `tell` once for each term, when it ends, with the reason; the ordinary end included
    /// ([`Loss::Released`]).
    ///
    /// It is called by whichever thread notices: one that asks, the one that drops the guard, or one of its own when the
    /// keeper does. When it panics nothing else happens. How soon it comes depends on the scheduler, and the others, who
    /// are told by [`Term::loss`](crate::Term::loss), do not wait for it.
    pub fn on_lost(mut self, tell: impl Fn(Loss) + Send + Sync + 'static) -> Self {
        self.on_lost = Some(OnLost(Arc::new(tell)));
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// [`InvalidLead`] names the first that makes no sense.
    pub fn build(self) -> Result<Lead, InvalidLead> {
        let ttl = Ttl::new(self.ttl)?;
        let margin = self.margin.unwrap_or(DEFAULT_MARGIN.min(self.ttl / 10));
        let Some(below) = self.ttl.checked_sub(margin).filter(|left| !left.is_zero()) else {
            return Err(InvalidLead::Margin {
                asked: margin,
                ttl: self.ttl,
            });
        };
        let renew_every = self.renew_every.unwrap_or(below / 3);
        if renew_every < LEAST_RENEW_EVERY || renew_every >= below {
            return Err(InvalidLead::RenewEvery {
                asked: renew_every,
                below,
            });
        }
        if let Some(asked) = self.health_limit
            && (asked <= margin || asked > Ttl::MAX)
        {
            return Err(InvalidLead::HealthLimit { asked, margin });
        }
        if self.min_hold > Ttl::MAX {
            return Err(InvalidLead::MinHold {
                asked: self.min_hold,
            });
        }
        if self.jitter > Ttl::MAX {
            return Err(InvalidLead::Jitter { asked: self.jitter });
        }
        Ok(Lead {
            ttl,
            margin,
            renew_every,
            min_hold: self.min_hold,
            health_limit: self.health_limit,
            jitter: self.jitter,
            wait: self.wait,
            cancel: self.cancel,
            on_lost: self.on_lost,
        })
    }
}

impl Lead {
    /// The rules for a place that is only waited at: no work goes on there.
    pub(crate) fn while_waiting(self) -> Self {
        Self {
            min_hold: Duration::ZERO,
            health_limit: None,
            on_lost: None,
            ..self
        }
    }
}

impl Default for Lead {
    fn default() -> Self {
        LeadOptions::new()
            .build()
            .expect("a test builds the defaults")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const NS: Duration = Duration::from_nanos(1);

    fn refused(options: LeadOptions) -> InvalidLead {
        options.build().unwrap_err()
    }

    #[test]
    fn the_defaults_leave_room_for_three_renewals() {
        let rules = Lead::default();
        assert_eq!((rules.ttl.duration(), rules.margin), (30 * S, S));
        assert_eq!(rules.renew_every, 29 * S / 3);
        let short = LeadOptions::new().ttl(S).build().unwrap();
        assert_eq!(short.margin, S / 10);
    }

    #[test]
    fn a_ttl_of_zero_or_beyond_the_clock_is_refused() {
        for ttl in [Duration::ZERO, Ttl::MAX + NS, Duration::MAX] {
            let why = refused(LeadOptions::new().ttl(ttl));
            assert!(matches!(why, InvalidLead::Ttl(InvalidTtl { asked }) if asked == ttl));
        }
        assert!(LeadOptions::new().ttl(Ttl::MAX).build().is_ok());
    }

    #[test]
    fn a_margin_of_the_whole_ttl_is_refused_and_zero_is_none() {
        for asked in [S, S + NS, Duration::MAX] {
            let why = refused(LeadOptions::new().ttl(S).margin(asked));
            assert_eq!(why, InvalidLead::Margin { asked, ttl: S });
        }
        let none = LeadOptions::new().margin(Duration::ZERO).build().unwrap();
        assert_eq!(none.margin, Duration::ZERO);
    }

    #[test]
    fn renewals_that_would_come_too_late_or_never_end_are_refused() {
        let options = LeadOptions::new().ttl(10 * S).margin(4 * S);
        for asked in [Duration::ZERO, LEAST_RENEW_EVERY - NS, 6 * S, Duration::MAX] {
            let why = refused(options.clone().renew_every(asked));
            assert_eq!(
                why,
                InvalidLead::RenewEvery {
                    asked,
                    below: 6 * S
                }
            );
        }
        assert!(options.clone().renew_every(6 * S - NS).build().is_ok());
        assert!(options.renew_every(LEAST_RENEW_EVERY).build().is_ok());
        // So short that nobody could choose an interval.
        let why = refused(LeadOptions::new().ttl(LEAST_RENEW_EVERY));
        assert!(matches!(why, InvalidLead::RenewEvery { .. }));
    }

    #[test]
    fn a_health_limit_within_the_margin_is_refused() {
        let options = LeadOptions::new().ttl(10 * S).margin(4 * S);
        for asked in [Duration::ZERO, 4 * S, Duration::MAX] {
            let why = refused(options.clone().health_limit(asked));
            assert_eq!(
                why,
                InvalidLead::HealthLimit {
                    asked,
                    margin: 4 * S
                }
            );
        }
        assert!(options.health_limit(4 * S + NS).build().is_ok());
    }

    #[test]
    fn a_minimum_hold_and_a_jitter_beyond_the_clock_are_refused() {
        let asked = Duration::MAX;
        let why = refused(LeadOptions::new().min_hold(asked));
        assert_eq!(why, InvalidLead::MinHold { asked });
        let why = refused(LeadOptions::new().jitter(asked));
        assert_eq!(why, InvalidLead::Jitter { asked });
    }
}
