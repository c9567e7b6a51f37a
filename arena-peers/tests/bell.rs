//! Bells of real children: when they ring, when they do not, and what a verdict makes of it.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use arena_peers::core::futex::Wait;
use arena_peers::core::{Memory, PidFd, clock};
use arena_peers::{Bell, BellError, Peers, Verdict, Witness};
use nix::libc;
use nix::sys::signal::Signal;

use common::{Child, LONG, keep, options, place, refuse, witness};

/// Sleeps on a child's bell until it is otherwise than hung, and says how.
fn until_rung(peers: &Peers, child: &Child) -> Bell {
    loop {
        let bell = peers.arena().seen_bell(child.id.slot()).unwrap();
        if bell.state() != Bell::Hung {
            return bell.state();
        }
        let (word, seen) = bell.futex();
        assert_ne!(word.wait(seen, LONG), Wait::TimedOut, "it never rang");
    }
}

fn bell(peers: &Peers, child: &Child) -> Bell {
    peers.arena().bell(child.id.slot()).unwrap()
}

/// Makes a living child's bell look as if it had rung.
fn ring_by_hand(path: &Path, child: &Child) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let at = 384 + 128 * u64::from(child.id.slot()) + 120;
    file.write_all_at(&0xc000_0000_u32.to_le_bytes(), at)
        .unwrap();
}

#[test]
fn bell_of_a_killed_process_rings_and_its_death_is_proven_before_it_is_reaped() {
    let (_directory, path, peers) = place();
    let mut child = Child::belled(&path);
    assert_eq!(bell(&peers, &child), Bell::Hung);
    assert_eq!(peers.verdict(child.id), Verdict::Alive);
    child.signal(Signal::SIGKILL);
    assert_eq!(until_rung(&peers, &child), Bell::Rung);
    while peers.verdict(child.id) == Verdict::Alive {
        std::thread::yield_now();
    }
    assert!(witness(peers.verdict(child.id)).is_some());
    child.reap();
}

#[test]
fn bell_that_was_taken_down_does_not_ring() {
    let (_directory, path, peers) = place();
    let mut child = Child::run(|line| {
        let arena = options().attach(&path).unwrap();
        arena.hang_bell().unwrap();
        line.say(arena.me().unwrap());
        line.hear();
        let id = arena.me().unwrap();
        drop(arena);
        line.say(id);
    });
    assert_eq!(bell(&peers, &child), Bell::Hung);
    child.tell();
    child.hear();
    assert_eq!(bell(&peers, &child), Bell::None);
    child.kill();
    assert_eq!(bell(&peers, &child), Bell::None);
    assert_eq!(witness(peers.verdict(child.id)), Some(Witness::Epoch));
}

#[test]
fn next_occupant_of_a_slot_finds_no_bell_of_the_last_one() {
    let (_directory, path, peers) = place();
    let first = Child::belled(&path);
    first.kill();
    assert_eq!(until_rung(&peers, &first), Bell::Rung);
    assert_eq!(peers.reap(), 1);
    let second = Child::attached_to(&path);
    assert_eq!(second.id.slot(), first.id.slot());
    assert_eq!(bell(&peers, &second), Bell::None);
    assert_eq!(
        witness(peers.verdict_cached(first.id, clock::boot_ms())),
        Some(Witness::Epoch)
    );
}

#[test]
fn exec_rings_and_the_program_that_was_is_dead_by_its_byte() {
    let (_directory, path, peers) = place();
    let mut child = Child::run(|line| {
        let arena = options().attach(&path).unwrap();
        arena.hang_bell().unwrap();
        line.say(keep(arena));
        line.hear();
        panic!("{}", std::process::Command::new("sleep").arg("60").exec());
    });
    child.tell();
    assert_eq!(until_rung(&peers, &child), Bell::Rung);
    while peers.verdict(child.id) == Verdict::Alive {
        std::thread::yield_now();
    }
    assert_eq!(witness(peers.verdict(child.id)), Some(Witness::Byte));
    let process = PidFd::open(child.pid.as_raw().cast_unsigned()).unwrap();
    assert!(!process.has_ended().unwrap(), "another program runs");
}

#[test]
fn process_whose_main_thread_ended_is_alive_and_its_bell_hangs() {
    let (_directory, path, peers) = place();
    let child = Child::run(|line| {
        let arena = options().attach(&path).unwrap();
        arena.hang_bell().unwrap();
        line.say(keep(arena));
        std::thread::spawn(|| {
            loop {
                nix::unistd::pause();
            }
        });
        end_this_thread();
    });
    let stat = format!("/proc/{}/stat", child.pid);
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    assert_eq!(bell(&peers, &child), Bell::Hung);
    assert_eq!(peers.verdict(child.id), Verdict::Alive);
    // And if it had rung: the process has its memory.
    ring_by_hand(&path, &child);
    assert_eq!(peers.verdict(child.id), Verdict::Alive);
}

#[expect(unsafe_code, reason = "ends the main thread and not the process")]
fn end_this_thread() {
    // SAFETY: ends the thread that calls; nothing of its frames is used by another.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

#[test]
fn process_that_keeps_starting_and_ending_threads_is_never_dead() {
    let (_directory, path, peers) = place();
    let child = Child::run(|line| {
        let arena = options().attach(&path).unwrap();
        arena.hang_bell().unwrap();
        line.say(keep(arena));
        // Each thread starts the next one and ends, and so does the main thread.
        fn next() {
            std::thread::spawn(next);
        }
        next();
        end_this_thread();
    });
    let process = PidFd::open(child.pid.as_raw().cast_unsigned()).unwrap();
    for _ in 0..20_000 {
        assert_eq!(process.memory(), Memory::InUse);
    }
    ring_by_hand(&path, &child);
    for _ in 0..2_000 {
        assert_eq!(peers.verdict(child.id), Verdict::Alive);
    }
    child.kill();
    assert!(witness(peers.verdict(child.id)).is_some());
}

#[test]
fn child_of_fork_hangs_its_own_bell_and_its_end_does_not_ring_its_parents() {
    let (_directory, _path, peers) = place();
    peers.hang_bell().unwrap();
    let me = peers.me().unwrap();
    let child = Child::start(|| {
        assert_eq!(peers.arena().me_if_joined(), None);
        peers.hang_bell().unwrap();
        peers.me().unwrap()
    });
    assert_ne!(child.id.slot(), me.slot());
    assert_eq!(bell(&peers, &child), Bell::Hung);
    child.signal(Signal::SIGKILL);
    assert_eq!(until_rung(&peers, &child), Bell::Rung);
    assert_eq!(peers.arena().bell(me.slot()), Some(Bell::Hung));
}

#[test]
fn refused_list_and_refused_thread_are_errors_that_a_process_can_live_with() {
    let (_directory, path, peers) = place();
    let no_list = Child::start(|| {
        let arena = options().attach(&path).unwrap();
        refuse(libc::SYS_set_robust_list, libc::EPERM);
        for _ in 0..2 {
            match arena.hang_bell() {
                Err(BellError::RobustList { source }) => {
                    assert_eq!(source.raw_os_error(), Some(libc::EPERM));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(!Bell::is_offered());
        keep(arena)
    });
    let no_thread = Child::start(|| {
        let arena = options().attach(&path).unwrap();
        refuse(libc::SYS_clone3, libc::EAGAIN);
        refuse(libc::SYS_clone, libc::EAGAIN);
        assert!(matches!(arena.hang_bell(), Err(BellError::Thread { .. })));
        keep(arena)
    });
    for child in [no_list, no_thread] {
        assert_eq!(bell(&peers, &child), Bell::None);
        assert_eq!(peers.verdict(child.id), Verdict::Alive);
        child.kill();
        assert_eq!(witness(peers.verdict(child.id)), Some(Witness::Byte));
    }
}

#[test]
fn hung_bell_is_believed_for_a_while_and_a_rung_one_never() {
    let (_directory, path, peers) = place();
    let child = Child::belled(&path);
    let now = clock::boot_ms();
    assert_eq!(peers.verdict_cached(child.id, now), Verdict::Alive);
    // It cannot be told from a verdict that it was none, but for what a stopped clock does: the bell is
    // made to hang again under a dead child.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    child.kill();
    assert!(witness(peers.verdict_cached(child.id, now)).is_some());
    let at = 384 + 128 * u64::from(child.id.slot()) + 120;
    file.write_all_at(&0x8000_0007_u32.to_le_bytes(), at)
        .unwrap();
    assert_eq!(peers.verdict_cached(child.id, now + 100), Verdict::Alive);
    assert!(witness(peers.verdict_cached(child.id, now + 101)).is_some());
    assert!(witness(peers.verdict_cached(child.id, now + 102)).is_some());
}
