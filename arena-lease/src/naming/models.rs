//! Naming under the model checker: the namer's own lines, beside those of the verbs and of who copies a row.

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::PeerId;
use crate::outcome::Acquire;
use crate::protocol::modelled::{Shared, check, name, peer, ttl};
use crate::protocol::{self, Fault};
use crate::snapshot::Snapshot;
use crate::word::NS_PER_MS;

fn free(fence: u64) -> Word {
    Word {
        fence,
        owner: Owner::Nobody,
        until_ms: 0,
    }
}

fn held(fence: u64, by: PeerId) -> Word {
    Word {
        owner: Owner::Peer(by),
        until_ms: 9,
        ..free(fence)
    }
}

fn retired(fence: u64) -> Word {
    Word {
        owner: Owner::Retired,
        ..free(fence)
    }
}

impl Shared {
    fn give(&self, to: u8, now_ns: u64) -> Naming {
        let labels = Labels {
            name_len: &self.name_len,
            name: &self.name,
            counters: self.counters.each_ref(),
        };
        name_row(self, &self.high, now_ns, &labels, &name(to))
    }

    fn bits(&self) -> Word {
        Word::decode(Cell::load(self, Ordering::Acquire)).unwrap()
    }
}

#[test]
fn edge_named_nobody_acquires_a_row_under_a_name_that_it_does_not_have() {
    for meant in [1, 2] {
        check(2, move || {
            let row = Shared::named(free(7), Some(name(meant)));
            let acquirer = {
                let row = Arc::clone(&row);
                thread::spawn(move || protocol::acquire(&*row, peer(1), ttl()))
            };
            let naming = row.give(2, 0);
            match (meant, acquirer.join().unwrap()) {
                // Under the old name, so before the row changed it, and then it did not.
                (1, Ok(Acquire::Held(hold))) => {
                    assert_eq!((hold.fence, naming), (8, Naming::NotFree));
                }
                // Under the new one: above all that the table issued.
                (2, Ok(Acquire::Held(hold))) => assert_eq!(hold.fence, 9),
                (_, other) => {
                    assert_eq!(other, Err(Fault::Renamed));
                    assert_eq!(naming, Naming::Done { replaced: 7 });
                }
            }
        });
    }
}

#[test]
fn edge_unnamed_a_hold_under_another_name_is_not_found_under_this_one() {
    check(3, || {
        let row = Shared::named(held(7, peer(1)), Some(name(2)));
        let looks = {
            let row = Arc::clone(&row);
            thread::spawn(move || {
                // What `Lease::mine` does.
                let fence = protocol::current(&*row, peer(1)).ok().flatten()?;
                protocol::mine(&*row, peer(1), fence).ok()
            })
        };
        let (seen, to) = (held(7, peer(1)).encode(), free(7).encode());
        assert!(exchange(&*row, seen.unwrap(), to.unwrap()));
        assert_eq!(row.give(2, 0), Naming::Done { replaced: 7 });
        assert_ne!(looks.join().unwrap(), Some(true));
    });
}

#[test]
fn edge_unnamed_a_copy_has_the_name_and_the_counts_that_its_word_was_under() {
    check(1, || {
        let row = Shared::named(free(7), None);
        let copier = {
            let row = Arc::clone(&row);
            thread::spawn(move || {
                let counters = row.counters.each_ref();
                Snapshot::try_of(&*row, &row.name_len, &row.name, counters)
            })
        };
        assert_eq!(row.give(2, 0), Naming::Done { replaced: 7 });
        let bits = |word: Word| word.encode::<u64>().unwrap().widen();
        if let Some(copy) = copier.join().unwrap() {
            let seen = (copy.word, copy.name, copy.acquires, copy.steals);
            let (before, after) = (
                (bits(free(7)), name(1), 1, 1),
                (bits(free(8)), name(2), 0, 0),
            );
            assert!(seen == before || seen == after, "{seen:?}");
        }
    });
}

#[test]
fn the_fence_of_a_name_that_comes_back_exceeds_all_that_it_had() {
    loom::model(|| {
        let one = Shared::named(free(7), None);
        let other = Shared::named(free(3), None);
        assert_eq!(one.give(2, 0), Naming::Done { replaced: 7 });
        // Two rows of one table.
        other
            .high
            .store(one.high.load(Ordering::Relaxed), Ordering::Relaxed);
        assert_eq!(other.give(1, 0), Naming::Done { replaced: 3 });
        assert!(other.bits().fence >= 8);
    });
}

#[test]
fn a_namer_that_was_killed_anywhere_is_finished_by_the_next() {
    loom::model(|| {
        for high in [0, 8] {
            let row = Shared::named(retired(7), Some(name(2)));
            row.high.store(high, Ordering::Relaxed);
            assert_eq!(row.give(2, 0), Naming::Done { replaced: 7 });
            let hold = protocol::acquire(&*row, peer(1), ttl()).unwrap().held();
            assert_eq!(hold.unwrap().fence, 9);
        }
    });
}

#[test]
fn a_row_that_is_held_or_kept_or_at_the_last_fence_is_left_alone() {
    loom::model(|| {
        let give = |word, now_ms| {
            let row = Shared::named(word, None);
            row.pass(now_ms);
            row.give(2, now_ms * NS_PER_MS)
        };
        assert_eq!(give(held(7, peer(1)), 0), Naming::NotFree);
        let kept = Word {
            until_ms: 1,
            ..free(7)
        };
        assert_eq!(give(kept, 0), Naming::NotFree);
        assert_eq!(give(kept, 1), Naming::Done { replaced: 7 });
        let last = free(<u64 as Bits>::MAX_FENCE);
        assert_eq!(give(last, 0), Naming::FenceExhausted);
    });
}
