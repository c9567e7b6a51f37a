//! A worker that stands in line again and again, and writes down what it knew.

use std::{
    fs::File,
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use arena_core::clock;
use arena_lease::{LatestStandby, LeadOptions, Patience, Place, Succession};

use super::{Role, peer::options, verbs::table};
use crate::{
    rng::Rng,
    standing::{Knew, Moment},
    told::Told,
};

pub(super) const ROLES: &[Role] = &[("stander", stander)];

/// Stands in line until it is killed. The arguments: path, ttl in ms, seed, the file for its moments.
fn stander(mut told: Told) {
    let (path, ttl, seed, file) = (told.arg(), told.number(), told.number(), told.arg());
    let arena = options().open(path).expect("the scenario's arena opens");
    let leases = table(&arena).expect("the table opens");
    let rules = LeadOptions::new().ttl(Duration::from_millis(ttl)).build();
    let rules = rules.expect("the scenario gives a ttl");
    let file = File::create(file).expect("the scenario's directory is there");
    let notes = Notes(Arc::new(file));
    told.at("stander");
    let mut rng = Rng::new(seed, "stander");
    let waits = notes.clone();
    let patience = Patience::new()
        .every(Duration::from_millis(1))
        .ask(move |_| {
            waits.note(clock::boot_ns(), Knew::Waits);
            true
        });
    loop {
        let latest = LatestStandby::open(&leases, "line", &rules).expect("all name the same");
        let latest = latest.replace(rng.below(4) == 0);
        notes.note(clock::boot_ns(), Knew::Left);
        if let Ok(Succession::Primary(place)) = latest.acquire(&patience) {
            work(&notes, &latest, &place, &mut rng);
        }
        std::thread::sleep(Duration::from_micros(rng.below(3_000)));
    }
}

/// Until it is lost, or wanted by a newer one, or for long enough.
fn work(notes: &Notes, latest: &LatestStandby, place: &Place, rng: &mut Rng) {
    let end = Instant::now() + Duration::from_millis(rng.below(40));
    loop {
        // Before the question: held then, if held when it is answered.
        let at_ns = clock::boot_ns();
        if place.heartbeat().is_err() {
            return;
        }
        notes.note(at_ns, Knew::Works(place.fence()));
        if latest.wanted_by().is_some() || Instant::now() >= end {
            return;
        }
        std::thread::sleep(Duration::from_micros(rng.below(1_000)));
    }
}

/// The moments of this process: a line each, written at once, so that a kill loses one at most.
#[derive(Clone)]
struct Notes(Arc<File>);

impl Notes {
    fn note(&self, at_ns: u64, knew: Knew) {
        let moment = Moment { at_ns, knew };
        (&*self.0)
            .write_all(format!("{moment}\n").as_bytes())
            .expect("the scenario's directory has room");
    }
}
