//! What is told: on stdout, on stderr, and names in both.

use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{Failure, exit};

/// Writes to stdout. That whoever read it has gone away is no error; that there is no room is one.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.or_else(|error| unwritten(&error))
}

/// What it means that stdout took no more.
pub(crate) fn unwritten(error: &io::Error) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Failure::new(exit::ARENA, "cannot write to stdout", error)),
    }
}

/// Says something on stderr if it is taken at once, and else does not: who does not read what a wrapper says must
/// not hold up what it does while CMD runs.
pub(crate) fn say(what: &str) {
    /// A pipe that is writable takes so much without blocking (POSIX's `PIPE_BUF`, on Linux).
    const AT_ONCE: usize = 4096;
    let line = format!("arena-lease: {what}\n");
    let mut stderr = io::stderr();
    let mut ready = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    let polled = poll(&mut ready, PollTimeout::ZERO);
    let events = ready[0].revents().unwrap_or(PollFlags::empty());
    if polled.is_ok() && events.contains(PollFlags::POLLOUT) {
        // Nobody is left to be told that it cannot be said.
        let _ = stderr.write(&line.as_bytes()[..line.len().min(AT_ONCE)]);
    }
}
