//! Guards whose renewals are blocked (L4), and a keeper that nothing wakes. Alone in its binary, because one thread
//! renews for all of a process.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use arena_lease::{
    ArenaOptions, BootClock, Cancel, Clock, Lead, LeadOptions, LeaseGuard, Leases, LeasesOptions,
    Loss,
};

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(30);

/// A clock on which the keeper's thread stops when it asks for the time, until it is let go.
struct Blocking<C> {
    clock: C,
    lets_go: Mutex<bool>,
    changed: Condvar,
}

impl<C: Clock> Clock for Blocking<C> {
    fn now_ns(&self) -> u64 {
        if std::thread::current().name() == Some("arena-keeper") {
            let lets_go = self.lets_go.lock().unwrap();
            drop(self.changed.wait_while(lets_go, |lets_go| !*lets_go));
        }
        self.clock.now_ns()
    }
}

impl<C: Clock + 'static> Blocking<C> {
    fn new(clock: C) -> Arc<Self> {
        Arc::new(Self {
            clock,
            lets_go: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    fn leases(self: &Arc<Self>) -> Leases {
        let arena = ArenaOptions::new().anonymous().unwrap();
        let options = LeasesOptions::new().clock(self.clone());
        options.open(&arena).unwrap()
    }

    fn let_go(&self) {
        *self.lets_go.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

/// Moved by the test.
struct Stopped(AtomicU64);

impl Clock for Stopped {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

fn win(rules: &Lead, leases: &Leases, name: &str) -> LeaseGuard {
    rules.contend(leases, name).unwrap().won().unwrap()
}

fn deadline(guard: &LeaseGuard) -> Duration {
    Duration::from_millis(guard.lease().holder().unwrap().until_ms)
}

fn now() -> Duration {
    Duration::from_nanos(BootClock.now_ns())
}

/// The tests share a keeper, which each of them blocks.
static ALONE: Mutex<()> = Mutex::new(());

/// On a clock that only the test moves.
#[test]
fn a_guard_answers_lost_from_exactly_the_margin_before_the_deadline_on() {
    let _alone = ALONE.lock().unwrap();
    let clock = Blocking::new(Stopped(AtomicU64::new(1_000_000_000)));
    let leases = clock.leases();
    for round in 0..1000 {
        let margin = round * 7 * MS;
        let rules = LeadOptions::new().ttl(TTL).margin(margin).build().unwrap();
        let guard = win(&rules, &leases, "nightly");
        let end_ns = u64::try_from((deadline(&guard) - margin).as_nanos()).unwrap();
        clock.clock.0.store(end_ns - 1, Ordering::SeqCst);
        assert!(guard.is_leading());
        clock.clock.0.store(end_ns, Ordering::SeqCst);
        assert!(!guard.is_leading());
        assert_eq!(guard.loss(), Some(Loss::Lapsed));
        // What was called lost is not renewed by anybody in this process, and stays lost.
        assert!(!guard.lease().renew_at(guard.fence()).unwrap().is_held());
        clock.clock.0.store(end_ns - 1, Ordering::SeqCst);
        assert_eq!(guard.release(), Err(Loss::Lapsed));
    }
    clock.let_go();
}

/// A clock of which the first reading that is waited for comes after something else has happened.
struct Late {
    clock: Stopped,
    first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Clock for Late {
    fn now_ns(&self) -> u64 {
        let first = self.first.lock().unwrap().take();
        if let Some(first) = first {
            first();
        }
        self.clock.now_ns()
    }
}

/// Goal: who is stopped between the word and the clock does not call a lease lost that was renewed meanwhile.
/// Method: the clock that it reads renews first.
#[test]
fn a_look_that_was_held_up_while_the_lease_was_renewed_finds_it_led() {
    let _alone = ALONE.lock().unwrap();
    let clock = Blocking::new(Late {
        clock: Stopped(AtomicU64::new(1_000_000_000)),
        first: Mutex::new(None),
    });
    let leases = clock.leases();
    let guard = win(&Lead::default(), &leases, "nightly");
    let first = deadline(&guard);
    let lease = guard.lease().clone();
    let end_ns = u64::try_from(first.as_nanos()).unwrap() - 1;
    clock.clock.clock.0.store(end_ns, Ordering::SeqCst);
    *clock.clock.first.lock().unwrap() = Some(Box::new(move || {
        assert!(lease.renew().unwrap().is_held());
    }));
    assert!(guard.is_leading());
    assert!(deadline(&guard) > first);
    clock.let_go();
}

/// Goal: L4 on the machine's clock, for 1,000 guards, and as it is told to who waits and to the callback.
/// Method: each answer lies between two readings of the clock; that it leads must be right at the first, that it
/// does not at the second.
#[test]
fn a_guard_whose_renewals_are_blocked_answers_by_the_clock() {
    let _alone = ALONE.lock().unwrap();
    let clock = Blocking::new(BootClock);
    let leases = clock.leases();
    let margin = 20 * MS;
    let told = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&told);
    let options = LeadOptions::new().ttl(100 * MS).margin(margin);
    let options = options.on_lost(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let rules = options.build().unwrap();
    for _ in 0..20 {
        let guards: Vec<_> = (0..50)
            .map(|i| win(&rules, &leases, &format!("lease {i}")))
            .collect();
        let mut leading: Vec<_> = guards
            .iter()
            .filter_map(|guard| {
                // Gone, when making the others took so long.
                let holder = guard.lease().holder()?;
                Some((guard, Duration::from_millis(holder.until_ms) - margin))
            })
            .collect();
        let (waited_for, end) = *leading.last().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                assert_eq!(waited_for.wait_lost(Duration::MAX), Some(Loss::Lapsed));
                assert!(now() >= end);
            });
            // Others ask too, and one of all is the first.
            scope.spawn(|| while guards.iter().any(|guard| guard.is_leading()) {});
            while !leading.is_empty() {
                leading.retain(|(guard, end)| {
                    let before = now();
                    let leads = guard.is_leading();
                    let after = now();
                    assert!(if leads { before < *end } else { after >= *end });
                    leads
                });
            }
        });
    }
    assert_eq!(told.load(Ordering::SeqCst), 1000, "once each");
    clock.let_go();
}

/// Nothing else wakes the keeper for hours.
#[test]
fn a_cancellation_is_told_by_the_keeper_when_nobody_asks() {
    let _alone = ALONE.lock().unwrap();
    let leases = Leases::open(&ArenaOptions::new().anonymous().unwrap()).unwrap();
    let (cancel, told) = (Cancel::new(), Arc::new(Mutex::new(Vec::new())));
    let to = Arc::clone(&told);
    let options = LeadOptions::new().ttl(3600 * TTL).cancel(&cancel);
    let options = options.on_lost(move |loss| to.lock().unwrap().push(loss));
    let guard = win(&options.build().unwrap(), &leases, "nightly");
    let asleep = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks.flatten().any(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.contains("(arena-keeper) S")
        })
    };
    while !asleep() {
        std::thread::yield_now();
    }
    cancel.cancel();
    while told.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(guard.release(), Err(Loss::Cancelled));
    assert_eq!(*told.lock().unwrap(), [Loss::Cancelled]);
}
