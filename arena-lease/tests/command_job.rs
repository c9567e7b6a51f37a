//! The command, and what a shell or a supervisor does with it: groups, terminals, signals, children that are left.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Stdio};
use std::time::Duration;

use arena_lease::{Arena, Leases};
use nix::libc;
use nix::pty::openpty;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, mkfifo, tcgetpgrp};

mod shell;
use shell::{Place, ended, pid};

fn destroy(place: &Place) {
    Arena::attach(place.arena()).unwrap().destroy().unwrap();
}

#[test]
fn cmd_leads_a_process_group_of_its_own() {
    let place = Place::new();
    let said = place.stdout(&[
        "run",
        "x",
        "-n",
        "--",
        "sh",
        "-c",
        "cut -d' ' -f5 /proc/$$/stat; echo $$",
    ]);
    let [group, pid] = [0, 1].map(|line| said.lines().nth(line).unwrap());
    assert_eq!(group, pid);
}

#[test]
#[expect(
    unsafe_code,
    reason = "there is no safe way to run something in the child"
)]
fn a_signal_that_the_caller_ignores_is_ignored_in_cmd() {
    let place = Place::new();
    let all: u64 = [Signal::SIGCHLD, Signal::SIGHUP, Signal::SIGINT]
        .map(|one| 1 << (one as i32 - 1))
        .iter()
        .sum();
    for ignores in [true, false] {
        let args = [
            "run",
            "x",
            "-n",
            "--",
            "grep",
            "SigIgn",
            "/proc/self/status",
        ];
        let mut command = place.command(&args);
        let ignore = move || {
            let ignored = [Signal::SIGCHLD, Signal::SIGHUP, Signal::SIGINT];
            for one in ignored.into_iter().filter(|_| ignores) {
                // SAFETY: no handler is installed.
                unsafe { signal(one, SigHandler::SigIgn) }?;
            }
            Ok(())
        };
        // SAFETY: signal(2) may be called in a child of fork.
        unsafe { command.pre_exec(ignore) };
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let mask = said.split_whitespace().nth(1).unwrap();
        let mask = u64::from_str_radix(mask, 16).unwrap();
        assert_eq!(mask & all, if ignores { all } else { 0 }, "{said}");
    }
}

#[test]
fn cmd_is_ended_at_once_when_the_arena_is_destroyed_however_long_the_ttl() {
    let place = Place::new();
    let (mut wrapper, _lines) = place.running(&["-n", "--ttl", "1h"], "exec sleep 600");
    destroy(&place);
    assert_eq!(ended(&mut wrapper).code(), Some(123));
}

#[test]
fn cmd_has_the_grace_that_was_asked_for_and_its_group_gets_the_signal_too() {
    let place = Place::new();
    // The shell waits for its child, which needs the signal as well to let it go on, and says when it is there to get it.
    let script = "trap 'echo cleaned up; exit 0' TERM; sh -c 'echo ready; exec sleep 600'; exit 1";
    let (mut wrapper, mut lines) = place.running(&["-n", "--ttl", "1h", "--grace", "1h"], script);
    let mut rest = String::new();
    lines.read_line(&mut rest).unwrap();
    destroy(&place);
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "ready\ncleaned up\n");
    assert_eq!(ended(&mut wrapper).code(), Some(123));
}

/// CMD that leaves a process behind, which waits for somebody to write to `fifo`.
fn leaves_a_child(
    place: &Place,
    options: &[&str],
) -> (Child, BufReader<std::process::ChildStdout>) {
    let fifo = place.file("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let script = format!("(read line < {}) & exit 3", fifo.display());
    place.running(options, &script)
}

#[test]
fn the_lease_is_released_when_cmd_ends_whatever_it_left_behind() {
    let place = Place::new();
    let (mut wrapper, _lines) = leaves_a_child(&place, &["-n"]);
    assert_eq!(ended(&mut wrapper).code(), Some(3));
    assert_eq!(place.code(&["run", "x", "-n", "--", "true"]), 0);
    std::fs::write(place.file("fifo"), "go on\n").unwrap();
}

#[test]
fn what_cmd_left_behind_is_waited_for_when_that_is_asked_for() {
    let place = Place::new();
    let (mut wrapper, mut lines) = leaves_a_child(&place, &["-n", "--wait-children"]);
    // Opened by the child, so CMD has come to its end; it is a zombie that its wrapper keeps.
    let mut fifo = File::options()
        .write(true)
        .open(place.file("fifo"))
        .unwrap();
    for _ in 0..20 {
        assert_eq!(
            place.code(&["run", "x", "-n", "--", "true"]),
            1,
            "still held"
        );
    }
    assert_eq!(wrapper.try_wait().unwrap(), None);
    fifo.write_all(b"go on\n").unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(ended(&mut wrapper).code(), Some(3));
    assert_eq!(place.code(&["run", "x", "-n", "--", "true"]), 0);
}

#[test]
fn what_cmd_left_behind_ends_with_the_lease_when_it_is_waited_for() {
    let place = Place::new();
    // In a session and a group of its own, and deaf.
    let script = "setsid sh -c 'trap \"\" TERM; echo left; exec sleep 600' & exit 0";
    let (mut wrapper, mut lines) = place.running(&["-n", "--ttl", "1h", "--wait-children"], script);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "left\n");
    destroy(&place);
    assert_eq!(ended(&mut wrapper).code(), Some(123));
    // It had the other end.
    lines.read_to_string(&mut line).unwrap();
}

/// Runs `run x -n -- sh -c SCRIPT` in a session of its own on a terminal, as its first job; returns the other end.
fn on_a_terminal(place: &Place, script: &str) -> (Child, File) {
    let run = [shell::BIN, "run", "x", "-n", "--", "sh", "-c", script];
    program_on_a_terminal(place, &run)
}

#[expect(
    unsafe_code,
    reason = "there is no safe way to run something in the child"
)]
fn program_on_a_terminal(place: &Place, program: &[&str]) -> (Child, File) {
    let pty = openpty(None, None).unwrap();
    let mut command = shell::as_in_a_shell(program[0]);
    command.args(&program[1..]).env("ARENA_NAME", place.arena());
    let lead = || {
        // SAFETY: takes a descriptor and a number.
        match unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    let slave = || Stdio::from(pty.slave.try_clone().unwrap());
    // SAFETY: ioctl(2) may be called in a child of fork.
    unsafe { command.pre_exec(lead) };
    let child = command.stdin(slave()).stdout(slave()).spawn().unwrap();
    (child, File::from(pty.master))
}

/// Reads until the terminal shows this.
fn until(terminal: &mut File, text: &str) {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&seen).ends_with(text) {
        let read = terminal.read(&mut byte);
        let so_far = String::from_utf8_lossy(&seen);
        assert!(read.is_ok_and(|count| count == 1), "only {so_far:?}");
        seen.extend(byte);
    }
}

#[test]
fn cmd_reads_from_the_terminal_and_gives_it_back() {
    let place = Place::new();
    let (mut wrapper, mut terminal) =
        on_a_terminal(&place, "echo ready; read line; echo got $line");
    until(&mut terminal, "ready\r\n");
    assert_ne!(tcgetpgrp(&terminal), Ok(pid(&wrapper)));
    terminal.write_all(b"hello\n").unwrap();
    until(&mut terminal, "got hello\r\n");
    assert_eq!(wrapper.wait().unwrap().code(), Some(0));
}

#[test]
fn ctrl_c_reaches_cmd_alone() {
    let place = Place::new();
    let script = "trap 'exit 5' INT; echo ready; while :; do sleep 0.01; done";
    let (mut wrapper, mut terminal) = on_a_terminal(&place, script);
    until(&mut terminal, "ready\r\n");
    terminal.write_all(b"\x03").unwrap();
    assert_eq!(wrapper.wait().unwrap().code(), Some(5));
}

#[test]
fn ctrl_c_that_ends_cmd_ends_the_script_that_called_it_too() {
    let place = Place::new();
    let run = format!(
        "{} run x -n -- sh -c 'echo ready; exec sleep 600'",
        shell::BIN
    );
    let script = format!("{run}; echo went on; exit 7");
    let (mut caller, mut terminal) = program_on_a_terminal(&place, &["bash", "-c", &script]);
    until(&mut terminal, "ready\r\n");
    terminal.write_all(b"\x03").unwrap();
    assert_eq!(caller.wait().unwrap().signal(), Some(2));
    assert_eq!(place.code(&["run", "x", "-n", "--", "true"]), 0, "released");
}

#[test]
fn a_file_that_was_removed_is_noticed_when_cmd_ends_at_the_latest() {
    let place = Place::new();
    let (mut wrapper, _lines) = place.running(&["-n", "--ttl", "1h"], "exec sleep 600");
    std::fs::remove_file(place.arena()).unwrap();
    kill(pid(&wrapper), Signal::SIGTERM).unwrap();
    assert_eq!(ended(&mut wrapper).code(), Some(123));
}

/// A shell with job control on a terminal, with a script.
fn job_control(place: &Place, script: &str) -> (Child, File) {
    let script = format!("RUN='{} run x -n --'; {script}", shell::BIN);
    program_on_a_terminal(place, &["bash", "--norc", "-ic", &script])
}

/// The job says that it is ready, is stopped by Ctrl-Z, and goes on when the shell lets it.
fn is_stopped_and_goes_on(job: &str) {
    let place = Place::new();
    // 148: stopped by TSTP, as without the wrapper.
    let script = format!("{job}; echo stopped $?; fg; echo ended $?");
    let (mut shell, mut terminal) = job_control(&place, &script);
    until(&mut terminal, "ready\r\n");
    terminal.write_all(b"\x1a").unwrap();
    until(&mut terminal, "stopped 148\r\n");
    terminal.write_all(b"hello\n").unwrap();
    until(&mut terminal, "got hello\r\n");
    until(&mut terminal, "ended 0\r\n");
    assert_eq!(shell.wait().unwrap().code(), Some(0));
}

#[test]
fn ctrl_z_stops_the_job_and_the_shell_lets_it_go_on() {
    is_stopped_and_goes_on("$RUN sh -c 'echo ready; read line; echo got $line'");
}

#[test]
fn cmd_in_a_pipeline_reads_from_the_terminal_and_is_stopped_with_it() {
    let cmd = "echo ready > /dev/tty; read line < /dev/tty; echo got $line";
    is_stopped_and_goes_on(&format!("$RUN sh -c '{cmd}' | cat"));
}

/// Goal: with nobody above who would let the job go on, it goes on by itself: the kernel would not have stopped CMD.
#[test]
fn ctrl_z_without_a_shell_above_stops_nothing() {
    let place = Place::new();
    let script = "echo ready; read line; echo got $line";
    let (mut wrapper, mut terminal) = on_a_terminal(&place, script);
    until(&mut terminal, "ready\r\n");
    for _ in 0..3 {
        terminal.write_all(b"\x1a").unwrap();
    }
    terminal.write_all(b"hello\n").unwrap();
    until(&mut terminal, "got hello\r\n");
    assert_eq!(wrapper.wait().unwrap().code(), Some(0));
}

/// Goal: who stops CMD by its pid finds it stopped, also when the wrapper cannot stop as well, and its lease held.
#[test]
fn cmd_that_is_stopped_by_its_pid_stays_stopped_until_it_is_continued() {
    let place = Place::new();
    let (mut wrapper, mut terminal) = on_a_terminal(&place, "echo $$; read line; echo got $line");
    let mut cmd = Vec::new();
    while !cmd.ends_with(b"\n") {
        let mut byte = [0];
        assert_eq!(terminal.read(&mut byte).unwrap(), 1);
        cmd.extend(byte);
    }
    let cmd: i32 = String::from_utf8(cmd).unwrap().trim().parse().unwrap();
    let state = |pid: Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    let (cmd, own) = (Pid::from_raw(cmd), pid(&wrapper));
    kill(cmd, Signal::SIGSTOP).unwrap();
    // It has taken the terminal back when it has dealt with that.
    while tcgetpgrp(&terminal) != Ok(own) {
        std::thread::yield_now();
    }
    assert_eq!(place.code(&["run", "x", "-n", "--", "true"]), 1);
    assert_eq!((state(cmd), state(own)), ('T', 'S'));
    kill(cmd, Signal::SIGCONT).unwrap();
    terminal.write_all(b"hello\n").unwrap();
    until(&mut terminal, "got hello\r\n");
    assert_eq!(wrapper.wait().unwrap().code(), Some(0));
}

/// Goal: `arena-lease run … | less`: CMD does not take the terminal from the pager.
#[test]
fn a_pager_behind_cmd_reads_from_the_terminal() {
    let place = Place::new();
    let pager = "read line; echo paging $line; read key < /dev/tty; echo key $key";
    let script = format!("$RUN sh -c 'while echo out; do :; done' | sh -c '{pager}'; exit 7");
    let (mut shell, mut terminal) = job_control(&place, &script);
    until(&mut terminal, "paging out\r\n");
    terminal.write_all(b"q\n").unwrap();
    until(&mut terminal, "key q\r\n");
    assert_eq!(shell.wait().unwrap().code(), Some(7));
    assert_eq!(place.code(&["run", "x", "-n", "--", "true"]), 0);
}

/// Method: what is forwarded comes in the order of the signals' numbers, so a second INT would come before USR1.
#[test]
fn ctrl_c_in_a_pipeline_reaches_cmd_once() {
    let place = Place::new();
    let cmd = "n=0; trap \"n=\\$((n + 1)); echo int\" INT; trap \"echo \\$n; exit 5\" USR1; \
        echo ready; while :; do sleep 0.01; done";
    let cat = "trap \"\" INT; exec cat";
    let script = format!("set -o pipefail; $RUN sh -c '{cmd}' | sh -c '{cat}'; exit $?");
    let (mut shell, mut terminal) = job_control(&place, &script);
    until(&mut terminal, "ready\r\n");
    terminal.write_all(b"\x03").unwrap();
    until(&mut terminal, "int\r\n");
    let wrapper = tcgetpgrp(&terminal).unwrap();
    assert_eq!(command_of(wrapper), "arena-lease", "the first of the job");
    kill(wrapper, Signal::SIGUSR1).unwrap();
    until(&mut terminal, "1\r\n");
    assert_eq!(shell.wait().unwrap().code(), Some(5));
}

fn command_of(process: Pid) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap();
    name.trim().to_owned()
}

#[test]
fn ctrl_c_that_ends_cmd_in_a_pipeline_is_what_the_wrapper_dies_of() {
    let place = Place::new();
    let script = "set -o pipefail; trap : INT; $RUN sh -c 'echo ready; exec sleep 600' \
        | sh -c 'trap \"\" INT; exec cat'; kill -l $?; exit 7";
    let (mut shell, mut terminal) = job_control(&place, script);
    until(&mut terminal, "ready\r\n");
    terminal.write_all(b"\x03").unwrap();
    until(&mut terminal, "INT\r\n");
    assert_eq!(shell.wait().unwrap().code(), Some(7));
}

/// Goal: who loses the lease ends what CMD started too, and not the rest of the pipeline.
#[test]
fn a_pipeline_outlives_cmd_when_the_lease_is_lost() {
    let place = Place::new();
    let cmd = "trap \"echo cleaned up; exit 0\" TERM; sh -c \"echo ready; exec sleep 600\"; exit 1";
    let run = format!("{} run x -n --grace 1h -- sh -c '{cmd}'", shell::BIN);
    let script = format!("set -o pipefail; {run} | cat; exit $?");
    let (mut shell, mut terminal) = job_control(&place, &script);
    until(&mut terminal, "ready\r\n");
    destroy(&place);
    until(&mut terminal, "cleaned up\r\n");
    assert_eq!(ended(&mut shell).code(), Some(123));
}

/// Runs the child to its next entry of the system call `number`.
#[cfg(target_arch = "x86_64")]
fn run_to(child: Pid, number: i64) {
    use nix::sys::ptrace;
    loop {
        ptrace::syscall(child, None).unwrap();
        match waitpid(child, None).unwrap() {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            other => panic!("{other:?}"),
        }
        if ptrace::getregs(child).unwrap().orig_rax.cast_signed() == number {
            return;
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
#[expect(
    unsafe_code,
    reason = "there is no safe way to run something in the child"
)]
fn cmd_is_not_started_under_a_lease_that_was_lost_before() {
    use nix::sys::ptrace;
    let place = Place::new();
    let args = ["run", "x", "-n", "--ttl", "100ms", "--", "touch"];
    let mut command = place.command(&args);
    command.arg(place.file("ran"));
    // SAFETY: ptrace(2) may be called in a child of fork.
    unsafe { command.pre_exec(|| Ok(ptrace::traceme()?)) };
    let mut wrapper = command.spawn().unwrap();
    let child = pid(&wrapper);
    assert_eq!(
        waitpid(child, None),
        Ok(WaitStatus::Stopped(child, Signal::SIGTRAP))
    );
    // It holds, and makes ready to start CMD.
    run_to(child, libc::SYS_signalfd4);
    let leases = Leases::open(&Arena::open(place.arena()).unwrap()).unwrap();
    let rival = leases.lease("x", Duration::from_secs(30)).unwrap();
    let taken = rival.acquire_timeout(Duration::from_secs(20)).unwrap();
    assert!(taken.held().unwrap().took_over.is_some());
    ptrace::detach(child, None).unwrap();
    assert_eq!(wrapper.wait().unwrap().code(), Some(123));
    assert!(!place.file("ran").exists());
    assert!(rival.mine());
}

#[test]
fn a_lease_whose_wrapper_was_killed_passes_on_when_cmd_is_gone_too_and_not_before() {
    let place = Place::new();
    let fifo = place.file("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    // The kernel does not kill it with its wrapper.
    let script = format!(
        "exec setpriv --pdeathsig clear sh -c 'echo deaf; read line < {}'",
        fifo.display()
    );
    let (mut wrapper, mut lines) = place.running(&["-n", "--ttl", "1h"], &script);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "deaf\n");
    let waiter = place
        .command(&["run", "x", "--", "echo", "next"])
        .stdout(Stdio::piped())
        .spawn();
    let mut waiter = waiter.unwrap();
    wrapper.kill().unwrap();
    wrapper.wait().unwrap();
    for _ in 0..20 {
        assert_eq!(place.code(&["run", "x", "-n", "--", "true"]), 1);
    }
    let status = place.stdout(&["status", "x", "--json"]);
    let verdict = status.contains("\"held\":true") && status.contains("\"verdict\":\"unknown\"");
    assert!(verdict, "{status}");
    assert_eq!(waiter.try_wait().unwrap(), None);
    std::fs::write(&fifo, "go on\n").unwrap();
    let mut said = String::new();
    waiter
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(said, "next\n");
    assert_eq!(ended(&mut waiter).code(), Some(0));
}
