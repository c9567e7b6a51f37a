//! `arena-lease`: run a command while a lease is held, and see who holds it.
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "both panic when nobody reads; see `out`"
)]

mod arena;
mod args;
mod child;
mod descendants;
mod fate;
mod gate;
mod list;
mod out;
mod places;
mod run;
mod status;
mod terminal;
mod watch;

use std::io::Write as _;
use std::process::ExitCode;

use arena_lease::peers::core::command::with_causes;
use clap::Parser as _;
use clap::error::ErrorKind;

use args::{Cli, Verb};
use out::unwritten;

/// What the command's exit codes mean, beside CMD's own.
mod exit {
    /// Somebody else holds (or `-E`).
    pub(crate) const NOT_ACQUIRED: u8 = 1;
    /// The command line cannot be.
    pub(crate) const USAGE: u8 = 64;
    /// `--latest`: another has just entered.
    pub(crate) const ENTRY_TAKEN: u8 = 121;
    /// `--latest`: a newer one waits instead.
    pub(crate) const REPLACED: u8 = 122;
    /// The lease was lost while CMD ran; CMD was ended.
    pub(crate) const LOST: u8 = 123;
    /// The arena, or the lease in it, cannot be used.
    pub(crate) const ARENA: u8 = 125;
    /// CMD is there and cannot be executed.
    pub(crate) const NOT_EXECUTABLE: u8 = 126;
    /// CMD is not there.
    pub(crate) const NOT_FOUND: u8 = 127;
    /// CMD died of signal n: this plus n.
    pub(crate) const SIGNAL: u8 = 128;
}

/// A reason to end, told on stderr.
struct Failure {
    code: u8,
    why: String,
}

impl Failure {
    /// `what` could not be done because of `error` and its causes.
    fn new(code: u8, what: &str, error: &dyn std::error::Error) -> Self {
        let why = format!("{what}: {}", with_causes(error));
        Self { code, why }
    }
}

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => match cli.verb {
            Verb::Run(args) => run::run(&args),
            Verb::Status(args) => status::status(&args),
            Verb::List(args) => list::list(&args),
            Verb::Watch(args) => watch::watch(&args),
            Verb::Gate(args) => gate::gate(&args),
        },
        Err(error) => match (error.kind(), error.print()) {
            (ErrorKind::DisplayHelp | ErrorKind::DisplayVersion, Ok(())) => Ok(0),
            (ErrorKind::DisplayHelp | ErrorKind::DisplayVersion, Err(error)) => {
                unwritten(&error).map(|()| 0)
            }
            // Nothing is left to be done when the terminal is gone.
            (_, _) => Ok(exit::USAGE),
        },
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            // Likewise.
            let _ = writeln!(std::io::stderr(), "arena-lease: {}", failure.why);
            ExitCode::from(failure.code)
        }
    }
}
