//! A child process, seen from its parent: it goes where it is told, and it never outlives the scenario.
//!
//! A child is this program again (`/proc/self/exe child ROLE ARG…`). It prints `at POINT [TEXT]` and waits for a
//! line; the parent waits for the point and decides what happens to the child there.

use std::{
    ffi::OsString,
    io::{Read, Write},
    os::fd::AsFd,
    os::unix::process::CommandExt,
    path::Path,
    process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};

use crate::{
    namespaces::Rooms,
    outcome::{Outcome, Stop, ensure},
};

/// How long a child may take to its next point before it counts as hanging. A guard, never a measurement.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What to start.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    role: String,
    args: Vec<OsString>,
    rooms: Option<Rooms>,
    user: Option<(u32, u32)>,
}

impl Plan {
    /// A child that plays `role`.
    pub(crate) fn new(role: &str) -> Self {
        Self {
            role: role.to_owned(),
            args: Vec::new(),
            rooms: None,
            user: None,
        }
    }

    /// Adds an argument.
    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Plays the role inside new namespaces.
    pub(crate) fn in_rooms(mut self, rooms: Rooms) -> Self {
        self.rooms = Some(rooms);
        self
    }

    /// Plays the role as another user, in a group of the same number.
    pub(crate) fn by_user(mut self, uid: u32) -> Self {
        self.user = Some((uid, uid));
        self
    }

    /// Plays the role as the other user, in this group.
    pub(crate) fn in_group(mut self, gid: u32) -> Self {
        self.user = self.user.map(|(uid, _)| (uid, gid));
        self
    }

    /// Starts it with `directory` as the scenario's directory.
    pub(crate) fn start(self, directory: &Path) -> Outcome<Child> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("child");
        if let Some(rooms) = &self.rooms {
            command.arg("--in").arg(rooms.to_string());
        }
        command.arg(&self.role).args(&self.args);
        command
            .env(DIRECTORY, directory)
            .env(PARENT, std::process::id().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        let mut process = command
            .spawn()
            .map_err(|e| Stop::failed(format!("starting {}: {e}", self.role)))?;
        let (stdin, stdout) = (
            process.stdin.take(),
            process.stdout.take().expect("stdout was piped above"),
        );
        let target = pid_of(&process);
        let mut child = Child {
            role: self.role,
            target,
            process,
            stdin,
            stdout,
            read: Vec::new(),
            last: "start".to_owned(),
            ended: None,
        };
        if self.rooms.is_some() {
            child.target = child.announced_pid()?;
        }
        Ok(child)
    }
}

/// The variable that carries the scenario's directory.
pub(crate) const DIRECTORY: &str = "ARENA_XTASK_DIRECTORY";
/// The variable that carries the pid of the process that starts a child.
pub(crate) const PARENT: &str = "ARENA_XTASK_PARENT";

/// A running (or stopped, or dead) child. Dropping it kills and reaps it.
#[derive(Debug)]
pub(crate) struct Child {
    role: String,
    /// Who gets the signals: the process itself, or the one inside the namespaces.
    target: Pid,
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    read: Vec<u8>,
    last: String,
    ended: Option<ExitStatus>,
}

impl Child {
    /// Its pid, as this process sees it.
    pub(crate) fn pid(&self) -> Pid {
        self.target
    }

    /// Waits until the child is at `point`; gives what it says there.
    pub(crate) fn expect(&mut self, point: &str) -> Outcome<String> {
        self.expect_within(point, PATIENCE)
    }

    /// The same with another guard.
    pub(crate) fn expect_within(&mut self, point: &str, guard: Duration) -> Outcome<String> {
        let before = self.last.clone();
        match self.hear(guard) {
            Ok((found, text)) if found == point => Ok(text),
            Ok((found, text)) => {
                self.last = before;
                Err(self.failure(format!(
                    "said \"{found} {text}\" where {point:?} was expected"
                )))
            }
            Err(stop) => Err(stop.within(format!("where {point:?} was expected"))),
        }
    }

    /// Waits for whatever the child says next: its point and its text.
    pub(crate) fn hear(&mut self, guard: Duration) -> Outcome<(String, String)> {
        let Some(line) = self.line(guard)? else {
            let status = self.reap()?;
            return Err(self.failure(format!("ended ({status})")));
        };
        let rest = line.strip_prefix("at ").unwrap_or(&line);
        let (point, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let heard = (point.to_owned(), text.to_owned());
        self.last = line;
        Ok(heard)
    }

    /// Whether it has said something that nobody heard yet, or ended.
    pub(crate) fn speaks(&self) -> bool {
        self.read.contains(&b'\n') || readable(&self.stdout, Instant::now()).unwrap_or(true)
    }

    /// Lets the child go on from its point.
    pub(crate) fn go(&mut self) -> Outcome {
        self.tell("go")
    }

    /// Lets the child go on, with a line of instructions.
    pub(crate) fn tell(&mut self, line: &str) -> Outcome {
        let stdin = self
            .stdin
            .as_mut()
            .expect("stdin is open until the child is dropped");
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .map_err(|e| self.failure(format!("cannot be told {line:?}: {e}")))
    }

    /// `tell`, then `expect`: one question and its answer.
    pub(crate) fn ask(&mut self, line: &str, point: &str) -> Outcome<String> {
        self.tell(line)?;
        self.expect(point)
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Outcome {
        kill(self.target, signal).map_err(|e| self.failure(format!("{signal} was refused: {e}")))
    }

    /// Kills it and leaves it as a zombie.
    pub(crate) fn kill_unreaped(&mut self) -> Outcome {
        self.signal(Signal::SIGKILL)?;
        waitid(
            Id::Pid(pid_of(&self.process)),
            WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT,
        )?;
        Ok(())
    }

    /// Kills and reaps it.
    pub(crate) fn kill(&mut self) -> Outcome {
        self.signal(Signal::SIGKILL)?;
        self.reap().map(drop)
    }

    /// Stops it, and returns once all its threads are stopped.
    pub(crate) fn stop(&self) -> Outcome {
        self.signal(Signal::SIGSTOP)?;
        until(PATIENCE, || {
            states(self.target).iter().all(|state| *state == 'T')
        })
        .map_err(|_| self.failure("did not stop".to_owned()))
    }

    /// Continues a stopped one.
    pub(crate) fn cont(&self) -> Outcome {
        self.signal(Signal::SIGCONT)
    }

    /// Waits for its end and reaps it.
    pub(crate) fn reap(&mut self) -> Outcome<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        let mut status = None;
        until(PATIENCE, || {
            status = self.process.try_wait().ok().flatten();
            status.is_some()
        })
        .map_err(|_| self.failure("did not end".to_owned()))?;
        self.ended = status;
        Ok(status.expect("until returned Ok, so there is a status"))
    }

    /// Closes its input, which ends a role that waits, and demands a clean end.
    pub(crate) fn finish(mut self) -> Outcome {
        self.stdin = None;
        let status = self.reap()?;
        ensure!(
            status.success(),
            "{}",
            self.describe(&format!("ended with {status}"))
        );
        Ok(())
    }

    /// The inner process may be quicker to speak than the outer one, which announces it: its lines are kept.
    fn announced_pid(&mut self) -> Outcome<Pid> {
        let mut kept = Vec::new();
        loop {
            let Some(line) = self.line(PATIENCE)? else {
                return Err(self.failure("ended without new namespaces".to_owned()));
            };
            if let Some(pid) = line.strip_prefix("pid ").and_then(|pid| pid.parse().ok()) {
                kept.append(&mut self.read);
                self.read = kept;
                return Ok(Pid::from_raw(pid));
            }
            if line.starts_with("refused: ") {
                return Err(self.failure(format!("has no new namespaces: {line}")));
            }
            kept.extend_from_slice(line.as_bytes());
            kept.push(b'\n');
        }
    }

    /// The next line, `None` at the end of the output.
    fn line(&mut self, guard: Duration) -> Outcome<Option<String>> {
        let end = Instant::now() + guard;
        loop {
            if let Some(at) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=at).collect();
                return Ok(Some(String::from_utf8_lossy(&line[..at]).into_owned()));
            }
            if !readable(&self.stdout, end)? {
                return Err(self.failure(format!("hangs: nothing for {guard:?}")));
            }
            let mut chunk = [0; 4096];
            match self.stdout.read(&mut chunk)? {
                0 => return Ok(None),
                count => self.read.extend_from_slice(&chunk[..count]),
            }
        }
    }

    fn failure(&self, what: String) -> Stop {
        Stop::failed(self.describe(&what))
    }

    fn describe(&self, what: &str) -> String {
        // Some say much.
        let last: String = self.last.chars().take(200).collect();
        format!(
            "child {} (pid {}, last point {last:?}) {what}",
            self.role, self.target
        )
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        self.stdin = None;
        // A pid that was not reaped is not reused. The outer process of a namespace ends once it has reaped the inner.
        _ = kill(self.target, Signal::SIGKILL);
        _ = self.process.wait();
    }
}

/// Polls `condition` until it holds; an error after `guard`.
pub(crate) fn until(guard: Duration, mut condition: impl FnMut() -> bool) -> Outcome {
    let end = Instant::now() + guard;
    while !condition() {
        ensure!(
            Instant::now() < end,
            "what was waited for did not happen within {guard:?}"
        );
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Whether `stream` has something to read, or ended, before `end`.
pub(crate) fn readable(stream: &impl AsFd, end: Instant) -> Outcome<bool> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let wait =
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, wait) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(e) => return Err(e.into()),
        }
    }
}

/// The state letter of each thread of a process, as /proc shows it.
pub(crate) fn states(pid: Pid) -> Vec<char> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok())
        .filter_map(|stat| {
            stat.rsplit(") ")
                .next()
                .and_then(|rest| rest.chars().next())
        })
        .collect()
}

/// Whether the main thread of a process sleeps in a call that waits for another process.
pub(crate) fn waits(pid: Pid) -> bool {
    use nix::libc::{SYS_flock, SYS_futex, SYS_futex_waitv};
    let text = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let call = text.split(' ').next().and_then(|call| call.parse().ok());
    call.is_some_and(|call| [SYS_flock, SYS_futex, SYS_futex_waitv].contains(&call))
}

fn pid_of(process: &std::process::Child) -> Pid {
    Pid::from_raw(process.id().try_into().expect("a pid is a positive i32"))
}
