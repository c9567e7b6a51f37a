//! The recipe for a database, as the example has it, and the example itself.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};
use std::process::Command;

use recipe::Write;
use rusqlite::Connection;

const ROLE: &str = "ARENA_LEASE_SQLITE_LEADER";

#[path = "../examples/sqlite/play.rs"]
mod play;
#[path = "../examples/sqlite/recipe.rs"]
mod recipe;

fn database() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("ledger.db");
    (directory, path)
}

/// Two connections, as two leaders have them.
fn two(path: &Path) -> [Connection; 2] {
    [recipe::open(path).unwrap(), recipe::open(path).unwrap()]
}

#[test]
fn a_late_write_of_an_older_leader_is_refused_and_names_the_newer_one() {
    let (_directory, path) = database();
    let [old, new] = two(&path);
    let fence = (1 << 53) - 2;
    assert_eq!(
        recipe::write(&old, "balance", fence, 80).unwrap(),
        Write::Done
    );
    assert_eq!(
        recipe::write(&old, "balance", fence, 81).unwrap(),
        Write::Done
    );
    let newest = fence + 1;
    assert_eq!(
        recipe::write(&new, "balance", newest, 100).unwrap(),
        Write::Done
    );
    let late = recipe::write(&old, "balance", fence, 90).unwrap();
    assert_eq!(late, Write::Stale { newest });
    assert_eq!(recipe::read(&old, "balance").unwrap(), Some((newest, 100)));
}

#[test]
fn a_row_that_the_newer_leader_has_not_written_is_protected_by_the_common_fence_alone() {
    let (_directory, path) = database();
    let [mut old, mut new] = two(&path);
    assert_eq!(recipe::write(&new, "balance", 8, 100).unwrap(), Write::Done);
    let other_row = recipe::write(&old, "another", 7, 90).unwrap();
    assert_eq!(other_row, Write::Done, "as the recipe warns");
    let begun = recipe::begin(&mut new, 8).unwrap().unwrap();
    begun.commit().unwrap();
    assert!(recipe::begin(&mut old, 7).unwrap().is_none());
    assert!(
        recipe::begin(&mut new, 8).unwrap().is_some(),
        "again and again"
    );
    assert!(recipe::begin(&mut old, 9).unwrap().is_some());
}

#[test]
fn a_transaction_that_was_not_committed_raises_no_fence() {
    let (_directory, path) = database();
    let [mut old, mut new] = two(&path);
    let begun = recipe::begin(&mut new, 8).unwrap().unwrap();
    assert_eq!(
        recipe::write(&begun, "balance", 8, 100).unwrap(),
        Write::Done
    );
    drop(begun);
    assert!(recipe::begin(&mut old, 7).unwrap().is_some());
    assert_eq!(recipe::read(&old, "balance").unwrap(), None);
}

/// A test only in name: what a copy of this binary does that was started as the first leader.
#[test]
fn the_first_leader_is_played_when_it_is_asked_for() {
    if let Some(directory) = std::env::var_os(ROLE) {
        play::first_leader(Path::new(&directory)).unwrap();
    }
}

/// Goal: a leader that is stopped just before its write does not get it through when it goes on. Method: what the
/// example plays, with copies of this binary.
#[test]
fn the_example_ends_with_the_late_write_refused() {
    let refused = play::play(|directory| {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args([
                "--exact",
                "the_first_leader_is_played_when_it_is_asked_for",
                "--nocapture",
            ])
            .env(ROLE, directory);
        Ok(command)
    });
    assert!(refused.unwrap());
}
