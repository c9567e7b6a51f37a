//! Rings: publishers that die, stand still or go on, readers that are overtaken, sleep or are killed.

mod cast;
mod counts;
mod deaths;
mod waiting;

use crate::scenario::Scenario;

/// All of them.
pub(super) fn scenarios() -> Vec<Scenario> {
    [deaths::SCENARIOS, counts::SCENARIOS, waiting::SCENARIOS].concat()
}
