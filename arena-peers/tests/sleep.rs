//! Sleeping on a word, a peer's bell and an alarm, with real peers that are killed.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use arena_peers::core::futex::{Word, wake_all};
use arena_peers::core::{PidFd, clock};
use arena_peers::{PeerId, Peers, Sleep, Slept, Verdict, Witness, capabilities, ring};
use nix::libc;
use nix::sys::signal::Signal;

use common::{Child, LONG, keep, options, place, place_of, refuse, witness};

fn on_peer(peer: PeerId) -> Sleep<'static> {
    Sleep {
        peer: Some(peer),
        timeout: LONG,
        ..Sleep::default()
    }
}

fn dead(slept: Slept) -> Witness {
    match slept {
        Slept::Dead(proof) => proof.witness(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn death_of_a_large_process_is_proven_while_the_kernel_still_frees_its_memory() {
    /// The kernel may be quicker than this process is scheduled, now and then.
    const ROUNDS: usize = 5;
    let (_directory, path, peers) = place();
    let mut early = 0;
    for _ in 0..ROUNDS {
        let mut child = Child::start(|| {
            let arena = options().attach(&path).unwrap();
            arena.hang_bell().unwrap();
            let mut memory = vec![1u8; 512 << 20];
            memory.iter_mut().step_by(4096).for_each(|byte| *byte = 2);
            std::mem::forget(memory);
            keep(arena)
        });
        let process = PidFd::open(child.pid.as_raw().cast_unsigned()).unwrap();
        child.signal(Signal::SIGKILL);
        let by = dead(peers.sleep(&on_peer(child.id)));
        let ended = process.has_ended().unwrap();
        if by == Witness::NoMemory && !ended {
            early += 1;
        }
        assert!(ended || by == Witness::NoMemory, "{by:?}");
        child.reap();
    }
    assert!(early > 0, "the proof never came before the end");
}

#[test]
fn one_ring_wakes_every_sleeper_in_every_process() {
    let (_directory, path, peers) = place_of(8);
    let victim = Child::belled(&path);
    let sleep = on_peer(victim.id);
    // None of these has an alarm, and so no watcher: they wake each other.
    let mut children: Vec<Child> = (0..3)
        .map(|_| {
            Child::run(|line| {
                let arena = options().slots(8).attach(&path).unwrap();
                let peers = Peers::new(&arena);
                let me = peers.me().unwrap();
                line.say(me);
                dead(peers.sleep(&sleep));
                line.say(me);
            })
        })
        .collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| dead(peers.sleep(&sleep))))
            .collect();
        victim.signal(Signal::SIGKILL);
        for thread in threads {
            thread.join().unwrap();
        }
    });
    for child in &mut children {
        assert_eq!(child.hear(), child.id);
    }
}

#[test]
fn sleeper_on_the_bell_of_a_peer_that_leaves_is_told() {
    let (_directory, path, peers) = place();
    let mut child = Child::run(|line| {
        let arena = options().attach(&path).unwrap();
        arena.hang_bell().unwrap();
        line.say(arena.me().unwrap());
        line.hear();
        drop(arena);
    });
    let sleep = on_peer(child.id);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| peers.sleep(&sleep));
        child.tell();
        assert_eq!(dead(sleeper.join().unwrap()), Witness::Epoch);
    });
}

#[test]
fn sleeper_behind_a_peer_that_hangs_its_bell_later_relies_on_it_from_then_on() {
    let (_directory, path, peers) = place();
    let mut child = Child::run(|line| {
        let arena = options().attach(&path).unwrap();
        line.say(arena.me().unwrap());
        line.hear();
        arena.hang_bell().unwrap();
        line.say(keep(arena));
    });
    let word = Arc::new(AtomicU32::new(0));
    let alarm = peers.alarm(&word, Some(child.id), None).unwrap();
    let sleep = Sleep {
        alarm: Some((&alarm, alarm.ticket())),
        ..on_peer(child.id)
    };
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| peers.sleep(&sleep));
        child.tell();
        child.hear();
        child.signal(Signal::SIGKILL);
        dead(sleeper.join().unwrap());
    });
}

/// Destruction of the arena ends a sleep that asks for it, also when it came before.
fn end_of_the_arena_is_an_end_of_a_sleep() {
    let (_directory, _path, peers) = place();
    let word = AtomicU32::new(7);
    let sleep = Sleep {
        word: Some((Word::of(&word), 7)),
        until_gone: true,
        timeout: LONG,
        ..Sleep::default()
    };
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| peers.sleep(&sleep));
        peers.arena().destroy().unwrap();
        assert_eq!(sleeper.join().unwrap(), Slept::Woken);
    });
    assert_eq!(peers.sleep(&sleep), Slept::Woken);
    let other = Sleep {
        until_gone: false,
        timeout: Some(Duration::from_millis(30)),
        ..sleep
    };
    assert_eq!(peers.sleep(&other), Slept::TimedOut);
}

/// What ends a sleep besides a death; `peers` may have all the kernel offers, or less.
fn every_other_end_of_a_sleep(peers: &Peers, peer: PeerId) {
    let (word, bell) = (AtomicU32::new(7), Arc::new(AtomicU32::new(0)));
    let alarm = peers.alarm(&bell, Some(peer), None).unwrap();
    let sleep = Sleep {
        word: Some((Word::of(&word), 7)),
        alarm: Some((&alarm, alarm.ticket())),
        ..on_peer(peer)
    };
    // Nothing happens.
    let (nap, before) = (Duration::from_millis(30), Instant::now());
    let short = Sleep {
        timeout: Some(nap),
        ..sleep
    };
    assert_eq!(peers.sleep(&short), Slept::TimedOut);
    assert!(before.elapsed() >= nap);
    // The word had changed, or changes.
    let other = Sleep {
        word: Some((Word::of(&word), 6)),
        ..sleep
    };
    assert_eq!(peers.sleep(&other), Slept::Woken);
    // And so for the second.
    let second = AtomicU32::new(7);
    let other = Sleep {
        also: Some((Word::of(&second), 7)),
        ..sleep
    };
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| peers.sleep(&other));
        second.store(8, Ordering::Relaxed);
        while !sleeper.is_finished() {
            wake_all(&second);
            std::thread::yield_now();
        }
        assert_eq!(sleeper.join().unwrap(), Slept::Woken);
    });
    assert_eq!(peers.sleep(&other), Slept::Woken);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| peers.sleep(&sleep));
        while !sleeper.is_finished() {
            wake_all(&word);
            std::thread::yield_now();
        }
        assert_eq!(sleeper.join().unwrap(), Slept::Woken);
        // Cancelled.
        let sleeper = scope.spawn(|| peers.sleep(&sleep));
        alarm.ring();
        assert_eq!(sleeper.join().unwrap(), Slept::Woken);
    });
    assert_eq!(peers.sleep(&sleep), Slept::Woken, "the ticket is stale");
    // A deadline of the boot clock.
    let at_ms = clock::boot_ms() + 20;
    alarm.set_deadline(Some(at_ms)).unwrap();
    let sleep = Sleep {
        alarm: Some((&alarm, alarm.ticket())),
        ..sleep
    };
    assert_eq!(peers.sleep(&sleep), Slept::Woken);
    assert!(clock::boot_ms() >= at_ms);
    assert_eq!(bell.load(Ordering::Relaxed), 2, "once each");
}

#[test]
fn sleep_ends_by_word_alarm_deadline_and_timeout() {
    let (_directory, path, peers) = place();
    let child = Child::belled(&path);
    assert!(capabilities().futex_waitv);
    every_other_end_of_a_sleep(&peers, child.id);
    end_of_the_arena_is_an_end_of_a_sleep();
    assert_eq!(peers.verdict(child.id), Verdict::Alive);
}

#[test]
fn sleep_without_futex_waitv_ends_by_the_same_things() {
    let (_directory, path, peers) = place();
    let victim = Child::belled(&path);
    let mut sleeper = Child::run(|line| {
        // Known before it is refused, as by a filter that is installed late.
        assert!(capabilities().futex_waitv);
        refuse(libc::SYS_futex_waitv, libc::ENOSYS);
        let arena = options().attach(&path).unwrap();
        let peers = Peers::new(&arena);
        every_other_end_of_a_sleep(&peers, victim.id);
        end_of_the_arena_is_an_end_of_a_sleep();
        assert!(!capabilities().futex_waitv);
        let me = peers.me().unwrap();
        line.say(me);
        dead(peers.sleep(&on_peer(victim.id)));
        line.say(me);
    });
    victim.signal(Signal::SIGKILL);
    sleeper.hear();
    assert!(witness(peers.verdict(victim.id)).is_some());
}

#[test]
fn ring_before_the_sleep_is_not_lost() {
    let (_directory, path, peers) = place();
    let child = Child::belled(&path);
    let word = Arc::new(AtomicU32::new(0));
    let alarm = peers.alarm(&word, None, None).unwrap();
    let sleep = Sleep {
        alarm: Some((&alarm, alarm.ticket())),
        ..on_peer(child.id)
    };
    ring(&word);
    assert_eq!(peers.sleep(&sleep), Slept::Woken);
}

/// Starts a process with this body in a PID namespace of its own, whose first process it is; `None`
/// where that is not allowed.
#[expect(
    unsafe_code,
    reason = "fork and unshare, in a child that has one thread"
)]
fn first_of_a_namespace(body: impl FnOnce()) -> Option<nix::unistd::Pid> {
    // SAFETY: takes an integer; the next child is in another namespace, this process is not.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
        return None;
    }
    // SAFETY: the child runs `body` and never returns.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Parent { child } => Some(child),
        nix::unistd::ForkResult::Child => {
            body();
            loop {
                nix::unistd::pause();
            }
        }
    }
}

#[test]
fn death_in_another_pid_namespace_is_proven_by_the_byte_after_the_ring() {
    let (_directory, path, peers) = place();
    let me = peers.me().unwrap();
    let mut outer = Child::run(|line| {
        let (mut tell, mut told) = {
            let (read, write) = std::io::pipe().unwrap();
            (write, read)
        };
        let inner = first_of_a_namespace(|| {
            use std::io::Write as _;
            assert_eq!(std::process::id(), 1);
            let arena = options().attach(&path).unwrap();
            arena.hang_bell().unwrap();
            tell.write_all(&keep(arena).to_bits().to_le_bytes())
                .unwrap();
        });
        let Some(inner) = inner else {
            return line.say(me);
        };
        let mut id = [0; 8];
        std::io::Read::read_exact(&mut told, &mut id).unwrap();
        line.say(PeerId::from_bits(u64::from_le_bytes(id)).unwrap());
        line.hear();
        nix::sys::signal::kill(inner, Signal::SIGKILL).unwrap();
        nix::sys::wait::waitpid(inner, None).unwrap();
    });
    if outer.id == me {
        eprintln!("not allowed to make a PID namespace: skipped");
        return;
    }
    let sleep = on_peer(outer.id);
    let watch = peers.watch(outer.id).unwrap();
    assert_eq!(peers.verdict(outer.id), Verdict::Alive);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| dead(peers.sleep(&sleep)));
        outer.tell();
        assert_eq!(sleeper.join().unwrap(), Witness::Byte);
    });
    assert!(watch.proof().is_some(), "told by the sleeper");
}
