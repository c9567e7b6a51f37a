//! `arena-lease status`.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use arena_lease::peers::core::clock;
use arena_lease::{ArenaOptions, Holder, LeasesView, Stats, Verdict};

use crate::args::Status;
use crate::json::Object;
use crate::{Failure, exit, shown};

/// Prints who holds.
pub(crate) fn status(args: &Status) -> Result<u8, Failure> {
    let view = ArenaOptions::new().view(&args.arena).map_err(|error| {
        let what = format!("cannot read arena {}", shown(&args.arena));
        Failure::new(exit::ARENA, &what, &error)
    })?;
    let stats = LeasesView::open(&view).and_then(|leases| leases.stats(args.name.as_bytes()));
    let line = match args.json {
        true => json(&args.arena, args.name.as_bytes(), stats.as_ref()),
        false => text(&args.arena, &args.name, stats.as_ref()),
    };
    // Whoever reads it may have gone away.
    let _ = writeln!(std::io::stdout(), "{line}");
    Ok(0)
}

/// The object that `--help` describes.
pub(crate) fn json(arena: &OsStr, lease: &[u8], stats: Option<&Stats>) -> String {
    let holder = stats.and_then(|stats| stats.holder.as_ref()).map(|holder| {
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
    });
    let lapses_in = stats.and_then(|stats| stats.lapses_in);
    Object::new()
        .bytes("arena", Some(arena.as_bytes()))
        .bytes("lease", Some(lease))
        .field("held", Some(stats.is_some_and(|stats| stats.held)))
        .field("fence", stats.map(|stats| stats.fence))
        .field("acquires", stats.map(|stats| stats.acquires))
        .field("steals", stats.map(|stats| stats.steals))
        .field("lapses_in_ms", lapses_in.map(|left| left.as_millis()))
        .field("holder", holder)
        .end()
}

/// The same for people.
pub(crate) fn text(arena: &OsStr, lease: &OsStr, stats: Option<&Stats>) -> String {
    let what = format!("{} in arena {}", shown(lease), shown(arena));
    let Some(stats) = stats else {
        return format!("{what}: free, and nobody has used it yet");
    };
    let counts = format!("{} acquires, {} steals", stats.acquires, stats.steals);
    let Some(holder) = &stats.holder else {
        return format!("{what}: free, last fence {}; {counts}", stats.fence);
    };
    let pid = holder.pid.map_or("unknown".into(), |pid| pid.to_string());
    let name = String::from_utf8_lossy(holder.name.as_deref().unwrap_or_default());
    let (verdict, peer, left) = (verdict(holder), holder.peer, holder.lapses_in);
    let fence = holder.fence;
    format!(
        "{what}: held by pid {pid} ({name}; {peer}; {verdict}) under fence {fence}, lapses in {left:.1?}; {counts}"
    )
}

fn verdict(holder: &Holder) -> &'static str {
    match holder.verdict {
        Verdict::Alive => "alive",
        Verdict::Dead(_) => "dead",
        Verdict::Unknown => "unknown",
    }
}

/// Since 1970, as far as the wall clock was right all along.
fn since(holder: &Holder) -> Option<Duration> {
    let ago_ms = clock::boot_ms().saturating_sub(holder.since_ms?);
    let now = Duration::from_micros(clock::unix_us());
    now.checked_sub(Duration::from_millis(ago_ms))
}
