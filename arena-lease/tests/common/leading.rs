//! What the tests of leading have in common.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arena_lease::{
    Arena, ArenaOptions, Clock, Contest, Lead, LeadOptions, LeaseGuard, Leases, LeasesOptions, Loss,
};

use super::at;

pub(crate) const S: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const NS: Duration = Duration::from_nanos(1);
pub(crate) const TTL: Duration = Duration::from_secs(30);

pub(crate) fn leases_in(path: &Path) -> Leases {
    Leases::open(&Arena::open(path).unwrap()).unwrap()
}

/// A clock that a test moves.
pub(crate) struct Stopped(pub(crate) AtomicU64);

impl Stopped {
    pub(crate) fn pass(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap();
        self.0.fetch_add(ns, Ordering::SeqCst);
    }
}

impl Clock for Stopped {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) fn stopped() -> (Leases, Arc<Stopped>) {
    let arena = ArenaOptions::new().anonymous().unwrap();
    let clock = Arc::new(Stopped(AtomicU64::new(1_000_000_000)));
    let options = LeasesOptions::new().clock(clock.clone());
    (options.open(&arena).unwrap(), clock)
}

pub(crate) fn leases() -> Leases {
    Leases::open(&ArenaOptions::new().anonymous().unwrap()).unwrap()
}

/// What was told, in order.
pub(crate) type Told = Arc<Mutex<Vec<Loss>>>;

pub(crate) fn telling(options: LeadOptions) -> (Lead, Told) {
    let told = Told::default();
    let to = Arc::clone(&told);
    let options = options.on_lost(move |loss| to.lock().unwrap().push(loss));
    (options.build().unwrap(), told)
}

/// What was told, once the last that there is to tell was: the loss is known before the callback returns.
pub(crate) fn told_all(heard: &Told, count: usize) -> Vec<Loss> {
    while told(heard).len() < count {
        std::thread::yield_now();
    }
    told(heard)
}

pub(crate) fn told(told: &Told) -> Vec<Loss> {
    told.lock().unwrap().clone()
}

pub(crate) fn win(rules: &Lead, leases: &Leases) -> LeaseGuard {
    match rules.contend(leases, "nightly").unwrap() {
        Contest::Won(guard) => guard,
        Contest::Refused(why) => panic!("{why:?}"),
    }
}

pub(crate) fn deadline(guard: &LeaseGuard) -> Duration {
    Duration::from_millis(guard.lease().holder().unwrap().until_ms)
}

/// What a copy of a test binary does that was started with the role `name`.
pub(crate) fn play(name: &str, path: &Path) {
    let leases = leases_in(path);
    match name {
        "lead" => {
            let led = Lead::default().lead(&leases, "nightly", |term| {
                at(&term.fence().to_string());
            });
            println!("at {:?}", led.unwrap());
        }
        "short" => {
            let rules = LeadOptions::new()
                .ttl(50 * MS)
                .margin(5 * MS)
                .build()
                .unwrap();
            let led = rules.lead(&leases, "nightly", |term| {
                at(&term.fence().to_string());
                term.is_leading()
            });
            println!("at {:?}", led.unwrap());
        }
        other => panic!("no such role: {other}"),
    }
}
