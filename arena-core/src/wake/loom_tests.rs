//! The edges of the wake word, each under the scheduler and the memory model of loom.
//!
//! A sleeper sleeps until it is woken, without any second look, so a lost wake-up is a deadlock, which loom
//! reports. What sleepers wait for is stored and loaded relaxed: only the wake word orders it.

use super::*;
use crate::attachment_word::loom_tests::{Crossing, check, check_bounded};
use loom::sync::atomic::{AtomicU32 as LoomU32, AtomicU64 as LoomU64, fence as loom_fence};
use loom::sync::{Condvar, Mutex};
use std::sync::Arc;

struct ModelFutex {
    word: LoomU32,
    crossing: Crossing,
    queue: Mutex<()>,
    woken: Condvar,
}

impl ModelFutex {
    fn new() -> Self {
        Self {
            word: LoomU32::new(0),
            crossing: Crossing::new(),
            queue: Mutex::new(()),
            woken: Condvar::new(),
        }
    }
}

impl WakeCell for ModelFutex {
    fn load(&self, order: Ordering) -> u32 {
        self.crossing.pass();
        self.word.load(order)
    }

    fn add_one(&self, order: Ordering) {
        self.crossing.pass();
        self.word.fetch_add(1, order);
    }

    fn clear(&self, order: Ordering) {
        self.crossing.pass();
        self.word.swap(0, order);
    }

    fn fence(order: Ordering) {
        loom_fence(order);
    }

    fn sleep(&self, expected: u32, _timeout: Duration) -> Wait {
        let queue = self.queue.lock().unwrap();
        if self.word.load(Ordering::Relaxed) != expected {
            return Wait::Changed;
        }
        drop(self.woken.wait(queue).unwrap());
        Wait::Woken
    }

    fn rouse(&self) {
        let _queue = self.queue.lock().unwrap();
        self.woken.notify_all();
    }
}

struct Model {
    wake: ModelFutex,
    sleepers: ModelFutex,
    data: [LoomU64; 2],
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            wake: ModelFutex::new(),
            sleepers: ModelFutex::new(),
            data: [LoomU64::new(0), LoomU64::new(0)],
        })
    }

    fn publish(&self, which: usize, value: u64) {
        self.data[which].store(value, Ordering::Relaxed);
        wake_all(&self.wake, &self.sleepers);
    }

    fn sleep_until(&self, expected: [u64; 2]) {
        loop {
            let ticket = ticket(&self.wake, &self.sleepers);
            let found = self
                .data
                .each_ref()
                .map(|data| data.load(Ordering::Relaxed));
            if found == expected {
                return;
            }
            let _woken = wait(&self.wake, ticket, None);
        }
    }
}

fn spawn(model: &Arc<Model>, f: impl FnOnce(&Model) + 'static) -> loom::thread::JoinHandle<()> {
    let model = Arc::clone(model);
    loom::thread::spawn(move || f(&model))
}

#[test]
fn asleep_a_sleeper_is_seen_or_sees() {
    check(|| {
        let model = Model::new();
        let sleeper = spawn(&model, |model| model.sleep_until([1, 0]));
        model.publish(0, 1);
        sleeper.join().unwrap();
    });
}

#[test]
fn asleep_nothing_is_lost_between_two_wakes_of_one_waker() {
    check(|| {
        let model = Model::new();
        let waker = spawn(&model, |model| {
            model.publish(0, 1);
            model.publish(0, 2);
        });
        model.sleep_until([2, 0]);
        waker.join().unwrap();
    });
}

#[test]
fn asleep_two_sleepers_are_both_woken() {
    check(|| {
        let model = Model::new();
        let sleepers = [(); 2].map(|()| spawn(&model, |model| model.sleep_until([1, 0])));
        model.publish(0, 1);
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    });
}

#[test]
fn asleep_a_waker_whose_count_another_one_cleared_loses_nobody() {
    check_bounded(2, || {
        let model = Model::new();
        let wakers = [0, 1].map(|which| spawn(&model, move |model| model.publish(which, 1)));
        model.sleep_until([1, 1]);
        for waker in wakers {
            waker.join().unwrap();
        }
    });
}

#[test]
fn woken_shows_what_the_waker_stored() {
    check(|| {
        let model = Model::new();
        let waker = spawn(&model, |model| model.publish(0, 1));
        let ticket = ticket(&model.wake, &model.sleepers);
        if model.data[0].load(Ordering::Relaxed) == 0
            && wait(&model.wake, ticket, None) == Woken::Changed
        {
            assert_eq!(model.data[0].load(Ordering::Relaxed), 1);
        }
        waker.join().unwrap();
    });
}
