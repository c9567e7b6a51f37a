//! The command, as a shell sees it.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use arena_lease::{Arena, Leases};
use nix::sys::signal::{Signal, kill};

mod shell;
use shell::{Place, as_in_a_shell, pid};

#[test]
fn nobody_runs_before_the_minimum_hold_is_over() {
    let place = Place::new();
    assert_eq!(
        place.code(&["run", "x", "--min-hold", "1h", "--", "true"]),
        0
    );
    assert_eq!(place.code(&["run", "x", "-n", "--", "true"]), 1);
    assert_eq!(place.code(&["run", "y", "-n", "--", "true"]), 0);
    assert_eq!(place.code(&["run", "y", "-n", "--", "true"]), 0);
}

#[test]
fn cmd_has_the_signal_mask_that_the_wrapper_was_given() {
    let place = Place::new();
    let blocked = |command: &mut Command| command.output().unwrap().stdout;
    let args = ["SigBlk", "/proc/self/status"];
    let direct = blocked(as_in_a_shell("grep").args(args));
    let [what, place_of] = args;
    let wrapped = blocked(&mut place.command(&["run", "x", "-n", "--", "grep", what, place_of]));
    assert_eq!(wrapped, direct);
}

#[test]
fn a_signal_ends_a_cmd_that_does_nothing_about_it() {
    let place = Place::new();
    let (mut child, _lines) = place.running(&[], "exec sleep 60");
    kill(pid(&child), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
}

#[test]
fn the_exit_code_is_cmds_own() {
    let place = Place::new();
    assert_eq!(place.code(&["run", "x", "-n", "--", "true"]), 0);
    assert_eq!(
        place.code(&["run", "x", "-n", "--", "sh", "-c", "exit 7"]),
        7
    );
    assert_eq!(
        place.code(&["run", "x", "-n", "--", "sh", "-c", "kill -9 $$"]),
        128 + 9
    );
}

#[test]
fn a_signal_without_a_name_that_cmd_dies_of_is_in_the_exit_code() {
    let place = Place::new();
    let args = ["run", "x", "-n", "--", "sh", "-c", "kill -40 $$"];
    assert_eq!(place.code(&args), 128 + 40);
    assert_eq!(place.code(&["run", "x", "-n", "--", "true"]), 0, "released");
}

#[test]
fn a_cmd_that_cannot_be_executed_says_126_or_127_and_frees_the_lease() {
    let place = Place::new();
    let output = place.output(&["run", "x", "-n", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(127));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("/no/such/program"), "{said}");
    assert_eq!(place.code(&["run", "x", "-n", "--", "/etc/passwd"]), 126);
    assert_eq!(place.code(&["run", "x", "-n", "--", "true"]), 0);
}

#[test]
fn a_wrong_command_line_says_64_and_acquires_nothing() {
    let place = Place::new();
    for args in [
        &["run", "x"][..],
        &["run", "x", "true"],
        &["run", "x", "--ttl", "0", "--", "true"],
        &["run", "x", "-E", "256", "--", "true"],
        &["run", "x", "-n", "-w", "1", "--", "true"],
        &["run", "", "-n", "--", "true"],
        &["frobnicate"],
    ] {
        assert_eq!(place.code(args), 64, "{args:?}");
    }
    assert_eq!(place.code(&["--help"]), 0);
    assert_eq!(place.code(&["run", "--help"]), 0);
}

#[test]
fn an_arena_that_cannot_be_used_says_125() {
    let place = Place::new();
    std::fs::write(place.arena(), b"something else").unwrap();
    let output = place.output(&["run", "x", "-n", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(place.code(&["status", "x"]), 125);
    assert_eq!(std::fs::read(place.arena()).unwrap(), b"something else");
}

#[test]
fn a_lease_that_is_held_says_1_or_the_code_that_was_asked_for() {
    let place = Place::new();
    let (mut holder, lines) = place.running(&["-n"], "exec sleep 60");
    assert_eq!(place.code(&["run", "x", "-n", "--", "true"]), 1);
    assert_eq!(
        place.code(&["run", "x", "-n", "-E", "75", "--", "true"]),
        75
    );
    assert_eq!(
        place.code(&["run", "x", "-w", "0", "-E", "0", "--", "false"]),
        0
    );
    let started = Instant::now();
    assert_eq!(place.code(&["run", "x", "-w", "0.2", "--", "true"]), 1);
    assert!(
        started.elapsed() >= Duration::from_millis(200),
        "never early"
    );
    assert_eq!(
        place.code(&["run", "y", "-n", "--", "true"]),
        0,
        "another lease"
    );
    holder.kill().unwrap();
    holder.wait().unwrap();
    drop(lines);
}

#[test]
fn a_waiter_runs_when_the_holder_ends_and_when_it_is_killed() {
    let place = Place::new();
    for kill_it in [false, true] {
        let (mut holder, lines) = place.running(&["--ttl", "1h"], "sleep 0.2");
        let mut waiter = place
            .command(&["run", "x", "-w", "30", "--", "true"])
            .spawn()
            .unwrap();
        if kill_it {
            holder.kill().unwrap();
        }
        assert_eq!(waiter.wait().unwrap().code(), Some(0));
        holder.wait().unwrap();
        drop(lines);
    }
}

#[test]
fn cmd_finds_the_arena_the_lease_and_the_fence_in_its_environment() {
    let place = Place::new();
    let script = "echo \"$ARENA_NAME $ARENA_LEASE $ARENA_FENCE\"";
    let fence = || {
        let output = place.output(&["run", "x", "-n", "--", "sh", "-c", script]);
        let text = String::from_utf8(output.stdout).unwrap();
        let words: Vec<_> = text.split_whitespace().collect();
        assert_eq!(words[..2], [place.arena().to_str().unwrap(), "x"]);
        words[2].parse::<u64>().unwrap()
    };
    let first = fence();
    assert_eq!(fence(), first + 1);
}

#[test]
fn arguments_reach_cmd_byte_for_byte() {
    let place = Place::new();
    let odd = OsStr::from_bytes(b"\xff \n*");
    let mut command = place.command(&[
        "run", "x", "-n", "--", "printf", "%s|", "-v", "--help", "-n", "",
    ]);
    let output = command.arg(odd).output().unwrap();
    assert_eq!(output.stdout, b"-v|--help|-n||\xff \n*|");
}

#[test]
fn signals_are_passed_on_and_cmds_answer_is_the_exit_code() {
    let place = Place::new();
    for (signal, name) in [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGHUP, "HUP"),
    ] {
        let script = format!("trap 'exit 9' {name}; while :; do sleep 0.01; done");
        let (mut holder, _lines) = place.running(&["-n"], &format!("{script} # "));
        // The shell may not have come to its trap yet; a shell without it dies of the signal.
        kill(pid(&holder), signal).unwrap();
        let code = holder.wait().unwrap().code().unwrap();
        assert!([9, 128 + i32::from(signal as u8)].contains(&code), "{code}");
        assert_eq!(place.code(&["run", "x", "-n", "--", "true"]), 0, "released");
    }
}

#[test]
fn work_of_many_ttls_is_never_lost() {
    let place = Place::new();
    let (mut holder, _lines) = place.running(&["-n", "--ttl", "300ms"], "sleep 1.5");
    for _ in 0..10 {
        assert_eq!(place.code(&["run", "x", "-w", "0.1", "--", "true"]), 1);
    }
    assert_eq!(holder.wait().unwrap().code(), Some(0));
}

#[test]
fn a_lease_that_was_taken_while_the_wrapper_was_stopped_ends_cmd_with_123() {
    let place = Place::new();
    let (mut holder, mut lines) = place.running(&["-n", "--ttl", "200ms"], "exec sleep 60");
    kill(pid(&holder), Signal::SIGSTOP).unwrap();
    let leases = Leases::open(&Arena::open(place.arena()).unwrap()).unwrap();
    let rival = leases.lease("x", Duration::from_secs(30)).unwrap();
    let taken = rival.acquire_timeout(Duration::from_secs(20)).unwrap();
    assert!(taken.held().unwrap().took_over.is_some());
    kill(pid(&holder), Signal::SIGCONT).unwrap();
    assert_eq!(holder.wait().unwrap().code(), Some(123));
    // CMD is gone: it had the other end.
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(rival.mine(), "its deadline was left alone");
}

#[test]
fn an_arena_that_is_destroyed_ends_cmd_before_the_deadline() {
    let place = Place::new();
    let script = "trap '' TERM; while :; do sleep 0.01; done";
    let (mut holder, _lines) = place.running(&["-n", "--ttl", "900ms"], script);
    let started = Instant::now();
    Arena::attach(place.arena()).unwrap().destroy().unwrap();
    assert_eq!(holder.wait().unwrap().code(), Some(123));
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "KILL, as TERM is ignored"
    );
}

#[test]
fn cmd_dies_with_a_wrapper_that_is_killed() {
    let place = Place::new();
    let (mut holder, mut lines) = place.running(&["-n"], "exec sleep 60");
    holder.kill().unwrap();
    assert_eq!(holder.wait().unwrap().signal(), Some(9));
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
}

#[test]
fn status_tells_who_holds_and_joins_nothing() {
    let place = Place::new();
    assert_eq!(place.code(&["status", "x"]), 125, "no arena");
    let (mut holder, lines) = place.running(&["-n"], "exec sleep 60");
    let line = String::from_utf8(place.output(&["status", "x", "--json"]).stdout).unwrap();
    let arena = place.arena();
    let start = format!(
        "{{\"arena\":\"{}\",\"lease\":\"x\",\"held\":true,\"fence\":",
        arena.display()
    );
    assert!(line.starts_with(&start), "{line}");
    let middle = ",\"acquires\":1,\"steals\":0,\"lapses_in_ms\":";
    let (_, lapses_in) = line.split_once(middle).unwrap_or_else(|| panic!("{line}"));
    let (lapses_in, _) = lapses_in.split_once(',').unwrap();
    let lapses_in: u64 = lapses_in.parse().unwrap();
    assert!((20_000..=30_000).contains(&lapses_in), "{line}");
    let end = format!(
        "\"holder\":{{\"pid\":{},\"name\":\"arena-lease\",\"slot\":0,\"epoch\":1,\"verdict\":\"alive\",\"since\":",
        holder.id()
    );
    assert!(line.contains(&end), "{line}");
    let text = String::from_utf8(place.output(&["status", "x"]).stdout).unwrap();
    assert!(
        text.contains(&format!(" by pid {} ", holder.id())),
        "{text}"
    );
    let free = String::from_utf8(place.output(&["status", "y", "--json"]).stdout).unwrap();
    assert!(
        free.contains("\"held\":false,\"fence\":null,\"acquires\":null"),
        "{free}"
    );
    let odd = place
        .command(&["status", "--json"])
        .arg(OsStr::from_bytes(b"\xff"))
        .output()
        .unwrap();
    let odd = String::from_utf8(odd.stdout).unwrap();
    assert!(odd.contains("\"lease_base64\":\"/w==\""), "{odd}");
    holder.kill().unwrap();
    holder.wait().unwrap();
    drop(lines);
    // Its CMD is killed by the kernel, and until that has ended nobody else holds.
    let dead = loop {
        let told = place.stdout(&["status", "x", "--json"]);
        if !told.contains("\"verdict\":\"unknown\"") {
            break told;
        }
    };
    assert!(
        dead.contains("\"held\":false") && dead.contains("\"holder\":null"),
        "{dead}"
    );
}
