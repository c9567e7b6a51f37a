//! The edges of the bell, each under the scheduler and the memory model of loom.
//!
//! Sleepers sleep without a timeout, so one that is forgotten is a deadlock, which loom reports. The
//! kernel's ring wakes one sleeper, as the kernel does.

use super::*;
use crate::attachment_word::loom_tests::check;
use loom::sync::atomic::{AtomicU32 as LoomU32, AtomicU64 as LoomU64};
use loom::sync::{Arc, Condvar, Mutex};

const TID: u32 = 7;
/// The generation of the occupant whose bell it is at first.
const OCCUPANT: u64 = 1;

struct ModelFutex {
    word: LoomU32,
    queue: Mutex<()>,
    woken: Condvar,
}

impl ModelFutex {
    fn sleep(&self, expected: u32) {
        let queue = self.queue.lock().unwrap();
        // Relaxed: the kernel compares under its own lock.
        if self.word.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    /// What the kernel does with the list of a thread that ends.
    fn ring(&self, tid: u32) {
        let rung = OWNER_DIED | WAITERS;
        if BellCell::exchange(self, tid | WAITERS, rung, Ordering::SeqCst) {
            let _queue = self.queue.lock().unwrap();
            self.woken.notify_one();
        }
    }
}

impl BellCell for ModelFutex {
    fn load(&self, order: Ordering) -> u32 {
        self.word.load(order)
    }

    fn swap(&self, new: u32, order: Ordering) -> u32 {
        self.word.swap(new, order)
    }

    fn exchange(&self, current: u32, new: u32, order: Ordering) -> bool {
        self.word
            .compare_exchange(current, new, order, Ordering::Relaxed)
            .is_ok()
    }

    fn rouse(&self) -> usize {
        let _queue = self.queue.lock().unwrap();
        self.woken.notify_all();
        0
    }
}

struct Model {
    bell: ModelFutex,
    generation: LoomU64,
}

impl Model {
    fn new(word: u32) -> Arc<Model> {
        Arc::new(Model {
            bell: ModelFutex {
                word: LoomU32::new(word),
                queue: Mutex::new(()),
                woken: Condvar::new(),
            },
            generation: LoomU64::new(OCCUPANT),
        })
    }

    fn is_over(&self) -> bool {
        // Relaxed: only the bell orders it here.
        self.generation.load(Ordering::Relaxed) > OCCUPANT
    }

    /// What a sleeper does: the bell, then the row, then sleep.
    fn sleep_until_it_may_be_over(&self) {
        loop {
            let seen = look(&self.bell);
            if self.is_over() || Bell::decode(seen) == Bell::Rung {
                wake_rest(&self.bell);
                return;
            }
            self.bell.sleep(seen);
        }
    }
}

fn spawn(model: &Arc<Model>, f: impl FnOnce(&Model) + 'static) -> loom::thread::JoinHandle<()> {
    let model = Arc::clone(model);
    loom::thread::spawn(move || f(&model))
}

#[test]
fn rung_wakes_two_sleepers_though_the_kernel_wakes_one() {
    check(|| {
        let model = Model::new(TID | WAITERS);
        let sleepers = [(); 2].map(|()| spawn(&model, Model::sleep_until_it_may_be_over));
        model.bell.ring(TID);
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    });
}

#[test]
fn bell_occupant_a_sleeper_learns_that_the_occupant_left() {
    check(|| {
        let model = Model::new(TID | WAITERS);
        let sleeper = spawn(&model, Model::sleep_until_it_may_be_over);
        take_down(&model.bell, TID);
        model.generation.store(OCCUPANT + 1, Ordering::Relaxed);
        silence(&model.bell);
        sleeper.join().unwrap();
    });
}

#[test]
fn bell_occupant_who_sees_the_next_ones_bell_sees_that_it_is_the_next_ones() {
    check(|| {
        let model = Model::new(OWNER_DIED | WAITERS);
        let next = spawn(&model, |model| {
            model.generation.store(OCCUPANT + 1, Ordering::Relaxed);
            silence(&model.bell);
            hang(&model.bell, TID);
        });
        if Bell::decode(look(&model.bell)) == Bell::Hung {
            assert!(model.is_over());
        }
        next.join().unwrap();
    });
}

#[test]
fn bell_occupant_who_sees_the_next_ones_bell_taken_down_sees_that_it_is_the_next_ones() {
    check(|| {
        let model = Model::new(OWNER_DIED | WAITERS);
        let next = spawn(&model, |model| {
            model.generation.store(OCCUPANT + 1, Ordering::Relaxed);
            hang(&model.bell, TID);
            take_down(&model.bell, TID);
        });
        if look(&model.bell) == TAKEN_DOWN {
            assert!(model.is_over());
        }
        next.join().unwrap();
    });
}

#[test]
fn hung_a_sleeper_on_no_bell_looks_again_when_there_is_one() {
    check(|| {
        let model = Model::new(NONE);
        let sleeper = spawn(&model, |model| {
            let mut seen = look(&model.bell);
            while Bell::decode(seen) == Bell::None {
                model.bell.sleep(seen);
                seen = look(&model.bell);
            }
        });
        hang(&model.bell, TID);
        sleeper.join().unwrap();
    });
}
