//! What is told: on stdout, on stderr, and names in both.

use std::io::{self, ErrorKind, Write as _};

use crate::{Failure, exit};

/// Whether stdout took something.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    Yes,
    /// Whoever read it has gone away, which is no error.
    NobodyReads,
}

/// Writes to stdout.
pub(crate) fn print(bytes: &[u8]) -> Result<Taken, Failure> {
    let mut out = io::stdout().lock();
    taken(out.write_all(bytes).and_then(|()| out.flush()))
}

/// What it means how writing to stdout ended: that there is no room is an error.
pub(crate) fn taken(written: io::Result<()>) -> Result<Taken, Failure> {
    match written {
        Ok(()) => Ok(Taken::Yes),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Taken::NobodyReads),
        Err(error) => Err(Failure::new(exit::ARENA, "cannot write to stdout", &error)),
    }
}

/// Says something on stderr.
pub(crate) fn say(what: &str) {
    // Nobody is left to be told that it cannot be said.
    let _ = io::stderr().write_all(format!("arena-ring: {what}\n").as_bytes());
}
