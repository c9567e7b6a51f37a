//! The command as a shell starts it, on an arena of its own.
#![allow(dead_code, reason = "each of the test files uses a part")]

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use arena_ring::{Arena, ArenaOptions, Ring};
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, signal};
use nix::unistd::Pid;

pub(crate) const BIN: &str = env!("CARGO_BIN_EXE_arena-ring");

pub(crate) struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        Self { directory }
    }

    pub(crate) fn arena(&self) -> PathBuf {
        self.directory.path().join("arena")
    }

    /// The ring "x", made if there is none, in this process.
    pub(crate) fn ring(&self) -> Ring {
        Ring::open(&Arena::open(self.arena()).unwrap(), "x").unwrap()
    }

    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = as_in_a_shell(BIN);
        command.args(args).env("ARENA_NAME", self.arena());
        command
    }

    /// What it did, with nothing on stdin.
    pub(crate) fn output<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        self.fed(args, b"")
    }

    /// What it did with this on stdin.
    pub(crate) fn fed<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> Output {
        let mut command = self.command(args);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // It may have ended without reading.
        let _ = stdin.write_all(input);
        drop(stdin);
        child.wait_with_output().unwrap()
    }

    pub(crate) fn code(&self, args: &[&str]) -> i32 {
        let output = self.output(args);
        output.status.code().unwrap_or_else(|| panic!("{output:?}"))
    }

    pub(crate) fn stdout(&self, args: &[&str]) -> String {
        String::from_utf8(self.output(args).stdout).unwrap()
    }

    /// Publishes lines to the ring "x".
    pub(crate) fn publish(&self, lines: &[u8]) {
        let output = self.fed(&["pub", "x"], lines);
        assert!(output.status.success(), "{output:?}");
    }

    /// How many processes are attached.
    pub(crate) fn attached(&self) -> usize {
        let view = ArenaOptions::new().view(self.arena()).unwrap();
        view.attachments().len()
    }

    /// `sub x …`, asleep.
    pub(crate) fn sleeper(&self, options: &[&str]) -> Sleeper {
        let mut command = self.command(&["sub", "x"]);
        command.args(options);
        self.asleep(command)
    }

    /// A command that subscribes to the ring "x", which nobody else sleeps in, started and asleep.
    pub(crate) fn asleep(&self, mut command: Command) -> Sleeper {
        let view = ArenaOptions::new().view(self.arena()).unwrap();
        let ring = view.find(b"ring.x").unwrap();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The high half of the wake word is raised by who is about to sleep.
        let started = Instant::now();
        while ring.word(128).unwrap() >> 32 == 0 {
            assert!(child.try_wait().unwrap().is_none(), "it ended");
            assert!(started.elapsed() < Duration::from_secs(30), "it hangs");
            std::thread::yield_now();
        }
        let lines = BufReader::new(child.stdout.take().unwrap());
        Sleeper {
            child,
            lines: Some(lines),
        }
    }
}

/// A subscriber.
pub(crate) struct Sleeper {
    pub(crate) child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Sleeper {
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let lines = self.lines.as_mut().unwrap();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "it ended");
        line.trim_end_matches('\n').to_owned()
    }

    /// Does not read any more.
    pub(crate) fn close(&mut self) {
        drop(self.lines.take());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap())
    }

    /// How it ended, what was left on its stdout, and what it said.
    pub(crate) fn ended(mut self) -> (ExitStatus, String, String) {
        let status = ended(&mut self.child);
        let mut said = String::new();
        let stderr = self.child.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut { stderr }, &mut said).unwrap();
        let mut rest = String::new();
        if let Some(lines) = &mut self.lines {
            std::io::Read::read_to_string(lines, &mut rest).unwrap();
        }
        (status, rest, said)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command with the signals as they are in a shell. Whoever runs the tests may ignore some, as a shell does for
/// what it puts into the background, or block some, which a child inherits as well.
#[expect(
    unsafe_code,
    reason = "there is no safe way to run something in the child"
)]
pub(crate) fn as_in_a_shell(program: &str) -> Command {
    let mut command = Command::new(program);
    let reset = || {
        for one in Signal::iterator() {
            // SAFETY: no handler is installed, only the default.
            match unsafe { signal(one, SigHandler::SigDfl) } {
                // KILL and STOP.
                Ok(_) | Err(Errno::EINVAL) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        // A test that is killed leaves nothing behind, stopped ones included.
        set_pdeathsig(Signal::SIGKILL)?;
        Ok(SigSet::empty().thread_set_mask()?)
    };
    // SAFETY: signal(2) and sigprocmask(2) may be called in a child of fork.
    unsafe { command.pre_exec(reset) };
    command
}

/// How it ended; panics if it has not after half a minute.
pub(crate) fn ended(child: &mut Child) -> ExitStatus {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(30) {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    panic!("it hangs");
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
