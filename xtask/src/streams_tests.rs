//! Runs that the checker must accept, and runs that it must reject.

use super::{Counts, End, Judged, Name, Reader, Streams};

/// Two publishers: 0 begins five records and 1 begins three, the last of which it never heard of. The numbers 1 to 8 in turn
/// are those of `all`, of which number 4 was withdrawn.
fn run() -> Streams {
    let mut streams = Streams::default();
    streams.begun(0, 5);
    streams.begun(1, 3);
    for (number, record, end) in all() {
        if record != (1, 2) {
            streams.ended(record, number, end);
        }
    }
    streams
}

fn all() -> Vec<(u64, Name, End)> {
    let records = [
        (0, 0),
        (1, 0),
        (0, 1),
        (0, 2),
        (1, 1),
        (0, 3),
        (1, 2),
        (0, 4),
    ];
    let end = |number| {
        if number == 4 {
            End::Not
        } else {
            End::Committed
        }
    };
    (1..)
        .zip(records)
        .map(|(number, record)| (number, record, end(number)))
        .collect()
}

/// A reader that was given these numbers.
fn given(numbers: &[u64], counts: [u64; 4]) -> Reader {
    let name = |number: u64| {
        let all = all();
        let found = all.iter().find(|(of, ..)| *of == number);
        (number, found.unwrap().1)
    };
    let [delivered, lapped, abandoned, pending] = counts;
    let counts = Counts {
        delivered,
        lapped,
        abandoned,
        pending,
    };
    Reader {
        from: 1,
        given: numbers.iter().copied().map(name).collect(),
        counts: Some(counts),
    }
}

fn judge(readers: &[Reader]) -> Result<Judged, String> {
    let mut streams = run();
    for (who, reader) in readers.iter().enumerate() {
        streams.reader(format!("reader {who}"), reader.clone());
    }
    streams.judge(8)
}

fn rejects(readers: &[Reader], because: &str) {
    let reason = judge(readers).expect_err("this run is wrong");
    assert!(reason.contains(because), "rejected, but because: {reason}");
}

const WHOLE: [u64; 7] = [1, 2, 3, 5, 6, 7, 8];

#[test]
fn readers_that_see_all_or_are_overtaken_or_have_some_left_are_accepted() {
    let whole = given(&WHOLE, [7, 0, 1, 0]);
    let overtaken = given(&[1, 6, 8], [3, 4, 1, 0]);
    let behind = given(&[1, 2, 3], [3, 0, 0, 5]);
    let judged = judge(&[whole, overtaken, behind]).unwrap();
    let expected = Judged {
        committed: 6,
        not_committed: 1,
        given: 13,
        lapped: 4,
        abandoned: 2,
    };
    assert_eq!(judged, expected);
}

#[test]
fn a_record_that_its_killed_publisher_never_heard_of_may_be_given_or_not() {
    judge(&[given(&[1, 2, 3, 5, 6, 8], [6, 0, 2, 0])]).unwrap();
    judge(&[given(&WHOLE, [7, 0, 1, 0])]).unwrap();
}

#[test]
fn two_readers_of_which_one_was_not_given_what_the_other_was_are_rejected() {
    let without = given(&[1, 2, 3, 5, 6, 8], [6, 0, 2, 0]);
    rejects(&[given(&WHOLE, [7, 0, 1, 0]), without], "number 7 first");
}

#[test]
fn a_committed_record_that_is_counted_abandoned_is_rejected() {
    rejects(
        &[given(&[1, 2, 3, 6, 7, 8], [6, 0, 2, 0])],
        "number 5 first",
    );
}

#[test]
fn a_withdrawn_record_that_is_given_is_rejected() {
    rejects(
        &[given(&[1, 2, 3, 4, 5], [5, 0, 0, 3])],
        "was not committed",
    );
}

#[test]
fn counts_that_do_not_add_up_are_rejected() {
    rejects(&[given(&WHOLE, [7, 0, 0, 0])], "do not add up");
    rejects(&[given(&WHOLE, [7, 1, 1, 0])], "do not add up");
    rejects(&[given(&WHOLE, [7, u64::MAX, 1, 1])], "do not add up");
    rejects(&[given(&WHOLE, [6, 0, 2, 0])], "was given 7 records");
}

#[test]
fn a_record_that_is_given_twice_or_back_in_order_is_rejected() {
    rejects(&[given(&[1, 1], [2, 0, 0, 6])], "after Some(1)");
    rejects(&[given(&[2, 1], [2, 0, 0, 6])], "after Some(2)");
    let mut again = given(&[1, 2, 3], [3, 0, 0, 5]);
    again.given[2].1 = (0, 0);
    rejects(&[again], "out of its order");
}

#[test]
fn a_committed_record_that_an_overtaken_reader_counts_abandoned_is_rejected() {
    // 4 and one that it was not given were lost; of the latter it says that it was never finished.
    judge(&[given(&[1, 2, 3, 6, 7, 8], [6, 1, 1, 0])]).unwrap();
    rejects(
        &[given(&[1, 2, 6, 7, 8], [5, 1, 2, 0])],
        "overtaken by 1 records, and was not given 2",
    );
}

#[test]
fn a_killed_readers_notes_may_end_anywhere_and_count_for_the_others() {
    let mut killed = given(&[1, 2, 3], [3, 0, 0, 5]);
    killed.counts = None;
    judge(&[killed]).unwrap();
    let mut killed = given(&WHOLE, [7, 0, 1, 0]);
    killed.counts = None;
    let without = given(&[1, 2, 3, 5, 6, 8], [6, 0, 2, 0]);
    rejects(&[killed, without], "number 7 first");
}

#[test]
fn a_record_from_before_the_reader_began_or_after_the_end_is_rejected() {
    let mut early = given(&[1, 2], [2, 0, 0, 5]);
    early.from = 2;
    rejects(&[early], "after Some(1)");
    let mut late = given(&[1, 8], [2, 0, 0, 5]);
    late.given[1].0 = 9;
    rejects(&[late], "number 9");
}

#[test]
fn a_record_that_nobody_began_is_rejected() {
    let mut foreign = given(&[1, 2], [2, 0, 0, 6]);
    foreign.given[1].1 = (1, 3);
    rejects(&[foreign.clone()], "nobody began");
    foreign.given[1].1 = (2, 0);
    rejects(&[foreign], "nobody began");
}

#[test]
fn another_record_under_a_number_is_rejected() {
    // Publishers are told of it, or two readers differ.
    let mut swapped = given(&[1], [1, 1, 0, 6]);
    swapped.given[0] = (2, (0, 0));
    rejects(&[swapped], "which is (1, 0)");
    let mut untold = given(&[1, 2, 3, 5, 6], [5, 0, 1, 2]);
    untold.given[4].1 = (1, 2);
    rejects(&[untold], "which is (0, 3)");
}

#[test]
fn one_record_under_two_numbers_is_rejected() {
    let mut again = given(&WHOLE, [7, 0, 1, 0]);
    let mut streams = run();
    streams.begun(0, 6);
    again.given[6].0 = 9;
    streams.reader("again", again);
    let reason = streams.judge(9).expect_err("this run is wrong");
    assert!(reason.contains("which is number 8"), "{reason}");
}

#[test]
fn one_number_for_two_records_is_rejected() {
    let mut streams = run();
    streams.ended((1, 2), 8, End::Committed);
    let reason = streams.judge(8).expect_err("this run is wrong");
    assert!(reason.contains("number 8, which is"), "{reason}");
}

#[test]
fn a_later_record_with_a_smaller_number_is_rejected() {
    let mut streams = run();
    streams.begun(2, 2);
    streams.ended((2, 0), 10, End::Committed);
    streams.ended((2, 1), 9, End::Committed);
    let reason = streams.judge(10).expect_err("this run is wrong");
    assert!(reason.contains("later (2, 1)"), "{reason}");
}

#[test]
fn a_number_that_nobody_took_or_that_the_ring_did_not_give_is_rejected() {
    let streams = run();
    // (1, 2), of which nothing is known, may have taken number 7; nobody took a ninth.
    streams.judge(8).unwrap();
    let reason = streams.judge(9).expect_err("this run is wrong");
    assert!(reason.contains("2 numbers are nobody's"), "{reason}");
    let reason = streams.judge(7).expect_err("this run is wrong");
    assert!(reason.contains("number 8 of 7"), "{reason}");
}
