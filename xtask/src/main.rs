//! Runs, checks, measures and shows the arena crates: `cargo xtask ci`, `demo`, `test-multiproc`, `bench`.

mod bench;
mod capability;
mod child;
mod ci;
mod demo;
mod history;
mod idleness;
mod inside;
mod leftovers;
mod namespaces;
mod outcome;
mod rng;
mod roles;
mod runner;
mod scenario;
mod scenarios;
mod scratch;
mod standing;
mod stepper;
mod streams;
mod symbols;
mod text;
mod told;
mod tracee;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;

/// Builds, checks and cross-process tests of the arena crates.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Formats, lints, documents, tests and packs everything, with a summary
    Ci,
    /// Elects a leader among real processes; it is killed, stopped, and steps down, with a timeline
    Demo,
    /// Runs real processes against each other: killed, stopped, in namespaces, one instruction at a time
    TestMultiproc(runner::Options),
    /// Measures what things cost, beside references that are measured in the same run; a release build
    Bench(bench::Options),
    /// A child of this program, in one of its roles
    #[command(hide = true)]
    Child {
        /// The role and what it is given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let task = Task::parse();
    if let Task::Child { args } = task {
        scratch::undisturbed();
        return exit(roles::play(args));
    }
    // Cargo hands the signal mask on to what it runs, and ci has no directories of its own to remove.
    if !matches!(task, Task::Ci) {
        scratch::clean_up_on_signals();
    }
    let good = match task {
        Task::Ci => ci::run(),
        Task::Demo => demo::run(),
        Task::TestMultiproc(options) => options.list_or_run(),
        Task::Bench(options) => options.run(),
        Task::Child { .. } => unreachable!("a child returned above"),
    };
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn exit(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
