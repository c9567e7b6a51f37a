//! The JSON of the command, as scripts rely on it.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::process::Stdio;

use serde_json::Value;

mod shell;
use shell::{Place, ended};

/// What differs from run to run.
const VARIES: [&str; 9] = [
    "/arena",
    "/arena_base64",
    "/fence",
    "/lapses_in_ms",
    "/opens_in_ms",
    "/holder/pid",
    "/holder/slot",
    "/holder/epoch",
    "/holder/since",
];

/// What may not have been counted yet when a watch tells.
const TRAILS: [&str; 2] = ["/acquires", "/holder/since"];

/// Each line, which must be an object, with what varies replaced by what it is, and what trails by that it is there.
fn redacted(lines: &str, trails: &[&str]) -> String {
    let kind = |value: &Value| match value {
        Value::Null => "null",
        Value::Number(number) if number.is_u64() => "[integer]",
        Value::Number(_) => "[decimal]",
        Value::String(_) => "[string]",
        _ => "[other]",
    };
    let mut out = String::new();
    for line in lines.lines() {
        let mut value: Value = serde_json::from_str(line).unwrap();
        assert!(value.is_object(), "{line}");
        for at in VARIES {
            if let Some(found) = value.pointer_mut(at).filter(|found| !found.is_null()) {
                *found = kind(found).into();
            }
        }
        for at in trails {
            if let Some(found) = value.pointer_mut(at) {
                *found = "[trails]".into();
            }
        }
        out += &serde_json::to_string_pretty(&value).unwrap();
        out.push('\n');
    }
    out
}

/// Runs the command with this arena and `args`; a heading and what it printed.
fn said(place: &Place, arena: &OsStr, args: &[&OsStr]) -> String {
    let mut command = place.command(&[]);
    let output = command
        .args(args)
        .env("ARENA_NAME", arena)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let args: Vec<_> = args
        .iter()
        .map(|arg| arg.as_bytes().escape_ascii().to_string())
        .collect();
    let stdout = String::from_utf8(output.stdout).unwrap();
    format!(
        "$ arena-lease {}\n{}\n",
        args.join(" "),
        redacted(&stdout, &[])
    )
}

/// Goal: the fields are those that `status --help` describes, whatever state a lease is in.
#[test]
fn the_json_of_status_and_list_is_the_one_that_was_reviewed() {
    let place = Place::new();
    let arena = place.arena();
    let status = |name: &[u8]| {
        let args = ["status", "--json"].map(OsStr::new);
        said(
            &place,
            arena.as_os_str(),
            &[args[0], OsStr::from_bytes(name), args[1]],
        )
    };
    let mut all = String::from("No lease yet.\n");
    // Of an arena there must be.
    drop(arena_lease::Arena::open(&arena).unwrap());
    all += &status(b"held");
    all += "Held, released and kept.\n";
    let (_holder, _lines) = {
        let mut command = place.command(&["run", "held", "-n", "--", "sh", "-c"]);
        command.arg("echo running; exec sleep 600");
        shell::started(command)
    };
    assert_eq!(place.code(&["run", "free", "-n", "--", "true"]), 0);
    let kept = ["run", "kept", "-n", "--min-hold", "1h", "--", "true"];
    assert_eq!(place.code(&kept), 0);
    let odd = OsStr::from_bytes(b"odd \xff\"\\");
    let mut run = place.command(&["run", "-n"]);
    let code = run.arg(odd).args(["--", "true"]).status().unwrap().code();
    assert_eq!(code, Some(0));
    for name in [&b"held"[..], b"free", b"kept", odd.as_bytes()] {
        all += &status(name);
    }
    all += &said(
        &place,
        arena.as_os_str(),
        &["list", "--json"].map(OsStr::new),
    );
    all += "An arena whose name is no text.\n";
    let elsewhere = place
        .file("x")
        .with_file_name(OsString::from_vec(b"\xff".to_vec()));
    drop(arena_lease::Arena::open(&elsewhere).unwrap());
    let args = ["status", "held", "--json"].map(OsStr::new);
    all += &said(&place, elsewhere.as_os_str(), &args);
    insta::assert_snapshot!(all);
}

#[test]
fn the_json_of_watch_is_the_one_that_was_reviewed() {
    let place = Place::new();
    drop(arena_lease::Arena::open(place.arena()).unwrap());
    let mut watch = place.command(&["watch", "x", "--json"]);
    let mut watcher = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap());
    let mut told = String::new();
    let mut tell = || lines.read_line(&mut told).unwrap();
    tell();
    let (mut holder, _lines) = place.running(&["-n"], "exec sleep 600");
    tell();
    holder.kill().unwrap();
    holder.wait().unwrap();
    tell();
    drop(lines);
    assert_eq!(ended(&mut watcher).code(), Some(0));
    insta::assert_snapshot!(redacted(&told, &TRAILS));
}
