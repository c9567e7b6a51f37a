//! What waiting costs: nothing. Alone in its binary, because it counts what the whole process does.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use arena_peers::core::clock;
use arena_peers::{Sleep, Slept};

use common::{Child, place};

/// How often the threads of this process, all together, have gone to sleep so far.
fn sleeps() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of_task = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("voluntary_ctxt_switches"));
        let count = line.unwrap().split_whitespace().last().unwrap();
        count.parse::<u64>().unwrap()
    };
    tasks.map(|task| of_task(task.unwrap())).sum()
}

#[test]
fn sleeper_behind_a_living_peer_and_its_watcher_do_not_wake_until_the_deadline() {
    let (_directory, path, peers) = place();
    let child = Child::belled(&path);
    peers.hang_bell().unwrap();
    let word = Arc::new(AtomicU32::new(0));
    let deadline_ms = clock::boot_ms() + 1_500;
    let alarm = peers
        .alarm(&word, Some(child.id), Some(deadline_ms))
        .unwrap();
    let before = sleeps();
    let slept = peers.sleep(&Sleep {
        peer: Some(child.id),
        alarm: Some((&alarm, alarm.ticket())),
        timeout: Some(Duration::from_secs(60)),
        ..Sleep::default()
    });
    assert_eq!(slept, Slept::Woken);
    assert!(clock::boot_ms() >= deadline_ms);
    // This thread's sleep, the watcher's first and the one after the deadline, and room for a lock.
    let count = sleeps() - before;
    assert!(count <= 5, "{count} sleeps");
}
