//! The command `arena`, as a shell sees it.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use arena_core::{Arena, ArenaOptions, OpenError};

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        Self { directory }
    }

    fn options(&self) -> ArenaOptions {
        ArenaOptions::new().directory(self.directory.path())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.options().path(name).unwrap()
    }

    fn output<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        Command::new(env!("CARGO_BIN_EXE_arena"))
            .arg("--directory")
            .arg(self.directory.path())
            .args(args)
            .output()
            .unwrap()
    }

    /// The exit code, and what was said on stdout and stderr.
    fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> (i32, String, String) {
        let output = self.output(args);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let code = output.status.code().unwrap();
        (code, text(&output.stdout), text(&output.stderr))
    }

    /// Patches eight bytes of an arena's file.
    fn patch(&self, name: &str, at: u64, value: u64) {
        let file = fs::File::options().write(true).open(self.file(name));
        file.unwrap()
            .write_all_at(&value.to_le_bytes(), at)
            .unwrap();
    }
}

#[test]
fn show_counts_this_process_and_joins_nothing() {
    let place = Place::new();
    let arena = place.options().open("jobs").unwrap();
    arena.carve(b"things", 7, 4096).unwrap();
    let before = fs::read(place.file("jobs")).unwrap();
    let (code, said, _) = place.run(["show", "jobs", "--json"]);
    assert_eq!(code, 0, "{said}");
    let me = arena.me().unwrap();
    let pid = std::process::id();
    for expected in [
        r#""arena":"jobs""#.to_owned(),
        r#""usable":true,"wrong":null,"destroyed":false,"format":1"#.to_owned(),
        r#""slots":1024,"attached":1,"#.to_owned(),
        r#""name":"things","kind":"0x0000000000000007""#.to_owned(),
        format!(
            r#"[{{"slot":{},"epoch":{},"state":"ready","byte":"held","pid":{pid},"#,
            me.slot(),
            me.generation()
        ),
    ] {
        assert!(said.contains(&expected), "{expected} in {said}");
    }
    let (_, text, _) = place.run(["show", "jobs"]);
    assert!(text.contains("1 attached of at most 1024"), "{text}");
    assert_eq!(fs::read(place.file("jobs")).unwrap(), before);
    assert_eq!(arena.attachments().len(), 1);
}

/// Each line's object, with what varies replaced by what it is.
fn redacted(line: &str) -> String {
    const VARIES: [&str; 10] = [
        "/path",
        "/fingerprint",
        "/created",
        "/wrong/message",
        "/attachments/0/pid",
        "/attachments/0/name",
        "/attachments/0/joined",
        "/attachments/1/pid",
        "/attachments/1/name",
        "/attachments/1/joined",
    ];
    let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
    for at in VARIES {
        if let Some(found) = value.pointer_mut(at) {
            *found = match found {
                serde_json::Value::String(_) => "[string]",
                serde_json::Value::Number(_) => "[number]",
                _ => "[other]",
            }
            .into();
        }
    }
    // What the machine lacks.
    for at in [
        "/missing",
        "/attachments/0/missing",
        "/attachments/1/missing",
    ] {
        if let Some(found) = value.pointer_mut(at) {
            let names = found.as_array().unwrap();
            assert!(names.iter().all(serde_json::Value::is_string), "{line}");
            *found = "[names]".into();
        }
    }
    serde_json::to_string_pretty(&value).unwrap() + "\n"
}

#[test]
fn the_json_of_show_is_the_one_that_was_reviewed() {
    let place = Place::new();
    let arena = place.options().slots(4).regions(8).open("jobs").unwrap();
    arena.carve(b"things \xff", 7, 4096).unwrap();
    attach_and_end(&place.file("jobs"));
    let (_, usable, _) = place.run(["show", "jobs", "--json"]);
    place.patch("jobs", 8, 2);
    let (_, refused, _) = place.run(["show", "jobs", "--json"]);
    insta::assert_snapshot!([redacted(&usable), redacted(&refused)].concat());
}

#[test]
fn show_says_what_is_wrong_with_another_format_and_how_many_still_use_it() {
    let place = Place::new();
    let _attached = place.options().open("jobs").unwrap();
    place.patch("jobs", 8, 2);
    let before = fs::read(place.file("jobs")).unwrap();
    let (code, said, _) = place.run(["show", "jobs", "--json"]);
    assert_eq!(code, 125);
    for expected in [
        r#""usable":false,"wrong":{"reason":"incompatible","found":"0x2","expected":"0x1","#,
        r#""format":2,"#,
        r#""slots":null,"attached":1,"#,
    ] {
        assert!(said.contains(expected), "{expected} in {said}");
    }
    let (code, text, _) = place.run(["show", "jobs"]);
    assert_eq!(code, 125);
    assert!(text.contains("found format 0x2, expected 0x1"), "{text}");
    assert!(text.contains("1 attached"), "{text}");
    assert_eq!(fs::read(place.file("jobs")).unwrap(), before);
}

#[test]
fn a_file_that_is_no_arena_is_shown_as_such_and_never_removed() {
    let place = Place::new();
    fs::write(place.file("jobs"), b"something else").unwrap();
    let (code, said, _) = place.run(["show", "jobs", "--json"]);
    assert_eq!(code, 125);
    assert!(said.contains(r#""reason":"not_an_arena""#), "{said}");
    assert!(said.contains(r#""attached":null"#), "{said}");
    for args in [&["rm", "jobs"][..], &["rm", "jobs", "--force"]] {
        assert_ne!(place.run(args).0, 0, "{args:?}");
    }
    assert_eq!(fs::read(place.file("jobs")).unwrap(), b"something else");
}

#[test]
fn an_arena_that_is_not_there_says_1_and_a_wrong_command_line_64() {
    let place = Place::new();
    for verb in ["show", "rm"] {
        assert_eq!(place.run([verb, "jobs"]).0, 1, "{verb}");
        assert_eq!(place.run([verb, ""]).0, 64, "{verb}");
        assert_eq!(place.run([verb]).0, 64, "{verb}");
        assert_eq!(place.run([verb, "--help"]).0, 0, "{verb}");
    }
    assert_eq!(place.run(["frobnicate"]).0, 64);
    assert!(!place.file("jobs").exists());
}

#[test]
fn rm_refuses_while_a_process_is_attached_and_removes_by_force() {
    let place = Place::new();
    let arena = place.options().open("jobs").unwrap();
    let (code, _, why) = place.run(["rm", "jobs"]);
    assert_eq!(code, 1);
    assert!(why.contains("attached processes: 1"), "{why}");
    assert!(!arena.is_gone() && place.file("jobs").exists());
    assert_eq!(place.run(["rm", "jobs", "--force"]).0, 0);
    assert!(arena.is_gone() && !place.file("jobs").exists());
}

#[test]
fn rm_refuses_while_something_stands_in_for_a_process_that_is_gone() {
    let place = Place::new();
    let arena = place.options().open("jobs").unwrap();
    let stand_in = arena.stand_in().unwrap();
    drop(arena);
    let (code, _, why) = place.run(["rm", "jobs"]);
    assert_eq!(code, 1);
    assert!(
        why.contains("what a process started that died goes on"),
        "{why}"
    );
    drop(stand_in);
    assert_eq!(place.run(["rm", "jobs"]).0, 0);
}

#[test]
fn rm_keeps_the_fences_of_an_arena_that_nobody_uses() {
    let place = Place::new();
    let arena = place.options().open("jobs").unwrap();
    let ahead = arena.fence_minimum() + 60_000_000;
    assert!(arena.reserve_fence(ahead));
    drop(arena);
    assert_eq!(place.run(["rm", "jobs"]).0, 0);
    assert!(!place.file("jobs").exists());
    let again = place.options().open("jobs").unwrap();
    assert!(again.fence_minimum() > ahead);
}

#[test]
fn rm_removes_a_refused_arena_by_force_alone() {
    let place = Place::new();
    drop(place.options().open("jobs").unwrap());
    place.patch("jobs", 8, 2);
    assert_eq!(place.run(["rm", "jobs"]).0, 125);
    assert!(place.file("jobs").exists());
    assert_eq!(place.run(["rm", "jobs", "--force"]).0, 0);
    assert!(!place.file("jobs").exists());
}

#[test]
fn an_arena_that_a_group_shares_is_shown_and_removed_with_its_mode() {
    let place = Place::new();
    let shared = place.options().mode(0o660);
    drop(shared.open("jobs").unwrap());
    for verb in ["show", "rm"] {
        let (code, said, why) = place.run([verb, "jobs"]);
        assert_eq!(code, 125, "{verb}");
        let refused = "found mode 0660, expected no write permission beyond 0000";
        assert!(
            said.contains(refused) || why.contains(refused),
            "{said}{why}"
        );
    }
    let arena = shared.open("jobs").unwrap();
    // Others, and not the group.
    assert_eq!(place.run(["show", "jobs", "--mode", "0606"]).0, 125);
    let mode = ["--mode", "0660"];
    let (code, said, _) = place.run(["show", "jobs", "--json"].into_iter().chain(mode));
    assert_eq!(code, 0);
    assert!(said.contains(r#""usable":true,"wrong":null"#), "{said}");
    assert!(
        place
            .run(["ls"].into_iter().chain(mode))
            .1
            .contains("1 attached")
    );
    drop(arena);
    assert_eq!(place.run(["rm", "jobs"].into_iter().chain(mode)).0, 0);
    assert!(!place.file("jobs").exists());
    for wrong in ["0", "8", "rw", "01660", ""] {
        let code = place.run(["ls", "--mode", wrong]).0;
        assert_eq!(code, if wrong == "0" { 0 } else { 64 }, "{wrong}");
    }
}

#[test]
fn who_is_dead_is_shown_as_dead_and_who_is_there_as_attached() {
    let place = Place::new();
    let arena = place.options().open("jobs").unwrap();
    let pid = attach_and_end(&place.file("jobs"));
    let (_, text, _) = place.run(["show", "jobs"]);
    let line = |pid: &str| {
        let pid = format!(" pid {pid} ");
        let found = text.lines().find(|line| line.contains(&pid));
        found.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    assert!(line(&std::process::id().to_string()).ends_with(", attached"));
    let dead = ", dead: its byte is free, and its row not yet cleared away";
    assert!(line(&pid).ends_with(dead), "{text}");
    assert_eq!(arena.reap(), 1);
    assert!(!place.run(["show", "jobs"]).1.contains("dead"));
}

/// Has a process attach to an arena and end without leaving; its pid.
fn attach_and_end(path: &Path) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "attaches_when_it_is_asked_to", "--nocapture"])
        .env(ATTACH, path)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let pid = said
        .split("pid ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    pid.unwrap_or_else(|| panic!("{said}")).to_owned()
}

const ATTACH: &str = "ARENA_CORE_TEST_ATTACH";

/// A test only in name: what a copy of this binary does, which ends without leaving.
#[test]
fn attaches_when_it_is_asked_to() {
    if let Some(path) = std::env::var_os(ATTACH) {
        std::mem::forget(Arena::open(path).unwrap());
        println!("pid {} attached to it", std::process::id());
    }
}

#[test]
fn ls_lists_the_arenas_of_this_user_and_what_is_wrong_with_them() {
    let place = Place::new();
    assert_eq!(place.run(["ls"]), (0, String::new(), String::new()));
    let _attached = place.options().open("jobs").unwrap();
    drop(place.options().open("idle").unwrap());
    drop(place.options().open("old").unwrap());
    place.patch("old", 8, 2);
    fs::write(place.directory.path().join("arena.99999.theirs"), b"").unwrap();
    let (code, said, _) = place.run(["ls"]);
    assert_eq!(code, 0);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("idle\t0 attached\t"), "{said}");
    assert!(lines[1].starts_with("jobs\t1 attached\t"), "{said}");
    assert!(lines[2].starts_with("old\t0 attached\t"), "{said}");
    assert!(lines[2].contains("found format 0x2"), "{said}");
    assert_eq!(lines.len(), 3, "{said}");
    let elsewhere = Command::new(env!("CARGO_BIN_EXE_arena"))
        .args(["ls", "--directory", "/no/such/directory"])
        .output();
    assert_eq!(elsewhere.unwrap().status.code(), Some(125));
}

#[test]
fn a_name_that_is_not_utf_8_is_base64_in_the_json() {
    let place = Place::new();
    let name = OsString::from_vec(vec![0xff, 0xfe]);
    drop(place.options().open(&name).unwrap());
    let arguments = [OsStr::new("show"), &name, OsStr::new("--json")];
    let (code, said, _) = place.run(arguments);
    assert_eq!(code, 0);
    assert!(
        said.starts_with(r#"{"arena_base64":"//4=","path_base64":""#),
        "{said}"
    );
    let listed = place.run(["ls"]).1;
    assert!(listed.starts_with(r"\xff\xfe"), "{listed}");
    assert_eq!(
        place
            .run([OsStr::new("rm"), OsStr::from_bytes(name.as_bytes())])
            .0,
        0
    );
}

#[test]
fn a_path_is_taken_as_it_is() {
    let place = Place::new();
    let path = place.directory.path().join("somewhere");
    drop(Arena::open(&path).unwrap());
    assert_eq!(place.run([OsStr::new("show"), path.as_os_str()]).0, 0);
    assert_eq!(place.run([OsStr::new("rm"), path.as_os_str()]).0, 0);
    assert!(matches!(
        Arena::attach(&path),
        Err(OpenError::NotFound { .. })
    ));
}
