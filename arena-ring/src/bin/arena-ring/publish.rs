//! `arena-ring pub`.

use std::io::{self, BufRead, BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;

use arena_ring::{Arena, PublishError, Published, Ring, RingOptions};

use crate::args::Pub;
use crate::out::say;
use crate::peer::Known;
use crate::{Failure, exit};

/// Publishes stdin. The exit code.
pub(crate) fn publish(args: &Pub) -> Result<u8, Failure> {
    let arena = Arena::open(&args.place.arena).map_err(|error| args.place.no_arena(&error))?;
    let mut options = RingOptions::new();
    if let Some(slots) = args.slots {
        options = options.slots(slots);
    }
    if let Some(bytes) = args.slot_size {
        options = options.slot_bytes(bytes);
    }
    let ring = options
        .open(&arena, args.place.ring_bytes())
        .map_err(|error| args.place.no_ring(&error))?;
    let mut input = BufReader::with_capacity(READ_BYTES, io::stdin().lock());
    let unread = |error| Failure::new(exit::ARENA, "cannot read stdin", &error);
    let mut record = Vec::new();
    // More is as much too large as one more, and need not be kept.
    let enough = ring.max_record().saturating_add(1);
    if args.raw {
        let read = input.take(enough).read_to_end(&mut record);
        read.map_err(unread)?;
        args.place.is_still(&arena)?;
        return one(args, &ring, "the input", &record);
    }
    let mut code = 0;
    for line in 1_u64.. {
        // Reading more may take any time.
        let is_to_wait = !input.buffer().contains(&b'\n');
        if !read_line(&mut input, enough, &mut record).map_err(unread)? {
            break;
        }
        if is_to_wait {
            args.place.is_still(&arena)?;
        }
        code = code.max(one(args, &ring, format_args!("line {line}"), &record)?);
    }
    Ok(code)
}

const READ_BYTES: usize = 64 * 1024;

/// Publishes a record, or says on stderr why not. The exit code.
fn one(
    args: &Pub,
    ring: &Ring,
    what: impl std::fmt::Display,
    payload: &[u8],
) -> Result<u8, Failure> {
    let why = match ring.publish(args.topic.as_bytes(), payload) {
        Ok(Published::Committed { .. }) => return Ok(0),
        Ok(Published::Withdrawn { seq }) => {
            format!("record {seq} was given up by a reader, because it was not finished in time")
        }
        Ok(Published::Lapsed { seq }) => {
            format!("record {seq} was overtaken, once around the ring, before it was finished")
        }
        Err(PublishError::TooLarge { .. }) => {
            let most = ring.max_record();
            format!("it is too large: {most} bytes are the most, with its topic")
        }
        Err(PublishError::Blocked { by }) => {
            let by = Known::in_arena(ring.arena(), by);
            format!("unfinished records are in the way, of {by}, which is not proven dead")
        }
        Err(error @ PublishError::Contended) => error.to_string(),
        Err(error) => return Err(args.place.cannot("publish to", &error)),
    };
    say(&format!("{what} is not published: {why}"));
    Ok(exit::NOT_ALL)
}

/// Reads the next line without its newline, but no more than `enough` bytes of it; the rest of it is passed over.
/// `false`: there is none.
fn read_line(input: &mut impl BufRead, enough: u64, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = input.by_ref().take(enough).read_until(b'\n', line)?;
    match line.last() {
        Some(b'\n') => drop(line.pop()),
        Some(_) if u64::try_from(read).is_ok_and(|read| read == enough) => {
            input.skip_until(b'\n')?;
        }
        // The last line, without one.
        Some(_) => {}
        None => return Ok(false),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8], enough: u64) -> Vec<Vec<u8>> {
        let (mut input, mut line) = (BufReader::with_capacity(3, input), Vec::new());
        let mut all = Vec::new();
        while read_line(&mut input, enough, &mut line).unwrap() {
            all.push(line.clone());
        }
        all
    }

    #[test]
    fn lines_are_what_is_between_newlines_and_a_last_one_needs_none() {
        assert_eq!(lines(b"", 5), [] as [&[u8]; 0]);
        assert_eq!(lines(b"\n", 5), [b""]);
        assert_eq!(lines(b"\n\na\r\nb\0", 5), [&b""[..], b"", b"a\r", b"b\0"]);
    }

    #[test]
    fn of_a_line_that_is_too_long_enough_is_kept_to_know_it() {
        for (input, expected) in [
            (&b"abcd\nx"[..], [&b"abcd"[..], b"x"]),
            (b"abcde\nx", [b"abcde", b"x"]),
            (b"abcdefghi\nx", [b"abcde", b"x"]),
            (b"x\nabcde", [b"x", b"abcde"]),
            (b"x\nabcdefghi", [b"x", b"abcde"]),
        ] {
            assert_eq!(lines(input, 5), expected);
        }
    }
}
