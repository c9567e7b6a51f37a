//! What is told: on stdout, on stderr, and names in both.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;

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

/// A name for people: without what would move their cursor, and so that no two names look the same.
pub(crate) fn shown(name: &OsStr) -> String {
    let mut out = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => out.push_str("\\\\"),
                _ if char.is_control() => out.extend(char.escape_default()),
                _ => out.push(char),
            }
        }
        out.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_bytes_and_bytes_that_are_no_text_are_escaped() {
        for (name, text) in [
            (&b"log \xc3\xa4"[..], "log ä"),
            (b"\x1b[2J\n\x7f", "\\u{1b}[2J\\n\\u{7f}"),
            (b"\xc2\x9b", "\\u{9b}"),
            (b"a\xff\\", "a\\xff\\\\"),
        ] {
            assert_eq!(shown(OsStr::from_bytes(name)), text);
        }
    }
}
