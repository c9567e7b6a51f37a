//! A database that refuses the late write of a leader of before.
//!
//! ```sh
//! cargo run --example sqlite
//! ```
//!
//! The recipe is in `sqlite/recipe.rs`: a fence beside what it protects, compared and raised by the same statement
//! that writes. `sqlite/play.rs`
//! plays the case that it is for, with real processes: a leader acquires, gets as far as
//! the line before its write, and is stopped for longer than its ttl. Another takes over and writes. The first goes
//! on, still in the belief that it leads, and writes. It exits with 1 if that write got through.

use std::path::Path;
use std::process::{Command, ExitCode};

#[path = "sqlite/play.rs"]
mod play;
#[path = "sqlite/recipe.rs"]
mod recipe;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let outcome = match &arguments[..] {
        [_, role, directory] if role == "--leader" => {
            play::first_leader(Path::new(directory)).map(|()| true)
        }
        _ => play::play(|directory| {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("--leader").arg(directory);
            Ok(command)
        }),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
