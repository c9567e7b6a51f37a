//! The command, as a shell uses it.
#![cfg(feature = "cli")]
#![expect(
    clippy::unwrap_used,
    reason = "in a test, what goes wrong ends it where it happens"
)]

mod shell;

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use arena_ring::ArenaOptions;
use nix::sys::signal::Signal;
use shell::{Place, ended, said};

#[test]
fn lines_that_were_published_are_printed_from_the_oldest() {
    let place = Place::new();
    place.publish(b"one\n\nthree\xff\nlast");
    let args = ["sub", "x", "--from-oldest", "--timeout", "0"];
    let output = place.output(&args);
    assert_eq!(output.stdout, b"one\n\nthree\xff\nlast\n");
    assert_eq!(
        (output.status.code(), said(&output)),
        (Some(0), String::new())
    );
    assert_eq!(
        place.stdout(&["sub", "x", "--from-oldest", "--count", "2"]),
        "one\n\n"
    );
    assert_eq!(
        place.stdout(&["sub", "x", "--timeout", "0"]),
        "",
        "from now on"
    );
}

#[test]
fn all_of_the_input_is_one_record_when_it_is_raw() {
    let place = Place::new();
    let output = place.fed(&["pub", "x", "--raw", "--topic", "t"], b"a\nb\n");
    assert!(output.status.success(), "{output:?}");
    let mut cursor = place.ring().cursor_from_oldest().unwrap();
    let record = cursor.next().unwrap().unwrap();
    assert_eq!((record.topic, record.payload), (&b"t"[..], &b"a\nb\n"[..]));
    assert_eq!(cursor.next().unwrap(), None);
}

#[test]
fn a_subscriber_that_sleeps_prints_each_record_at_once_and_takes_no_slot() {
    let place = Place::new();
    let ring = place.ring();
    let before = place.attached();
    let mut sleeper = place.sleeper(&["--count", "3"]);
    assert_eq!(place.attached(), before);
    for line in ["a", "b"] {
        assert!(ring.publish(b"", line.as_bytes()).unwrap().is_committed());
        assert_eq!(sleeper.line(), line);
    }
    assert!(ring.publish(b"", b"c").unwrap().is_committed());
    let (status, rest, said) = sleeper.ended();
    assert_eq!((status.code(), &rest[..], &said[..]), (Some(0), "c\n", ""));
}

#[test]
fn only_records_of_the_topic_are_printed_and_counted() {
    let place = Place::new();
    let topic = OsStr::from_bytes(b"t\xfe");
    for (topic, line) in [
        (OsStr::new(""), "a\n"),
        (topic, "b\n"),
        (OsStr::new("t"), "c\n"),
        (topic, "d\n"),
    ] {
        let args = ["pub", "x", "--topic"].map(OsStr::new);
        let output = place.fed(&[&args[..], &[topic]].concat(), line.as_bytes());
        assert!(output.status.success(), "{output:?}");
    }
    let args = ["sub", "x", "--from-oldest", "--count", "2", "--topic"].map(OsStr::new);
    let output = place.output(&[&args[..], &[topic]].concat());
    assert_eq!(output.stdout, b"b\nd\n");
    let output = place.output(&["sub", "x", "--from-oldest", "--timeout", "0", "--topic", ""]);
    assert_eq!(output.stdout, b"a\n");
}

#[test]
fn a_timeout_is_told_by_the_exit_code_and_never_early() {
    let place = Place::new();
    let _ring = place.ring();
    let began = Instant::now();
    assert_eq!(place.code(&["sub", "x", "--timeout", "50ms"]), 1);
    assert!(began.elapsed() >= Duration::from_millis(50));
    place.publish(b"a\n");
    assert_eq!(
        place.code(&["sub", "x", "--from-oldest", "--timeout", "0"]),
        0
    );
    let two = [
        "sub",
        "x",
        "--from-oldest",
        "--timeout",
        "0",
        "--count",
        "2",
    ];
    assert_eq!(place.code(&two), 1);
}

#[test]
fn what_is_not_published_is_told_with_its_line_and_the_others_are_published() {
    let place = Place::new();
    let long = "x".repeat(5_000);
    let input = format!("a\n{long}\nb\n");
    let output = place.fed(
        &["pub", "x", "--slots", "4", "--slot-size", "16"],
        input.as_bytes(),
    );
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(
        said.contains("line 2 is not published: it is too large"),
        "{said}"
    );
    assert_eq!(
        place.stdout(&["sub", "x", "--from-oldest", "--timeout", "0"]),
        "a\nb\n"
    );
    let other = place.fed(&["pub", "x", "--slots", "8"], b"c\n");
    assert_eq!(other.status.code(), Some(125), "another shape");
}

#[test]
fn what_a_subscriber_missed_is_told_when_it_ends() {
    let place = Place::new();
    let lines: String = (0..40).map(|line| format!("{line}\n")).collect();
    let mut sleeper = place
        .fed(&["pub", "x", "--slots", "8"], b"")
        .status
        .success()
        .then(|| place.sleeper(&[]))
        .unwrap();
    sleeper.signal(Signal::SIGSTOP);
    place.publish(lines.as_bytes());
    sleeper.signal(Signal::SIGCONT);
    while sleeper.line() != "39" {}
    sleeper.signal(Signal::SIGTERM);
    let (status, _, said) = sleeper.ended();
    assert_eq!(status.signal(), Some(Signal::SIGTERM as i32));
    assert!(said.contains("records that were overwritten"), "{said}");
}

#[test]
fn a_closed_pipe_ends_a_subscriber_quietly_also_while_it_sleeps() {
    let place = Place::new();
    let _ring = place.ring();
    let mut sleeper = place.sleeper(&[]);
    sleeper.close();
    let (status, _, said) = sleeper.ended();
    assert_eq!((status.code(), &said[..]), (Some(0), ""));
}

#[test]
fn signals_end_a_subscriber_as_they_end_other_programs() {
    let place = Place::new();
    let _ring = place.ring();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let sleeper = place.sleeper(&[]);
        sleeper.signal(signal);
        let (status, _, said) = sleeper.ended();
        assert_eq!((status.signal(), &said[..]), (Some(signal as i32), ""));
    }
}

#[test]
fn a_full_device_is_an_error() {
    let place = Place::new();
    place.publish(b"a\n");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut child = place
        .command(&["sub", "x", "--from-oldest", "--timeout", "0"])
        .stdout(full)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(ended(&mut child).code(), Some(125));
}

#[test]
fn neither_arena_nor_ring_is_made_by_who_only_looks() {
    let place = Place::new();
    for verb in ["sub", "stat"] {
        let output = place.output(&[verb, "x"]);
        assert_eq!(output.status.code(), Some(125));
        assert!(!place.arena().exists());
    }
    let _made = arena_ring::Arena::open(place.arena()).unwrap();
    for verb in ["sub", "stat"] {
        let output = place.output(&[verb, "x"]);
        assert_eq!(output.status.code(), Some(125));
        let said = said(&output);
        assert!(said.contains("there is no ring x"), "{said}");
    }
    let view = ArenaOptions::new().view(place.arena()).unwrap();
    assert!(view.find(b"ring.x").is_none());
}

#[test]
fn what_cannot_be_meant_is_a_usage_error() {
    let place = Place::new();
    let wrong: [&[&str]; 7] = [
        &[],
        &["pub"],
        &["pub", "a/b"],
        &["pub", "x", "--slots", "1"],
        &["pub", "x", "--slot-size", "0"],
        &["sub", "x", "--timeout", "soon"],
        &["stat", "x", "--interval", "-1"],
    ];
    for args in wrong {
        assert_eq!(place.code(args), 64, "{args:?}");
    }
    for args in [
        &["--help"][..],
        &["pub", "--help"],
        &["sub", "--help"],
        &["stat", "--help"],
    ] {
        assert_eq!(place.code(args), 0, "{args:?}");
    }
}

#[test]
fn stat_names_who_has_the_oldest_unfinished_record_and_changes_nothing() {
    let place = Place::new();
    let ring = place.ring();
    assert!(ring.publish(b"", b"a").unwrap().is_committed());
    let reservation = ring.reserve(b"", 8).unwrap();
    let before = place.attached();
    let text = place.stdout(&["stat", "x", "--interval", "0"]);
    let me = format!("unfinished: pid {}", std::process::id());
    assert!(
        text.contains("2 records published") && text.contains(&me),
        "{text}"
    );
    assert_eq!(place.attached(), before);
    drop(reservation);
    let text = place.stdout(&["stat", "x", "--interval", "0"]);
    assert!(!text.contains("unfinished"), "{text}");
}

/// What varies from run to run is replaced by its kind.
fn settled(value: &mut serde_json::Value, key: &str) {
    use serde_json::Value;
    match value {
        Value::Object(fields) => fields
            .iter_mut()
            .for_each(|(key, value)| settled(value, key)),
        Value::Array(all) => all.iter_mut().for_each(|value| settled(value, key)),
        Value::Null => {}
        _ if ["pid", "epoch", "arena", "name", "records_per_second"].contains(&key) => {
            let kind = if value.is_number() {
                "a number"
            } else {
                "a string"
            };
            *value = kind.into();
        }
        _ => {}
    }
}

#[test]
fn the_json_of_sub_and_stat_is_what_was_reviewed() {
    let place = Place::new();
    let ring = place.ring();
    assert!(
        ring.publish(b"topic", b"say \"hi\"\n")
            .unwrap()
            .is_committed()
    );
    assert!(ring.publish(b"\xff", b"\xfe\xff").unwrap().is_committed());
    let reservation = ring.reserve(b"", 8).unwrap();
    let sub = place.stdout(&["sub", "x", "--from-oldest", "--timeout", "0", "--json"]);
    let stat = place.stdout(&["stat", "x", "--json", "--interval", "1ms"]);
    drop(reservation);
    let lines = sub.lines().chain(stat.lines()).map(|line| {
        let mut value = serde_json::from_str(line).unwrap();
        settled(&mut value, "");
        serde_json::to_string_pretty(&value).unwrap()
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}
