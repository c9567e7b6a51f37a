//! What a peer can be told to do with a lease.

use std::time::{Duration, Instant};

use arena_core::{Arena, clock, start_ticks};
use arena_lease::{
    Acquire, Lease, LeaseError, Leases, LeasesOptions, Lost, Refused, Renewed, TookOver,
};

use super::process;
use crate::text;

/// The lease that a peer is told about.
#[derive(Debug, Default)]
pub(super) struct Verbs {
    lease: Option<Lease>,
}

/// The table of the scenarios: few rows, so that rows are renamed soon, and quick to say Busy.
pub(crate) fn table(arena: &Arena) -> Result<Leases, arena_lease::TableError> {
    LeasesOptions::new()
        .rows(16)
        .busy_timeout(Duration::from_millis(100))
        .open(arena)
}

impl Verbs {
    /// The answer to a line; `None` when it is not about leases.
    pub(super) fn answer(&mut self, arena: &Arena, words: &[&str]) -> Option<String> {
        if let ["lease", name, ttl] = words {
            return Some(self.choose(arena, name, ttl));
        }
        let lease = self.lease.as_ref()?;
        Some(match words {
            ["acquire"] => acquired(lease.acquire()),
            ["acquire", ttl] => acquired(lease.acquire_for(millis(ttl))),
            ["wait", limit] => acquired(lease.acquire_timeout(millis(limit))),
            ["renew"] => renew(lease),
            ["release"] => release(lease),
            ["mine"] => lease.mine().to_string(),
            ["holder"] => holder(lease),
            ["deadline"] => lease
                .holder()
                .map_or_else(none, |holder| holder.until_ms.to_string()),
            ["fence"] => lease.fence().to_string(),
            ["stats"] => {
                let stats = lease.stats().expect("nobody damages the row");
                format!("{} {}", stats.acquires, stats.steals)
            }
            ["again"] => again(lease),
            ["fork-verbs"] => process::ask_in_fork(|| {
                // Before the child has a place of its own, and after.
                let before = format!("{} {} {}", lease.mine(), renew(lease), release(lease));
                let taken = acquired(lease.acquire());
                format!(
                    "{before} {taken} {} {} {}",
                    lease.mine(),
                    renew(lease),
                    release(lease)
                )
            }),
            ["companion"] => companion(lease),
            ["keep", times, pause] => keep(lease, times, millis(pause)),
            ["hand-over", limit] => hand_over(lease, millis(limit)),
            _ => return None,
        })
    }

    fn choose(&mut self, arena: &Arena, name: &str, ttl: &str) -> String {
        let leases = match table(arena) {
            Ok(leases) => leases,
            Err(e) => return format!("refused {}", text::error(&e)),
        };
        match leases.lease(name, millis(ttl)) {
            Ok(lease) => {
                self.lease = Some(lease);
                "ready".to_owned()
            }
            Err(e) => format!("refused {}", text::error(&e)),
        }
    }
}

/// What `acquire` said: `held FENCE new|own|lapsed|dead`, `refused held ID`, or why else not.
pub(crate) fn acquired(answer: Result<Acquire, LeaseError>) -> String {
    match answer {
        Ok(Acquire::Held(hold)) => {
            let how = match hold.took_over {
                None => "new",
                Some(TookOver::Lapsed { .. }) => "lapsed",
                Some(TookOver::Dead { .. }) => "dead",
            };
            format!("held {} {how}", hold.fence)
        }
        Ok(Acquire::Refused(Refused::Held { by, .. })) => format!("refused held {}", text::id(by)),
        Ok(Acquire::Refused(other)) => format!("refused {other:?}"),
        Err(e) => format!("error {}", text::error(&e)),
    }
}

/// What `renew` said: `held`, `lost taken ID FENCE`, `lost told`, …
pub(crate) fn renewed(answer: Result<Renewed, LeaseError>) -> String {
    match answer {
        Ok(Renewed::Held { .. }) => "held".to_owned(),
        Ok(Renewed::Lost(Lost::Taken { by, fence })) => {
            format!("lost taken {} {fence}", text::id(by))
        }
        Ok(Renewed::Lost(other)) => format!("lost {other:?}").to_lowercase(),
        Err(e) => format!("error {}", text::error(&e)),
    }
}

/// What `release` said.
pub(crate) fn released(answer: Result<bool, LeaseError>) -> String {
    match answer {
        Ok(released) => released.to_string(),
        Err(e) => format!("error {}", text::error(&e)),
    }
}

fn renew(lease: &Lease) -> String {
    renewed(lease.renew())
}

fn release(lease: &Lease) -> String {
    released(lease.release())
}

fn holder(lease: &Lease) -> String {
    lease.holder().map_or_else(none, |holder| {
        format!("{} {}", text::id(holder.peer), holder.fence)
    })
}

fn none() -> String {
    "none".to_owned()
}

/// Forks a companion, which inherits what stands in for this process; gives its pid.
fn companion(lease: &Lease) -> String {
    let fence = lease.acquired().expect("the scenario has it acquire first");
    let mut companion = lease.companion(fence).expect("this process is attached");
    let stand_in = companion.stand_in().expect("there are descriptors");
    let pid = process::fork_sleeper();
    let number = pid.parse().expect("a pid is a number");
    companion.is(number, start_ticks(number));
    drop(stand_in);
    pid
}

/// A second handle of this process, which is dropped again: does it hold?
fn again(lease: &Lease) -> String {
    let other = lease.leases().lease(lease.name(), lease.ttl());
    other.map_or_else(
        |e| format!("refused {}", text::error(&e)),
        |other| other.mine().to_string(),
    )
}

/// Renews `times` times with pauses; says the fence if it never changed and was never lost.
fn keep(lease: &Lease, times: &str, pause: Duration) -> String {
    let fence = lease.fence();
    for _ in 0..times
        .parse::<u32>()
        .expect("the scenario gives a number here")
    {
        // The passing of time is what is shown, and not waited for.
        std::thread::sleep(pause);
        let answer = renew(lease);
        if answer != "held" || lease.fence() != fence {
            return format!("{answer} at fence {}, acquired was {fence}", lease.fence());
        }
    }
    format!("kept {fence}")
}

/// Acquires and releases without pause; says how often, and the last fence.
fn hand_over(lease: &Lease, limit: Duration) -> String {
    let end = Instant::now() + limit;
    let (mut count, mut last) = (0_u64, 0);
    while Instant::now() < end {
        for _ in 0..64 {
            match lease.acquire() {
                Ok(Acquire::Held(hold)) if hold.fence > last => last = hold.fence,
                other => return format!("after {last}: {}", acquired(other)),
            }
            if lease.release().ok() != Some(true) {
                return format!("{last} was not released");
            }
            count += 1;
        }
    }
    format!("{count} {last}")
}

/// The boot clock, in milliseconds.
pub(crate) fn now_ms() -> u64 {
    clock::boot_ms()
}

fn millis(text: &str) -> Duration {
    Duration::from_millis(text.parse().expect("the scenario gives a number here"))
}
