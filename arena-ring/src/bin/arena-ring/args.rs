//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use arena_ring::peers::core::command::duration;
use clap::{Args, Parser, Subcommand};

use crate::place::Place;

const EXAMPLES: &str = "\
Examples:
  tail -F app.log | arena-ring pub log
      Publish each line as a record.
  arena-ring sub log | grep -i error
      Read what is published from now on. Any number of processes may, and each sees everything.
  arena-ring sub log --from-oldest --timeout 0
      What does the ring hold at the moment?
  arena-ring sub jobs --count 1 --timeout 30s --json
      Wait for one record, but not for ever.
  arena-ring stat log
      How much is published, and does somebody block it?
";

/// Publish records to a ring in memory that processes of this machine share, and read them.
#[derive(Parser, Debug)]
#[command(name = "arena-ring", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    Pub(Pub),
    Sub(Sub),
    Stat(Stat),
}

const PUB_HELP: &str = "\
A record is any bytes. Of a line it has all but the newline; an empty line is an empty record, a last line without a
newline is one too. With --raw it is the whole of the input, be it empty.

Arena and ring are made when there are none; a new arena has room for 1 MiB. The ring overwrites its oldest records and never waits for readers. A record
is published whole or not at all, also when arena-ring is killed; those that were published stay.

What is not published is told on stderr, with the number of its line, and the lines after it are published all the same:
  - it is too large: a record may take half of the ring's slots
  - there is no room, because the slots of unfinished records are in the way, whose publishers are stopped
  - this process was itself stopped in the middle of a record, and others went on without it

Exit codes: 0 all was published; 1 not all was; 64 usage; 125 the arena or the ring cannot be used (it has another shape,
there is no room for it, it was destroyed), or the input cannot be read.

Examples:
  arena-ring pub log --slots 4096 --slot-size 256 < app.log
  tar c state | arena-ring pub snapshots --topic state --raw
";

/// Publish standard input to RING, a record a line
#[derive(Args, Debug)]
#[command(after_help = PUB_HELP)]
pub(crate) struct Pub {
    #[command(flatten)]
    pub(crate) place: Place,

    /// The records' topic: any bytes
    #[arg(long, default_value = "", value_name = "T", hide_default_value = true)]
    pub(crate) topic: OsString,

    /// How many slots the ring has: 2 to 16777216. Of a new one, 1024 unless told; one with another number is refused
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<u32>,

    /// For how many bytes a slot is made: 1 to 1048576. Of a new ring, 64 unless told; one with others is refused
    #[arg(long, value_name = "B")]
    pub(crate) slot_size: Option<u32>,

    /// All of the input is one record
    #[arg(long)]
    pub(crate) raw: bool,
}

const SUB_HELP: &str = "\
Prints each record's payload and a newline, as soon as it is published; whatever else reads the ring sees it too. It is
not attached to the arena, takes no slot in it, and makes neither arena nor ring. It sleeps while there is nothing, and
at a record that is being written; if its publisher dies, the record is passed over.

With --json, one object a line; a topic or payload that is not UTF-8 is in topic_base64 or payload_base64 instead:
  seq                the record's number: larger than that of every record before it
  publisher          who published it: slot, epoch (as in `stat`)
  topic, payload     its bytes

It ends after --count records, after --timeout, and when nobody reads its output any more; INT, TERM and HUP end it as
they would without being caught. What it missed by then, of all topics, is told on stderr: records that were overwritten
before it read them, and records that were never finished.

Exit codes: 0 --count records were printed, without --count at least one, or the output was closed; 1 --timeout came
first; 64 usage; 125 there is no such arena or ring, it was destroyed or is damaged, or stdout takes no more.
";

/// Print the records of RING, from now on or from the oldest
#[derive(Args, Debug)]
#[command(after_help = SUB_HELP)]
pub(crate) struct Sub {
    #[command(flatten)]
    pub(crate) place: Place,

    /// Begin with what the ring still holds, and not with what is published from now on
    #[arg(long)]
    pub(crate) from_oldest: bool,

    /// Only records of exactly this topic (the empty one too)
    #[arg(long, value_name = "T")]
    pub(crate) topic: Option<OsString>,

    /// End after so many records
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,

    /// One JSON object a line instead of payloads
    #[arg(long)]
    pub(crate) json: bool,

    /// End when none came for so long (200ms, 0.2, 30s, 5m, 2h). What was published before it began is looked at first; 0
    /// ends after that
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

const STAT_HELP: &str = "\
Looks, and changes nothing: the arena is opened for reading, and no slot in it is taken.

In text, control characters, backslashes and bytes that are no UTF-8 are escaped (\\n, \\u{1b}, \\\\, \\xff).
With --json, one object on one line (null: unknown or none). A name that is not UTF-8 is in arena_base64, ring_base64 or
name_base64 instead:
  arena, ring        the names
  slots, slot_bytes  how many slots it has, and for how many bytes each was made
  max_record         the most bytes of a record, its topic included
  published          how many records were given a number: the newest number
  oversize           how many were refused because they were too large
  position           how many slots were ever claimed or passed over
  records_per_second during --interval; null when that is 0
  unfinished         null, or who has the oldest record that is not finished, at which readers stand: pid (in its own PID
                     namespace), name, slot, epoch, verdict (alive; dead, then readers pass over it; unknown)
  attached           the processes that are attached to the arena, each with the same fields

Exit codes: 0; 64 usage; 125 there is no such arena or ring, it cannot be read or is damaged, or stdout takes no more (a
closed pipe is no error).
";

/// Show the shape of RING, what is published, and who is there
#[derive(Args, Debug)]
#[command(after_help = STAT_HELP)]
pub(crate) struct Stat {
    #[command(flatten)]
    pub(crate) place: Place,

    /// How long to count records for the rate (200ms, 0.2, 30s, 5m, 2h); 0: no rate
    #[arg(long, default_value = "200ms", value_name = "DURATION", value_parser = duration)]
    pub(crate) interval: Duration,

    /// One JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}
