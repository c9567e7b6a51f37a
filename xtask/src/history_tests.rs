//! Histories that the checker must accept, and histories that it must reject.

use super::{Event, History, Judged};

/// `who: entry back word fence; …`, a process a line.
fn history(text: &str) -> History {
    let mut history = History::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (who, events) = line.split_once(": ").unwrap();
        let events = events
            .split("; ")
            .map(|event| event.trim().parse::<Event>().unwrap());
        history.add(who, events);
    }
    history
}

fn accepts(text: &str) -> Judged {
    history(text).judge().unwrap()
}

fn rejects(text: &str, because: &str) {
    let reason = history(text).judge().expect_err("this history is wrong");
    assert!(reason.contains(because), "rejected, but because: {reason}");
}

#[test]
fn a_handover_by_release_is_accepted() {
    let judged = accepts(
        "a: 10 20 held 5; 30 31 mine 5; 40 50 released 5
         b: 45 60 held 6; 70 71 mine 6",
    );
    assert_eq!(
        judged,
        Judged {
            acquisitions: 2,
            shown: 2
        }
    );
}

#[test]
fn a_takeover_from_a_stopped_holder_that_then_learns_it_is_accepted() {
    accepts(
        "a: 10 20 held 5; 30 31 mine 5; 200 210 lost 5; 220 230 held 7; 240 241 mine 7
         b: 100 110 held 6; 150 151 mine 6; 160 161 released 6",
    );
}

#[test]
fn renewing_and_acquiring_again_with_the_same_fence_is_accepted() {
    accepts("a: 1 2 held 5; 3 4 renewed 5; 5 6 held 5; 7 8 mine 5; 9 10 released 5; 11 12 held 6");
}

#[test]
fn overlapping_acquisitions_may_return_in_either_order_of_their_fences() {
    accepts(
        "a: 10 100 held 5
         b: 20 30 held 6; 40 41 mine 6",
    );
}

#[test]
fn a_loss_that_is_told_of_a_fence_of_long_ago_is_accepted() {
    accepts("a: 1 2 held 5; 3 4 released 5; 5 6 held 7; 8 9 lost 5; 10 11 mine 7");
}

#[test]
fn two_processes_that_hold_at_one_instant_are_rejected() {
    rejects(
        "a: 10 20 held 6; 90 91 mine 6
         b: 15 40 held 5; 60 61 mine 5",
        "both hold",
    );
}

#[test]
fn a_long_span_around_many_short_ones_is_rejected() {
    rejects(
        "a: 10 20 held 9; 900 901 mine 9
         b: 1 2 held 5; 3 4 mine 5; 5 6 released 5
         c: 15 300 held 8; 310 311 mine 8",
        "both hold",
    );
}

#[test]
fn spans_that_touch_in_one_instant_are_rejected() {
    rejects(
        "a: 10 20 held 6; 50 51 mine 6
         b: 15 50 held 5; 60 61 mine 5",
        "both hold",
    );
}

#[test]
fn a_fence_of_two_processes_is_rejected() {
    rejects(
        "a: 10 20 held 5
         b: 12 22 held 5",
        "went to",
    );
}

#[test]
fn a_fence_that_falls_is_rejected() {
    rejects(
        "a: 10 20 held 7; 30 31 released 7
         b: 40 50 held 6",
        "before b was asked",
    );
}

#[test]
fn a_fence_that_stands_still_in_one_process_after_a_release_is_rejected() {
    rejects(
        "a: 10 20 held 7; 30 31 released 7; 40 50 held 7",
        "again that it had lost",
    );
}

#[test]
fn a_fence_that_comes_back_in_one_process_is_rejected() {
    rejects("a: 10 20 held 7; 40 50 held 8; 60 70 held 7", "twice");
}

#[test]
fn mine_without_an_acquisition_is_rejected() {
    rejects("a: 10 20 mine 5", "does not hold");
}

#[test]
fn mine_with_another_fence_is_rejected() {
    rejects("a: 10 20 held 5; 30 31 mine 6", "does not hold");
}

#[test]
fn mine_after_a_loss_is_rejected() {
    rejects(
        "a: 10 20 held 5; 30 31 lost 5; 40 41 mine 5",
        "does not hold",
    );
}

#[test]
fn a_renewal_after_a_loss_is_rejected() {
    rejects(
        "a: 10 20 held 5; 30 31 lost 5; 40 41 renewed 5",
        "does not hold",
    );
}

#[test]
fn a_renewal_that_changes_the_fence_is_rejected() {
    rejects("a: 10 20 held 5; 30 31 renewed 6", "does not hold");
}

#[test]
fn mine_after_a_release_is_rejected() {
    rejects(
        "a: 10 20 held 5; 30 31 released 5; 40 41 mine 5",
        "does not hold",
    );
}

#[test]
fn mine_after_a_rival_got_a_newer_fence_is_rejected_even_if_the_rival_never_asked() {
    rejects(
        "a: 10 20 held 5; 60 61 mine 5
         b: 30 40 held 6",
        "still shown as held",
    );
}

#[test]
fn a_renewal_after_a_rival_got_a_newer_fence_is_rejected() {
    rejects(
        "a: 10 20 held 5; 60 61 renewed 5
         b: 30 40 held 6",
        "still shown as held",
    );
}

#[test]
fn a_process_that_went_back_in_time_is_rejected() {
    rejects("a: 10 20 held 5; 15 16 mine 5", "back in time");
}

#[test]
fn a_line_that_was_cut_off_by_a_kill_is_dropped_and_nonsense_is_not() {
    let mut history = History::default();
    history.add_lines("a", "1 2 held 5\n3 4 mi").unwrap();
    assert_eq!(history.judge().unwrap().acquisitions, 1);
    assert!(history.add_lines("a", "1 2 hold 5\n").is_err());
}
