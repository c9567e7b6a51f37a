//! Processes that contend for one lease on their own, and write down what they were told.

use std::{
    fs::File,
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use arena_core::{Region, clock};
use arena_lease::{Acquire, Lease, Renewed};
use nix::{
    sys::wait::{WaitStatus, wait},
    unistd::getpid,
};

use super::{Role, peer::options, process, verbs::table};
use crate::{
    history::{Event, Said},
    rng::Rng,
    told::Told,
};

pub(super) const ROLES: &[Role] = &[("contender", contender), ("prefork", prefork)];

/// Contends until it is killed. The arguments: path, ttl in ms, seed, the file for its history.
fn contender(mut told: Told) {
    let (path, ttl, seed, file) = (told.arg(), told.number(), told.number(), told.arg());
    let arena = options().open(path).expect("the scenario's arena opens");
    let leases = table(&arena).expect("the table opens");
    let lease = leases
        .lease("job", Duration::from_millis(ttl))
        .expect("there is room for a name");
    let mut notes = Notes(File::create(file).expect("the scenario's directory is there"));
    told.at("contender");
    let mut rng = Rng::new(seed, "contender");
    loop {
        let Some(fence) = notes.acquire(&lease) else {
            std::thread::sleep(Duration::from_micros(rng.below(2_000)));
            continue;
        };
        work(&mut notes, &lease, fence, &mut rng);
    }
}

/// Asks, renews and dawdles until the lease is lost or released.
fn work(notes: &mut Notes, lease: &Lease, fence: u64, rng: &mut Rng) {
    loop {
        match rng.below(100) {
            0 => std::thread::sleep(Duration::from_millis(rng.below(30))),
            1..=3 => {
                notes.release(lease, fence);
                return;
            }
            4..=20 => {
                if !notes.renew(lease, fence) {
                    return;
                }
            }
            _ => {
                // A false answer is no loss yet: it may have lapsed, and be renewed.
                notes.mine(lease, fence);
                std::thread::sleep(Duration::from_micros(rng.below(500)));
            }
        }
    }
}

/// The history of this process: a line a call, written at once, so that a kill loses one at most.
struct Notes(File);

impl Notes {
    fn note(&mut self, entry: u64, said: Said, fence: u64) {
        let event = Event {
            entry,
            back: clock::boot_ns(),
            said,
            fence,
        };
        self.0
            .write_all(format!("{event}\n").as_bytes())
            .expect("the scenario's directory has room");
    }

    fn acquire(&mut self, lease: &Lease) -> Option<u64> {
        let entry = clock::boot_ns();
        match lease.acquire() {
            Ok(Acquire::Held(hold)) => {
                self.note(entry, Said::Held, hold.fence);
                Some(hold.fence)
            }
            _ => None,
        }
    }

    fn mine(&mut self, lease: &Lease, fence: u64) {
        let entry = clock::boot_ns();
        if lease.mine_at(fence) {
            self.note(entry, Said::Mine, fence);
        }
    }

    fn renew(&mut self, lease: &Lease, fence: u64) -> bool {
        let entry = clock::boot_ns();
        let held = matches!(lease.renew_at(fence), Ok(Renewed::Held { .. }));
        self.note(entry, if held { Said::Renewed } else { Said::Lost }, fence);
        held
    }

    fn release(&mut self, lease: &Lease, fence: u64) {
        let entry = clock::boot_ns();
        let released = lease.release_at(fence).is_ok_and(|released| released);
        self.note(
            entry,
            if released { Said::Released } else { Said::Lost },
            fence,
        );
    }
}

/// A parent that opens arena and lease, forks workers and replaces those that end, and never leads itself. Every
/// other worker uses what it inherited, the others open for themselves. Each writes "TICK PID FENCE" when it did the
/// job of a tick. The arguments: path, workers, length of a tick in ms, the file of the journal.
fn prefork(mut told: Told) {
    let (path, workers, tick_ms, journal) = (told.arg(), told.number(), told.number(), told.arg());
    let arena = options().open(&path).expect("the scenario's arena opens");
    let region = arena.carve(b"ticks", 1, 64).expect("there is room");
    let leases = table(&arena).expect("the table opens");
    let lease = leases
        .lease("job", Duration::from_secs(60))
        .expect("there is room for a name");
    let journal = File::options()
        .append(true)
        .create(true)
        .open(journal)
        .expect("the directory is there");
    told.say("prefork");
    let mut forked = 0_u64;
    loop {
        if forked >= workers && !matches!(wait(), Ok(WaitStatus::Signaled(..))) {
            return;
        }
        forked += 1;
        if process::fork_worker().is_some() {
            continue;
        }
        if forked.is_multiple_of(2) {
            tick(&lease, &region, &journal, tick_ms);
        }
        let arena = options().open(&path).expect("the scenario's arena opens");
        let leases = table(&arena).expect("the table opens");
        let own = leases
            .lease("job", Duration::from_secs(60))
            .expect("the lease has its name");
        tick(&own, &region, &journal, tick_ms);
    }
}

/// Leads if it can, and does each tick's job once. What was done last is kept by plain loads and stores: the lease
/// alone keeps two from doing it twice.
fn tick(lease: &Lease, region: &Region, mut journal: &File, tick_ms: u64) -> ! {
    let last: &AtomicU64 = region.at(0).expect("inside the region");
    let me = getpid();
    loop {
        let held = lease.mine() || matches!(lease.acquire(), Ok(Acquire::Held(_)));
        let now = clock::boot_ms() / tick_ms;
        let done = last.load(Ordering::Acquire);
        if held && done < now && lease.mine() {
            last.store(now, Ordering::Release);
            let line = format!("{now} {me} {}\n", lease.fence());
            journal
                .write_all(line.as_bytes())
                .expect("the directory has room");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
