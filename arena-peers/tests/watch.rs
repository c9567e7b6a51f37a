//! Watches and alarms of real peers.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arena_peers::core::{PidFd, clock};
use arena_peers::{Alarm, Sleep, Slept, Watch, Witness};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use common::{Child, LONG, keep, options, place};

fn is_readable(watch: &Watch, timeout: PollTimeout) -> bool {
    let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, timeout).unwrap() == 1
}

fn a_minute() -> PollTimeout {
    PollTimeout::from(60_000u16)
}

#[test]
fn watch_is_readable_from_the_death_on_and_not_before() {
    let (_directory, path, peers) = place();
    let child = Child::belled(&path);
    let watch = peers.watch(child.id).unwrap();
    assert!(!is_readable(&watch, PollTimeout::from(50u8)));
    assert_eq!((watch.proof(), watch.peer()), (None, child.id));
    assert_eq!(watch.wait(Some(Duration::from_millis(5))), None);
    // Stopped is not dead.
    child.signal(Signal::SIGSTOP);
    assert!(!is_readable(&watch, PollTimeout::from(50u8)));
    child.signal(Signal::SIGKILL);
    assert!(is_readable(&watch, a_minute()));
    let process = PidFd::open(child.pid.as_raw().cast_unsigned()).unwrap();
    assert!(process.has_ended().unwrap());
    assert_eq!(watch.proof().unwrap().peer(), child.id);
    assert!(is_readable(&watch, PollTimeout::ZERO), "it stays readable");
    assert!(watch.wait(None).is_some());
}

#[test]
fn watch_of_one_who_died_before_is_readable_at_once() {
    let (_directory, path, peers) = place();
    let mut child = Child::belled(&path);
    child.kill();
    let zombie = peers.watch(child.id).unwrap();
    assert!(is_readable(&zombie, a_minute()));
    child.reap();
    let reaped = peers.watch(child.id).unwrap();
    assert!(is_readable(&reaped, a_minute()));
    peers.reap();
    let cleared = peers.watch(child.id).unwrap();
    assert!(is_readable(&cleared, a_minute()));
}

#[test]
fn watch_notices_one_who_leaves_and_one_who_calls_exec() {
    let (_directory, path, peers) = place();
    let mut leaves = Child::run(|line| {
        let arena = options().attach(&path).unwrap();
        line.say(arena.me().unwrap());
        line.hear();
        drop(arena);
    });
    let mut execs = Child::run(|line| {
        line.say(keep(options().attach(&path).unwrap()));
        line.hear();
        panic!("{}", std::process::Command::new("sleep").arg("60").exec());
    });
    let watches = [&leaves, &execs].map(|child| peers.watch(child.id).unwrap());
    leaves.tell();
    execs.tell();
    let by = watches.map(|watch| {
        assert!(is_readable(&watch, a_minute()));
        watch.proof().unwrap().witness()
    });
    assert_eq!(by, [Witness::Epoch, Witness::Byte]);
}

#[test]
fn watch_is_told_by_a_thread_that_sleeps_on_the_bell() {
    let (_directory, path, peers) = place();
    let child = Child::belled(&path);
    let watch = peers.watch(child.id).unwrap();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            peers.sleep(&Sleep {
                peer: Some(child.id),
                timeout: LONG,
                ..Sleep::default()
            })
        });
        let waiter = scope.spawn(|| watch.wait(LONG));
        child.signal(Signal::SIGKILL);
        assert!(matches!(sleeper.join().unwrap(), Slept::Dead(_)));
        assert!(is_readable(&watch, PollTimeout::ZERO));
        assert_eq!(waiter.join().unwrap(), watch.proof());
    });
}

#[test]
fn forked_child_of_a_process_that_watches_has_a_watcher_of_its_own() {
    let (_directory, path, peers) = place();
    let victim = Child::belled(&path);
    let watch = peers.watch(victim.id).unwrap();
    let word = Arc::new(AtomicU32::new(0));
    let alarm = peers.alarm(&word, Some(victim.id), None).unwrap();
    let mut child = Child::run(|line| {
        let me = peers.me().unwrap();
        assert!(alarm.set_deadline(None).is_err(), "it is the parent's");
        let own = peers.watch(victim.id).unwrap();
        // Takes nothing from the parent.
        drop(alarm);
        line.say(me);
        assert!(own.wait(LONG).is_some());
        assert!(watch.wait(LONG).is_some(), "an inherited one");
        drop(watch);
        line.say(me);
    });
    let watch = peers.watch(victim.id).unwrap();
    victim.kill();
    child.hear();
    assert!(is_readable(&watch, a_minute()));
}

#[test]
fn watches_of_the_parent_outlive_a_child_that_drops_its_copies() {
    let (_directory, path, peers) = place();
    let victim = Child::belled(&path);
    let mut watch = Some(peers.watch(victim.id).unwrap());
    let word = Arc::new(AtomicU32::new(0));
    let mut alarm = Some(peers.alarm(&word, Some(victim.id), None).unwrap());
    let mut child = Child::run(|line| {
        let me = peers.me().unwrap();
        // A watch of its own first, so that there is something to be taken from by mistake.
        let own = peers.watch(victim.id).unwrap();
        drop((watch.take(), alarm.take()));
        line.say(me);
        assert!(is_readable(&own, a_minute()));
        line.say(me);
    });
    assert!(!is_readable(watch.as_ref().unwrap(), PollTimeout::ZERO));
    victim.kill();
    assert!(is_readable(watch.as_ref().unwrap(), a_minute()));
    child.hear();
    while word.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn alarm_rings_once_at_its_deadline_and_not_after_it_was_dropped() {
    let (_directory, _path, peers) = place();
    let words = [(); 3].map(|()| Arc::new(AtomicU32::new(0)));
    let now = clock::boot_ms();
    let late = peers.alarm(&words[0], None, Some(now + 40)).unwrap();
    let early = peers.alarm(&words[1], None, Some(now + 20)).unwrap();
    let never = peers.alarm(&words[2], None, Some(now + 30)).unwrap();
    drop(never);
    while words[0].load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    assert!(clock::boot_ms() >= now + 40);
    let counts = words.each_ref().map(|word| word.load(Ordering::Relaxed));
    assert_eq!(counts, [1, 1, 0]);
    // One that is long past rings at once, one that was taken back does not.
    early.set_deadline(Some(now + 60)).unwrap();
    early.set_deadline(None).unwrap();
    late.set_deadline(Some(1)).unwrap();
    while words[0].load(Ordering::Relaxed) == 1 {
        std::thread::yield_now();
    }
    late.set_deadline(Some(now + 100)).unwrap();
    while words[0].load(Ordering::Relaxed) == 2 {
        std::thread::yield_now();
    }
    assert_eq!(words[1].load(Ordering::Relaxed), 1);
}

#[test]
fn alarm_by_hand_ends_a_sleep_when_it_is_rung_and_has_no_deadline() {
    let (_directory, _path, peers) = place();
    let word = Arc::new(AtomicU32::new(0));
    let alarm = Alarm::by_hand(&word);
    assert!(alarm.set_deadline(Some(1)).is_err());
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            peers.sleep(&Sleep {
                alarm: Some((&alarm, 0)),
                timeout: LONG,
                ..Sleep::default()
            })
        });
        alarm.ring();
        assert_eq!(sleeper.join().unwrap(), Slept::Woken);
    });
    assert_eq!(word.load(Ordering::Relaxed), 1);
}
