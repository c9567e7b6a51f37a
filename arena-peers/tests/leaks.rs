//! What watches leave behind: nothing. Alone in its binary, because it counts what the process has.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use arena_peers::Watch;

use common::{Child, place};

fn count(of: &str) -> usize {
    std::fs::read_dir(of).unwrap().count()
}

#[test]
fn hundred_watches_are_one_thread_and_leave_no_thread_and_no_descriptor() {
    let (_directory, path, peers) = place();
    let victim = Child::belled(&path);
    let alive = Child::belled(&path);
    let (fds, threads) = (count("/proc/self/fd"), count("/proc/self/task"));
    for round in 0..3 {
        let watches: Vec<Watch> = (0..100)
            .map(|i| [&victim, &alive][i % 2].id)
            .map(|peer| peers.watch(peer).unwrap())
            .collect();
        let word = Arc::new(AtomicU32::new(0));
        let alarms: Vec<_> = (0..100)
            .map(|_| peers.alarm(&word, Some(alive.id), Some(u64::MAX)).unwrap())
            .collect();
        assert_eq!(count("/proc/self/task"), threads + 1);
        // One each, epoll, the timer, and a pidfd for each peer that was alive.
        assert!(count("/proc/self/fd") <= fds + 100 + 4);
        if round == 1 {
            victim.kill();
        }
        if round >= 1 {
            for watch in watches.iter().filter(|watch| watch.peer() == victim.id) {
                assert!(watch.wait(None).is_some());
            }
        }
        assert!(
            watches
                .iter()
                .all(|watch| watch.peer() != alive.id || watch.proof().is_none())
        );
        drop((watches, alarms));
        // The thread lingers for a fifth of a second, in case it is needed again.
        while count("/proc/self/task") > threads || count("/proc/self/fd") > fds {
            std::thread::yield_now();
        }
        assert_eq!(count("/proc/self/fd"), fds);
    }
}
