//! What a verb of a lease costs, beside one look at the clock that deadlines are counted on.

use std::{hint::black_box, time::Duration};

use arena_core::clock;
use arena_lease::{Acquire, Lease, Leases};

use super::series::Series;
use crate::{
    child::Plan,
    outcome::{Outcome, ensure},
    roles::{peer::options, verbs::table},
    scratch::Scratch,
};

pub(super) const FIGURES: &[&str] = &[
    "clock",
    "mine",
    "renew",
    "acquire+release",
    "refused acquire",
    "holder",
];

/// How many calls one sample is the mean of.
const CALLS: u32 = 256;

/// A sample of each verb in turn, as often as there are rounds.
pub(super) fn measure(scratch: &Scratch, rounds: u32) -> Outcome<Vec<Series>> {
    let path = scratch.path().join("arena");
    let plan = Plan::new("bench-holder")
        .arg("lease")
        .arg(&path)
        .arg("0")
        .arg("0");
    let mut holder = plan.start(scratch.path())?;
    holder.expect("holds")?;
    let arena = options().open(&path)?;
    let leases = table(&arena)?;
    let theirs = leases.lease("job", Duration::from_secs(30))?;
    let mine = leases.lease("mine", Duration::from_secs(3_600))?;
    let cycled = leases.lease("cycled", Duration::from_secs(30))?;
    let renewals = Renewals::new(&leases)?;
    ensure!(is_held(&mine), "a free lease was refused");
    ensure!(!is_held(&theirs), "another's lease was acquired");
    ensure!(theirs.holder().is_some(), "another's lease has no holder");

    let mut all: Vec<Series> = FIGURES.iter().map(|name| Series::new(name, "ns")).collect();
    for _ in 0..rounds {
        let samples = [
            each(|| assert!(black_box(clock::boot_ns()) > 0)),
            each(|| assert!(mine.mine())),
            renewals.sample()?,
            each(|| cycle(&cycled)),
            each(|| assert!(!is_held(&theirs))),
            each(|| assert!(theirs.holder().is_some())),
        ];
        for (series, sample) in all.iter_mut().zip(samples) {
            series.push(sample);
        }
    }
    holder.kill()?;
    Ok(all)
}

fn is_held(lease: &Lease) -> bool {
    matches!(lease.acquire(), Ok(Acquire::Held(_)))
}

fn cycle(lease: &Lease) {
    assert!(is_held(lease));
    assert!(matches!(lease.release(), Ok(true)));
}

/// The mean of some calls, in ns.
fn each(mut call: impl FnMut()) -> f64 {
    let began = clock::boot_ns();
    for _ in 0..CALLS {
        call();
    }
    mean(clock::boot_ns() - began)
}

fn mean(took_ns: u64) -> f64 {
    u32::try_from(took_ns).map_or(f64::INFINITY, f64::from) / f64::from(CALLS)
}

/// Handles of one lease whose ttls grow by a millisecond from one to the next: in this order each renewal moves the
/// deadline. By one handle, two renewals in a millisecond would find it where it must be, and cost less.
struct Renewals(Vec<Lease>);

impl Renewals {
    fn new(leases: &Leases) -> Outcome<Self> {
        let handles = (1..=CALLS).map(|more| {
            let ttl = Duration::from_secs(30) + 2 * Duration::from_millis(more.into());
            leases.lease("renewed", ttl)
        });
        Ok(Self(handles.collect::<Result<_, _>>()?))
    }

    fn sample(&self) -> Outcome<f64> {
        let first = &self.0[0];
        let hold = first.acquire_for(Duration::from_secs(30))?.held();
        let hold = hold.ok_or_else(|| crate::outcome::Stop::failed("a free lease was refused"))?;
        let began = clock::boot_ns();
        for lease in &self.0 {
            assert!(
                lease
                    .renew_at(hold.fence)
                    .is_ok_and(|renewed| renewed.is_held())
            );
        }
        let took_ns = clock::boot_ns() - began;
        ensure!(
            first.release_at(hold.fence)?,
            "a held lease was not released"
        );
        Ok(mean(took_ns))
    }
}
