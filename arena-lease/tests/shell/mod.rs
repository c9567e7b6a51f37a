//! The command as a shell starts it, on an arena of its own.
#![allow(dead_code, reason = "each of the test files uses a part")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::unistd::{Pid, setsid};

pub(crate) const BIN: &str = env!("CARGO_BIN_EXE_arena-lease");

pub(crate) struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        Self { directory }
    }

    pub(crate) fn arena(&self) -> PathBuf {
        self.file("arena")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = as_in_a_shell(BIN);
        command
            .args(args)
            .env("ARENA_NAME", self.arena())
            .env_remove("ARENA_FENCE");
        command
    }

    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub(crate) fn code(&self, args: &[&str]) -> i32 {
        let output = self.output(args);
        output.status.code().unwrap_or_else(|| panic!("{output:?}"))
    }

    pub(crate) fn stdout(&self, args: &[&str]) -> String {
        String::from_utf8(self.output(args).stdout).unwrap()
    }

    /// `run x …` whose CMD says that it runs; returns after that.
    pub(crate) fn running(
        &self,
        options: &[&str],
        script: &str,
    ) -> (Child, BufReader<ChildStdout>) {
        let script = format!("echo running; {script}");
        let mut command = self.command(&["run", "x"]);
        command.args(options).args(["--", "sh", "-c", &script]);
        started(command)
    }
}

/// Starts what says that it runs, and returns after that.
pub(crate) fn started(mut command: Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "running\n");
    (child, lines)
}

/// A command with the signals as they are in a shell, in a session of its own. Whoever runs the tests may ignore some, as a shell does for
/// what it puts into the background, or block some, which a child inherits as well; CMD would then be deaf to them.
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
        // Without the terminal that the tests may be run from.
        setsid()?;
        Ok(SigSet::empty().thread_set_mask()?)
    };
    // SAFETY: signal(2), prctl(2), setsid(2) and sigprocmask(2) may be called in a child of fork.
    unsafe { command.pre_exec(reset) };
    command
}

pub(crate) fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
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
