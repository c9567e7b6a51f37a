//! `arena-ring`: publish records to a ring, read them, and see how it is.
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "both panic when nobody reads; see `out`"
)]

mod args;
mod ending;
mod out;
mod peer;
mod place;
mod publish;
mod stat;
mod subscribe;

use std::process::ExitCode;

use arena_ring::peers::core::command::with_causes;
use clap::Parser as _;
use clap::error::ErrorKind;

use args::{Cli, Verb};
use out::{Taken, say, taken};

/// What the command's exit codes mean.
mod exit {
    /// Not all that was asked for: something was not published; fewer records came.
    pub(crate) const NOT_ALL: u8 = 1;
    /// The command line cannot be.
    pub(crate) const USAGE: u8 = 64;
    /// The arena, or the ring in it, or stdin, or stdout cannot be used.
    pub(crate) const ARENA: u8 = 125;
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
            Verb::Pub(args) => publish::publish(&args),
            Verb::Sub(args) => subscribe::subscribe(&args),
            Verb::Stat(args) => stat::stat(&args),
        },
        Err(error) => match (error.kind(), error.print()) {
            (ErrorKind::DisplayHelp | ErrorKind::DisplayVersion, printed) => {
                taken(printed).map(|_: Taken| 0)
            }
            // Nothing is left to be done when the terminal is gone.
            (_, _) => Ok(exit::USAGE),
        },
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            say(&failure.why);
            ExitCode::from(failure.code)
        }
    }
}
