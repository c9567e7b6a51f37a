//! The command in two PID namespaces that share an arena, as containers do: its wrapper is killed there, and its rivals
//! are here.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::stat::Mode;
use nix::unistd::{geteuid, mkfifo};

mod shell;
use shell::{BIN, Place, as_in_a_shell, ended, started};

/// A shell that is pid 1 of a namespace of its own; `None` where none can be made.
fn container() -> Option<Command> {
    let shell = || {
        let mut command = as_in_a_shell("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        if !geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["sh", "-c"]);
        command
    };
    let offered = shell().arg("true").stderr(Stdio::null()).status();
    offered.is_ok_and(|status| status.success()).then(shell)
}

/// `run x OPTIONS -- sh -c CMD` in a namespace of its own, whose wrapper is killed when the shell is told; `then` is run
/// after that. Returns when CMD has said that it runs.
fn killed_when_told(
    place: &Place,
    options: &str,
    cmd: &str,
    then: &str,
) -> Option<(Child, BufReader<ChildStdout>)> {
    let run = format!("{BIN} run x -n {options} -- setpriv --pdeathsig clear sh -c '{cmd}'");
    let script = format!("{run} & read go; kill -9 $!; wait $!; echo killed; {then}; read go");
    let mut command = container()?;
    command.arg(script).env("ARENA_NAME", place.arena());
    Some(started({
        command.stdin(Stdio::piped());
        command
    }))
}

fn tell(container: &mut Child) {
    container
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"go\n")
        .unwrap();
}

fn line(lines: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    line
}

/// One who waits for the lease here, and says so when he has it.
fn waiter(place: &Place) -> Child {
    let mut command = place.command(&["run", "x", "--", "echo", "next"]);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

fn went_on(mut waiter: Child) {
    assert_eq!(ended(&mut waiter).code(), Some(0));
    let mut said = String::new();
    waiter.stdout.unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "next\n");
}

fn is_refused(place: &Place) -> bool {
    (0..20).all(|_| place.code(&["run", "x", "-n", "--", "true"]) == 1)
}

/// Method: the ttl is longer than the test.
#[test]
fn a_rival_in_another_namespace_waits_for_cmd_and_not_for_the_ttl() {
    let place = Place::new();
    let fifo = place.file("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let cmd = format!("echo running; read line < {}", fifo.display());
    let Some((mut holder, mut said)) = killed_when_told(&place, "--ttl 1h", &cmd, ":") else {
        return;
    };
    let mut waiter = waiter(&place);
    tell(&mut holder);
    assert_eq!(line(&mut said), "killed\n");
    assert!(is_refused(&place));
    let status = place.stdout(&["status", "x", "--json"]);
    let held = status.contains("\"held\":true") && status.contains("\"verdict\":\"unknown\"");
    assert!(held, "{status}");
    assert_eq!(waiter.try_wait().unwrap(), None);
    std::fs::write(&fifo, "go on\n").unwrap();
    went_on(waiter);
    assert!(
        !place
            .stdout(&["status", "x", "--json"])
            .contains("\"held\":true")
    );
    tell(&mut holder);
    assert_eq!(ended(&mut holder).code(), Some(0));
}

#[test]
fn a_rival_in_another_namespace_waits_for_the_ttl_at_most() {
    let place = Place::new();
    let cmd = "echo running; exec sleep 600";
    let Some((mut holder, mut said)) = killed_when_told(&place, "--ttl 2s", cmd, ":") else {
        return;
    };
    let waiter = waiter(&place);
    tell(&mut holder);
    assert_eq!(line(&mut said), "killed\n");
    went_on(waiter);
    tell(&mut holder);
    // And with it, which is pid 1 there, CMD.
    assert_eq!(ended(&mut holder).code(), Some(0));
}

/// Goal: a CMD that closes what it inherited is not taken for one that has ended, once that was noticed.
#[test]
fn cmd_that_closes_what_it_inherited_is_waited_for_until_the_ttl_is_over() {
    let place = Place::new();
    // Which number it has is not promised.
    let script = "for fd in /proc/$$/fd/*; do
            [ $fd -ef $ARENA_NAME ] && eval \"exec ${fd##*/}<&-\"
        done
        echo running
        exec sleep 600";
    std::fs::write(place.file("script"), script).unwrap();
    let cmd = format!("exec bash {}", place.file("script").display());
    let fifo = place.file("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    // For both, so that neither waits for the other end.
    let errors = File::options().read(true).write(true).open(&fifo).unwrap();
    let options = format!("-v --ttl 6s 2> {}", fifo.display());
    let Some((mut holder, mut said)) = killed_when_told(&place, &options, &cmd, ":") else {
        return;
    };
    let mut errors = BufReader::new(errors).lines();
    let closed = |line: &String| line.contains("CMD closed its descriptor");
    assert!(errors.any(|line| closed(&line.unwrap())));
    tell(&mut holder);
    assert_eq!(line(&mut said), "killed\n");
    assert_eq!(place.code(&["run", "x", "-n", "--", "true"]), 1);
    went_on(waiter(&place));
    tell(&mut holder);
    assert_eq!(ended(&mut holder).code(), Some(0));
}

/// Goal: what CMD started and left behind is waited for in other namespaces, and in CMD's is not.
#[test]
fn what_cmd_left_behind_prolongs_the_lease_in_other_namespaces_alone() {
    let place = Place::new();
    let fifo = place.file("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    // CMD ends at once when it is told, and its child does not.
    let cmd = format!(
        "(read line < {0}) & echo running; read line < {0}.cmd",
        fifo.display()
    );
    mkfifo(&place.file("fifo.cmd"), Mode::S_IRWXU).unwrap();
    let then = format!("read go; {BIN} run x -w 20 -- true; echo code $?");
    for rival_is_here in [true, false] {
        let Some((mut holder, mut said)) = killed_when_told(&place, "--ttl 1h", &cmd, &then) else {
            return;
        };
        tell(&mut holder);
        assert_eq!(line(&mut said), "killed\n");
        std::fs::write(place.file("fifo.cmd"), "go on\n").unwrap();
        assert!(is_refused(&place));
        if rival_is_here {
            let waiter = waiter(&place);
            std::fs::write(&fifo, "go on\n").unwrap();
            went_on(waiter);
        }
        tell(&mut holder);
        assert_eq!(line(&mut said), "code 0\n");
        if !rival_is_here {
            std::fs::write(&fifo, "go on\n").unwrap();
        }
        tell(&mut holder);
        assert_eq!(ended(&mut holder).code(), Some(0));
    }
}
