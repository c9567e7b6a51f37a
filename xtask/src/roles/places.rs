//! Processes that take the places of a limit, or stand in a succession; and crowds that wait for one lease.

use std::{
    fs::File,
    io::Write,
    num::{NonZeroU16, NonZeroU32},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use arena_core::Arena;
use arena_lease::{
    Acquire, Cancel, ConcurrencyLimit, Fenced, LatestStandby, Lead, LeadOptions, Leases, Patience,
    Place, PlaceState, Standby, Succession, WithStandby,
};
use nix::{
    sys::wait::{WaitStatus, wait},
    unistd::getpid,
};

use super::{
    Role,
    peer::{options, options_from},
    process,
    verbs::{acquired, table},
};
use crate::{text, told::Told};

pub(super) const ROLES: &[Role] = &[("placed", placed), ("crowd", crowd)];

/// Nothing is found out by the passing of this time.
const TTL: Duration = Duration::from_secs(600);

/// Attaches, says who it is, and obeys. The argument: path.
fn placed(mut told: Told) {
    let arena = options().open(told.arg()).expect("the arena opens");
    let mut placed = Placed {
        leases: table(&arena).expect("the table opens"),
        rules: LeadOptions::new().ttl(TTL).build().expect("a valid ttl"),
        place: None,
        arena: arena.clone(),
    };
    let me = arena.me().expect("an arena that was opened is attached to");
    told.say(&format!("peer {}", text::id(me)));
    loop {
        let line = told.hear();
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words.as_slice() {
            ["end"] => return,
            ["take", places] => placed.take(places),
            ["used", places] => placed.limit(places).in_use().to_string(),
            ["beat"] => placed.beat(),
            ["succeed"] => placed.succeed(None),
            ["succeed-or-cancel"] => {
                placed.succeed_or_cancel(&told);
                continue;
            }
            ["ttl", ms] => placed.ttl(ms),
            ["store", value] => placed.store(value),
            ["release"] => placed.release(),
            ["fork"] => process::fork_sleeper(),
            ["stand-by", attempts] => placed.stand_by(attempts),
            ["disturb", times] => placed.disturb(times),
            ["standing"] => placed.standing(),
            ["entries"] => placed.entries(),
            _ => format!("no verb {line:?}"),
        };
        told.say(&format!("{} {answer}", words[0]));
    }
}

struct Placed {
    leases: Leases,
    rules: Lead,
    place: Option<Place>,
    arena: Arena,
}

impl Placed {
    fn limit(&self, places: &str) -> ConcurrencyLimit {
        let places: NonZeroU16 = places.parse().expect("the scenario gives a number here");
        ConcurrencyLimit::open(&self.leases, "jobs", places, &self.rules)
            .expect("all name the same")
    }

    fn take(&mut self, places: &str) -> String {
        match self.limit(places).try_acquire() {
            Ok(Some(place)) => self.place.insert(place).id().to_string(),
            Ok(None) => "none".to_owned(),
            Err(e) => text::error(&e),
        }
    }

    fn beat(&self) -> String {
        let beat = self.place.as_ref().map(Place::heartbeat);
        beat.map_or("none".to_owned(), |beat| format!("{beat:?}"))
    }

    fn latest(&self) -> LatestStandby {
        LatestStandby::open(&self.leases, "line", &self.rules).expect("all name the same")
    }

    /// Blocks until it is known how it ends.
    fn succeed(&mut self, cancel: Option<&Cancel>) -> String {
        let mut latest = self.latest();
        if let Some(cancel) = cancel {
            let rules = LeadOptions::new().ttl(TTL).cancel(cancel);
            let rules = rules.build().expect("a valid ttl");
            latest = LatestStandby::open(&self.leases, "line", &rules).expect("all name the same");
        }
        match latest.acquire(&Patience::new()) {
            Ok(Succession::Primary(place)) => {
                self.place = Some(place);
                "primary".to_owned()
            }
            Ok(Succession::Replaced { by }) => format!("replaced {}", text::id(by)),
            Ok(Succession::EntryTaken) => "entry-taken".to_owned(),
            Ok(other) => format!("{other:?}"),
            Err(e) => text::error(&e),
        }
    }

    /// The same, until it is told "cancel". It must be told a line in any case.
    fn succeed_or_cancel(&mut self, told: &Told) {
        let cancel = Cancel::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if told.hear() == "cancel" {
                    cancel.cancel();
                }
            });
            told.say(&format!("succeed {}", self.succeed(Some(&cancel))));
        });
    }

    fn ttl(&mut self, ms: &str) -> String {
        let ms = ms.parse().expect("the scenario gives a number here");
        let rules = LeadOptions::new().ttl(Duration::from_millis(ms)).build();
        self.rules = rules.expect("a valid ttl");
        "set".to_owned()
    }

    /// Writes what only the newest one that works may write.
    fn store(&self, value: &str) -> String {
        let value = value.parse().expect("the scenario gives a number here");
        let fence = self.place.as_ref().map_or(0, |place| place.fence());
        let fenced = Fenced::<u64>::open(&self.arena, "offset").expect("there is room for a name");
        match fenced.store(fence, value) {
            Ok(()) => "stored".to_owned(),
            Err(e) => text::error(&e),
        }
    }

    fn release(&mut self) -> String {
        let released = self.place.take().map(Place::release);
        released.map_or("none".to_owned(), |released| format!("{released:?}"))
    }

    fn crew(&self) -> WithStandby {
        let (one, three) = (NonZeroU16::MIN, NonZeroU16::MIN.saturating_add(2));
        WithStandby::open(&self.leases, "crew", one, three, &self.rules).expect("all name the same")
    }

    /// Waits for the one place of the crew with so many attempts; how it ended, and how often it was asked whether to go
    /// on.
    fn stand_by(&mut self, attempts: &str) -> String {
        let attempts = attempts.parse().expect("the scenario gives a number here");
        let asked = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&asked);
        let patience = Patience::new()
            .attempts(attempts)
            .every(Duration::from_millis(5))
            .ask(move |waited| {
                // Relaxed: of this thread alone.
                let before = counter.fetch_add(1, Ordering::Relaxed);
                assert_eq!(
                    waited.attempts,
                    before + 1,
                    "attempts are counted one by one"
                );
                true
            });
        let how = match self.crew().acquire(&patience) {
            Ok(Standby::Held(place)) => {
                self.place = Some(place);
                "held".to_owned()
            }
            Ok(other) => format!("{other:?}"),
            Err(e) => text::error(&e),
        };
        format!("{how} {}", asked.load(Ordering::Relaxed))
    }

    /// Takes a place to wait at and gives it up, so often.
    fn disturb(&self, times: &str) -> String {
        let times: u32 = times.parse().expect("the scenario gives a number here");
        let crew = self.crew();
        let once = Patience::new().attempts(NonZeroU32::MIN);
        let waited = |_: &u32| matches!(crew.acquire(&once), Ok(Standby::TimedOut));
        (0..times).filter(waited).count().to_string()
    }

    /// Who works, and who stands at each place behind.
    fn standing(&self) -> String {
        let id = |place: PlaceState| place.holder.map_or("-".to_owned(), |by| text::id(by.peer));
        let all: Vec<String> = self.latest().limit().places().into_iter().map(id).collect();
        all.join(" ")
    }

    /// How often somebody entered the line.
    fn entries(&self) -> String {
        let entry = self.leases.lease("line#standby3", TTL);
        let stats = entry.and_then(|entry| entry.stats());
        stats.map_or_else(|e| text::error(&e), |stats| stats.acquires.to_string())
    }
}

/// Forks processes that wait for the lease "job", says their pids, and how many ended well and how many were killed once
/// all are gone. Each that has the lease writes "PID FENCE HOW", releases, and ends. The arguments: options, path, how
/// many, the file of the journal.
fn crowd(mut told: Told) {
    let (options, path) = (options_from(&told.arg()), told.arg());
    let (count, journal) = (told.number(), told.arg());
    let arena = options.open(path).expect("the arena opens");
    let journal = File::options()
        .append(true)
        .create(true)
        .open(journal)
        .expect("the directory is there");
    let mut pids = Vec::new();
    for _ in 0..count {
        match process::fork_worker() {
            Some(pid) => pids.push(pid.to_string()),
            None => return one_of_many(&arena, &journal),
        }
    }
    told.say(&format!("crowd {}", pids.join(" ")));
    let (mut well, mut killed) = (0, 0);
    for _ in 0..count {
        match wait() {
            Ok(WaitStatus::Exited(_, 0)) => well += 1,
            Ok(WaitStatus::Signaled(..)) => killed += 1,
            other => panic!("one of the crowd: {other:?}"),
        }
    }
    told.at(&format!("gone {well} {killed}"));
}

fn one_of_many(arena: &Arena, mut journal: &File) {
    let leases = table(arena).expect("the table opens");
    let lease = leases.lease("job", TTL).expect("the lease has its name");
    let outcome = lease.acquire_timeout(Duration::MAX);
    assert!(matches!(outcome, Ok(Acquire::Held(_))), "{outcome:?}");
    let line = format!("{} {}\n", getpid(), acquired(outcome));
    journal
        .write_all(line.as_bytes())
        .expect("the directory has room");
    assert!(matches!(lease.release(), Ok(true)), "nobody else released");
}
