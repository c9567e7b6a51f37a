//! How often a process that waits behind a renewed lease is on the processor for nothing.

use std::time::Duration;

use super::{
    series::Series,
    takeover::{KINDS, asleep, holder, waiter},
};
use crate::{child::Child, idleness::Activity, outcome::Outcome, scratch::Scratch};

/// How long it is watched.
const TIME: Duration = Duration::from_secs(5);
/// How often the holder renews its ttl of 30 s: far more often than anybody would.
const RENEW_MS: u32 = 100;

pub(super) fn measure(scratch: &Scratch, rounds: u32) -> Outcome<Vec<Series>> {
    let names = ["idle-flock", "idle-lease", "idle-standby"];
    let mut series = names.map(|name| Series::new(name, "wakes/5s"));
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for kind in KINDS {
        holders.push(holder(scratch, kind, 0, RENEW_MS)?);
        waiters.push(waiter(scratch, kind)?);
    }
    for waiter in &mut waiters {
        waiter.tell("wait")?;
        asleep(waiter)?;
    }
    for _ in 0..rounds {
        // Both at once: nothing of them is on a processor.
        let before = switches(&waiters)?;
        std::thread::sleep(TIME);
        let after = switches(&waiters)?;
        for (series, (before, after)) in series.iter_mut().zip(before.iter().zip(&after)) {
            series.push(f64::from(after - before));
        }
    }
    Ok(series.into())
}

/// How often each went to sleep.
fn switches(children: &[Child]) -> Outcome<Vec<u32>> {
    let of = |child: &Child| Ok(Activity::of(child.pid())?.sleeps);
    children.iter().map(of).collect()
}
