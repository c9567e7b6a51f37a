//! The verbs under the model checker, on a narrow word: every interleaving, and every stale value that the
//! memory model allows, within three preemptions.
//!
//! Time is one more atomic. A thread that moves it stands for a pause at whatever gap the other threads happen
//! to be in, between the load, the clock and the exchange.

use std::sync::Mutex as Ghost;
use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::rules::History;
use super::{Cell, Fault, Mark, World};
use crate::outcome::{Acquire, Hold, Lost, Refused, Renewed, TookOver};
use crate::word::{NS_PER_MS, Owner, Word, narrow::half_of};
use crate::{PeerId, Ttl};

const TTL_MS: u64 = 100;

struct Shared {
    word: AtomicU64,
    asked: AtomicU64,
    told: AtomicU64,
    clock_ms: AtomicU64,
    gone: AtomicU64,
    dead: AtomicU64,
    /// What holders write and successors read, unsynchronised but for the lease.
    work: AtomicU64,
    sleepers: Mutex<()>,
    rung: Condvar,
    history: Ghost<History>,
}

impl Cell for Shared {
    type Bits = u64;

    fn load(&self, order: Ordering) -> u64 {
        self.word.load(order)
    }

    fn compare_exchange(
        &self,
        seen: u64,
        to: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let result = self.word.compare_exchange(seen, to, success, failure);
        if result.is_ok() {
            let (from, to) = (Word::decode(seen).unwrap(), Word::decode(to).unwrap());
            self.history.lock().unwrap().replace(from, to);
        }
        result
    }
}

impl Mark for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_max(value, order)
    }
}

impl World for Shared {
    type Cell = Self;
    type Mark = AtomicU64;

    fn word(&self) -> &Self {
        self
    }

    fn asked(&self) -> &AtomicU64 {
        &self.asked
    }

    fn told(&self) -> &AtomicU64 {
        &self.told
    }

    fn now_ns(&self) -> u64 {
        // A read-modify-write, so that it is the newest value as a clock's is; relaxed, because reading a clock
        // makes nothing else visible.
        self.clock_ms.fetch_add(0, Ordering::Relaxed) * NS_PER_MS
    }

    fn is_named(&self) -> bool {
        true
    }

    fn is_gone(&self) -> bool {
        self.gone.fetch_add(0, Ordering::Relaxed) != 0
    }

    fn least_fence(&self) -> u64 {
        0
    }

    fn reserve(&self, _: u64) -> bool {
        true
    }

    fn is_dead(&self, peer: PeerId) -> bool {
        // The kernel's proof: whatever the dead one stored is visible after it.
        self.dead.fetch_add(0, Ordering::Acquire) & 1 << peer.slot() != 0
    }

    fn taken(&self, _: u64, _: u64, _: Option<TookOver>) {}

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn fence_acquire(&self) {
        fence(Ordering::Acquire);
    }

    fn sleep(&self, half: u32, _: Duration) {
        // No timeout: a wake-up that was lost is a deadlock here. Like the kernel, looks under the lock that
        // wakers take.
        let guard = self.sleepers.lock().unwrap();
        if half_of(self.word.load(Ordering::Relaxed)) == half {
            drop(self.rung.wait(guard).unwrap());
        }
    }

    fn wake_all(&self) {
        drop(self.sleepers.lock().unwrap());
        self.rung.notify_all();
    }
}

impl Shared {
    /// A lease that `holder` has at fence 1 from time 0 on.
    fn held_by(holder: PeerId) -> Arc<Self> {
        let word = Word {
            fence: 1,
            owner: Owner::Peer(holder),
            until_ms: TTL_MS,
        };
        Self::new(word)
    }

    fn new(word: Word) -> Arc<Self> {
        let bits = word.encode().unwrap();
        Arc::new(Self {
            word: AtomicU64::new(bits),
            asked: AtomicU64::new(0),
            told: AtomicU64::new(0),
            clock_ms: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            work: AtomicU64::new(0),
            sleepers: Mutex::new(()),
            rung: Condvar::new(),
            history: Ghost::new(History::new(word)),
        })
    }

    fn pass(&self, ms: u64) {
        self.clock_ms.fetch_add(ms, Ordering::Relaxed);
        self.history.lock().unwrap().now_ms += ms;
    }

    fn die(&self, peer: PeerId) {
        self.dead.fetch_add(1 << peer.slot(), Ordering::Release);
        self.history.lock().unwrap().dead.push(peer);
    }

    fn acquire(&self, me: PeerId) -> Result<Acquire, Fault> {
        let outcome = super::acquire(self, me, ttl());
        if let Ok(Acquire::Held(hold)) = outcome {
            self.claim(me, hold.fence, hold.until_ms, hold.left);
        }
        outcome
    }

    fn renew(&self, me: PeerId, fence: u64) -> Renewed {
        let renewed = super::renew(self, me, fence, ttl()).unwrap();
        if let Renewed::Held { until_ms, left } = renewed {
            self.claim(me, fence, until_ms, left);
        }
        renewed
    }

    fn claim(&self, me: PeerId, fence: u64, until_ms: u64, left: Duration) {
        let mut history = self.history.lock().unwrap();
        history.claim(me, fence, until_ms, left);
    }

    fn check_claims(&self) {
        self.history.lock().unwrap().check_claims();
    }
}

fn peer(slot: u16) -> PeerId {
    PeerId::new(slot, 1).unwrap()
}

fn ttl() -> Ttl {
    Ttl::new(Duration::from_millis(TTL_MS)).unwrap()
}

fn check(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(f);
}

fn held(outcome: Result<Acquire, Fault>) -> Option<Hold> {
    outcome.unwrap().held()
}

#[test]
fn two_acquirers_and_a_renewer_never_hold_at_once() {
    check(3, || {
        let shared = Shared::held_by(peer(0));
        let acquirers = [1, 2].map(|slot| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || held(shared.acquire(peer(slot))))
        });
        shared.pass(TTL_MS);
        let renewed = shared.renew(peer(0), 1);
        let holds = acquirers.map(|thread| thread.join().unwrap());
        shared.check_claims();
        let winners = holds.iter().flatten().count() + usize::from(renewed.is_held());
        assert_eq!(winners, 1);
    });
}

#[test]
fn a_lapse_against_a_renewal_ends_with_one_holder() {
    check(3, || {
        let shared = Shared::held_by(peer(0));
        let rival = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || held(shared.acquire(peer(1))))
        };
        let clock = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.pass(TTL_MS / 2);
                shared.pass(TTL_MS);
            })
        };
        let renewed = shared.renew(peer(0), 1);
        let mine = super::mine(&*shared, peer(0), 1).unwrap();
        assert!(renewed.is_held() || !mine, "a loss is final");
        let hold = rival.join().unwrap();
        clock.join().unwrap();
        shared.check_claims();
        if let Renewed::Lost(lost) = renewed {
            let by = peer(1);
            let told = matches!(lost, Lost::Taken { by: named, fence: 2 } if named == by);
            assert!(told || lost == Lost::TooLate, "{lost:?}");
        } else if hold.is_some() {
            // It lapsed again after the renewal.
            assert!(!super::mine(&*shared, peer(0), 1).unwrap());
        }
    });
}

#[test]
fn a_pause_between_load_clock_and_exchange_never_gives_a_lease_that_is_over() {
    check(3, || {
        let shared = Shared::new(Word::decode(0_u64).unwrap());
        let rival = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || held(shared.acquire(peer(1))))
        };
        let clock = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.pass(TTL_MS))
        };
        held(shared.acquire(peer(0)));
        rival.join().unwrap();
        clock.join().unwrap();
        shared.check_claims();
    });
}

#[test]
fn edge_handover_shows_the_successor_what_the_holder_wrote() {
    check(3, || {
        let shared = Shared::held_by(peer(0));
        let rival = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let hold = held(shared.acquire(peer(1)))?;
                Some((hold.took_over, shared.work.load(Ordering::Relaxed)))
            })
        };
        shared.work.store(7, Ordering::Relaxed);
        assert!(super::release(&*shared, peer(0), 1, 0).unwrap());
        if let Some((took_over, work)) = rival.join().unwrap() {
            assert_eq!((took_over, work), (None, 7));
        }
    });
}

#[test]
fn edge_handover_reaches_a_successor_that_takes_over_from_a_lapsed_holder() {
    check(3, || {
        let shared = Shared::held_by(peer(0));
        let rival = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let hold = held(shared.acquire(peer(1)))?;
                Some((hold, shared.work.load(Ordering::Relaxed)))
            })
        };
        shared.work.store(7, Ordering::Relaxed);
        shared.pass(TTL_MS / 2);
        let renewed = shared.renew(peer(0), 1);
        shared.pass(TTL_MS);
        if let Some((hold, work)) = rival.join().unwrap() {
            let lapsed = TookOver::Lapsed {
                from: peer(0),
                fence: 1,
            };
            assert_eq!(hold.took_over, Some(lapsed));
            // Not taken before the renewal, so after it.
            if renewed.is_held() {
                assert_eq!(work, 7);
            }
        }
    });
}

#[test]
fn edge_asked_a_release_is_never_lost_on_a_waiter() {
    check(3, || {
        let shared = Shared::held_by(peer(0));
        let waiter = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                super::acquire_until(&*shared, peer(1), ttl(), u64::MAX, || Ok(()))
            })
        };
        assert!(super::release(&*shared, peer(0), 1, 0).unwrap());
        let hold = held(waiter.join().unwrap()).expect("waits until it holds");
        assert_eq!((hold.fence, hold.took_over), (2, None));
    });
}

#[test]
fn edge_asked_a_handover_moves_waiters_on_to_the_next_holder() {
    check(3, || {
        let shared = Shared::held_by(peer(0));
        let waiter = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                super::acquire_until(&*shared, peer(1), ttl(), u64::MAX, || Ok(()))
            })
        };
        assert!(super::release(&*shared, peer(0), 1, 0).unwrap());
        if let Some(hold) = held(shared.acquire(peer(2))) {
            assert!(super::release(&*shared, peer(2), hold.fence, 0).unwrap());
        }
        assert!(held(waiter.join().unwrap()).is_some());
    });
}

#[test]
fn a_death_is_taken_over_from_the_last_word_of_the_dead() {
    check(3, || {
        let shared = Shared::held_by(peer(0));
        let dying = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.work.store(7, Ordering::Relaxed);
                let _ = shared.renew(peer(0), 1);
                shared.die(peer(0));
            })
        };
        let outcome = shared.acquire(peer(1)).unwrap();
        match outcome {
            Acquire::Held(hold) => {
                let dead = TookOver::Dead {
                    from: peer(0),
                    fence: 1,
                };
                assert_eq!((hold.fence, hold.took_over), (2, Some(dead)));
                assert_eq!(shared.work.load(Ordering::Relaxed), 7);
            }
            Acquire::Refused(why) => assert!(matches!(why, Refused::Held { .. })),
        }
        dying.join().unwrap();
    });
}

#[test]
fn an_arena_that_is_destroyed_meanwhile_gives_nothing() {
    check(3, || {
        let shared = Shared::new(Word::decode(0_u64).unwrap());
        let destroyer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.gone.fetch_add(1, Ordering::Relaxed);
                // From here on the name may lead to another arena, in which somebody else holds.
                shared.pass(1);
            })
        };
        match shared.acquire(peer(0)) {
            Ok(Acquire::Held(hold)) => {
                let at_ms = hold.until_ms - u64::try_from(hold.left.as_millis()).unwrap();
                assert_eq!(at_ms, 0, "held at a time at which the arena was gone");
            }
            other => assert_eq!(other, Err(Fault::Gone)),
        }
        destroyer.join().unwrap();
        assert!(!super::mine(&*shared, peer(0), 1).unwrap());
    });
}

#[test]
fn a_loss_that_one_thread_was_told_is_no_renewal_in_another() {
    check(3, || {
        let shared = Shared::held_by(peer(0));
        let guard = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                super::tell_lost(&*shared, peer(0), 1);
                let renewed = shared.renew(peer(0), 1);
                assert!(!renewed.is_held(), "{renewed:?}");
                assert!(!super::mine(&*shared, peer(0), 1).unwrap());
            })
        };
        let hold = held(shared.acquire(peer(0))).expect("it is this process's");
        guard.join().unwrap();
        if hold.fence == 2 {
            assert!(super::mine(&*shared, peer(0), 2).unwrap());
        }
    });
}
