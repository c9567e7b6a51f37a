//! Copies of a test binary that play a role and wait where they are told.
//!
//! Each binary that starts some has a test `a_role_is_played_when_it_is_asked_for`, which does what [`role`] says.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod leading;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

const ROLE: &str = "ARENA_LEASE_TEST_ROLE";

/// In a copy that was started with one: the role, and the arena's path.
pub(crate) fn role() -> Option<(String, PathBuf)> {
    let role = std::env::var_os(ROLE)?.into_string().unwrap();
    let (name, path) = role.rsplit_once(' ').unwrap();
    Some((name.into(), path.into()))
}

/// In a copy: says where it is, and waits until it is told to go on.
pub(crate) fn at(point: &str) {
    println!("at {point}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

pub(crate) struct Actor {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Actor {
    pub(crate) fn start(role: &str, path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "a_role_is_played_when_it_is_asked_for",
                "--nocapture",
            ])
            .env(ROLE, format!("{role} {}", path.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// What it says at its next point.
    pub(crate) fn at(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "it ended");
            // The test harness writes to the same line.
            if let Some((_, said)) = line.split_once("at ") {
                return said.trim().to_owned();
            }
        }
    }

    pub(crate) fn go_on(&mut self) {
        self.tell("");
    }

    /// Lets it go on, with a line of instructions.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Tells it a line, and waits for its answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.at()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Stops it, and waits until it is stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(self.pid()), flags).unwrap();
    }

    /// Kills it and waits until it is a zombie; it stays one.
    pub(crate) fn kill_unreaped(&self) {
        self.signal(Signal::SIGKILL);
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(self.pid()), flags).unwrap();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("arena");
    (directory, path)
}

/// How many entries a directory has.
pub(crate) fn count(of: &str) -> usize {
    std::fs::read_dir(of).unwrap().count()
}

/// Of every thread of a process: its name, its state, and how often it gave the processor up by itself.
pub(crate) fn threads(pid: Pid) -> Vec<(String, char, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let thread = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let switches = field("voluntary_ctxt_switches")?.parse().ok()?;
        Some((field("Name")?, field("State")?.chars().next()?, switches))
    };
    tasks.flatten().filter_map(thread).collect()
}
