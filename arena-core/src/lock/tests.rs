//! The lock with a clock, processes and deaths that the test decides on.

use super::protocol::{LockCell, Refusal, acquire};
use super::*;
use crate::attachment_word::AtomicWord;
use std::sync::Mutex;
use std::thread;

const LONG: Duration = Duration::from_secs(60);
const PID: u32 = 4711;

/// The world as the process `me` sees it.
struct World {
    me: Mutex<Option<AttachmentId>>,
    dead: Mutex<Vec<AttachmentId>>,
    unknown: Option<AttachmentId>,
}

impl World {
    fn of(me: AttachmentId) -> Self {
        Self {
            me: Mutex::new(Some(me)),
            dead: Mutex::new(Vec::new()),
            unknown: None,
        }
    }

    fn with_dead(me: AttachmentId, dead: AttachmentId) -> Self {
        let world = Self::of(me);
        world.dead.lock().unwrap().push(dead);
        world
    }
}

impl Environment for World {
    fn life(&self, id: AttachmentId) -> Life {
        assert_ne!(Some(id), self.me_now(), "a process does not probe itself");
        if self.dead.lock().unwrap().contains(&id) {
            Life::Gone
        } else if self.unknown == Some(id) {
            Life::Unknown
        } else {
            Life::Held
        }
    }

    fn pid_of(&self, _id: AttachmentId) -> u32 {
        PID
    }

    fn me_now(&self) -> Option<AttachmentId> {
        *self.me.lock().unwrap()
    }
}

fn id(slot: u16) -> AttachmentId {
    AttachmentId::new(slot, 1).unwrap()
}

fn held_by(by: AttachmentId, waiters: bool) -> LockWord {
    LockWord(AtomicU64::new(Lock::Held { by, waiters }.encode()))
}

fn lock_of(word: &LockWord) -> Option<Lock> {
    Lock::decode(word.0.load(Ordering::Relaxed))
}

#[test]
fn a_lock_that_was_let_go_is_taken_clean() {
    let (word, world) = (LockWord::new(), World::of(id(1)));
    for _ in 0..2 {
        let Acquired::Clean(guard) = word.acquire(id(1), &world, Duration::ZERO).unwrap() else {
            panic!("nobody died");
        };
        assert_eq!(word.holder(), Some(id(1)));
        drop(guard);
        assert_eq!(word.holder(), None);
    }
}

#[test]
fn a_try_names_the_holder_and_leaves_no_trace() {
    let (word, world) = (held_by(id(2), false), World::of(id(1)));
    let refused = word.acquire(id(1), &world, Duration::ZERO).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the lock is held by slot 2, generation 1 (pid 4711)"
    );
    let LockError::Busy { holder, pid } = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((holder, pid), (id(2), PID));
    assert_eq!(
        lock_of(&word),
        Some(Lock::Held {
            by: id(2),
            waiters: false
        })
    );
}

#[test]
fn a_try_inherits_from_the_proven_dead() {
    for waiters in [false, true] {
        let world = World::with_dead(id(1), id(2));
        let word = held_by(id(2), waiters);
        let acquired = word.acquire(id(1), &world, Duration::ZERO).unwrap();
        assert!(acquired.is_inherited());
        // Whoever sleeps since the dead one's time is woken in the end.
        assert_eq!(
            lock_of(&word),
            Some(Lock::Held {
                by: id(1),
                waiters: true
            })
        );
    }
}

#[test]
fn an_inheritor_that_dies_before_it_repaired_is_inherited_from() {
    let word = held_by(id(2), false);
    let first = World::with_dead(id(1), id(2));
    std::mem::forget(word.acquire(id(1), &first, Duration::ZERO).unwrap());
    let second = World::with_dead(id(3), id(1));
    let acquired = word.acquire(id(3), &second, Duration::ZERO).unwrap();
    assert!(acquired.is_inherited());
    drop(acquired);
    let third = word.acquire(id(3), &second, Duration::ZERO).unwrap();
    assert!(!third.is_inherited(), "the news is told once");
}

#[test]
fn an_owner_that_dies_between_two_writes_leaves_the_half_state_to_be_repaired() {
    let pair = [AtomicU64::new(0), AtomicU64::new(0)];
    let word = LockWord::new();
    let first = World::of(id(2));
    std::mem::forget(word.acquire(id(2), &first, LONG).unwrap());
    pair[0].store(1, Ordering::Relaxed);
    // Killed here.
    let second = World::with_dead(id(1), id(2));
    match word.acquire(id(1), &second, LONG).unwrap() {
        Acquired::Clean(_) => panic!("the half state goes unnoticed"),
        Acquired::Inherited(_guard) => {
            assert_eq!(
                pair.each_ref().map(|half| half.load(Ordering::Relaxed)),
                [1, 0]
            );
            pair[1].store(1, Ordering::Relaxed);
        }
    }
    assert_eq!(word.holder(), None);
}

#[test]
fn unknown_is_not_gone_and_ends_busy_not_before_the_deadline() {
    let mut world = World::of(id(1));
    world.unknown = Some(id(2));
    let word = held_by(id(2), false);
    let (before, timeout) = (world.now(), Duration::from_millis(8));
    let refused = word.acquire(id(1), &world, timeout).unwrap_err();
    assert!(world.now() - before >= timeout);
    assert!(matches!(refused, LockError::Busy { holder, .. } if holder == id(2)));
}

#[test]
fn a_corrupt_word_is_refused_at_once_and_left_as_it_is() {
    let retired = u64::from(AttachmentId::RETIRED) | 1 << 32;
    for found in [1, 1 << 32, retired, 1 << 12, u64::MAX] {
        let word = LockWord(AtomicU64::new(found));
        let refused = word.acquire(id(1), &World::of(id(1)), LONG).unwrap_err();
        assert!(matches!(refused, LockError::Corrupt { found: named } if named == found));
        assert_eq!(word.0.load(Ordering::Relaxed), found);
        assert_eq!(word.holder(), None);
    }
}

#[test]
fn a_word_that_was_overwritten_under_its_holder_is_left_as_it_is() {
    let (word, world) = (LockWord::new(), World::of(id(1)));
    let guard = word.acquire(id(1), &world, LONG).unwrap();
    word.0.store(77, Ordering::Relaxed);
    drop(guard);
    assert_eq!(word.0.load(Ordering::Relaxed), 77);
}

#[test]
fn a_fork_childs_guard_unlocks_nothing() {
    // Before it joined, and after it got an id of its own.
    for child in [None, Some(id(2))] {
        let (word, world) = (LockWord::new(), World::of(id(1)));
        let guard = word.acquire(id(1), &world, LONG).unwrap();
        *world.me.lock().unwrap() = child;
        drop(guard);
        assert_eq!(word.holder(), Some(id(1)));
    }
}

#[test]
fn a_thread_that_locks_what_it_holds_is_refused_at_its_deadline() {
    let (word, world) = (LockWord::new(), World::of(id(1)));
    let _guard = word.acquire(id(1), &world, LONG).unwrap();
    let refused = word
        .acquire(id(1), &world, Duration::from_millis(3))
        .unwrap_err();
    assert!(matches!(refused, LockError::Busy { holder, .. } if holder == id(1)));
}

#[test]
fn one_of_four_waiters_inherits_and_all_proceed() {
    // By lock, by timed lock and by try-lock in a loop, as processes of their own.
    let word = held_by(id(9), false);
    let inherited = AtomicU64::new(0);
    let proceed = |slot, timeout| {
        let world = World::with_dead(id(slot), id(9));
        loop {
            match word.acquire(id(slot), &world, timeout) {
                Ok(acquired) => {
                    inherited.fetch_add(acquired.is_inherited().into(), Ordering::Relaxed);
                    return;
                }
                Err(LockError::Busy { .. }) if timeout.is_zero() => thread::yield_now(),
                Err(refused) => panic!("{refused}"),
            }
        }
    };
    thread::scope(|scope| {
        for (slot, timeout) in [
            (1, Duration::MAX),
            (2, LONG),
            (3, Duration::ZERO),
            (4, Duration::ZERO),
        ] {
            scope.spawn(move || proceed(slot, timeout));
        }
    });
    assert_eq!(inherited.into_inner(), 1);
    assert_eq!(word.holder(), None);
}

#[test]
fn threads_of_two_processes_exclude_each_other() {
    let (word, count) = (LockWord::new(), AtomicU64::new(0));
    let worlds = [World::of(id(1)), World::of(id(2))];
    thread::scope(|scope| {
        for world in worlds.iter().chain(&worlds) {
            scope.spawn(|| {
                for _ in 0..500 {
                    let me = world.me_now().unwrap();
                    let _guard = word.acquire(me, world, LONG).unwrap().into_guard();
                    let value = count.load(Ordering::Relaxed);
                    count.store(value + 1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 2000);
    assert_eq!(word.holder(), None);
}

/// A word that somebody hostile changes before every exchange, and a clock that moves when it is read.
struct Restless {
    words: [Lock; 2],
    turn: AtomicU64,
}

impl Restless {
    fn next(&self) -> u64 {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.words[usize::from(turn % 2 == 1)].encode()
    }
}

impl AtomicWord for Restless {
    fn load(&self, _order: Ordering) -> u64 {
        self.next()
    }

    fn exchange(&self, _current: u64, _new: u64, _success: Ordering) -> Result<(), u64> {
        Err(self.next())
    }

    fn fence(_order: Ordering) {}
}

impl LockCell for Restless {
    fn sleep(&self, _expected: u32, _slice: Duration) {}
    fn wake_one(&self) {}
}

struct TickingWorld {
    life: Life,
    ms: AtomicU64,
}

impl Environment for TickingWorld {
    fn life(&self, _id: AttachmentId) -> Life {
        self.life
    }

    fn pid_of(&self, _id: AttachmentId) -> u32 {
        0
    }

    fn me_now(&self) -> Option<AttachmentId> {
        None
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.ms.fetch_add(1, Ordering::Relaxed))
    }
}

/// A word that a barger has taken, without any sleeper announced, whenever a sleep on it ends.
struct Barged(AtomicU64);

impl AtomicWord for Barged {
    fn load(&self, order: Ordering) -> u64 {
        AtomicWord::load(&self.0, order)
    }

    fn exchange(&self, current: u64, new: u64, success: Ordering) -> Result<(), u64> {
        self.0.exchange(current, new, success)
    }

    fn fence(_order: Ordering) {}
}

impl LockCell for Barged {
    fn sleep(&self, _expected: u32, _slice: Duration) {
        let by = id(3);
        let barged = Lock::Held { by, waiters: false };
        self.0.store(barged.encode(), Ordering::Relaxed);
    }

    fn wake_one(&self) {}
}

#[test]
fn a_waiter_that_gives_up_leaves_its_wake_up_to_the_others_who_sleep() {
    let by = id(2);
    let cell = Barged(AtomicU64::new(Lock::Held { by, waiters: false }.encode()));
    let world = TickingWorld {
        life: Life::Held,
        ms: AtomicU64::new(0),
    };
    let timeout = Duration::from_millis(2);
    assert_eq!(
        acquire(&cell, id(1), &world, timeout),
        Err(Refusal::Busy { holder: id(3) })
    );
    let left = Lock::decode(cell.0.into_inner());
    let by = id(3);
    assert_eq!(left, Some(Lock::Held { by, waiters: true }));
}

#[test]
fn a_word_that_never_rests_does_not_hold_anybody_beyond_the_deadline() {
    let held = |slot, waiters| Lock::Held {
        by: id(slot),
        waiters,
    };
    for words in [
        [Lock::Free, held(2, false)],
        [held(2, false), held(3, false)],
        [held(2, true), held(2, false)],
        [held(2, true), Lock::Free],
    ] {
        for life in [Life::Gone, Life::Held, Life::Unknown] {
            for timeout in [Duration::ZERO, Duration::from_millis(20)] {
                let cell = Restless {
                    words,
                    turn: AtomicU64::new(0),
                };
                let world = TickingWorld {
                    life,
                    ms: AtomicU64::new(0),
                };
                assert!(acquire(&cell, id(1), &world, timeout).is_err());
                assert!(cell.turn.into_inner() < 1000);
            }
        }
    }
}
