//! The edges of the lock, each under the scheduler and the memory model of loom.
//!
//! The futex is a mutex and a condition variable around compare and sleep, as it is in the kernel. A *patient* sleeper
//! sleeps until it is woken, so a lost wake-up is a deadlock, which loom reports. An *impatient* one returns at
//! once, as after a slice: for deaths, which wake nobody.

use super::protocol::{LockCell, Refusal, Taken, acquire, release};
use super::word::{Lock, low_half};
use super::*;
use crate::attachment_word::loom_tests::{ModelByte, ModelWord, check, check_bounded, row_of};
use crate::attachment_word::{AtomicWord, AttachmentWord, RowState};
use loom::sync::atomic::AtomicU64 as LoomU64;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

const FOR_EVER: Duration = Duration::MAX;
/// Each look at the clock of the model takes a millisecond.
const SHORT: Duration = Duration::from_millis(2);

struct ModelLock {
    word: ModelWord,
    queue: Mutex<()>,
    woken: Condvar,
    patient: bool,
}

impl ModelLock {
    fn new(lock: Lock, patient: bool) -> Self {
        Self {
            word: ModelWord::new(lock.encode()),
            queue: Mutex::new(()),
            woken: Condvar::new(),
            patient,
        }
    }
}

impl AtomicWord for ModelLock {
    fn load(&self, order: Ordering) -> u64 {
        self.word.load(order)
    }

    fn exchange(&self, current: u64, new: u64, success: Ordering) -> Result<(), u64> {
        self.word.exchange(current, new, success)
    }

    fn fence(order: Ordering) {
        ModelWord::fence(order);
    }
}

impl LockCell for ModelLock {
    fn sleep(&self, expected: u32, _slice: Duration) {
        if !self.patient {
            return thread::yield_now();
        }
        let queue = self.queue.lock().unwrap();
        if low_half(self.word.load(Ordering::Relaxed)) == expected {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    fn wake_one(&self) {
        if self.patient {
            let _queue = self.queue.lock().unwrap();
            self.woken.notify_one();
        }
    }
}

fn id(slot: u16, generation: u32) -> AttachmentId {
    AttachmentId::new(slot, generation).unwrap()
}

fn held(by: AttachmentId) -> Lock {
    Lock::Held { by, waiters: false }
}

/// A lock, what it guards, and the row and byte of slot 0; everybody else lives.
struct Model {
    lock: ModelLock,
    row: AttachmentWord<ModelWord>,
    byte: ModelByte,
    data: LoomU64,
    inside: LoomU64,
    /// Not a thing of the model: it orders nothing.
    clock_ms: AtomicU64,
}

impl Environment for Model {
    fn life(&self, id: AttachmentId) -> Life {
        match id.slot() {
            0 => self.row.life(id, || self.byte.ask()),
            _ => Life::Held,
        }
    }

    fn pid_of(&self, _id: AttachmentId) -> u32 {
        0
    }

    fn me_now(&self) -> Option<AttachmentId> {
        None
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.clock_ms.fetch_add(1, Ordering::Relaxed))
    }
}

impl Model {
    fn new(lock: ModelLock, byte: ModelByte) -> Arc<Self> {
        Arc::new(Self {
            lock,
            row: row_of(id(0, 1), RowState::Ready),
            byte,
            data: LoomU64::new(0),
            inside: LoomU64::new(0),
            clock_ms: AtomicU64::new(0),
        })
    }

    /// Holds the lock, alone, while `f` runs.
    fn with_lock(
        &self,
        me: AttachmentId,
        timeout: Duration,
        f: impl FnOnce(Taken),
    ) -> Result<Taken, Refusal> {
        let taken = acquire(&self.lock, me, self, timeout)?;
        assert_eq!(
            self.inside.fetch_add(1, Ordering::Relaxed),
            0,
            "{me} is not alone"
        );
        f(taken);
        self.inside.fetch_sub(1, Ordering::Relaxed);
        release(&self.lock, me);
        Ok(taken)
    }

    /// Adds one by a load and a store, which only a lock makes whole.
    fn add_one(&self) {
        let value = self.data.load(Ordering::Relaxed);
        self.data.store(value + 1, Ordering::Relaxed);
    }
}

fn spawn<T: 'static>(
    model: &Arc<Model>,
    f: impl FnOnce(&Model) -> T + 'static,
) -> thread::JoinHandle<T> {
    let model = Arc::clone(model);
    thread::spawn(move || f(&model))
}

/// `others` and the main thread each add one under the lock, sleeping for it if they must.
fn contenders_all_count(preemptions: usize, others: u16, rounds: u64) {
    check_bounded(preemptions, move || {
        let model = Model::new(ModelLock::new(Lock::Free, true), ModelByte::held());
        let work = move |model: &Model, slot| {
            for _ in 0..rounds {
                let taken = model.with_lock(id(slot, 1), FOR_EVER, |_| model.add_one());
                assert_eq!(taken, Ok(Taken::Clean));
            }
        };
        let threads: Vec<_> = (1..=others)
            .map(|slot| spawn(&model, move |model| work(model, slot)))
            .collect();
        work(&model, 0);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(
            model.data.load(Ordering::Relaxed),
            (u64::from(others) + 1) * rounds
        );
    });
}

#[test]
fn unlocked_shows_the_next_holder_what_the_last_one_stored_and_wakes_it() {
    contenders_all_count(3, 1, 2);
}

#[test]
fn unlocked_wakes_one_sleeper_after_the_other() {
    contenders_all_count(2, 2, 1);
}

#[test]
fn unlocked_is_seen_by_another_thread_of_the_same_process() {
    check(|| {
        let model = Model::new(ModelLock::new(Lock::Free, true), ModelByte::held());
        let thread = spawn(&model, |model| {
            model.with_lock(id(1, 1), FOR_EVER, |_| model.add_one())
        });
        let here = model.with_lock(id(1, 1), FOR_EVER, |_| model.add_one());
        assert_eq!([here, thread.join().unwrap()], [Ok(Taken::Clean); 2]);
        assert_eq!(model.data.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn death_is_inherited_once_with_all_that_the_dead_one_stored() {
    check(|| {
        let dead = id(0, 1);
        let model = Model::new(ModelLock::new(held(dead), false), ModelByte::held());
        // A few looks each, perhaps all of them before the death.
        let contend = |model: &Model, slot, timeout| {
            model.with_lock(id(slot, 1), timeout, |taken| {
                let half_state = model.data.load(Ordering::Relaxed);
                assert_eq!(half_state, if taken == Taken::Inherited { 1 } else { 2 });
                model.data.store(2, Ordering::Relaxed);
            })
        };
        let rivals = [(1, Duration::ZERO), (2, SHORT)]
            .map(|(slot, timeout)| spawn(&model, move |model| contend(model, slot, timeout)));
        model.data.store(1, Ordering::Relaxed);
        model.byte.die();
        let [one, two] = rivals.map(|rival| rival.join().unwrap());
        let outcomes = [one, two, contend(&model, 3, Duration::ZERO)];
        let inherited = outcomes
            .iter()
            .filter(|outcome| **outcome == Ok(Taken::Inherited));
        assert_eq!(inherited.count(), 1, "{outcomes:?}");
    });
}

#[test]
fn death_of_an_inheritor_is_inherited_again() {
    check(|| {
        // The dead one inherited, and died with sleepers under it.
        let lock = Lock::Held {
            by: id(0, 1),
            waiters: true,
        };
        let model = Model::new(ModelLock::new(lock, false), ModelByte::free());
        let try_lock = |model: &Model, slot| model.with_lock(id(slot, 1), Duration::ZERO, |_| ());
        let rival = spawn(&model, move |model| try_lock(model, 2));
        let outcomes = [try_lock(&model, 1), rival.join().unwrap()];
        let inherited = outcomes
            .iter()
            .filter(|outcome| **outcome == Ok(Taken::Inherited));
        assert_eq!(inherited.count(), 1, "{outcomes:?}");
    });
}

#[test]
fn death_under_sleepers_ends_with_all_of_them_awake() {
    check(|| {
        let model = Model::new(ModelLock::new(held(id(0, 1)), true), ModelByte::held());
        // Finds a holder that lives, and then only a wake-up can end its sleep.
        let sleeper = spawn(&model, |model| model.with_lock(id(1, 1), FOR_EVER, |_| ()));
        model.byte.die();
        let here = model.with_lock(id(2, 1), Duration::ZERO, |_| ());
        let there = sleeper.join().unwrap();
        let inherited = [here, there]
            .into_iter()
            .filter(|outcome| *outcome == Ok(Taken::Inherited));
        assert_eq!(inherited.count(), 1, "{here:?} {there:?}");
    });
}

#[test]
fn a_slot_taken_again_between_probe_and_exchange_keeps_its_lock() {
    check(|| {
        let model = Model::new(ModelLock::new(held(id(0, 1)), false), ModelByte::free());
        let successor = spawn(&model, |model| {
            let byte = model.byte.try_take(0).unwrap();
            let me = model.row.claim(&byte).unwrap();
            model.with_lock(me, FOR_EVER, |_| model.add_one()).unwrap()
        });
        // Sees the dead one's word, and proves that death, while the successor comes into the same slot.
        let here = model.with_lock(id(1, 1), Duration::ZERO, |_| model.add_one());
        let there = successor.join().unwrap();
        let inherited = [here, Ok(there)]
            .into_iter()
            .filter(|outcome| *outcome == Ok(Taken::Inherited));
        assert_eq!(inherited.count(), 1, "{here:?} {there:?}");
        let holders = if here.is_ok() { 2 } else { 1 };
        assert_eq!(model.data.load(Ordering::Relaxed), holders);
    });
}
