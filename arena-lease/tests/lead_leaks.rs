//! What guards and watches leave behind: nothing. Alone in its binary, because it counts what the process has.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use arena_lease::{ArenaOptions, Cancel, LeadOptions, Leases};
use common::count;

/// One test: what it counts is the process's.
#[test]
fn guards_and_watches_leave_no_thread_and_no_descriptor() {
    let arena = ArenaOptions::new().anonymous().unwrap();
    let leases = Leases::open(&arena).unwrap();
    // The bell's thread stays for as long as the arena is open.
    arena.hang_bell().unwrap();
    hundred_guards_are_two_threads(&leases);
    hundred_watches_are_a_thread_and_a_descriptor_each(&leases);
}

fn hundred_guards_are_two_threads(leases: &Leases) {
    let (threads, fds) = (count("/proc/self/task"), count("/proc/self/fd"));
    for round in 0..3 {
        let cancel = Cancel::new();
        let options = LeadOptions::new().renew_every(Duration::from_millis(5));
        let rules = options.cancel(&cancel).build().unwrap();
        let guards: Vec<_> = (0..100)
            .map(|i| {
                rules
                    .contend(leases, format!("lease {i}"))
                    .unwrap()
                    .won()
                    .unwrap()
            })
            .collect();
        let waited = guards[0].wait_lost(Duration::from_millis(30));
        assert_eq!(waited, None);
        // The keeper, and the watcher that wakes it; epoll and a timer.
        assert_eq!(count("/proc/self/task"), threads + 2);
        assert_eq!(count("/proc/self/fd"), fds + 2);
        match round {
            0 => drop(guards),
            1 => {
                let panicked = catch_unwind(AssertUnwindSafe(move || {
                    let _guards = guards;
                    panic!("on purpose");
                }));
                assert!(panicked.is_err());
            }
            _ => {
                cancel.cancel();
                assert!(guards.iter().all(|guard| !guard.is_leading()));
                // Lost guards are not kept, though they are still there.
                while count("/proc/self/task") > threads {
                    std::thread::yield_now();
                }
            }
        }
        // The threads linger for a fifth of a second, in case they are needed again.
        while count("/proc/self/task") > threads || count("/proc/self/fd") > fds {
            std::thread::yield_now();
        }
        assert_eq!(count("/proc/self/fd"), fds);
        assert_eq!(leases.arena().attachments().len(), 1);
    }
}

fn hundred_watches_are_a_thread_and_a_descriptor_each(leases: &Leases) {
    let (threads, fds) = (count("/proc/self/task"), count("/proc/self/fd"));
    for _ in 0..3 {
        let lease = leases.lease("lease 7", Duration::from_secs(30)).unwrap();
        assert!(lease.acquire().unwrap().held().is_some());
        let mut watches: Vec<_> = (0..100)
            .map(|i| leases.watch(format!("lease {i}")).unwrap())
            .collect();
        for watch in &mut watches {
            assert!(watch.next(Duration::MAX).unwrap().is_some());
        }
        assert!(lease.release().unwrap());
        assert!(!watches[7].next(Duration::MAX).unwrap().unwrap().held);
        assert!(count("/proc/self/task") >= threads + 100);
        drop(watches);
        // Their threads have ended; the one that told them of deadlines lingers.
        assert!(count("/proc/self/task") <= threads + 1);
        while count("/proc/self/task") > threads || count("/proc/self/fd") > fds {
            std::thread::yield_now();
        }
        assert_eq!(count("/proc/self/fd"), fds);
    }
}
