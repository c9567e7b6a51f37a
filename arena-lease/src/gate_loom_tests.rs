//! The gate under the model checker, on a narrow word. A futex without timeouts: a wake-up that is lost is a deadlock.

use std::sync::atomic::Ordering;

use loom::sync::atomic::AtomicU64;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::*;
use crate::protocol::modelled::Narrow;

struct Model {
    word: Narrow,
    dead: AtomicU64,
    /// What is done inside, unsynchronised but for the gate.
    work: AtomicU64,
    sleepers: Mutex<()>,
    rung: Condvar,
}

impl Door for Model {
    type Cell = Narrow;

    fn word(&self) -> &Narrow {
        &self.word
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn is_gone(&self) -> bool {
        false
    }

    fn is_removed(&self) -> bool {
        false
    }

    fn is_dead(&self, peer: PeerId) -> bool {
        // The kernel's proof: whatever the dead one stored is visible after it.
        self.dead.fetch_add(0, Ordering::Acquire) & 1 << peer.slot() != 0
    }

    fn sleep(&self, part: u32, behind: PeerId, _: Duration) {
        let guard = self.sleepers.lock().unwrap();
        let word = GateWord::decode(self.word.0.load(Ordering::Relaxed)).unwrap();
        // The bell and the kernel's comparison, both under the lock that wakers take.
        if word.part::<u64>() == Some(part) && !self.is_dead(behind) {
            drop(self.rung.wait(guard).unwrap());
        }
    }

    fn wake_all(&self) {
        drop(self.sleepers.lock().unwrap());
        self.rung.notify_all();
    }
}

impl Model {
    /// A gate in which `inside` has one guard, under fence 1.
    fn with(inside: Option<u16>) -> Arc<Self> {
        let word = GateWord {
            fence: 1,
            inside: inside.map(|slot| Inside {
                peer: peer(slot),
                guards: 1,
                barred: false,
            }),
            waited: false,
            turn: 0,
        };
        Arc::new(Self {
            word: Narrow::new(word.encode().unwrap()),
            dead: AtomicU64::new(0),
            work: AtomicU64::new(0),
            sleepers: Mutex::new(()),
            rung: Condvar::new(),
        })
    }

    fn die(&self, slot: u16) {
        self.dead.fetch_add(1 << slot, Ordering::Release);
        self.wake_all();
    }

    fn enter(&self, slot: u16, fence: u64) -> Outcome {
        enter(self, peer(slot), fence, u64::MAX).unwrap()
    }

    /// Enters, works, leaves. `None`: refused.
    fn work(&self, slot: u16, fence: u64) -> Option<u64> {
        match self.enter(slot, fence) {
            Outcome::Entered { .. } => {
                let before = self.work.load(Ordering::Relaxed);
                self.work.store(before + 1, Ordering::Relaxed);
                leave(self, peer(slot));
                Some(before)
            }
            Outcome::Stale { .. } => None,
            Outcome::Busy { .. } => unreachable!("it waits for ever"),
        }
    }
}

fn peer(slot: u16) -> PeerId {
    PeerId::new(slot, 1).unwrap()
}

fn check(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(f);
}

#[test]
fn edge_left_shows_the_next_one_what_was_done_inside() {
    check(3, || {
        let gate = Model::with(Some(0));
        let newer = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.work(1, 2))
        };
        gate.work.store(7, Ordering::Relaxed);
        leave(&*gate, peer(0));
        assert_eq!(newer.join().unwrap(), Some(7));
    });
}

/// Goal: what every guard did is visible to whoever enters after the last of them, also when another guard's coming
/// and going lies between.
#[test]
fn edge_left_reaches_past_the_exchanges_of_other_guards() {
    check(2, || {
        let gate = Model::with(Some(0));
        let newer = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                let outcome = gate.enter(1, 2);
                (outcome, gate.work.load(Ordering::Relaxed))
            })
        };
        let beside = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                if let Outcome::Entered { .. } = enter(&*gate, peer(0), 1, 0).unwrap() {
                    leave(&*gate, peer(0));
                }
            })
        };
        gate.work.store(7, Ordering::Relaxed);
        leave(&*gate, peer(0));
        beside.join().unwrap();
        let entered = Outcome::Entered { recovered: None };
        assert_eq!(newer.join().unwrap(), (entered, 7));
    });
}

#[test]
fn two_that_come_at_once_are_never_inside_together() {
    check(3, || {
        let gate = Model::with(None);
        let newer = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.work(1, 2))
        };
        let older = gate.work(0, 1);
        let newer = newer.join().unwrap().expect("the newest is never refused");
        match older {
            // In this order, and each saw the other's work.
            Some(older) => assert_eq!((older, newer), (0, 1)),
            None => assert_eq!(newer, 0),
        }
        assert_eq!(gate.enter(0, 1), Outcome::Stale { newest: 2 });
    });
}

/// Goal: a process that leaves and comes back under its fence is another guard to who waited for the first one.
#[test]
fn a_waiter_is_woken_also_when_the_same_process_came_back_at_once() {
    check(3, || {
        let gate = Model::with(Some(0));
        let waiter = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.work(1, 1))
        };
        leave(&*gate, peer(0));
        gate.work(0, 1);
        waiter.join().unwrap().expect("its fence is the newest");
        assert_eq!(gate.work.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn one_of_two_that_wait_recovers_from_a_death_inside() {
    check(2, || {
        let gate = Model::with(Some(0));
        let other = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                let outcome = gate.enter(1, 2);
                leave(&*gate, peer(1));
                outcome
            })
        };
        let dying = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.die(0))
        };
        let first = gate.enter(2, 2);
        leave(&*gate, peer(2));
        dying.join().unwrap();
        let outcomes = [first, other.join().unwrap()];
        let recovered = Outcome::Entered {
            recovered: Some(peer(0)),
        };
        let plain = Outcome::Entered { recovered: None };
        assert!(outcomes.contains(&recovered) && outcomes.contains(&plain));
    });
}

#[test]
fn a_waiter_with_an_older_fence_is_refused_when_a_newer_one_is_shown() {
    check(2, || {
        let gate = Model::with(Some(0));
        let older = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.enter(1, 2))
        };
        // The one inside never leaves; whoever was before this one is told.
        let newest = enter(&*gate, peer(2), 3, 0).unwrap();
        assert!(matches!(newest, Outcome::Busy { .. }));
        assert_eq!(older.join().unwrap(), Outcome::Stale { newest: 3 });
    });
}
