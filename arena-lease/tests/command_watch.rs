//! `arena-lease watch`, as a script reads it.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use arena_lease::{Arena, ArenaOptions};
use nix::sys::signal::{Signal, kill};

mod shell;
use shell::{Place, ended, pid};

fn watch(place: &Place, options: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut command = place.command(&["watch", "x"]);
    let mut child = command
        .args(options)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (child, lines)
}

fn line(lines: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    line
}

#[test]
fn every_holder_is_told_and_that_there_is_none() {
    let place = Place::new();
    drop(Arena::open(place.arena()).unwrap());
    let (mut watcher, mut told) = watch(&place, &["--json"]);
    let free = line(&mut told);
    assert!(
        free.contains("\"held\":false") && free.contains("\"holder\":null"),
        "{free}"
    );
    for how in [Signal::SIGTERM, Signal::SIGKILL] {
        let (mut holder, _lines) = place.running(&["-n"], "exec sleep 600");
        let held = line(&mut told);
        let pid_of = format!("\"holder\":{{\"pid\":{},", holder.id());
        assert!(
            held.contains("\"held\":true,\"fence\":") && held.contains(&pid_of),
            "{held}"
        );
        kill(pid(&holder), how).unwrap();
        holder.wait().unwrap();
        let free = line(&mut told);
        assert!(free.contains("\"held\":false"), "{free}");
    }
    // Nobody reads it any more: it ends without having anything to say.
    drop(told);
    assert_eq!(ended(&mut watcher).code(), Some(0));
}

/// Method: a row remains when its process ends, so that who was there for a moment is counted too.
#[test]
fn a_watch_takes_no_slot_not_even_for_a_moment() {
    let place = Place::new();
    // Leaves again, as tests do; what commands leave is reaped later.
    drop(Arena::open(place.arena()).unwrap());
    let attached = || {
        let view = ArenaOptions::new().view(place.arena()).unwrap();
        let pids = view.attachments().into_iter();
        let pids = pids.map(|row| row.identity.unwrap().pid);
        pids.collect::<Vec<_>>()
    };
    let (mut watcher, mut told) = watch(&place, &["--json"]);
    assert!(line(&mut told).contains("\"held\":false,\"fence\":null"));
    assert_eq!(attached(), []);
    // There are leases from now on, though not this one.
    assert_eq!(place.code(&["run", "y", "-n", "--", "true"]), 0);
    let (mut holder, _lines) = place.running(&["-n"], "exec sleep 600");
    assert!(line(&mut told).contains("\"held\":true"));
    let rows = attached();
    assert_eq!(rows.len(), 2, "both holders");
    assert!(rows.contains(&holder.id()) && !rows.contains(&watcher.id()));
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(line(&mut told).contains("\"held\":false"));
    assert_eq!(attached(), rows);
    drop(told);
    assert_eq!(ended(&mut watcher).code(), Some(0));
}

#[test]
fn people_are_told_in_words() {
    let place = Place::new();
    drop(Arena::open(place.arena()).unwrap());
    let (mut watcher, mut told) = watch(&place, &[]);
    let what = format!("x in arena {}", place.arena().display());
    assert!(line(&mut told).starts_with(&format!("{what}: free")));
    let (mut holder, _lines) = place.running(&["-n"], "exec sleep 600");
    let held = line(&mut told);
    assert!(held.starts_with(&format!("{what}: held for ")), "{held}");
    assert!(
        held.contains(&format!(" by pid {} ", holder.id())),
        "{held}"
    );
    holder.kill().unwrap();
    holder.wait().unwrap();
    drop(told);
    assert_eq!(ended(&mut watcher).code(), Some(0));
}

#[test]
fn the_end_of_the_arena_ends_the_watch_and_there_must_be_one() {
    let place = Place::new();
    assert_eq!(place.code(&["watch", "x"]), 125);
    let arena = Arena::open(place.arena()).unwrap();
    for name in ["", &"x".repeat(97)] {
        assert_eq!(place.code(&["watch", name]), 64);
    }
    let (mut watcher, mut told) = watch(&place, &[]);
    assert!(line(&mut told).contains("free"));
    arena.destroy().unwrap();
    assert_eq!(ended(&mut watcher).code(), Some(125));
}
