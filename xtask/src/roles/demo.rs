//! Workers of the demo: they wait to lead, lead, step down when they are told to, and say all of it.

use std::time::{Duration, Instant};

use arena_core::clock;
use arena_lease::{
    Acquire, LatestStandby, Lead, Lease, Leases, Lost, Patience, Place, Renewed, Succession,
    TookOver,
};

use super::{Role, peer::options};
use crate::{child::readable, text, told::Told};

pub(super) const ROLES: &[Role] = &[("demo-worker", worker), ("demo-rolling", rolling)];

/// The arguments: path, ttl in ms.
fn worker(mut told: Told) {
    let (path, ttl) = (told.arg(), Duration::from_millis(told.number()));
    let arena = options()
        .usable_bytes(1 << 20)
        .open(path)
        .expect("the demo's arena opens");
    let leases = Leases::open(&arena).expect("the table of leases opens");
    let lease = leases
        .lease("leader", ttl)
        .expect("there is room for a name");
    told.at("ready");
    loop {
        match lease.acquire_timeout(Duration::from_secs(3600)) {
            Ok(Acquire::Held(hold)) => {
                let how = match hold.took_over {
                    None => "free",
                    Some(TookOver::Lapsed { .. }) => "lapsed",
                    Some(TookOver::Dead { .. }) => "dead",
                };
                told.say(&format!("leads {} {} {how}", clock::boot_ns(), hold.fence));
                lead(&told, &lease, hold.fence);
            }
            Ok(Acquire::Refused(_)) => {}
            Err(e) => {
                told.say(&format!("failed {} {}", clock::boot_ns(), text::error(&e)));
                told.rest();
            }
        }
    }
}

/// Keeps the lease and waits for a word.
fn lead(told: &Told, lease: &Lease, fence: u64) {
    loop {
        let pause = Instant::now() + lease.ttl() / 10;
        if readable(&std::io::stdin(), pause).is_ok_and(|readable| readable) {
            // The end of input ends the process here.
            told.hear();
            let asked = clock::boot_ns();
            let released = lease.release_at(fence).is_ok_and(|released| released);
            told.say(&format!("stepped-down {asked} {fence} {released}"));
            // Somebody else's turn.
            while lease.fence() == fence {
                std::thread::sleep(Duration::from_millis(1));
            }
            return;
        }
        match lease.renew_at(fence) {
            Ok(Renewed::Held { .. }) => {}
            Ok(Renewed::Lost(lost)) => {
                let to = match lost {
                    Lost::Taken { fence, .. } => format!("a leader with fence {fence}"),
                    other => format!("{other:?}"),
                };
                told.say(&format!("lost {} {fence} {to}", clock::boot_ns()));
                return;
            }
            Err(e) => {
                told.say(&format!("failed {} {}", clock::boot_ns(), text::error(&e)));
                return;
            }
        }
    }
}

/// Enters the line, works until it is told to end or asked to make room, and says how it ended. The arguments: path, and
/// "replace" when the one that works is to be asked.
fn rolling(mut told: Told) {
    let path = told.arg();
    let replaces = told.arg() == "replace";
    let arena = options()
        .usable_bytes(1 << 20)
        .open(path)
        .expect("the demo's arena opens");
    let me = arena.me().expect("an arena that was opened is attached to");
    told.say(&format!("peer {}", text::id(me)));
    let leases = Leases::open(&arena).expect("the table of leases opens");
    let latest = LatestStandby::open(&leases, "line", &Lead::default()).expect("there is room");
    let latest = latest.replace(replaces);
    match latest.acquire(&Patience::new()) {
        Ok(Succession::Primary(place)) => {
            told.say(&format!("primary {} {}", clock::boot_ns(), place.fence()));
            work(&told, &latest, place);
        }
        Ok(Succession::Replaced { by }) => {
            told.say(&format!("replaced {} {}", clock::boot_ns(), text::id(by)));
        }
        other => told.say(&format!("ended {} {other:?}", clock::boot_ns())),
    }
}

fn work(told: &Told, latest: &LatestStandby, place: Place) {
    let pause = Duration::from_millis(20);
    let end = loop {
        if readable(&std::io::stdin(), Instant::now()).is_ok_and(|readable| readable) {
            told.hear();
            break "released";
        }
        if matches!(latest.wait_wanted(pause), Ok(Some(_))) {
            break "made-room";
        }
    };
    // Before the release: who works next says so later.
    let at_ns = clock::boot_ns();
    place.release().expect("nobody else took it");
    told.say(&format!("{end} {at_ns}"));
}
