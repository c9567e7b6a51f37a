//! `cargo xtask bench`: what things cost, each beside a reference that is measured in the same run. Never a gate.

mod idle;
mod machine;
mod series;
mod takeover;
mod verbs;

use std::{
    ffi::OsStr,
    process::{Command, Stdio},
};

use crate::{
    outcome::{Outcome, Stop},
    scratch::Scratch,
};
use series::Series;

/// What to measure, and how often.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Names of figures, groups of figures (verbs, takeover, idle), or parts of them; none: all
    names: Vec<String>,
    /// How often each figure is taken, in turn with the others of its group (default: 200, and 20 for large holders)
    #[arg(long)]
    rounds: Option<u32>,
    /// Also takeovers from holders with 1 GiB of memory resident
    #[arg(long)]
    large: bool,
}

/// A group of figures that are taken in turn.
struct Group {
    name: &'static str,
    figures: &'static [&'static str],
    /// How often, unless told.
    rounds: u32,
    /// The first series that it gives is the reference of the others.
    run: fn(&Scratch, u32) -> Outcome<Vec<Series>>,
}

const GROUPS: &[Group] = &[
    Group {
        name: "verbs",
        figures: verbs::FIGURES,
        rounds: 200,
        run: verbs::measure,
    },
    Group {
        name: "takeover",
        figures: &["takeover-flock", "takeover-lease", "takeover-standby"],
        rounds: 200,
        run: takeover::small,
    },
    Group {
        name: "idle",
        figures: &["idle-flock", "idle-lease", "idle-standby"],
        rounds: 1,
        run: idle::measure,
    },
];

const LARGE: Group = Group {
    name: "takeover-large",
    figures: &[
        "takeover-flock-1GiB",
        "takeover-lease-1GiB",
        "takeover-standby-1GiB",
    ],
    rounds: 20,
    run: takeover::large,
};

impl Options {
    /// Measures and prints; false when something could not be measured. A debug build first becomes a release build.
    pub(crate) fn run(&self) -> bool {
        if cfg!(debug_assertions) {
            return released();
        }
        let mut groups: Vec<&Group> = GROUPS.iter().collect();
        if self.large {
            groups.insert(2, &LARGE);
        }
        groups.retain(|group| self.wants(group));
        if groups.is_empty() {
            eprintln!("no figure is called {}", self.names.join(", "));
            return false;
        }
        machine::describe();
        series::heading();
        let mut good = true;
        for group in groups {
            good &= self.group(group);
        }
        good
    }

    fn wants(&self, group: &Group) -> bool {
        let wanted = |name: &String| {
            let part = |of: &&str| of.contains(name.as_str());
            group.name.contains(name.as_str()) || group.figures.iter().any(part)
        };
        self.names.is_empty() || self.names.iter().any(wanted)
    }

    fn group(&self, group: &Group) -> bool {
        let rounds = self.rounds.unwrap_or(group.rounds).max(1);
        let scratch = match Scratch::new(&format!("bench.{}", group.name)) {
            Ok(scratch) => scratch,
            Err(e) => {
                println!("{}: no directory for it: {e}", group.name);
                return false;
            }
        };
        match (group.run)(&scratch, rounds) {
            Ok(measured) => {
                series::show(&measured);
                true
            }
            Err(Stop::Failed(reason) | Stop::Skipped(reason)) => {
                println!("{}: not measured: {reason}", group.name);
                false
            }
        }
    }
}

/// The same command by a release build.
fn released() -> bool {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--release", "--quiet", "--package", "xtask", "--"].map(OsStr::new))
        .args(std::env::args_os().skip(1))
        .stdin(Stdio::null())
        .status();
    match status {
        Ok(status) => status.success(),
        Err(e) => {
            eprintln!("no release build: {e}");
            false
        }
    }
}
