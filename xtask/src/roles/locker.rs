//! A process that uses a lock, a guarded pair and a wake word in a region, as it is told.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use arena_core::{Acquired, Arena, LockError, LockWord, Region, WakeWord, Woken};

use super::{Role, peer::options, process};
use crate::{text, told::Told};

pub(super) const ROLES: &[Role] = &[
    ("locker", locker),
    ("waiter", waiter),
    ("forking-locker", forking_locker),
];

/// What the region holds: the lock, the pair that it guards, the wake word.
const LOCK: u64 = 0;
const PAIR: [u64; 2] = [8, 16];
const WAKE: u64 = 24;

/// The region, in an arena at the path that is the next argument.
fn region(told: &mut Told) -> (Arena, Region) {
    let arena = options()
        .open(told.arg())
        .expect("the scenario's arena opens");
    let region = arena
        .carve(b"locks", 1, 64)
        .expect("there is room for 64 bytes");
    (arena, region)
}

fn word(region: &Region, at: u64) -> &AtomicU64 {
    region.at(at).expect("inside the region")
}

/// Locks and unlocks. The arguments: path.
fn locker(mut told: Told) {
    let (arena, region) = region(&mut told);
    let lock: &LockWord = region.at(LOCK).expect("inside the region");
    let me = arena.me().expect("an arena that was opened is attached to");
    told.say(&format!("locker {}", text::id(me)));
    loop {
        let line = told.hear();
        let words: Vec<&str> = line.split(' ').collect();
        let taken = match words.as_slice() {
            ["try"] => arena.try_lock(lock),
            ["lock", timeout] => arena.lock(lock, millis(timeout)),
            ["insist"] => insist(&arena, lock),
            _ => return,
        };
        match taken {
            Ok(taken) => hold(&told, &region, taken),
            Err(e) => told.say(&format!("locked {}", refusal(&e))),
        }
    }
}

/// Tries again and again, without ever sleeping in the lock.
fn insist<'a>(arena: &'a Arena, lock: &'a LockWord) -> Result<Acquired<'a>, LockError> {
    loop {
        match arena.try_lock(lock) {
            Err(LockError::Busy { .. }) => std::thread::yield_now(),
            other => return other,
        }
    }
}

fn hold(told: &Told, region: &Region, taken: Acquired<'_>) {
    let how = if taken.is_inherited() {
        "inherited"
    } else {
        "clean"
    };
    let pair = PAIR.map(|at| word(region, at).load(Ordering::Acquire));
    // The pair is what a repair looks at; both are equal unless somebody was killed between the two stores.
    let guard = taken.into_guard();
    let mut line = told.at(&format!("locked {how} {} {}", pair[0], pair[1]));
    while line != "unlock" {
        if line == "fork-drop" {
            let Some(ended) = process::fork_and_return() else {
                drop(guard);
                std::process::exit(0);
            };
            line = told.at(&format!("forked {ended}"));
            continue;
        }
        let value = line
            .strip_prefix("write ")
            .map(|value| value.parse().expect("a number"));
        let value = value.expect("a holder is told to write or to unlock");
        word(region, PAIR[0]).store(value, Ordering::Release);
        told.at("half");
        word(region, PAIR[1]).store(value, Ordering::Release);
        line = told.at("whole");
    }
    drop(guard);
    told.say("unlocked");
}

fn refusal(error: &LockError) -> String {
    match error {
        LockError::Busy { holder, .. } => format!("busy {}", text::id(*holder)),
        other => format!("refused {}", text::error(other)),
    }
}

/// A thread holds the lock while the main thread forks; the child tries. The arguments: path.
fn forking_locker(mut told: Told) {
    let (arena, region) = region(&mut told);
    let lock: &LockWord = region.at(LOCK).expect("inside the region");
    let me = arena.me().expect("an arena that was opened is attached to");
    let (locked, is_locked) = std::sync::mpsc::channel();
    let (unlock, may_unlock) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|threads| {
        let arena = &arena;
        threads.spawn(move || {
            let taken = arena.lock(lock, Duration::from_secs(5));
            let guard = taken.expect("nobody else has it").into_guard();
            locked.send(()).expect("the main thread waits for it");
            _ = may_unlock.recv();
            drop(guard);
        });
        is_locked.recv().expect("the other thread locks");
        let answer = process::ask_in_fork(|| {
            let child = arena.me().map_or_else(|e| text::error(&e), text::id);
            let taken = arena.lock(lock, Duration::from_millis(200));
            let taken = taken.map_or_else(|e| refusal(&e), |_| "locked".to_owned());
            format!("{child} {taken}")
        });
        told.at(&format!("forked {} {answer}", text::id(me)));
        unlock.send(()).expect("the other thread waits for it");
    });
    told.at("unlocked");
}

/// Sleeps on the wake word until it changes, and says so; or wakes. The arguments: path, how many openings first.
fn waiter(mut told: Told) {
    let path = told.arg();
    let before = told.number();
    // Each opening is a mapping of its own, so that the last one lies elsewhere than in another process.
    let others: Vec<Arena> = (0..before)
        .map(|_| options().open(&path).expect("it opens"))
        .collect();
    let arena = options().open(&path).expect("the scenario's arena opens");
    let region = arena
        .carve(b"locks", 1, 64)
        .expect("there is room for 64 bytes");
    let wake: &WakeWord = region.at(WAKE).expect("inside the region");
    let count = word(&region, PAIR[0]);
    told.say(&format!("waiter {}", arena.base_address()));
    loop {
        let line = told.hear();
        match line.as_str() {
            "sleep" => {
                let ticket = wake.ticket();
                let seen = count.load(Ordering::Acquire);
                told.say("sleeps");
                let how = sleep(wake, ticket, || count.load(Ordering::Acquire) != seen);
                told.say(&format!("awake {how} {}", count.load(Ordering::Acquire)));
            }
            "wake" => {
                count.fetch_add(1, Ordering::AcqRel);
                wake.wake_all();
                told.say("woke");
            }
            _ => {
                drop(others);
                return;
            }
        }
    }
}

fn sleep(
    wake: &WakeWord,
    mut ticket: arena_core::Ticket,
    changed: impl Fn() -> bool,
) -> &'static str {
    loop {
        match wake.wait(ticket, Some(Duration::from_secs(15))) {
            Woken::Changed => return "changed",
            Woken::TimedOut => return "timed-out",
            // A second look, once a second at most, covers a waker that was stopped; nobody is stopped here.
            _ if changed() => return "second-look",
            _ => ticket = wake.ticket(),
        }
    }
}

fn millis(text: &str) -> Duration {
    Duration::from_millis(text.parse().expect("the scenario gives a number here"))
}
