//! The command line.

use std::ffi::OsString;
use std::num::NonZeroU16;
use std::time::Duration;

use arena_lease::Ttl;
use arena_lease::peers::core::command::duration;
use clap::{Args, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  arena-lease run nightly -n -- /usr/local/bin/backup --full
      Back up, unless another process on this machine is doing so.
  arena-lease run leader -- my-worker
      Start one on every terminal: one works, the others wait; when it ends or is killed, one of them goes on.
  arena-lease run deploy -w 5m -E 75 -- ./deploy.sh
      Wait for up to five minutes for another deployment; exit with 75 if it takes longer.
  arena-lease run ingest -- sh -c 'psql -v fence=\"$ARENA_FENCE\" -f ingest.sql'
      Hand the fence to what must not be written by a leader of before.
  arena-lease status nightly --json
      Who holds it?
";

/// Run a command while a lease is held: one holder on this machine at a time, a successor when it ends, dies or
/// hangs up.
#[derive(Parser, Debug)]
#[command(name = "arena-lease", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    Run(Run),
    Status(Status),
    List(List),
    Watch(Watch),
    Gate(Gate),
}

const RUN_HELP: &str = "\
CMD is executed without a shell; its arguments reach it byte for byte. It finds in its environment:
  ARENA_NAME    the arena, also the default of --arena
  ARENA_LEASE   the lease; of a limit, that of the place, for example NAME#2
  ARENA_FENCE   a number that is larger than that of every earlier holder of NAME: let what CMD writes to refuse
                smaller ones

While CMD runs, the lease is renewed three times a ttl. When CMD ends it is released, also when CMD left processes
behind, unless --wait-children. TERM, INT, HUP, QUIT, USR1 and USR2 are passed on to CMD.

CMD has a process group of its own, which reads from the terminal if arena-lease did: Ctrl-C and Ctrl-Z reach it as
without the wrapper; when it dies of Ctrl-C, so does arena-lease. In a pipeline on a terminal (stdin or stdout is a
pipe: `arena-lease run … | less`) CMD stays in the group of the pipeline, so that every part of it may read from the
terminal. Ctrl-Z stops nothing where no shell above would let it go on.

If the lease is lost all the same (renewals were held up; arena-lease was stopped for longer than the ttl; the arena was
destroyed or its file removed, which is noticed three times a ttl), CMD and its group get TERM, and KILL before the
deadline, or at once when it has passed (see --grace). A *stopped* arena-lease, by Ctrl-Z too, renews and ends nothing:
then only ARENA_FENCE protects.

If arena-lease itself is killed, the kernel kills CMD (unless CMD is set-user-ID, as sudo is), but not what CMD started.
The lease passes on when both arena-lease and CMD are gone, or the ttl is over. In another PID namespace, such as
another container, CMD cannot be seen, but a descriptor that it inherits can: there the lease passes on when all who
inherited it are gone, children of CMD that it left behind included, or the ttl is over. If CMD closes it (sudo does),
that is noticed at the next renewal, and then only the ttl counts there.

CMD inherits what arena-lease was given, signals that are ignored or blocked included, and that one descriptor; SIGPIPE
alone is never ignored.

With --limit N, up to N run at once. All callers must name the same numbers: another one is refused while any runs or
waits, and is the new one for all when none does. --standby M lets at most M wait; one more is not acquired at once.
With --latest one runs, and of those who wait the newest takes over: a rolling restart is to start the new one and to end
the old. An older one that waits ends when a newer one comes (122), and a newer one that comes while another is
just entering ends at once (121). With -n, each of these runs at once or not at all, and makes nobody who waits bow out; -w
limits the wait.

Exit codes:
  CMD's own     CMD ran; 128 + n if it died of signal n
  1             not acquired: held by another process, or kept by its last holder's --min-hold (-E chooses another
                code; -v says which); of a limit: all places are taken, those to wait at included
  64            usage
  121           --latest: another was just entering
  122           --latest: a newer one waits instead
  123           the lease was lost while CMD ran
  125           the arena or the lease cannot be used
  126, 127      CMD cannot be executed; there is no CMD

Examples:
  arena-lease run nightly -n -- /usr/local/bin/backup --full
  arena-lease run deploy -w 5m -E 75 -- ./deploy.sh
  arena-lease run thumbnails --limit 4 --standby 10 -- ./thumbnails.sh
  arena-lease run indexer --latest -- ./indexer
";

/// Run CMD while the lease NAME is held; wait for it if another process holds it
#[derive(Args, Debug)]
#[command(after_help = RUN_HELP)]
pub(crate) struct Run {
    /// The lease: 1 to 96 bytes
    pub(crate) name: OsString,

    /// The arena: a name (each user has his own), or a path with a '/'. Made when there is none
    #[arg(long, env = "ARENA_NAME", default_value = "default", value_name = "A")]
    pub(crate) arena: OsString,

    /// How long a successor waits at most for a holder that hangs. (For one that died it does not wait.)
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = ttl)]
    pub(crate) ttl: Duration,

    /// Let nobody acquire before it was held for so long, however soon CMD ends. If the wrapper dies it passes on at
    /// once
    #[arg(long, default_value = "0", value_name = "DURATION", value_parser = duration, hide_default_value = true)]
    pub(crate) min_hold: Duration,

    /// Let N run at once, each at a place of its own
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<NonZeroU16>,

    /// Let M more wait, and no others
    #[arg(long, value_name = "M", requires = "limit")]
    pub(crate) standby: Option<NonZeroU16>,

    /// Let one run, and the newest of those who wait take over
    #[arg(long, conflicts_with_all = ["limit", "standby"])]
    pub(crate) latest: bool,

    /// Do not wait: exit at once if another process holds the lease
    #[arg(short = 'n', long = "no-wait", conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// Wait for so long at most (200ms, 0.2, 30s, 5m, 2h); 0 is -n. Without -n and -w: for ever
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// Exit with CODE if the lease was not acquired
    #[arg(short = 'E', long = "conflict-exit-code", value_name = "CODE",
        default_value_t = crate::exit::NOT_ACQUIRED)]
    pub(crate) conflict: u8,

    /// When the lease is lost, leave CMD so long between TERM and KILL. Unset: what is left of the ttl. Set, a
    /// successor may run beside CMD for so long
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) grace: Option<Duration>,

    /// Keep the lease until everything that CMD left behind has ended too
    #[arg(long)]
    pub(crate) wait_children: bool,

    /// Say on stderr what happens, with pids and fences
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

const STATUS_HELP: &str = "\
Looks, and changes nothing: the arena is opened for reading, and no slot in it is taken.

In text, control characters, backslashes and bytes that are no UTF-8 are escaped (\\n, \\u{1b}, \\\\, \\xff).
With --json, one object on one line (null: unknown). A name that is not UTF-8 is in arena_base64, lease_base64 or
name_base64 instead:
  arena, lease       the names
  held               whether a process holds it: not lapsed, not dead
  fence              the newest that was issued; null when there is no such lease
  acquires, steals   how often it changed hands; and of these, how often from a holder that had lapsed or was dead
  lapses_in_ms       until the holder's deadline, if it does not renew
  opens_in_ms        when nobody holds, and the last holder keeps it for a while: for how long; else null
  holder             null, or: pid (in its own PID namespace), name, slot, epoch, verdict (alive, unknown),
                     since (when it acquired, in seconds since 1970)
  limit              by status alone: null, or what NAME is for --limit and --latest: kind (exclusive, latest, shared),
                     places, standbys (how many may wait; of a shared one, share), and working and waiting: the places
                     that are taken, each with lease, fence, lapses_in_ms and holder; the fields above are
                     about the lease NAME itself

Exit codes: 0 whether it is held or free; 64 usage; 125 there is no such arena, it cannot be read, it or the lease is
damaged, or stdout takes no more (a closed pipe is no error).
";

/// Show who holds the lease NAME
#[derive(Args, Debug)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct Status {
    /// The lease: 1 to 96 bytes
    pub(crate) name: OsString,

    /// The arena: a name (each user has his own), or a path with a '/'
    #[arg(long, env = "ARENA_NAME", default_value = "default", value_name = "A")]
    pub(crate) arena: OsString,

    /// One JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

const LIST_HELP: &str = "\
Looks, and changes nothing: the arena is opened for reading, and no slot in it is taken.

With --json, one object a line, with the fields that `arena-lease status --help` describes.

Exit codes: 0 however many there are; 64 usage; 125 there is no such arena, it cannot be read, it or a lease is damaged
(the others are shown), or stdout takes no more (a closed pipe is no error).
";

/// Show all leases of an arena that were ever used, and who holds them
#[derive(Args, Debug)]
#[command(after_help = LIST_HELP)]
pub(crate) struct List {
    /// The arena: a name (each user has his own), or a path with a '/'
    #[arg(long, env = "ARENA_NAME", default_value = "default", value_name = "A")]
    pub(crate) arena: OsString,

    /// One JSON object a line instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

const WATCH_HELP: &str = "\
One line now, and one whenever another process holds, or nobody: after an acquisition, a release, a takeover, the
holder's death, its lapse. What is told is the state: of several changes at once the last. Between changes it sleeps.
It ends when nobody reads its output any more. It is not attached to the arena, and takes no slot in it.

With --json, one object a line, with the fields that `arena-lease status --help` describes.

Exit codes: 0 its output was closed; 64 usage; 125 there is no such arena, it was destroyed or is damaged, or stdout
takes no more.

Example:
  arena-lease watch leader --json | while read -r line; do notify \"$line\"; done
";

/// Show who holds the lease NAME, whenever that changes
#[derive(Args, Debug)]
#[command(after_help = WATCH_HELP)]
pub(crate) struct Watch {
    /// The lease: 1 to 96 bytes
    pub(crate) name: OsString,

    /// The arena: a name (each user has his own), or a path with a '/'
    #[arg(long, env = "ARENA_NAME", default_value = "default", value_name = "A")]
    pub(crate) arena: OsString,

    /// One JSON object a line instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

const GATE_HELP: &str = "\
A gate stands in front of something that a leader of before must not write any more. CMD runs only if no newer fence
than N was shown at gate NAME, and the gate stays entered until CMD ends. From the moment N is shown, older fences are
refused. Somebody who is still inside, under an older fence or in another process, is waited for; if he dies he is
followed at once, if he is stopped there he is not.

CMD is executed without a shell, its arguments reach it byte for byte. It finds in its environment ARENA_NAME (the
arena), ARENA_GATE (NAME) and ARENA_FENCE (N). TERM, INT and HUP are passed on to it. The gate is left when CMD ends,
also when CMD left processes behind. If arena-lease itself is killed, the kernel kills CMD (unless CMD is set-user-ID,
as sudo is), but not what CMD started. The next one enters when all who inherited a certain descriptor from CMD are
gone, however long that takes: CMD itself, and children that it left behind, unless they close it (as sudo does).
A gate guards what everybody writes through it, and lasts as long as its arena.

Exit codes:
  CMD's own     CMD ran; 128 + n if it died of signal n
  1             not entered: a newer fence was shown, or somebody was still inside when the time was up
  64            usage
  125           the arena or the gate cannot be used
  126, 127      CMD cannot be executed; there is no CMD

Example, inside `arena-lease run ingest -- …`:
  arena-lease gate warehouse -- ./upload.sh
";

/// Run CMD inside the gate NAME, unless a newer fence was there
#[derive(Args, Debug)]
#[command(after_help = GATE_HELP)]
pub(crate) struct Gate {
    /// The gate: 1 to 96 bytes
    pub(crate) name: OsString,

    /// The fence of whoever leads, as `run` hands it to its CMD
    #[arg(long, env = "ARENA_FENCE", value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=arena_lease::MAX_FENCE))]
    pub(crate) fence: u64,

    /// The arena: a name (each user has his own), or a path with a '/'. Made when there is none
    #[arg(long, env = "ARENA_NAME", default_value = "default", value_name = "A")]
    pub(crate) arena: OsString,

    /// How long to wait for who is inside (200ms, 0.2, 30s, 5m, 2h); 0: not at all
    #[arg(short, long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Duration,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration(text)?;
    Ttl::new(ttl).map_err(|error| error.to_string())?;
    Ok(ttl)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Result<Run, clap::Error> {
        let args = ["arena-lease", "run"].iter().chain(args);
        match Cli::try_parse_from(args)?.verb {
            Verb::Run(run) => Ok(run),
            _ => unreachable!("the verb is run"),
        }
    }

    #[test]
    fn a_ttl_of_zero_is_refused_on_the_command_line() {
        assert!(run(&["x", "--ttl", "0", "--", "true"]).is_err());
        assert!(run(&["x", "--ttl", "40000d", "--", "true"]).is_err());
        assert!(run(&["x", "--ttl", "0.5ms", "--", "true"]).is_ok());
    }

    #[test]
    fn what_follows_the_dashes_is_the_commands() {
        let run = run(&["x", "-n", "--", "cmd", "-v", "--help", "-n"]).unwrap();
        assert_eq!(run.command, ["cmd", "-v", "--help", "-n"]);
        assert!(run.no_wait && !run.verbose);
    }

    #[test]
    fn an_exit_code_outside_a_byte_is_refused() {
        for code in ["-1", "256", "x"] {
            assert!(run(&["x", "-E", code, "--", "true"]).is_err());
        }
        assert_eq!(
            run(&["x", "-E", "255", "--", "true"]).unwrap().conflict,
            255
        );
    }

    #[test]
    fn what_cannot_be_a_limit_is_refused_on_the_command_line() {
        for args in [
            &["x", "--limit", "0", "--", "true"][..],
            &["x", "--limit", "65536", "--", "true"],
            &["x", "--standby", "1", "--", "true"],
            &["x", "--limit", "1", "--standby", "0", "--", "true"],
            &["x", "--latest", "--limit", "1", "--", "true"],
        ] {
            assert!(run(args).is_err(), "{args:?}");
        }
        assert!(run(&["x", "--limit", "2", "--standby", "3", "--", "true"]).is_ok());
    }

    #[test]
    fn waiting_and_not_waiting_exclude_each_other() {
        assert!(run(&["x", "-n", "-w", "5", "--", "true"]).is_err());
        assert!(run(&["x"]).is_err(), "no command");
    }
}
