//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  arena ls
      The arenas of this user.
  arena show default
      What is in it, and who is attached.
  arena show default --json | jq .attached
  arena rm default
      Remove it, unless somebody is attached.
  arena show /run/jobs/arena --mode 0660
      An arena that a group shares.

Exit codes: 0; 1 there is no such arena, or (rm) processes are attached; 64 usage; 125 the arena cannot be used, or a
file not be read.
";

/// List, show and remove the arenas in which processes of this machine meet.
#[derive(Parser, Debug)]
#[command(name = "arena", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,

    /// Where short names are looked for
    #[arg(
        long,
        global = true,
        default_value = "/dev/shm",
        value_name = "DIRECTORY"
    )]
    pub(crate) directory: PathBuf,

    /// Accept an arena that others may write to as this mode (octal) permits: 0660 for one that a group shares
    #[arg(long, global = true, default_value = "0600", value_name = "MODE", value_parser = mode)]
    pub(crate) mode: u32,

    /// Accept an arena that belongs to the user of this number, besides one's own and root's
    #[arg(long, global = true, value_name = "UID")]
    pub(crate) allow_owner: Option<u32>,
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok();
    let mode = mode.filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} is no mode: write 0600 or 0660"))
}

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// List the arenas of this user in the directory: name, attached processes, length, regions or what is wrong
    Ls,
    Show(Show),
    Rm(Rm),
}

const SHOW_HELP: &str = "\
Looks, and changes nothing: the arena is opened for reading, and no slot in it is taken.

With --json, one object on one line (null: unknown or none; a name that is not UTF-8 is in …_base64):
  arena, path        the name as given, and the file
  usable             whether a process of this version of the library can attach
  wrong              null, or why not: reason (a word), found, expected (null where there is nothing to compare),
                     message
  destroyed          whether it was destroyed, and its name not yet removed
  format             the format's version, and
  fingerprint        of the layout, in hexadecimal
  created            when it was made, in seconds since 1970
  len_bytes          the length of the file
  slots, attached    how many processes can be attached, and how many are: by the locks on the bytes of the file, also
                     for an arena that is refused
  regions            of each: name, kind (in hexadecimal), offset, len_bytes
  refused_regions    entries that say what cannot be
  attachments        of each: slot, epoch, state (how far it had come: joining, ready, leaving), byte (held: its program
                     exists; free: it is dead, and the next process that looks for a slot clears the row away;
                     unknown), pid (in its own PID namespace), name, joined (in seconds of the boot clock), missing
                     (what it does without: pidfd_identity; identity, when its row is not whole)
  missing            protections that this system lacks: pidfd, pidfd_identity (a unique pidfd inode), process_mrelease,
                     futex_waitv, robust_list

Exit codes: 0 usable; 1 there is no such arena; 64 usage; 125 it is refused, and shown as far as it can be read.
";

/// Show what is in an arena, who is attached, and what is wrong with it
#[derive(Args, Debug)]
#[command(after_help = SHOW_HELP)]
pub(crate) struct Show {
    /// A name (each user has his own), or a path with a '/'
    pub(crate) name: OsString,

    /// One JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

const RM_HELP: &str = "\
An arena that is removed holds nothing from then on; processes that are still attached are told so at their next call.
Its fences are remembered, so that the next arena of the name issues larger ones. One that this version of the library
refuses (another format, damaged) is unlinked only, and only with --force: its fences cannot be read then, and the next
ones are larger because the clock goes forward.
A file that does not begin as an arena does is never removed. One that a group shares needs --mode 0660, and its owner,
or root, to remove it.

Exit codes: 0 removed; 1 there is no such arena, or processes are attached to it, or what one started goes on; 64
usage; 125 it cannot be removed.
";

/// Remove an arena; refused while processes are attached
#[derive(Args, Debug)]
#[command(after_help = RM_HELP)]
pub(crate) struct Rm {
    /// A name (each user has his own), or a path with a '/'
    pub(crate) name: OsString,

    /// Also while processes are attached, and also if this version of the library cannot use it
    #[arg(long)]
    pub(crate) force: bool,
}
