//! What the command says, and what it does when nobody can hear it.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, PipeWriter, Write as _, pipe};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Output;
use std::time::Duration;

use arena_lease::{Arena, Leases};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

mod shell;
use shell::{Place, ended};

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// A pipe that nobody reads any more.
fn closed() -> PipeWriter {
    pipe().unwrap().1
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_name_that_cannot_be_a_leases_says_64() {
    let place = Place::new();
    Leases::open(&Arena::open(place.arena()).unwrap()).unwrap();
    let long = "x".repeat(97);
    for name in ["", &long] {
        let output = place.output(&["status", name]);
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        assert!(said(&output).contains("is no lease name"), "{output:?}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(place.code(&["status", &long[1..]]), 0);
}

#[test]
fn what_is_damaged_says_125_with_what_was_found_and_expected() {
    let place = Place::new();
    let arena = Arena::open(place.arena()).unwrap();
    arena.carve(b"leases", 7, 4096).unwrap();
    for verb in [&["status", "x"][..], &["list"]] {
        let output = place.output(verb);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let said = said(&output);
        assert!(said.contains("kind 0x0000000000000007, expected"), "{said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn list_shows_the_rows_that_are_whole_and_says_125_for_those_that_are_not() {
    let place = Place::new();
    let arena = Arena::open(place.arena()).unwrap();
    let leases = Leases::open(&arena).unwrap();
    for name in ["one", "two"] {
        let _ = leases.lease(name, Duration::from_secs(30)).unwrap();
    }
    let region = arena.find(b"leases").unwrap();
    region.write(128, &[0xff; 16]).unwrap();
    let output = place.output(&["list"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(said(&output).contains("row 0 of the lease table is damaged: found the word"));
    let shown = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(shown.starts_with("two in arena"), "{shown}");
    let output = place.output(&["status", "one"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
}

#[test]
fn control_bytes_in_a_name_do_not_reach_the_terminal() {
    let place = Place::new();
    let arena = Arena::open(place.arena()).unwrap();
    let leases = Leases::open(&arena).unwrap();
    let name = OsStr::from_bytes(b"\x1b[2J\nx");
    let ttl = Duration::from_secs(30);
    let _ = leases.lease(name.as_bytes(), ttl).unwrap();
    let status = place.command(&["status"]).arg(name).output().unwrap();
    for shown in [status.stdout, place.output(&["list"]).stdout] {
        let shown = String::from_utf8(shown).unwrap();
        assert!(shown.starts_with("\\u{1b}[2J\\nx in arena"), "{shown}");
        assert!(!shown.trim_end().contains(char::is_control));
    }
}

#[test]
fn help_names_every_field_that_json_can_have() {
    let place = Place::new();
    let help = place.stdout(&["status", "--help"]);
    for field in [
        "arena",
        "lease",
        "held",
        "fence",
        "acquires",
        "steals",
        "lapses_in_ms",
        "holder",
        "pid",
        "name",
        "slot",
        "epoch",
        "verdict",
        "since",
        "arena_base64",
        "lease_base64",
        "name_base64",
    ] {
        let mut words = help.split(|char: char| !(char.is_alphanumeric() || char == '_'));
        assert!(words.any(|word| word == field), "{field}");
    }
}

#[test]
fn a_stdout_without_room_says_125_and_one_that_nobody_reads_says_nothing() {
    let place = Place::new();
    let leases = Leases::open(&Arena::open(place.arena()).unwrap()).unwrap();
    let _ = leases.lease("x", Duration::from_secs(30)).unwrap();
    for args in [
        &["status", "x"][..],
        &["status", "x", "--json"],
        &["list"],
        &["--help"],
        &["run", "--help"],
        &["--version"],
    ] {
        let output = place.command(args).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{args:?}: {output:?}");
        assert!(said(&output).contains("cannot write to stdout"), "{args:?}");
        let output = place.command(args).stdout(closed()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        assert_eq!(said(&output), "", "{args:?}");
    }
}

#[test]
fn a_stderr_that_takes_nothing_changes_no_exit_code() {
    let place = Place::new();
    let run = |command: &'static [&'static str]| {
        let args = ["run", "x", "-n", "-v", "--"].into_iter();
        args.chain(command.iter().copied()).collect::<Vec<_>>()
    };
    let cases = [
        (run(&["sh", "-c", "exit 7"]), 7),
        (run(&["/no/such/program"]), 127),
        (run(&["/etc/passwd"]), 126),
        (vec!["run", "x"], 64),
        (vec!["status", ""], 64),
        (vec!["gate", "x", "--fence", "9", "--", "true"], 0),
        (vec!["gate", "x", "--fence", "8", "--", "true"], 1),
    ];
    for (args, code) in cases {
        let output = place.command(&args).stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: full");
        let output = place.command(&args).stderr(closed()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: closed");
    }
}

#[test]
fn a_stderr_that_nobody_reads_does_not_hold_up_the_wrapper() {
    let place = Place::new();
    let (_unread, mut writer) = pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let error = loop {
        if let Err(error) = writer.write(&[b'x'; 4096]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    // As it is for a wrapper: the flag belongs to the pipe's end, which it shares.
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let mut command = place.command(&["run", "x", "-n", "-v", "--", "sh", "-c", "exit 7"]);
    let mut child = command.stderr(writer).spawn().unwrap();
    assert_eq!(ended(&mut child).code(), Some(7));
}
