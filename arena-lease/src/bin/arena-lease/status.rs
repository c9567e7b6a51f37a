//! `arena-lease status`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use arena_lease::peers::core::clock;
use arena_lease::peers::core::command::json::Object;
use arena_lease::peers::core::command::shown;
use arena_lease::{
    ArenaOptions, Holder, LeasesView, LimitKind, LimitState, PlaceState, Stats, Verdict, ViewError,
};

use crate::args::Status;
use crate::out::print;
use crate::{Failure, exit};

/// Prints who holds.
pub(crate) fn status(args: &Status) -> Result<u8, Failure> {
    let leases = leases(&args.arena)?;
    let name = args.name.as_bytes();
    let look = |leases: LeasesView| Ok((leases.stats(name)?, leases.limit(name)?));
    let seen = match leases.map(look).transpose() {
        Err(error @ ViewError::Name { .. }) => {
            return Err(Failure::new(exit::USAGE, "wrong NAME", &error));
        }
        seen => seen.map_err(|error| cannot_tell(&args.arena, &error))?,
    };
    let (stats, limit) = seen.unwrap_or_default();
    let line = match args.json {
        true => {
            let limit = limit.as_ref().map(limit_json);
            object(&args.arena, name, stats.as_ref())
                .field("limit", limit)
                .end()
        }
        false => match &limit {
            None => text(&args.arena, &args.name, stats.as_ref()),
            Some(limit) => limit_text(args, limit, stats.as_ref()),
        },
    };
    print(&format!("{line}\n"))?;
    Ok(0)
}

/// The leases of an arena that is only read; `None` when there are none yet.
pub(crate) fn leases(arena: &OsStr) -> Result<Option<LeasesView>, Failure> {
    let view = ArenaOptions::new().view(arena).map_err(|error| {
        let what = format!("cannot read arena {}", shown(arena));
        Failure::new(exit::ARENA, &what, &error)
    })?;
    LeasesView::open(&view).map_err(|error| cannot_tell(arena, &error))
}

pub(crate) fn cannot_tell(arena: &OsStr, error: &ViewError) -> Failure {
    let what = format!("cannot read the leases of arena {}", shown(arena));
    Failure::new(exit::ARENA, &what, error)
}

/// The object that `--help` describes.
pub(crate) fn json(arena: &OsStr, lease: &[u8], stats: Option<&Stats>) -> String {
    object(arena, lease, stats).end()
}

fn holder_json(holder: &Holder) -> String {
    Object::new()
        .field("pid", holder.pid)
        .bytes("name", holder.name.as_deref())
        .field("slot", Some(holder.peer.slot()))
        .field("epoch", Some(holder.peer.generation()))
        .bytes("verdict", Some(verdict(holder).as_bytes()))
        .field(
            "since",
            since(holder).map(|at| format!("{:.3}", at.as_secs_f64())),
        )
        .end()
}

fn limit_json(limit: &LimitState) -> String {
    let kind = match limit.kind {
        LimitKind::Exclusive => "exclusive",
        LimitKind::Latest => "latest",
        LimitKind::Shared => "shared",
    };
    let places = |states: &[PlaceState]| {
        let place = |state: &PlaceState| {
            let holder = state.holder.as_ref();
            Object::new()
                .bytes("lease", Some(&state.lease))
                .field("fence", holder.map(|holder| holder.fence))
                .field(
                    "lapses_in_ms",
                    holder.map(|holder| holder.lapses_in.as_millis()),
                )
                .field("holder", holder.map(holder_json))
                .end()
        };
        let all: Vec<String> = states.iter().map(place).collect();
        format!("[{}]", all.join(","))
    };
    Object::new()
        .bytes("kind", Some(kind.as_bytes()))
        .field("places", Some(limit.places))
        .field("standbys", Some(limit.standbys))
        .field("working", Some(places(&limit.working)))
        .field("waiting", Some(places(&limit.waiting)))
        .end()
}

/// The limit, then a line for each place that is taken.
fn limit_text(args: &Status, limit: &LimitState, stats: Option<&Stats>) -> String {
    let (places, standbys) = (limit.places, limit.standbys);
    let what = match limit.kind {
        LimitKind::Exclusive if standbys == 0 => format!("at most {places} at once"),
        LimitKind::Exclusive => format!("at most {places} at once, and {standbys} waiting"),
        LimitKind::Latest => "the latest".into(),
        LimitKind::Shared => format!("shared by at most {standbys}"),
    };
    let (name, arena) = (shown(&args.name), shown(&args.arena));
    let (working, waiting) = (limit.working.len(), limit.waiting.len());
    let mut text = format!("{name} in arena {arena}: {what}; {working} at work, {waiting} waiting");
    for (does, state) in (limit.working.iter().map(|state| ("works at", state)))
        .chain(limit.waiting.iter().map(|state| ("waits at", state)))
    {
        if let Some(holder) = &state.holder {
            let lease = shown(OsStr::from_bytes(&state.lease));
            let since = ago(holder).map_or(String::new(), |ago| format!(" for {ago:.1?}"));
            let (by, fence, left) = (who(holder), holder.fence, holder.lapses_in);
            text.push_str(&format!(
                "\n  {by} {does} {lease}{since}, under fence {fence}, lapses in {left:.1?} unless renewed"
            ));
        }
    }
    if let Some(stats) = stats.filter(|stats| stats.acquires > 0) {
        let lease = self::text(&args.arena, &args.name, Some(stats));
        text.push_str(&format!("\nand the lease {lease}"));
    }
    text
}

fn object(arena: &OsStr, lease: &[u8], stats: Option<&Stats>) -> Object {
    let holder = stats
        .and_then(|stats| stats.holder.as_ref())
        .map(holder_json);
    let lapses_in = stats.and_then(|stats| stats.lapses_in);
    Object::new()
        .bytes("arena", Some(arena.as_bytes()))
        .bytes("lease", Some(lease))
        .field("held", Some(stats.is_some_and(|stats| stats.held)))
        .field("fence", stats.map(|stats| stats.fence))
        .field("acquires", stats.map(|stats| stats.acquires))
        .field("steals", stats.map(|stats| stats.steals))
        .field("lapses_in_ms", lapses_in.map(|left| left.as_millis()))
        .field(
            "opens_in_ms",
            stats
                .and_then(|stats| stats.opens_in)
                .map(|left| left.as_millis()),
        )
        .field("holder", holder)
}

/// The same for people.
pub(crate) fn text(arena: &OsStr, lease: &OsStr, stats: Option<&Stats>) -> String {
    let what = format!("{} in arena {}", shown(lease), shown(arena));
    let Some(stats) = stats else {
        return format!("{what}: free, and nobody has used it yet");
    };
    let counts = format!("{} acquires, {} steals", stats.acquires, stats.steals);
    let Some(holder) = &stats.holder else {
        let kept = stats.opens_in.map_or(String::new(), |left| {
            format!(", but kept by its last holder for {left:.1?}")
        });
        return format!("{what}: free{kept}, last fence {}; {counts}", stats.fence);
    };
    let since = ago(holder).map_or(String::new(), |ago| format!("for {ago:.1?} "));
    let (by, fence, left) = (who(holder), holder.fence, holder.lapses_in);
    format!(
        "{what}: held {since}by {by} under fence {fence}, lapses in {left:.1?} unless renewed; {counts}"
    )
}

fn who(holder: &Holder) -> String {
    let pid = holder.pid.map_or("unknown".into(), |pid| pid.to_string());
    let name = shown(OsStr::from_bytes(
        holder.name.as_deref().unwrap_or_default(),
    ));
    let (verdict, peer) = (verdict(holder), holder.peer);
    format!("pid {pid} ({name}; {peer}; {verdict})")
}

fn verdict(holder: &Holder) -> &'static str {
    match holder.verdict {
        Verdict::Alive => "alive",
        Verdict::Dead(_) => "dead",
        Verdict::Unknown => "unknown",
    }
}

/// How long ago it acquired.
fn ago(holder: &Holder) -> Option<Duration> {
    let ago_ms = clock::boot_ms().saturating_sub(holder.since_ms?);
    Some(Duration::from_millis(ago_ms))
}

/// Since 1970, as far as the wall clock was right all along.
fn since(holder: &Holder) -> Option<Duration> {
    Duration::from_micros(clock::unix_us()).checked_sub(ago(holder)?)
}
