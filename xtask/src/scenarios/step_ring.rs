//! A process killed, or left stopped, after every instruction of publishing in a ring and of reading from it.

mod play;
mod publishing;
mod reading;

use super::step::step;
use crate::scenario::Scenario;

use play::Others;
use publishing::publishing;
use reading::reading;

const ONE: &[u64] = &[40];
const SPAN: &[u64] = &[300];
const BATCH: &[u64] = &[10, 60, 0];

pub(super) const SCENARIOS: &[Scenario] = &[
    step(
        "wherever_one_that_publishes_ends_or_stands_others_publish_and_all_is_read_when_it_is_done",
        "R1",
        |run| publishing(run, "ring-publish", ONE, Others::Wait),
    ),
    step(
        "wherever_one_that_publishes_several_slots_ends_or_stands_all_is_read_when_it_is_done",
        "R1",
        |run| publishing(run, "ring-publish", SPAN, Others::Wait),
    ),
    step(
        "wherever_one_that_publishes_a_batch_ends_or_stands_all_of_it_is_read_or_nothing",
        "R1",
        |run| publishing(run, "ring-many", BATCH, Others::Wait),
    ),
    step(
        "wherever_one_that_commits_ends_or_stands_its_record_is_read_or_abandoned_for_all",
        "R1",
        |run| publishing(run, "ring-commit", SPAN, Others::Wait),
    ),
    step(
        "wherever_one_that_drops_a_record_ends_or_stands_it_is_abandoned_for_all",
        "R1",
        |run| publishing(run, "ring-drop", SPAN, Others::Wait),
    ),
    step(
        "wherever_one_that_publishes_stands_a_reader_without_patience_goes_on_and_it_is_told",
        "R3",
        |run| publishing(run, "ring-publish", SPAN, Others::Withdraw),
    ),
    step(
        "wherever_one_that_commits_stands_a_reader_without_patience_goes_on_and_it_is_told",
        "R3",
        |run| publishing(run, "ring-commit", ONE, Others::Withdraw),
    ),
    step(
        "wherever_one_that_publishes_stands_others_go_around_the_ring_and_its_late_bytes_are_nowhere",
        "R12",
        |run| publishing(run, "ring-publish", SPAN, Others::Lap),
    ),
    step(
        "wherever_one_that_publishes_a_batch_stands_others_go_around_and_its_late_bytes_are_nowhere",
        "R12",
        |run| publishing(run, "ring-many", BATCH, Others::Lap),
    ),
    step(
        "wherever_one_that_commits_stands_others_go_around_the_ring_and_its_slots_come_back",
        "R12",
        |run| publishing(run, "ring-commit", SPAN, Others::Lap),
    ),
    step(
        "wherever_one_that_drops_a_record_stands_others_go_around_the_ring_and_its_slots_come_back",
        "R12",
        |run| publishing(run, "ring-drop", ONE, Others::Lap),
    ),
    step(
        "wherever_one_that_publishes_stands_and_is_withdrawn_and_lapped_its_late_bytes_are_nowhere",
        "R12",
        |run| publishing(run, "ring-publish", SPAN, Others::WithdrawAndLap),
    ),
    step(
        "wherever_a_reader_ends_or_stands_others_publish_and_read_and_it_counts_each_record_once",
        "R11",
        |run| reading(run, "ring-drain", Others::Wait),
    ),
    step(
        "wherever_a_reader_stands_others_go_around_the_ring_and_it_counts_each_record_once",
        "R11",
        |run| reading(run, "ring-drain", Others::Lap),
    ),
    step(
        "wherever_one_that_falls_asleep_ends_or_stands_others_publish_and_it_is_given_all",
        "R8",
        |run| reading(run, "ring-wait", Others::Wait),
    ),
    step(
        "wherever_one_that_falls_asleep_behind_a_record_ends_or_stands_it_is_given_all",
        "R8",
        |run| reading(run, "ring-wait-behind", Others::Wait),
    ),
];
