//! How long a lease lasts without being renewed.

use std::time::Duration;

use crate::word::NS_PER_MS;

/// A time to live that was found valid.
///
/// Kept to the nanosecond as it was asked for; the *deadline* in the lease word is in whole milliseconds and
/// is rounded up, so a lease lasts at least its ttl and less than a millisecond longer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ttl {
    ns: u64,
}

/// A ttl that no lease can have. Ask for one above zero and up to [`Ttl::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a ttl of {asked:?} is not possible: it must be above zero and at most {max:?}", max = Ttl::MAX)]
pub struct InvalidTtl {
    /// What was asked for.
    pub asked: Duration,
}

impl Ttl {
    /// The longest: 2^40 - 1 milliseconds, about 34 years and 10 months. (The deadline is counted from the
    /// machine's boot in 40 bits, so the uptime comes off this; a ttl that reaches beyond is refused when it
    /// is used.)
    pub const MAX: Duration = Duration::from_millis((1 << 40) - 1);

    /// The default of the command and of a lease that names none: 30 seconds.
    pub const DEFAULT: Ttl = Ttl {
        ns: 30_000 * NS_PER_MS,
    };

    /// # Errors
    /// [`InvalidTtl`]: zero, or longer than [`Ttl::MAX`]. Zero never becomes a default.
    pub fn new(ttl: Duration) -> Result<Self, InvalidTtl> {
        let invalid = InvalidTtl { asked: ttl };
        if ttl.is_zero() || ttl > Self::MAX {
            return Err(invalid);
        }
        let ns = u64::try_from(ttl.as_nanos()).map_err(|_| invalid)?;
        Ok(Self { ns })
    }

    /// In nanoseconds; never zero.
    pub(crate) const fn ns(self) -> u64 {
        self.ns
    }

    /// As a duration, to the nanosecond as it was given.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.ns)
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = InvalidTtl;

    fn try_from(ttl: Duration) -> Result<Self, InvalidTtl> {
        Self::new(ttl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_of_zero_is_refused_and_names_itself() {
        let refused = Ttl::new(Duration::ZERO).unwrap_err();
        assert_eq!(refused.asked, Duration::ZERO);
        assert!(refused.to_string().contains("0ns"), "{refused}");
    }

    #[test]
    fn a_ttl_beyond_forty_bits_of_milliseconds_is_refused() {
        assert!(Ttl::new(Ttl::MAX).is_ok());
        assert!(Ttl::new(Ttl::MAX + Duration::from_nanos(1)).is_err());
        assert!(Ttl::new(Duration::MAX).is_err());
    }

    #[test]
    fn fractions_of_a_millisecond_are_kept() {
        let ttl = Ttl::new(Duration::from_micros(1_500)).unwrap();
        assert_eq!(ttl.duration(), Duration::from_micros(1_500));
    }
}
