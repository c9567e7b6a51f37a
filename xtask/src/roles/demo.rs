//! A worker of the demo: waits to lead, leads, steps down when it is told to, and says all of it.

use std::time::{Duration, Instant};

use arena_core::clock;
use arena_lease::{Acquire, Lease, Leases, Lost, Renewed, TookOver};

use super::{Role, peer::options};
use crate::{child::readable, text, told::Told};

pub(super) const ROLES: &[Role] = &[("demo-worker", worker)];

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
