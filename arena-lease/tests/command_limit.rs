//! The command on limits and successions: who runs, who waits, who is told that it is not to.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use arena_lease::{ArenaOptions, LeasesView, LimitState};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use serde_json::Value;

mod shell;
use shell::{Place, ended, pid};

/// What is at work, and waits, at `x`.
fn limit(place: &Place) -> Option<LimitState> {
    let view = ArenaOptions::new().view(place.arena()).ok()?;
    LeasesView::open(&view).ok()??.limit("x").ok()?
}

/// Returns when so many work and these places are waited at.
fn until(place: &Place, working: usize, waiting: &[&str]) {
    let started = Instant::now();
    loop {
        let found = limit(place);
        let is_so = found.as_ref().is_some_and(|found| {
            let places = found.waiting.iter().map(|state| &state.lease[..]);
            found.working.len() == working
                && places.eq(waiting.iter().map(|suffix| suffix.as_bytes()))
        });
        if is_so {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{found:?}");
        std::thread::yield_now();
    }
}

/// `run x …`, in the background, with a CMD that says so and sleeps.
fn background(place: &Place, options: &[&str]) -> Child {
    let mut command = place.command(&["run", "x"]);
    command.args(options).args(["--", "sleep", "1000"]);
    command.stdout(Stdio::null()).spawn().unwrap()
}

fn end(mut child: Child) {
    kill(pid(&child), Signal::SIGTERM).unwrap();
    assert_eq!(ended(&mut child).code(), Some(128 + 15));
}

#[test]
fn so_many_run_at_once_and_one_more_does_not() {
    let place = Place::new();
    let two = ["--limit", "2"];
    let one = background(&place, &two);
    until(&place, 1, &[]);
    let said = place.stdout(&[
        "run",
        "x",
        "--limit",
        "2",
        "-n",
        "--",
        "sh",
        "-c",
        "echo $ARENA_LEASE",
    ]);
    assert_eq!(said, "x#2\n");
    let other = background(&place, &two);
    until(&place, 2, &[]);
    let more = |options: &[&str]| {
        let args = [&["run", "x", "--limit", "2"], options, &["--", "true"]];
        place.code(&args.concat())
    };
    assert_eq!(more(&["-n"]), 1);
    assert_eq!(more(&["-w", "0"]), 1);
    assert_eq!(more(&["-n", "-E", "75"]), 75);
    let started = Instant::now();
    assert_eq!(more(&["-w", "0.2", "-E", "75"]), 75);
    assert!(
        started.elapsed() >= Duration::from_millis(200),
        "never early"
    );
    let text = place.stdout(&["status", "x"]);
    assert!(
        text.contains("at most 2 at once; 2 at work, 0 waiting\n"),
        "{text}"
    );
    assert!(text.contains(&format!("pid {} (", one.id())), "{text}");
    end(one);
    assert_eq!(more(&["-n"]), 0);
    end(other);
}

#[test]
fn who_names_another_number_is_refused_while_anybody_runs() {
    let place = Place::new();
    let one = background(&place, &["--limit", "2"]);
    until(&place, 1, &[]);
    let args = ["run", "x", "--limit", "3", "-n", "--", "true"];
    let refused = place.output(&args);
    assert_eq!(refused.status.code(), Some(125));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains("is 2 at once, and cannot become 3 at once"),
        "{said}"
    );
    end(one);
    assert_eq!(place.code(&args), 0);
}

#[test]
fn a_name_that_is_too_long_for_a_limit_is_wrong_usage() {
    let place = Place::new();
    let name = "x".repeat(95);
    assert_eq!(
        place.code(&["run", &name, "--limit", "1", "-n", "--", "true"]),
        64
    );
    assert_eq!(place.code(&["run", &name, "-n", "--", "true"]), 0);
}

#[test]
fn so_many_wait_and_no_more_and_who_waits_runs_after_a_death() {
    let place = Place::new();
    let options = ["--limit", "1", "--standby", "1"];
    let mut first = background(&place, &options);
    until(&place, 1, &[]);
    let second = background(&place, &options);
    until(&place, 1, &["x#standby1"]);
    let more = |wait: &[&str]| {
        let args = [&["run", "x"], &options[..], wait, &["--", "true"]];
        place.code(&args.concat())
    };
    assert_eq!(more(&[]), 1, "it does not wait");
    assert_eq!(more(&["-n"]), 1);
    let json: Value = serde_json::from_str(&place.stdout(&["status", "x", "--json"])).unwrap();
    assert_eq!(json["limit"]["kind"], "exclusive");
    assert_eq!(json["limit"]["places"], 1);
    assert_eq!(json["limit"]["standbys"], 1);
    assert_eq!(json["limit"]["working"][0]["holder"]["pid"], first.id());
    assert_eq!(json["limit"]["waiting"][0]["holder"]["pid"], second.id());
    assert_eq!(json["limit"]["waiting"][0]["lease"], "x#standby1");
    kill(pid(&first), Signal::SIGKILL).unwrap();
    assert_eq!(ended(&mut first).signal(), Some(9));
    until(&place, 1, &[]);
    // One that waits for so long, and ends by itself.
    assert_eq!(more(&["-w", "0.2"]), 1);
    until(&place, 1, &[]);
    end(second);
}

#[test]
fn of_those_who_wait_the_newest_runs_next_and_the_others_are_told_that_they_were_replaced() {
    let place = Place::new();
    let latest = ["--latest"];
    let first = background(&place, &latest);
    until(&place, 1, &[]);
    let mut second = background(&place, &latest);
    until(&place, 1, &["x#standby1"]);
    // Who does not wait disturbs nobody.
    assert_eq!(place.code(&["run", "x", "--latest", "-n", "--", "true"]), 1);
    let mut third = background(&place, &latest);
    assert_eq!(ended(&mut second).code(), Some(122));
    until(&place, 1, &["x#standby1"]);
    // Behind one that stands still the entry is taken in the end.
    kill(pid(&third), Signal::SIGSTOP).unwrap();
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
    waitid(Id::Pid(pid(&third)), flags).unwrap();
    let mut fourth = background(&place, &latest);
    until(&place, 1, &["x#standby1", "x#standby2"]);
    let fifth = background(&place, &latest);
    until(&place, 1, &["x#standby1", "x#standby2", "x#standby3"]);
    assert_eq!(
        place.code(&["run", "x", "--latest", "-E", "75", "--", "true"]),
        121
    );
    kill(pid(&third), Signal::SIGCONT).unwrap();
    assert_eq!(ended(&mut third).code(), Some(122));
    assert_eq!(ended(&mut fourth).code(), Some(122));
    until(&place, 1, &["x#standby1"]);
    let newest = limit(&place).unwrap().waiting[0]
        .holder
        .as_ref()
        .unwrap()
        .pid;
    assert_eq!(newest, Some(fifth.id()));
    let text = place.stdout(&["status", "x"]);
    assert!(
        text.contains("the latest; 1 at work, 1 waiting\n"),
        "{text}"
    );
    end(first);
    until(&place, 1, &[]);
    let runs = limit(&place).unwrap().working[0]
        .holder
        .as_ref()
        .unwrap()
        .pid;
    assert_eq!(runs, Some(fifth.id()));
    // One whose time is up leaves without a trace.
    assert_eq!(
        place.code(&[
            "run", "x", "--latest", "-w", "0.2", "-E", "75", "--", "true"
        ]),
        75
    );
    until(&place, 1, &[]);
    end(fifth);
}

#[test]
fn a_lease_of_the_same_name_is_another_thing() {
    let place = Place::new();
    let one = background(&place, &["--limit", "1"]);
    until(&place, 1, &[]);
    assert_eq!(place.code(&["run", "x", "-n", "--", "true"]), 0);
    let text = place.stdout(&["status", "x"]);
    assert!(text.contains("\nand the lease x in arena"), "{text}");
    end(one);
}
