//! The peers that scenarios are played by: children that attached and obey.

use crate::{
    child::{Child, Plan},
    outcome::{Outcome, Stop, ensure},
    scenario::Run,
};

/// A child that is attached to an arena.
#[derive(Debug)]
pub(super) struct Peer {
    /// Who it is in the arena: `SLOT.GENERATION`.
    pub(super) id: String,
    /// The process.
    pub(super) child: Child,
}

impl Peer {
    /// A peer of the arena at `arena` in the run's directory, with the usual options.
    pub(super) fn new(run: &Run) -> Outcome<Self> {
        Self::started(run, Plan::new("peer").arg("").arg(run.path("arena")))
    }

    /// A peer by another plan, which names a role that says `peer ID`.
    pub(super) fn started(run: &Run, plan: Plan) -> Outcome<Self> {
        let mut child = run.start(plan)?;
        let id = child.expect("peer")?;
        ensure!(!id.starts_with("refused"), "a peer could not attach: {id}");
        Ok(Self { id, child })
    }

    /// Tells it a line and gives its answer.
    pub(super) fn ask(&mut self, line: &str) -> Outcome<String> {
        let verb = line.split(' ').next().unwrap_or(line);
        self.child.ask(line, verb)
    }

    /// Asks, and fails unless the answer is as it must be.
    pub(super) fn must(&mut self, line: &str, right: &str) -> Outcome {
        let answer = self.ask(line)?;
        ensure!(
            answer == right,
            "{line:?} was answered {answer:?} by {}, right is {right:?}",
            self.id
        );
        Ok(())
    }

    /// Ends it by its clean way out.
    pub(super) fn leave(mut self) -> Outcome {
        self.child.tell("end")?;
        let status = self.child.reap()?;
        ensure!(status.success(), "a peer that left ended with {status}");
        Ok(())
    }
}

/// Fails, with what was found and what is right, unless they are equal.
pub(super) fn same(what: &str, found: &str, right: &str) -> Outcome {
    if found == right {
        return Ok(());
    }
    Err(Stop::failed(format!(
        "{what}: found {found:?}, right is {right:?}"
    )))
}
