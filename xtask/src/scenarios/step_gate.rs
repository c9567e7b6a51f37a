//! A process killed, or left stopped, after every instruction of entering and leaving a gate.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use arena_core::Arena;
use arena_lease::{Enter, Gate, GateGuard};

use super::step::{step, swept};
use crate::{
    outcome::{Outcome, Stop, ensure},
    roles::peer::options,
    scenario::{Run, Scenario},
    stepper::{Point, Section},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    step(
        "wherever_one_that_enters_a_gate_ends_or_stands_a_newer_fence_is_inside_alone",
        "L1",
        |run| swept(run, &mut Gated::new(run, "enter")?),
    ),
    step(
        "wherever_one_that_leaves_a_gate_ends_or_stands_a_newer_fence_is_inside_alone",
        "L1",
        |run| swept(run, &mut Gated::new(run, "leave-gate")?),
    ),
];

/// Goal: no older fence is inside beside a newer one, and one that died inside delays nobody. Method: at each point this
/// process shows a newer fence, and stays inside until the child has come to its end.
#[derive(Debug)]
struct Gated {
    operation: &'static str,
    path: PathBuf,
    arena: Arena,
    gate: Gate,
    /// The child's; this process shows the next one.
    fence: u64,
    inside: Option<GateGuard>,
}

impl Gated {
    fn new(run: &Run, operation: &'static str) -> Outcome<Self> {
        let path = run.path("arena");
        let arena = options().open(&path)?;
        Ok(Self {
            operation,
            gate: Gate::open(&arena, "ledger")?,
            path,
            arena,
            fence: 1,
            inside: None,
        })
    }

    fn show_newer(&mut self) -> Outcome<Option<arena_lease::PeerId>> {
        match self.gate.enter(self.fence + 1, Duration::ZERO)? {
            Enter::Entered(guard) => {
                self.inside = Some(guard);
                Ok(None)
            }
            Enter::Busy { by, .. } => Ok(Some(by)),
            Enter::Stale { newest } => Err(Stop::failed(format!(
                "fence {} is refused: {newest} was shown",
                self.fence + 1
            ))),
        }
    }
}

impl Section for Gated {
    fn name(&self) -> &'static str {
        self.operation
    }

    fn prepare(&mut self, _run: &mut Run, _slow: bool) -> Outcome<String> {
        self.inside = None;
        self.fence += 2;
        Ok(format!("{} {}", self.path.display(), self.fence))
    }

    fn shared_file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn judge(&mut self, point: &Point) -> Outcome {
        let Some(by) = self.show_newer()? else {
            return Ok(());
        };
        let row = self.arena.attachment(by.slot());
        let identity = row.filter(|row| row.id == by).and_then(|row| row.identity);
        let pid = identity.map(|identity| i64::from(identity.pid));
        ensure!(
            point.stands() && pid == Some(point.child.as_raw().into()),
            "kept out by {by}, which is not a child that stands still"
        );
        Ok(())
    }

    fn finished(&mut self, result: &str) -> Outcome {
        let newer = format!("stale {}", self.fence + 1);
        let right = match (&self.inside, self.operation) {
            (Some(_), "enter") => result == newer,
            // It was inside when the newer fence was shown, or came before anybody showed one.
            (None, "enter") => result == "entered",
            _ => result == "left",
        };
        ensure!(
            right,
            "it said {result:?}, and the newer one is inside: {}",
            self.inside.is_some()
        );
        Ok(())
    }

    fn over(&mut self) -> Outcome {
        if self.inside.is_none() {
            let by = self.show_newer()?;
            ensure!(by.is_none(), "kept out by one that is gone");
        }
        let newest = self.gate.state().map(|state| (state.newest, state.guards));
        ensure!(
            newest == Some((self.fence + 1, 1)),
            "the gate shows {newest:?}"
        );
        self.inside = None;
        self.arena.reap();
        Ok(())
    }
}
