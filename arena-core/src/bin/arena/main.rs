//! `arena`: list, show and remove the arenas of a machine.

mod args;
mod list;
mod look;
mod remove;
mod show;

use std::io::{ErrorKind as Io, Write as _};
use std::process::ExitCode;

use arena_core::{ArenaOptions, OpenError, command};
use clap::Parser as _;
use clap::error::ErrorKind;

use args::{Cli, Verb};

/// What the exit codes mean.
mod exit {
    /// There is no such arena, or it is in use.
    pub(crate) const NO: u8 = 1;
    /// The command line cannot be.
    pub(crate) const USAGE: u8 = 64;
    /// The arena cannot be used.
    pub(crate) const ARENA: u8 = 125;
}

/// A reason to end, told on stderr.
struct Failure {
    code: u8,
    why: String,
}

impl Failure {
    /// An arena that was not looked at.
    fn of(error: &OpenError) -> Self {
        let code = match error {
            OpenError::NotFound { .. } => exit::NO,
            OpenError::Name { .. } => exit::USAGE,
            _ => exit::ARENA,
        };
        let why = with_causes(error);
        Self { code, why }
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing is left to be done when the terminal is gone.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(exit::USAGE),
            };
        }
    };
    let options = ArenaOptions::new().directory(&cli.directory).mode(cli.mode);
    let options = match cli.allow_owner {
        Some(owner) => options.allow_owner(owner),
        None => options,
    };
    let outcome = match &cli.verb {
        Verb::Ls => list::ls(&options, &cli.directory),
        Verb::Show(args) => show::show(&options, args),
        Verb::Rm(args) => remove::rm(&options, args),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "arena: {}", plain(&failure.why));
            ExitCode::from(failure.code)
        }
    }
}

/// Prints, and does not mind when whoever reads it went away.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != Io::BrokenPipe => Err(Failure {
            code: exit::ARENA,
            why: format!("cannot write: {error}"),
        }),
        _ => Ok(()),
    }
}

/// The error and what caused it.
fn with_causes(error: &dyn std::error::Error) -> String {
    plain(&command::with_causes(error))
}

/// Without what moves a cursor or begins a line: names are others' to choose.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for char in text.chars() {
        match char.is_control() {
            true => out.extend(char.escape_default()),
            false => out.push(char),
        }
    }
    out
}
