//! What guards leave behind: nothing. Alone in its binary, because it counts what the process has.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use arena_lease::{ArenaOptions, Cancel, LeadOptions, Leases};
use common::count;

#[test]
fn hundred_guards_are_two_threads_and_leave_no_thread_and_no_descriptor() {
    let arena = ArenaOptions::new().anonymous().unwrap();
    let leases = Leases::open(&arena).unwrap();
    // The bell's thread stays for as long as the arena is open.
    arena.hang_bell().unwrap();
    let (threads, fds) = (count("/proc/self/task"), count("/proc/self/fd"));
    for round in 0..3 {
        let cancel = Cancel::new();
        let options = LeadOptions::new().renew_every(Duration::from_millis(5));
        let rules = options.cancel(&cancel).build().unwrap();
        let guards: Vec<_> = (0..100)
            .map(|i| {
                rules
                    .contend(&leases, format!("lease {i}"))
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
        assert_eq!(arena.attachments().len(), 1);
    }
}
