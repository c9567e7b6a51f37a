//! What a scenario is, and what it works with while it runs.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    child::{Child, Plan},
    outcome::Outcome,
    rng::Rng,
};

/// What a machine must offer for a scenario to be shown on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Another process can be single-stepped.
    Ptrace,
    /// PID and mount namespaces can be made.
    Namespaces,
    /// Time namespaces can be made.
    TimeNamespace,
    /// A child can run as another user.
    OtherUser,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    /// A sentence that can be false.
    pub(crate) name: &'static str,
    /// The suite that it belongs to.
    pub(crate) suite: &'static str,
    /// The cases that it shows, by their short names ("P1", "C1"); a word for what has no number.
    pub(crate) rows: &'static str,
    /// What it needs.
    pub(crate) needs: &'static [Need],
    /// How often its heart is repeated in ci, and with --full.
    pub(crate) rounds: (u32, u32),
    /// After so long it hangs.
    pub(crate) limit: Duration,
    /// Runs inside a PID namespace of its own, with its own /proc, so that it may choose pids.
    pub(crate) own_pids: bool,
    /// The scenario.
    pub(crate) run: fn(&mut Run) -> Outcome,
}

impl Scenario {
    /// A scenario without needs that runs once, for at most a minute.
    pub(crate) const fn new(
        suite: &'static str,
        rows: &'static str,
        name: &'static str,
        run: fn(&mut Run) -> Outcome,
    ) -> Self {
        let limit = Duration::from_secs(60);
        Self {
            name,
            suite,
            rows,
            needs: &[],
            rounds: (1, 1),
            limit,
            own_pids: false,
            run,
        }
    }

    /// The same with needs.
    pub(crate) const fn needs(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    /// The same with rounds in ci and with --full.
    pub(crate) const fn rounds(self, ci: u32, full: u32) -> Self {
        Self {
            rounds: (ci, full),
            ..self
        }
    }

    /// The same with another limit for a run in ci; --full has 30 times as long.
    pub(crate) const fn limit_secs(self, seconds: u64) -> Self {
        Self {
            limit: Duration::from_secs(seconds),
            ..self
        }
    }

    /// The same inside a PID namespace of its own.
    pub(crate) const fn in_own_pids(self) -> Self {
        Self {
            own_pids: true,
            needs: &[Need::Namespaces],
            ..self
        }
    }
}

/// A run of one scenario.
#[derive(Debug)]
pub(crate) struct Run {
    directory: PathBuf,
    /// The seeded generator.
    pub(crate) rng: Rng,
    /// How often to repeat.
    pub(crate) rounds: u32,
    /// Everything, instead of a sample.
    pub(crate) full: bool,
}

impl Run {
    /// A run in `directory`, which exists.
    pub(crate) fn new(directory: PathBuf, rng: Rng, rounds: u32, full: bool) -> Self {
        Self {
            directory,
            rng,
            rounds,
            full,
        }
    }

    /// The directory of this run; it is removed afterwards with what is in it.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Starts a child that plays `role` with `args`.
    pub(crate) fn child<A: Into<OsString>>(
        &self,
        role: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Outcome<Child> {
        self.start(args.into_iter().fold(Plan::new(role), Plan::arg))
    }

    /// Starts a child as planned.
    pub(crate) fn start(&self, plan: Plan) -> Outcome<Child> {
        plan.start(&self.directory)
    }

    /// Runs `body` once for each round; a failure names the round.
    pub(crate) fn each_round(
        &mut self,
        mut body: impl FnMut(&mut Self, u32) -> Outcome,
    ) -> Outcome {
        for round in 0..self.rounds {
            let end = format!("round {} of {}", round + 1, self.rounds);
            self.note(&end);
            body(self, round).map_err(|stop| stop.within(&end))?;
        }
        Ok(())
    }

    /// Says how far it is, for the case that it hangs.
    pub(crate) fn note(&self, text: &str) {
        println!("note {text}");
    }

    /// A few words behind the result: what was counted.
    pub(crate) fn detail(&self, text: &str) {
        println!("detail {text}");
    }
}
