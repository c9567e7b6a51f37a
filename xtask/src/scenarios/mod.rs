//! The table of scenarios. Each says its goal and its method, then the code.

mod arena;
mod calls;
mod cast;
mod crowds;
mod harness;
mod hostile;
mod lease;
mod lock;
mod peers;
mod places;
mod races;
mod ring;
mod slow_death;
mod step;
mod step_gate;
mod step_lease;
mod step_line;
mod step_ring;
mod succession;

use crate::scenario::Scenario;

/// All of them, in the order in which they run.
pub(crate) fn all() -> Vec<Scenario> {
    [
        harness::SCENARIOS,
        arena::SCENARIOS,
        hostile::SCENARIOS,
        lock::SCENARIOS,
        peers::SCENARIOS,
        lease::SCENARIOS,
        slow_death::SCENARIOS,
        calls::SCENARIOS,
        races::SCENARIOS,
        crowds::SCENARIOS,
        places::SCENARIOS,
        succession::SCENARIOS,
        step::SCENARIOS,
        step_lease::SCENARIOS,
        step_gate::SCENARIOS,
        step_line::SCENARIOS,
        &ring::scenarios(),
        step_ring::SCENARIOS,
    ]
    .concat()
}
