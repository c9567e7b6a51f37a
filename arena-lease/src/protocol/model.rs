//! The verbs under the model checker, on a narrow word: every interleaving, and every stale value that the
//! memory model allows, within three preemptions.
//!
//! Time is one more atomic. A thread that moves it stands for a pause at whatever gap the other threads happen
//! to be in, between the load, the clock and the exchange.

use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::sync::Arc;
use loom::thread;

use super::modelled::{Shared, TTL_MS, check, peer, ttl};
use super::{Fault, World as _};
use crate::outcome::{Acquire, Hold, Lost, Refused, Renewed, TookOver};
use crate::word::Word;

fn held(outcome: Result<Acquire, Fault>) -> Option<Hold> {
    outcome.unwrap().held()
}

#[test]
fn two_acquirers_and_a_renewer_never_hold_at_once() {
    // Three take half a minute, and showed nothing else.
    check(2, || {
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
    // Three take ten seconds, and showed nothing else.
    check(2, || {
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
fn edge_handover_reaches_another_thread_of_the_successor() {
    check(3, || {
        let shared = Shared::held_by(peer(0));
        let successor = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || held(shared.acquire(peer(1))).is_some())
        };
        let other_thread = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mine = super::mine(&*shared, peer(1), 2).unwrap();
                mine.then(|| shared.work.load(Ordering::Relaxed))
            })
        };
        shared.work.store(7, Ordering::Relaxed);
        assert!(super::release(&*shared, peer(0), 1, 0).unwrap());
        successor.join().unwrap();
        assert_ne!(other_thread.join().unwrap(), Some(0));
    });
}

#[test]
fn edge_asked_a_release_is_never_lost_on_a_waiter() {
    check(3, || {
        let shared = Shared::held_by(peer(0));
        let waiter = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                super::acquire_until(&*shared, peer(1), ttl(), u64::MAX, || Ok(None))
            })
        };
        assert!(super::release(&*shared, peer(0), 1, 0).unwrap());
        let hold = held(waiter.join().unwrap()).expect("waits until it holds");
        assert_eq!((hold.fence, hold.took_over), (2, None));
    });
}

#[test]
fn edge_asked_a_handover_moves_waiters_on_to_the_next_holder() {
    // Three take half a minute, and showed nothing else.
    check(2, || {
        let shared = Shared::held_by(peer(0));
        let waiter = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                super::acquire_until(&*shared, peer(1), ttl(), u64::MAX, || Ok(None))
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
fn edge_asked_a_watch_sees_the_last_of_several_changes() {
    // Three take half a minute, and showed nothing else.
    check(2, || {
        let shared = Shared::held_by(peer(0));
        let watch = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                loop {
                    let word = super::watched(&*shared).unwrap();
                    if word.fence == 2 && word.lost_to().is_none() {
                        return;
                    }
                    let half = word.half::<u64>().unwrap();
                    shared.sleep(half, None, Duration::MAX);
                }
            })
        };
        assert!(super::release(&*shared, peer(0), 1, 0).unwrap());
        assert_eq!(held(shared.acquire(peer(1))).unwrap().fence, 2);
        assert!(super::release(&*shared, peer(1), 2, 0).unwrap());
        watch.join().unwrap();
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
fn nothing_is_mine_at_a_time_at_which_the_arena_was_gone() {
    check(3, || {
        let shared = Shared::held_by(peer(0));
        let destroyer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.gone.fetch_add(1, Ordering::Relaxed);
                shared.pass(1);
            })
        };
        if super::mine(&*shared, peer(0), 1).unwrap() {
            assert_eq!(*shared.read_ms.lock().unwrap(), 0);
        }
        destroyer.join().unwrap();
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
