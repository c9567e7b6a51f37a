//! The child's side of the conversation: say where it is, wait for what comes next.

use std::{ffi::OsString, path::PathBuf};

use nix::{
    sys::{prctl, signal::Signal},
    unistd::{Pid, getppid, read, write},
};

use crate::child::{DIRECTORY, PARENT};

/// What a role is given: its arguments, the scenario's directory and the line to its parent.
#[derive(Debug)]
pub(crate) struct Told {
    args: std::vec::IntoIter<OsString>,
    directory: PathBuf,
}

impl Told {
    /// The conversation of this process, which is a child.
    pub(crate) fn new(args: Vec<OsString>) -> Self {
        Self {
            args: args.into_iter(),
            directory: std::env::var_os(DIRECTORY).unwrap_or_default().into(),
        }
    }

    /// The scenario's directory.
    pub(crate) fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    /// The next argument, as text.
    pub(crate) fn arg(&mut self) -> String {
        let arg = self
            .args
            .next()
            .expect("the scenario gives each argument that the role takes");
        arg.into_string().expect("arguments of roles are UTF-8")
    }

    /// The next argument, as a number.
    pub(crate) fn number(&mut self) -> u64 {
        self.arg()
            .parse()
            .expect("the scenario gives a number here")
    }

    /// Says that the child is at `point`, and does not wait.
    pub(crate) fn say(&self, point: &str) {
        let line = format!("at {point}\n");
        // One write, so that lines of a process and its fork child never mix. A parent that is gone ends us anyway.
        _ = write(std::io::stdout(), line.as_bytes());
    }

    /// Says that the child is at `point`, and waits for a line. The end of input ends the process.
    pub(crate) fn at(&self, point: &str) -> String {
        self.say(point);
        self.hear()
    }

    /// Waits for a line. The end of input ends the process.
    pub(crate) fn hear(&self) -> String {
        let mut line = Vec::new();
        loop {
            // Byte by byte: a fork child reads the same pipe, and must not find its line swallowed by our buffer.
            let mut byte = [0];
            match read(std::io::stdin(), &mut byte) {
                Ok(1) if byte[0] == b'\n' => return String::from_utf8_lossy(&line).into_owned(),
                Ok(1) => line.push(byte[0]),
                Err(nix::errno::Errno::EINTR) => {}
                Ok(_) | Err(_) => std::process::exit(0),
            }
        }
    }

    /// Waits until the parent closes the input, then ends the process by its clean way out.
    pub(crate) fn rest(&self) {
        loop {
            self.hear();
        }
    }
}

/// Makes this child die with its parent. The parent must not start children from threads that end before it does.
pub(crate) fn die_with_parent() {
    prctl::set_pdeathsig(Signal::SIGKILL).expect("a valid signal is accepted");
    let parent = std::env::var(PARENT)
        .ok()
        .and_then(|pid| pid.parse().ok())
        .map(Pid::from_raw);
    // 0: the parent is in an outer PID namespace, so that it cannot be told apart from one that ended.
    if getppid().as_raw() != 0 && parent.is_some_and(|parent| parent != getppid()) {
        std::process::exit(1);
    }
}

/// Makes this forked child die with `parent`.
pub(crate) fn die_with(parent: Pid) {
    prctl::set_pdeathsig(Signal::SIGKILL).expect("a valid signal is accepted");
    // 0: the parent is in an outer PID namespace.
    if getppid() != parent && getppid().as_raw() != 0 {
        std::process::exit(1);
    }
}
