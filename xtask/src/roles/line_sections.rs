//! What the stepper's children do between their marks with the places of a limit.

use std::{
    num::{NonZeroU16, NonZeroU32},
    time::Duration,
};

use arena_core::Arena;
use arena_lease::{
    ConcurrencyLimit, LatestStandby, Lead, LeadOptions, Leases, Patience, Place, Succession,
};

use super::{
    sections::{arena, await_parked, keep, section},
    step::{Ready, Section, nothing},
    verbs,
};
use crate::text;

pub(super) const SECTIONS: &[Section] = &[
    ("line", nothing, line),
    ("leave-line", nothing, leave_line),
    ("share", nothing, share),
];

/// How the scenario holds its places as well. Nothing is found out by the passing of the ttl.
pub(crate) fn rules() -> Lead {
    let rules = LeadOptions::new().ttl(Duration::from_secs(600));
    rules.build().expect("a valid ttl")
}

/// As many as have a place alone, and as many as share, in the scenario as well.
pub(crate) const ALONE_AND_SHARED: (NonZeroU16, NonZeroU16) =
    (NonZeroU16::MIN, NonZeroU16::MIN.saturating_add(1));

/// Without waiting for anybody.
pub(crate) fn once() -> Patience {
    Patience::new().attempts(NonZeroU32::MIN)
}

/// The table of the arena at `path`, and the thread that renews, which sleeps: no section starts it.
fn leases(path: &str) -> &'static Leases {
    let leases = keep(verbs::table(keep(arena(path))).expect("the table opens"));
    let guard = rules().contend(leases, "kept").expect("the table has room");
    keep(guard.won().expect("the child before this one is gone"));
    leases
}

fn latest(path: &str) -> &'static LatestStandby {
    keep(LatestStandby::open(leases(path), "line", &rules()).expect("all name the same"))
}

/// Told: a path. Enters, and moves on as far as it can.
fn line(_: Option<&Arena>, path: &str) -> Ready {
    let latest = latest(path);
    await_parked();
    section(
        || latest.acquire(&once()),
        |how| match how {
            Ok(Succession::Primary(place)) => {
                let works = place.heartbeat().is_ok();
                keep(place);
                format!("primary {works}")
            }
            Ok(Succession::TimedOut) => "timed-out".to_owned(),
            Ok(Succession::EntryTaken) => "entry-taken".to_owned(),
            Ok(other) => format!("{other:?}"),
            Err(e) => text::error(&e),
        },
    )
}

/// Told: a path. Works before, gone from the line after.
fn leave_line(_: Option<&Arena>, path: &str) -> Ready {
    let how = latest(path).acquire(&once()).expect("the line is whole");
    let place = how.primary().expect("nobody else is there");
    await_parked();
    section(
        move || place.release(),
        |released| match released {
            Ok(()) => "left".to_owned(),
            Err(loss) => format!("{loss:?}"),
        },
    )
}

/// Told: a path. Shares what others have alone.
fn share(_: Option<&Arena>, path: &str) -> Ready {
    let (alone, shared) = ALONE_AND_SHARED;
    let limit = ConcurrencyLimit::open_shared(leases(path), "index", alone, shared, &rules());
    let limit = keep(limit.expect("all name the same"));
    await_parked();
    section(
        || limit.try_acquire(),
        |shares| match shares {
            Ok(place) => {
                let id = place.as_ref().map(Place::id);
                keep(place);
                id.map_or("none".to_owned(), |id| id.to_string())
            }
            Err(e) => text::error(&e),
        },
    )
}
