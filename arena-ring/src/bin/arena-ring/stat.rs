//! `arena-ring stat`.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::thread;
use std::time::Instant;

use arena_ring::peers::core::command::json::Object;
use arena_ring::peers::list_in;
use arena_ring::{ArenaOptions, RingStats, RingView};

use crate::Failure;
use crate::args::Stat;
use crate::out::{Taken, print};
use crate::peer::Judged;

/// What is known of a ring.
struct Look {
    ring: RingView,
    stats: RingStats,
    per_second: Option<f64>,
    unfinished: Option<Judged>,
    attached: Vec<Judged>,
}

/// Prints how a ring is.
pub(crate) fn stat(args: &Stat) -> Result<u8, Failure> {
    let opened = ArenaOptions::new().view(&args.place.arena);
    let arena = opened.map_err(|error| args.place.no_arena(&error))?;
    let ring = args
        .place
        .found(RingView::open(&arena, args.place.ring_bytes()))?;
    let (before, since) = (ring.stats(), Instant::now());
    let mut stats = before;
    let mut per_second = None;
    if !args.interval.is_zero() {
        thread::sleep(args.interval);
        stats = ring.stats();
        let count = stats.published.saturating_sub(before.published);
        per_second = Some(rate(count, since.elapsed().as_secs_f64()));
    }
    let judged = |id| Judged::in_view(&arena, id);
    let look = Look {
        ring,
        stats,
        per_second,
        unfinished: stats.unfinished.map(judged),
        attached: list_in(&arena)
            .into_iter()
            .map(|peer| judged(peer.id))
            .collect(),
    };
    let text = match args.json {
        true => json(args, &look),
        false => text(args, &look),
    };
    let _: Taken = print(text.as_bytes())?;
    Ok(0)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate is no count; as many records as that are not published in an interval"
)]
fn rate(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

fn json(args: &Stat, look: &Look) -> String {
    let stats = &look.stats;
    let per_second = look.per_second.map(|rate| format!("{rate:.1}"));
    let object = Object::new()
        .bytes("arena", Some(args.place.arena.as_bytes()))
        .bytes("ring", Some(args.place.ring_bytes()))
        .field("slots", Some(look.ring.slots()))
        .field("slot_bytes", Some(look.ring.slot_bytes()))
        .field("max_record", Some(look.ring.max_record()))
        .field("published", Some(stats.published))
        .field("oversize", Some(stats.oversize))
        .field("position", Some(stats.position))
        .field("records_per_second", per_second)
        .field("unfinished", look.unfinished.as_ref().map(Judged::json))
        .list("attached", look.attached.iter().map(Judged::json))
        .end();
    object + "\n"
}

fn text(args: &Stat, look: &Look) -> String {
    let (ring, stats) = (&look.ring, &look.stats);
    let per_second = look
        .per_second
        .map_or(String::new(), |rate| format!(", {rate:.1} a second"));
    let mut out = format!(
        "{}: {} slots of {} bytes, records of at most {} bytes\n  {} records published{per_second}; {} too large; position {}\n",
        args.place.shown(),
        ring.slots(),
        ring.slot_bytes(),
        ring.max_record(),
        stats.published,
        stats.oversize,
        stats.position,
    );
    let unfinished = look.unfinished.iter().map(|peer| ("unfinished", peer));
    let attached = look.attached.iter().map(|peer| ("attached", peer));
    for (what, peer) in unfinished.chain(attached) {
        writeln!(out, "  {what}: {peer}").expect("a String takes everything");
    }
    out
}
