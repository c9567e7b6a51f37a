//! `arena-lease gate` and `arena-lease list`, as a shell sees them.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::ffi::OsStr;
use std::io::{BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use arena_lease::{Acquire, Arena, Gate, Leases};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::mkfifo;

mod shell;
use shell::{BIN, Place, ended, pid, started};

/// `gate x --fence N` whose CMD says that it runs, and ends when its input does; returns after that.
fn inside(place: &Place, fence: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = place.command(&["gate", "x", "--fence", fence, "--"]);
    command.args(["sh", "-c", "echo running; read line"]);
    command.stdin(Stdio::piped());
    started(command)
}

#[test]
fn the_exit_code_is_cmds_own_and_a_refusal_is_1() {
    let place = Place::new();
    let gate =
        |fence, script| place.code(&["gate", "x", "--fence", fence, "--", "sh", "-c", script]);
    assert_eq!(gate("7", "exit 7"), 7);
    assert_eq!(gate("7", "kill -9 $$"), 128 + 9);
    assert_eq!(gate("8", "exit 0"), 0);
    assert_eq!(gate("7", "exit 0"), 1);
    let output = place.output(&["gate", "x", "--fence", "7", "--", "true"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("fence 7 is refused: 8 was shown"), "{said}");
    assert_eq!(place.code(&["gate", "y", "--fence", "7", "--", "true"]), 0);
    for (program, code) in [("/no/such/program", 127), ("/etc/passwd", 126)] {
        let args = ["gate", "x", "--fence", "9", "--", program];
        assert_eq!(place.code(&args), code);
    }
    assert_eq!(gate("9", "exit 0"), 0, "left, though CMD did not run");
}

#[test]
fn a_wrong_command_line_says_64_and_shows_no_fence() {
    let place = Place::new();
    for args in [
        &["gate", "x", "--", "true"][..],
        &["gate", "x", "--fence", "0", "--", "true"],
        &["gate", "x", "--fence", "9007199254740992", "--", "true"],
        &["gate", "x", "--fence", "-1", "--", "true"],
        &["gate", "x", "--fence", "7"],
        &["gate", "", "--fence", "7", "--", "true"],
        &["list", "x"],
    ] {
        assert_eq!(place.code(args), 64, "{args:?}");
    }
    for verb in ["gate", "list"] {
        assert_eq!(place.code(&[verb, "--help"]), 0);
    }
    let largest = "9007199254740991";
    assert_eq!(
        place.code(&["gate", "x", "--fence", largest, "--", "true"]),
        0
    );
}

#[test]
fn the_gate_stays_entered_until_cmd_ends_and_says_who_is_inside() {
    let place = Place::new();
    let (mut older, _lines) = inside(&place, "7");
    let newer = ["gate", "x", "--fence", "8", "-w", "0.2", "--", "true"];
    let started = Instant::now();
    let output = place.output(&newer);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        started.elapsed() >= Duration::from_millis(200),
        "never early"
    );
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!("pid {} (arena-lease;", older.id());
    assert!(
        said.contains(&expected) && said.contains("is still inside"),
        "{said}"
    );
    drop(older.stdin.take());
    // `read` met the end of its input.
    assert_eq!(older.wait().unwrap().code(), Some(1));
    assert_eq!(place.code(&newer), 0);
}

/// Goal: L1 with a gate: who is stopped inside keeps the newer one out, and is refused when it comes again.
#[test]
fn a_wrapper_that_is_stopped_inside_is_waited_for_and_one_that_is_killed_is_followed_at_once() {
    let place = Place::new();
    let (mut older, _lines) = inside(&place, "7");
    kill(pid(&older), Signal::SIGSTOP).unwrap();
    waitid(
        Id::Pid(pid(&older)),
        WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT,
    )
    .unwrap();
    let newer = |wait| ["gate", "x", "--fence", "8", "-w", wait, "--", "true"];
    assert_eq!(place.code(&newer("0.1")), 1);
    assert_eq!(place.code(&["gate", "x", "--fence", "7", "--", "true"]), 1);
    let started = Instant::now();
    older.kill().unwrap();
    assert_eq!(place.code(&newer("1h")), 0);
    assert!(started.elapsed() < Duration::from_secs(30));
    older.wait().unwrap();
}

/// Goal: a wrapper that is killed is not followed while what it started is inside: CMD, and what CMD left behind.
#[test]
fn a_gate_whose_wrapper_was_killed_is_entered_when_cmd_is_gone_too_and_not_before() {
    let place = Place::new();
    let fifo = place.file("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    // The kernel does not kill the first of them with its wrapper; the second is not the one that it would kill.
    let deaf = "exec setpriv --pdeathsig clear sh -c 'echo running; read line < FIFO'";
    let left_behind = "(read line < FIFO) & echo running; exec sleep 600";
    for (fence, script) in [("7", deaf), ("9", left_behind)] {
        let script = script.replace("FIFO", fifo.to_str().unwrap());
        let mut command = place.command(&["gate", "x", "--fence", fence, "--"]);
        let (mut older, _lines) = started({
            command.args(["sh", "-c", &script]);
            command
        });
        let newest = (fence.parse::<u64>().unwrap() + 1).to_string();
        let newer = |wait| {
            [
                "gate", "x", "--fence", &newest, "-w", wait, "--", "echo", "next",
            ]
        };
        let mut waiter = place
            .command(&newer("1h"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        older.kill().unwrap();
        older.wait().unwrap();
        for wait in ["0", "0", "0", "1.2"] {
            let output = place.output(&newer(wait));
            assert_eq!(output.status.code(), Some(1), "{output:?}");
        }
        let said = String::from_utf8(place.output(&newer("0")).stderr).unwrap();
        let expected = "dead, and what it started goes on) is still inside";
        assert!(said.contains(expected), "{said}");
        assert_eq!(waiter.try_wait().unwrap(), None);
        std::fs::write(&fifo, "go on\n").unwrap();
        let mut said = String::new();
        let mut stdout = waiter.stdout.take().unwrap();
        stdout.read_to_string(&mut said).unwrap();
        assert_eq!(said, "next\n");
        assert_eq!(ended(&mut waiter).code(), Some(0));
    }
}

#[test]
fn run_hands_its_fence_to_a_gate_in_its_cmd() {
    let place = Place::new();
    let script = format!("{BIN} gate x -- sh -c 'echo \"$ARENA_GATE $ARENA_FENCE\"; exit 3'");
    let output = place.output(&["run", "leader", "-n", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let arena = Arena::open(place.arena()).unwrap();
    let newest = Gate::open(&arena, "x").unwrap().state().unwrap().newest;
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, format!("x {newest}\n"));
}

#[test]
fn list_shows_every_lease_that_was_used_and_joins_nothing() {
    let place = Place::new();
    assert_eq!(place.code(&["list"]), 125, "no arena");
    let arena = Arena::open(place.arena()).unwrap();
    assert_eq!(place.code(&["list", "--json"]), 0, "no leases");
    let leases = Leases::open(&arena).unwrap();
    let held = leases.lease("nightly", Duration::from_secs(30)).unwrap();
    let free = leases.lease(b"b\xff", Duration::from_secs(30)).unwrap();
    assert!(matches!(held.acquire().unwrap(), Acquire::Held(_)));
    assert!(matches!(free.acquire().unwrap(), Acquire::Held(_)));
    assert!(free.release().unwrap());
    let said = place.stdout(&["list", "--json"]);
    let lines: Vec<&str> = said.lines().collect();
    let path = place.arena();
    let first = format!(
        r#"{{"arena":"{}","lease_base64":"Yv8=","held":false,"fence":{},"acquires":1,"steals":0,"lapses_in_ms":null,"opens_in_ms":null,"holder":null}}"#,
        path.display(),
        free.fence()
    );
    assert_eq!(lines[0], first);
    let second = format!(r#""lease":"nightly","held":true,"fence":{},"#, held.fence());
    assert!(lines[1].contains(&second), "{said}");
    assert_eq!(lines.len(), 2);
    // The same as the one that status shows, but for the time that passes.
    let status = place.stdout(&["status", "nightly", "--json"]);
    let timeless = |line: &str| line.split("lapses_in_ms").next().unwrap().to_owned();
    assert_eq!(timeless(lines[1]), timeless(&status));
    let text = place.stdout(&["list"]);
    let by = format!(" by pid {} ", std::process::id());
    assert!(text.contains(&by), "{text}");
    assert_eq!(arena.attachments().len(), 1);
}

#[test]
fn arguments_reach_cmd_byte_for_byte() {
    let place = Place::new();
    let odd = OsStr::from_bytes(b"\xff \n*");
    let mut command =
        place.command(&["gate", "x", "--fence", "7", "--", "printf", "%s|", "-w", ""]);
    let output = command.arg(odd).output().unwrap();
    assert_eq!(output.stdout, b"-w||\xff \n*|");
}
