//! `arena-ring sub`.

use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arena_ring::peers::core::command::json::Object;
use arena_ring::{ArenaOptions, Cursor, ReadError, Record, Ring};

use crate::args::Sub;
use crate::ending::Ending;
use crate::out::{Taken, print};
use crate::{Failure, exit};

/// How many bytes are written at once while there is more to read.
const WRITE_BYTES: usize = 32 * 1024;

/// How often a sleeper looks whether the arena is still the one of its name.
const LOOK: Duration = Duration::from_secs(1);

/// Prints records. The exit code.
pub(crate) fn subscribe(args: &Sub) -> Result<u8, Failure> {
    let opened = ArenaOptions::new().unattached(&args.place.arena);
    let arena = opened.map_err(|error| args.place.no_arena(&error))?;
    let ring = args
        .place
        .found(Ring::find(&arena, args.place.ring_bytes()))?;
    let cursor = match args.from_oldest {
        false => Ok(ring.cursor()),
        true => ring.cursor_from_oldest(),
    };
    let cursor = cursor.map_err(|error| args.place.cannot("read", &error))?;
    let ending = Ending::start(args.place.shown());
    let ending = ending.map_err(|error| Failure::new(exit::ARENA, "cannot wait", &error))?;
    let stats = cursor.stats();
    let mut subscriber = Subscriber {
        args,
        newest: stats.next + stats.pending - 1,
        cursor,
        ending,
        unwritten: Vec::new(),
        printed: 0,
    };
    let end = subscriber.run();
    // What was printed before something went wrong is not lost.
    let written = match end {
        Ok(End::NobodyReads) => Ok(Taken::NobodyReads),
        _ => subscriber.write(),
    };
    subscriber.ending.over(subscriber.cursor.stats());
    match (end?, written?) {
        (End::Complete | End::NobodyReads, _) | (_, Taken::NobodyReads) => Ok(0),
        (End::Silence, _) if args.count.is_none() && subscriber.printed > 0 => Ok(0),
        (End::Silence, _) => Ok(exit::NOT_ALL),
    }
}

struct Subscriber<'a> {
    args: &'a Sub,
    /// The number of the newest record when it began.
    newest: u64,
    cursor: Cursor,
    ending: Arc<Ending>,
    /// Whole lines.
    unwritten: Vec<u8>,
    printed: u64,
}

/// Why no more is printed.
enum End {
    /// As many as were asked for.
    Complete,
    /// None for so long.
    Silence,
    NobodyReads,
}

impl Subscriber<'_> {
    fn run(&mut self) -> Result<End, Failure> {
        let args = self.args;
        let mut last = Instant::now();
        let mut is_idle = false;
        while args.count != Some(self.printed) {
            let left = args.timeout.map(|time| time.saturating_sub(last.elapsed()));
            let is_to_rest =
                is_idle || self.unwritten.len() >= WRITE_BYTES || self.ending.is_asked();
            if is_to_rest {
                if self.write()? == Taken::NobodyReads {
                    return Ok(End::NobodyReads);
                }
                self.ending.rest(self.cursor.stats());
            }
            let found = match is_idle {
                true => self
                    .cursor
                    .next_timeout(Some(left.unwrap_or(LOOK).min(LOOK))),
                false => self.cursor.next(),
            };
            if is_to_rest {
                self.ending.go_on();
            }
            let is_old = match found {
                Ok(Some(record)) => {
                    is_idle = false;
                    if is_wanted(args, &record) {
                        append(args, &record, &mut self.unwritten);
                        self.printed += 1;
                        last = Instant::now();
                        continue;
                    }
                    record.seq <= self.newest
                }
                Ok(None) if !is_idle => {
                    is_idle = true;
                    continue;
                }
                Ok(None) => {
                    args.place.is_still(self.cursor.ring().arena())?;
                    false
                }
                Err(ReadError::Contended) => false,
                Err(error) => return Err(args.place.cannot("read", &error)),
            };
            if !is_old && left.is_some_and(|left| left.is_zero()) {
                return Ok(End::Silence);
            }
        }
        Ok(End::Complete)
    }

    /// Writes out what it holds.
    fn write(&mut self) -> Result<Taken, Failure> {
        let taken = match self.unwritten.is_empty() {
            true => Ok(Taken::Yes),
            false => print(&self.unwritten),
        };
        self.unwritten.clear();
        taken
    }
}

fn is_wanted(args: &Sub, record: &Record<'_>) -> bool {
    let topic = args.topic.as_ref();
    topic.is_none_or(|topic| topic.as_bytes() == record.topic)
}

/// A record's line.
fn append(args: &Sub, record: &Record<'_>, lines: &mut Vec<u8>) {
    match args.json {
        false => lines.extend_from_slice(record.payload),
        true => lines.extend_from_slice(json(record).as_bytes()),
    }
    lines.push(b'\n');
}

/// The object that `--help` describes.
fn json(record: &Record<'_>) -> String {
    let publisher = Object::new()
        .field("slot", Some(record.publisher.slot()))
        .field("epoch", Some(record.publisher.generation()))
        .end();
    Object::new()
        .field("seq", Some(record.seq))
        .field("publisher", Some(publisher))
        .bytes("topic", Some(record.topic))
        .bytes("payload", Some(record.payload))
        .end()
}
