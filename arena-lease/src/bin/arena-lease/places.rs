//! A place of a limit, for `run --limit` and `run --latest`.

use std::num::NonZeroU16;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use arena_lease::peers::core::command::shown;
use arena_lease::{
    ConcurrencyLimit, GateOpenError, LatestStandby, Lead, LeadOptions, LeaseError, Leases,
    LimitError, Patience, Place, Standby, Succession, WithStandby,
};

use crate::args::Run;
use crate::{Failure, exit};

/// How asking ended.
pub(crate) enum Asked<T> {
    Held(T),
    /// The exit code, and what to tell.
    Not(u8, String),
}

impl<T> Asked<T> {
    pub(crate) fn map<U>(self, held: impl FnOnce(T) -> U) -> Asked<U> {
        match self {
            Self::Held(got) => Asked::Held(held(got)),
            Self::Not(code, why) => Asked::Not(code, why),
        }
    }
}

/// Which of the limits `run` was told to ask for a place.
pub(crate) enum Wanted {
    Limit(NonZeroU16),
    Standby(NonZeroU16, NonZeroU16),
    Latest,
}

impl Wanted {
    /// `None`: a plain lease.
    pub(crate) fn of(args: &Run) -> Option<Self> {
        match (args.limit, args.standby, args.latest) {
            (None, _, false) => None,
            (None, _, true) => Some(Self::Latest),
            (Some(places), None, _) => Some(Self::Limit(places)),
            (Some(places), Some(standbys), _) => Some(Self::Standby(places, standbys)),
        }
    }

    /// Asks for a place, and waits for it for up to `wait`.
    pub(crate) fn ask(
        self,
        args: &Run,
        leases: &Leases,
        wait: Duration,
    ) -> Result<Asked<Place>, Failure> {
        let rules = LeadOptions::new().ttl(args.ttl).build();
        let rules = rules.map_err(|error| Failure::new(exit::USAGE, "wrong --ttl", &error))?;
        let asked = match self {
            Self::Limit(places) => limit(args, leases, places, &rules, wait),
            Self::Standby(places, standbys) => {
                standby(args, leases, (places, standbys), &rules, wait)
            }
            Self::Latest => latest(args, leases, &rules, wait),
        };
        asked.map_err(|error| cannot_use(args, &error))
    }
}

fn limit(
    args: &Run,
    leases: &Leases,
    places: NonZeroU16,
    rules: &Lead,
    wait: Duration,
) -> Result<Asked<Place>, LimitError> {
    let limit = ConcurrencyLimit::open(leases, args.name.as_bytes(), places, rules)?;
    let place = match wait.is_zero() {
        true => limit.try_acquire()?,
        false => limit.acquire_timeout(wait)?,
    };
    Ok(place.map_or_else(|| taken(args, &limit), Asked::Held))
}

fn standby(
    args: &Run,
    leases: &Leases,
    (places, standbys): (NonZeroU16, NonZeroU16),
    rules: &Lead,
    wait: Duration,
) -> Result<Asked<Place>, LimitError> {
    let limit = WithStandby::open(leases, args.name.as_bytes(), places, standbys, rules)?;
    let how = match patience(wait) {
        Some(patience) => limit.acquire(&patience)?,
        None => limit
            .limit()
            .try_acquire()?
            .map_or(Standby::TimedOut, Standby::Held),
    };
    Ok(match how {
        Standby::Held(place) => Asked::Held(place),
        Standby::Full => Asked::Not(args.conflict, "all places to wait at are taken".into()),
        Standby::TimedOut | Standby::Cancelled => taken(args, limit.limit()),
    })
}

fn latest(
    args: &Run,
    leases: &Leases,
    rules: &Lead,
    wait: Duration,
) -> Result<Asked<Place>, LimitError> {
    let latest = LatestStandby::open(leases, args.name.as_bytes(), rules)?;
    let how = match patience(wait) {
        Some(patience) => latest.acquire(&patience)?,
        // Who does not wait makes none of those who do bow out.
        None => {
            let place = latest.limit().try_acquire()?;
            place.map_or(Succession::TimedOut, Succession::Primary)
        }
    };
    Ok(match how {
        Succession::Primary(place) => Asked::Held(place),
        Succession::EntryTaken => Asked::Not(exit::ENTRY_TAKEN, "another has just entered".into()),
        Succession::Replaced { by } => {
            Asked::Not(exit::REPLACED, format!("{by} is newer, and waits instead"))
        }
        Succession::Lapsed => Asked::Not(
            args.conflict,
            "the place where it waited was lost: arena-lease was stopped for too long".into(),
        ),
        Succession::TimedOut | Succession::Cancelled => taken(args, latest.limit()),
    })
}

/// `None`: no time at all.
fn patience(wait: Duration) -> Option<Patience> {
    match wait {
        Duration::ZERO => None,
        Duration::MAX => Some(Patience::new()),
        wait => Some(Patience::new().timeout(wait)),
    }
}

fn taken(args: &Run, limit: &ConcurrencyLimit) -> Asked<Place> {
    let why = format!("{} at work", limit.in_use());
    Asked::Not(args.conflict, why)
}

fn cannot_use(args: &Run, error: &LimitError) -> Failure {
    let name = shown(&args.name);
    match error {
        LimitError::Open(GateOpenError::Name { .. })
        | LimitError::Lease(LeaseError::Name { .. }) => {
            Failure::new(exit::USAGE, "wrong NAME (of a limit: 1 to 80 bytes)", error)
        }
        LimitError::Option { .. } => Failure::new(exit::USAGE, "wrong options", error),
        _ => Failure::new(exit::ARENA, &format!("cannot use limit {name}"), error),
    }
}
