//! A sleeper's order of steps under the scheduler and the memory model of loom.
//!
//! Sleeps have no timeout, so a sleeper that is forgotten is a deadlock, which loom reports. The
//! kernel's queues are one condition variable under a lock: words' wakers wake all, the kernel's ring
//! wakes one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use arena_core::{AttachmentId as PeerId, Bell};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::Slept;
use super::protocol::{Bedroom, Night, Rang, sleep};
use crate::DeathProof;
use crate::verdict::proof_for_tests;

const HUNG: u32 = 1;
const RUNG: u32 = 2;
const NONE: u32 = 0;

fn check(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

struct Model {
    bell: AtomicU32,
    word: AtomicU32,
    alarm: AtomicU32,
    /// What the words tell of; ordered by them alone.
    data: AtomicU32,
    /// The occupant of the row, and whether the first one is dead.
    epoch: AtomicU64,
    dead: AtomicU32,
    queue: Mutex<()>,
    woken: Condvar,
    slice_over: Condvar,
}

fn model() -> Arc<Model> {
    Arc::new(Model {
        bell: AtomicU32::new(HUNG),
        word: AtomicU32::new(0),
        alarm: AtomicU32::new(0),
        data: AtomicU32::new(0),
        epoch: AtomicU64::new(1),
        dead: AtomicU32::new(0),
        queue: Mutex::new(()),
        woken: Condvar::new(),
        slice_over: Condvar::new(),
    })
}

impl Model {
    fn rouse(&self) {
        let _queue = self.queue.lock().unwrap();
        self.woken.notify_all();
    }

    /// The kernel's: the memory goes, or is about to, and the bell rings.
    fn ring(&self) {
        self.bell.store(RUNG, Ordering::Release);
        let _queue = self.queue.lock().unwrap();
        self.woken.notify_one();
    }

    /// The kernel's: the last thread lets go of the memory.
    fn die(&self) {
        let _queue = self.queue.lock().unwrap();
        self.dead.store(1, Ordering::Release);
        self.slice_over.notify_all();
    }

    fn set_alarm_off(&self) {
        // The release half of `crate::ring`.
        self.alarm.fetch_add(1, Ordering::Release);
        self.rouse();
    }

    /// The row goes to another occupant, as `arena_core`'s `silence` says it.
    fn is_followed(&self) {
        self.epoch.store(2, Ordering::Relaxed);
        self.bell.swap(NONE, Ordering::Release);
        self.rouse();
    }
}

struct Bed {
    model: Arc<Model>,
    ticket: u32,
}

impl Bed {
    fn of(model: &Arc<Model>) -> Bed {
        let ticket = model.alarm.load(Ordering::Acquire);
        let model = Arc::clone(model);
        Bed { model, ticket }
    }
}

struct Seen {
    model: Arc<Model>,
    seen: u32,
}

impl Bedroom for Bed {
    type Bell = Seen;

    fn bell(&self) -> Option<Seen> {
        let seen = self.model.bell.load(Ordering::Acquire);
        let model = Arc::clone(&self.model);
        Some(Seen { model, seen })
    }

    fn says(bell: &Seen) -> Bell {
        match bell.seen {
            HUNG => Bell::Hung,
            RUNG => Bell::Rung,
            _ => Bell::None,
        }
    }

    fn has_changed(bell: &Seen) -> bool {
        bell.model.bell.load(Ordering::Acquire) != bell.seen
    }

    fn wake_rest(bell: &Seen) {
        bell.model.rouse();
    }

    fn outlived(&self) -> Option<DeathProof> {
        // Relaxed: only the bell orders it here.
        let over = self.model.epoch.load(Ordering::Relaxed) > 1;
        over.then(|| proof_for_tests(PeerId::new(0, 1).unwrap()))
    }

    fn prove(&self) -> Option<DeathProof> {
        let dead = self.model.dead.load(Ordering::Acquire) == 1;
        dead.then(|| proof_for_tests(PeerId::new(0, 1).unwrap()))
    }

    fn untold(&self) -> Option<Duration> {
        None
    }

    fn sleep(&self, bell: Option<&Seen>, slice: Option<Duration>) -> Night {
        let model = &self.model;
        let queue = model.queue.lock().unwrap();
        if slice.is_some() {
            // Slices that end before the death change nothing, so the model has one that ends after it.
            // Relaxed: compared under the lock.
            if model.dead.load(Ordering::Relaxed) == 0 {
                drop(model.slice_over.wait(queue).unwrap());
            }
            return Night::Over;
        }
        // Relaxed: the kernel compares under its own lock.
        let now = |word: &AtomicU32| word.load(Ordering::Relaxed);
        if bell.is_some_and(|bell| now(&model.bell) != bell.seen)
            || now(&model.word) != 0
            || now(&model.alarm) != self.ticket
        {
            return Night::Ended(Rang::Unknown);
        }
        drop(model.woken.wait(queue).unwrap());
        Night::Ended(Rang::Unknown)
    }
}

fn is_dead(slept: Slept) -> bool {
    matches!(slept, Slept::Dead(_))
}

/// A caller: sleeps until the peer is dead, whatever else wakes it.
fn until_dead(model: &Arc<Model>) {
    while !is_dead(sleep(&Bed::of(model))) {}
}

#[test]
fn rung_every_sleeper_is_woken_and_gets_the_proof_though_it_comes_later() {
    check(|| {
        let model = model();
        let sleepers = [(); 2].map(|()| {
            let model = Arc::clone(&model);
            thread::spawn(move || until_dead(&model))
        });
        model.ring();
        model.die();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    });
}

#[test]
fn bell_occupant_a_sleeper_whose_peer_was_followed_is_told() {
    check(|| {
        let model = model();
        let sleeper = {
            let model = Arc::clone(&model);
            thread::spawn(move || until_dead(&model))
        };
        model.is_followed();
        sleeper.join().unwrap();
    });
}

#[test]
fn alarm_set_off_before_the_sleep_or_in_it_is_seen_with_what_it_tells_of() {
    check(|| {
        let model = model();
        let sleeper = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                loop {
                    let bed = Bed::of(&model);
                    // Relaxed: only the alarm orders it.
                    if model.data.load(Ordering::Relaxed) == 1 {
                        return;
                    }
                    assert!(!is_dead(sleep(&bed)), "nobody died");
                }
            })
        };
        model.data.store(1, Ordering::Relaxed);
        model.set_alarm_off();
        sleeper.join().unwrap();
    });
}

#[test]
fn ring_and_alarm_at_once_lose_neither() {
    check(|| {
        let model = model();
        let sleeper = {
            let model = Arc::clone(&model);
            thread::spawn(move || until_dead(&model))
        };
        let watcher = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.set_alarm_off())
        };
        model.die();
        model.ring();
        watcher.join().unwrap();
        sleeper.join().unwrap();
    });
}
