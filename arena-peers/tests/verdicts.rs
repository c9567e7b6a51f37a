//! Verdicts on real children of this process: they say over a pipe where they are, and the test
//! decides what happens to them there.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use arena_peers::{JoinError, OpenError, PeerId, Verdict, Witness, verdict_in};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};

use common::{Child, options, place, witness};

#[test]
fn zombie_is_dead_to_members_and_to_viewers_and_its_slot_is_taken_back() {
    let (_directory, path, peers) = place();
    let mut child = Child::attached_to(&path);
    let view = options().view(&path).unwrap();
    assert_eq!(peers.verdict(child.id), Verdict::Alive);
    assert_eq!(verdict_in(&view, child.id), Verdict::Alive);
    assert_eq!(peers.counts().live, 2);
    child.kill();
    assert_eq!(witness(peers.verdict(child.id)), Some(Witness::Byte));
    assert_eq!(witness(verdict_in(&view, child.id)), Some(Witness::Byte));
    let counts = peers.counts();
    assert_eq!((counts.used, counts.live, counts.reaped), (2, 1, 0));
    assert_eq!(peers.reap(), 1);
    assert_eq!(peers.reap(), 0, "once");
    assert_eq!(witness(peers.verdict(child.id)), Some(Witness::Epoch));
    let counts = peers.counts();
    assert_eq!((counts.used, counts.live, counts.reaped), (1, 1, 1));
    child.reap();
    assert_eq!(witness(peers.verdict(child.id)), Some(Witness::Epoch));
}

#[test]
fn stopped_peer_is_alive_and_keeps_its_slot() {
    let (_directory, path, peers) = place();
    let child = Child::attached_to(&path);
    kill(child.pid, Signal::SIGSTOP).unwrap();
    let flags = nix::sys::wait::WaitPidFlag::WUNTRACED;
    assert!(matches!(
        waitpid(child.pid, Some(flags)),
        Ok(WaitStatus::Stopped(..))
    ));
    assert_eq!(peers.verdict(child.id), Verdict::Alive);
    assert_eq!(peers.reap(), 0);
    assert_eq!(peers.verdict(child.id), Verdict::Alive);
}

#[test]
fn forked_child_is_a_peer_of_its_own_and_leaves_its_parents_alone() {
    let (_directory, _path, peers) = place();
    let me = peers.me().unwrap();
    let child = Child::start(|| {
        assert_eq!(peers.arena().me_if_joined(), None);
        let id = peers.me().unwrap();
        // Another opening in the child finds the child's attachment, not a third.
        let again = options().attach(peers.arena().path().unwrap()).unwrap();
        assert_eq!(again.me().unwrap(), id);
        drop(again);
        assert_eq!(peers.me().unwrap(), id);
        id
    });
    assert_ne!(child.id, me);
    assert_eq!(peers.verdict(child.id), Verdict::Alive);
    child.kill();
    assert!(witness(peers.verdict(child.id)).is_some());
    assert_eq!(peers.verdict(me), Verdict::Alive);
    assert_eq!(peers.me().unwrap(), me);
}

#[test]
fn child_that_drops_every_inherited_handle_takes_nothing_from_its_parent() {
    let (_directory, path, peers) = place();
    let me = peers.me().unwrap();
    let inherited = options().open(&path).unwrap();
    let to_attach = path.clone();
    let child = Child::start(move || {
        drop(inherited);
        let arena = options().attach(to_attach).unwrap();
        let id = arena.me().unwrap();
        drop(arena);
        id
    });
    assert_ne!(child.id, me);
    assert_eq!(
        witness(peers.verdict(child.id)),
        Some(Witness::Epoch),
        "it left"
    );
    assert_eq!(peers.verdict(me), Verdict::Alive);
    let view = options().view(&path).unwrap();
    assert_eq!(verdict_in(&view, me), Verdict::Alive);
}

#[test]
fn full_table_takes_slots_back_from_the_dead_and_then_refuses() {
    let (_directory, path, peers) = place();
    let dead: Vec<Child> = (0..2).map(|_| Child::attached_to(&path)).collect();
    dead.iter().for_each(Child::kill);
    let alive: Vec<Child> = (0..2).map(|_| Child::attached_to(&path)).collect();
    assert_eq!(peers.counts().live, 3);
    let refused = Child::start(|| match options().attach(&path) {
        Err(OpenError::Join(JoinError::TableFull { slots: 3 })) => PeerId::new(7, 7).unwrap(),
        other => panic!("{other:?}"),
    });
    assert_eq!(refused.id, PeerId::new(7, 7).unwrap());
    for (before, after) in dead.iter().zip(&alive) {
        assert_eq!(witness(peers.verdict(before.id)), Some(Witness::Epoch));
        assert_eq!(peers.verdict(after.id), Verdict::Alive);
    }
}

#[test]
fn nobody_is_dead_who_never_was() {
    let (_directory, _path, peers) = place();
    let me = peers.me().unwrap();
    let later = PeerId::new(me.slot(), me.generation() + 1).unwrap();
    assert_eq!(peers.verdict(later), Verdict::Unknown);
    assert_eq!(peers.verdict(PeerId::new(2, 1).unwrap()), Verdict::Unknown);
    assert_eq!(
        peers.verdict(PeerId::new(900, 1).unwrap()),
        Verdict::Unknown
    );
}

#[test]
fn closing_every_descriptor_changes_no_verdict() {
    let (_directory, path, peers) = place();
    let child = Child::start(|| {
        let arena = options().attach(&path).unwrap();
        let id = arena.me().unwrap();
        let numbers: Vec<i32> = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|link| std::fs::read_link(link).is_ok_and(|target| target == path))
            .map(|link| link.file_name().unwrap().to_str().unwrap().parse().unwrap())
            .collect();
        assert!(!numbers.is_empty());
        for number in numbers {
            nix::unistd::close(number).unwrap();
        }
        std::mem::forget(arena);
        id
    });
    assert_eq!(peers.verdict(child.id), Verdict::Alive);
    assert_eq!(peers.reap(), 0);
    child.kill();
    assert_eq!(witness(peers.verdict(child.id)), Some(Witness::Byte));
}
