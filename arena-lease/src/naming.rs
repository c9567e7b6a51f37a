//! Giving a free row a name, under the table's lock.
//!
//! No verb takes that lock, so each step must leave a row that verbs treat rightly, and whoever owns the lock
//! next must be able to go on from it:
//!
//! ```text
//! step                          a verb that comes now              a namer killed here leaves
//! word (f, free) -> retired     looks the name up again            a row without a name, taken first by the
//!                                                                  next namer
//! high raised above f           the same                           the same
//! name and counters stored      the same                           the same: nobody reads a retired row's name
//! word -> (high, free)          sees the name and acquires         a row that has its name
//! ```
//!
//! A verb that had loaded the word before the first step fails to exchange it after.

use std::sync::atomic::Ordering;

use crate::protocol::{Cell, Mark};
use crate::word::{Bits, Owner, Word};

/// What became of an attempt to name a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Naming {
    Done {
        /// The fence that the row had before.
        replaced: u64,
    },
    /// The row is not free now; nothing was changed.
    NotFree,
    /// No larger fence is left; nothing was changed.
    FenceExhausted,
    /// Not a word that this library writes; or the lock did not keep others out.
    Corrupt(u128),
}

/// Gives the row of `cell` a name by `store`, which is called while the word is retired. `high` is the table's.
///
/// `store` begins with a release fence (EDGE unnamed): whoever reads a byte of the new name, and then passes an
/// acquire fence, does not find the old word any more.
///
/// The caller owns the table's lock: a word that is retired already was left by an earlier owner.
pub(crate) fn name_row<C: Cell>(
    cell: &C,
    high: &impl Mark,
    now_ns: u64,
    store: impl FnOnce(),
) -> Naming {
    let encode = |word: Word| word.encode::<C::Bits>();
    // EDGE named, acquire half: the next namer continues from what the last one stored.
    let seen = cell.load(Ordering::Acquire);
    let Some(word) = Word::decode(seen) else {
        return Naming::Corrupt(seen.widen());
    };
    if !is_free(word, now_ns) && word.owner != Owner::Retired {
        return Naming::NotFree;
    }
    // Relaxed: only owners of the lock touch it, and the lock orders them.
    let fence = high
        .load(Ordering::Relaxed)
        .max(word.fence.saturating_add(1));
    let named = Word {
        fence,
        owner: Owner::Nobody,
        until_ms: 0,
    };
    let retired = Word {
        owner: Owner::Retired,
        until_ms: 0,
        ..word
    };
    let (Some(named), Some(retired)) = (encode(named), encode(retired)) else {
        return Naming::FenceExhausted;
    };
    if seen != retired && !exchange(cell, seen, retired) {
        return Naming::NotFree;
    }
    // Relaxed: as above. Before the name is another's: a name that comes back later starts above `fence`.
    high.fetch_max(fence, Ordering::Relaxed);
    store();
    if exchange(cell, retired, named) {
        Naming::Done {
            replaced: word.fence,
        }
    } else {
        // Relaxed: for the report.
        Naming::Corrupt(cell.load(Ordering::Relaxed).widen())
    }
}

/// Whether nobody holds the row, nor is it kept for somebody.
pub(crate) fn is_free(word: Word, now_ns: u64) -> bool {
    word.owner == Owner::Nobody && word.is_over(now_ns)
}

fn exchange<C: Cell>(cell: &C, seen: C::Bits, to: C::Bits) -> bool {
    // EDGE named, release half: the name is whole for whoever loads this word or a later one. (Not an acquire: the
    // value that it replaces was loaded with one.)
    let success = Ordering::Release;
    // Relaxed: the value of a failure is dropped.
    cell.compare_exchange(seen, to, success, Ordering::Relaxed)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, fence};
    use loom::thread;

    use super::*;
    use crate::PeerId;
    use crate::word::NS_PER_MS;

    /// The word, with a store that nobody reads before each access: see `cross` in the model of the verbs.
    struct Crossed {
        word: AtomicU64,
        crossing: AtomicU64,
    }

    impl Cell for Crossed {
        type Bits = u64;

        fn load(&self, order: Ordering) -> u64 {
            self.crossing.store(0, Ordering::Relaxed);
            self.word.load(order)
        }

        fn compare_exchange(
            &self,
            seen: u64,
            to: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.crossing.store(0, Ordering::Relaxed);
            self.word.compare_exchange(seen, to, success, failure)
        }
    }

    struct Table {
        word: Crossed,
        high: AtomicU64,
        /// A name of two words, so that it can be torn.
        name: [AtomicU64; 2],
    }

    fn free(fence: u64) -> Word {
        Word {
            fence,
            owner: Owner::Nobody,
            until_ms: 0,
        }
    }

    fn table(word: Word) -> Table {
        Table {
            word: Crossed {
                word: AtomicU64::new(word.encode().unwrap()),
                crossing: AtomicU64::new(0),
            },
            high: AtomicU64::new(0),
            name: [AtomicU64::new(1), AtomicU64::new(1)],
        }
    }

    impl Table {
        fn give(&self, name: u64) -> Naming {
            name_row(&self.word, &self.high, 0, || {
                fence(Ordering::Release);
                for word in &self.name {
                    self.word.crossing.store(0, Ordering::Relaxed);
                    word.store(name, Ordering::Relaxed);
                }
            })
        }

        /// What acquire does: the word, then the name, then the exchange.
        fn acquire(&self, name: u64, me: PeerId) -> Option<Word> {
            let seen = Cell::load(&self.word, Ordering::Acquire);
            let word = Word::decode(seen).unwrap();
            self.word.crossing.store(0, Ordering::Relaxed);
            let named = self
                .name
                .iter()
                .all(|word| word.load(Ordering::Relaxed) == name);
            if !named || word.owner != Owner::Nobody {
                return None;
            }
            let held = Word {
                fence: word.fence + 1,
                owner: Owner::Peer(me),
                until_ms: 9,
            };
            exchange(&self.word, seen, held.encode().unwrap()).then_some(held)
        }
    }

    fn check(f: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(f);
    }

    #[test]
    fn edge_named_nobody_acquires_a_row_under_a_name_that_it_does_not_have() {
        for name in [1, 2] {
            check(move || {
                let table = Arc::new(table(free(7)));
                let acquirer = {
                    let table = Arc::clone(&table);
                    let me = PeerId::new(1, 1).unwrap();
                    thread::spawn(move || table.acquire(name, me).map(|word| word.fence))
                };
                let naming = table.give(2);
                match (name, acquirer.join().unwrap()) {
                    // Under the old name, so before the row changed it, and then it did not.
                    (1, Some(fence)) => assert_eq!((fence, naming), (8, Naming::NotFree)),
                    // Under the new one: above all that the table issued.
                    (_, Some(fence)) => assert_eq!(fence, 9),
                    (_, None) => assert_eq!(naming, Naming::Done { replaced: 7 }),
                }
            });
        }
    }

    #[test]
    fn edge_unnamed_a_hold_under_another_name_is_not_found_under_this_one() {
        check(|| {
            let me = PeerId::new(1, 1).unwrap();
            let held = Word {
                owner: Owner::Peer(me),
                until_ms: 9,
                ..free(7)
            };
            let table = Arc::new(table(held));
            let looks = {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    // What `current` and then `mine` do, for the name 2.
                    let named = |word: &AtomicU64| word.load(Ordering::Relaxed) == 2;
                    table.word.crossing.store(0, Ordering::Relaxed);
                    let here = table.name.iter().all(named);
                    fence(Ordering::Acquire);
                    let seen = Cell::load(&table.word, Ordering::Acquire);
                    here && Word::decode(seen).unwrap().names(me)
                })
            };
            assert!(exchange(
                &table.word,
                held.encode().unwrap(),
                free(7).encode().unwrap()
            ));
            assert_eq!(table.give(2), Naming::Done { replaced: 7 });
            assert!(!looks.join().unwrap());
        });
    }

    #[test]
    fn the_fence_of_a_name_that_comes_back_exceeds_all_that_it_had() {
        loom::model(|| {
            let (one, other) = (table(free(7)), table(free(3)));
            assert_eq!(one.give(2), Naming::Done { replaced: 7 });
            let back = name_row(&other.word, &one.high, 0, || {});
            assert_eq!(back, Naming::Done { replaced: 3 });
            let word = Word::decode(Cell::load(&other.word, Ordering::Acquire)).unwrap();
            assert!(word.fence >= 8);
        });
    }

    #[test]
    fn a_namer_that_was_killed_anywhere_is_finished_by_the_next() {
        loom::model(|| {
            let retired = Word {
                owner: Owner::Retired,
                ..free(7)
            };
            for high in [0, 8] {
                let table = table(retired);
                table.high.store(high, Ordering::Relaxed);
                assert_eq!(table.give(2), Naming::Done { replaced: 7 });
                let me = PeerId::new(1, 1).unwrap();
                assert_eq!(table.acquire(2, me).map(|word| word.fence), Some(9));
            }
        });
    }

    #[test]
    fn a_row_that_is_held_or_kept_or_at_the_last_fence_is_left_alone() {
        loom::model(|| {
            let held = Word {
                owner: Owner::Peer(PeerId::new(1, 1).unwrap()),
                ..free(7)
            };
            assert_eq!(table(held).give(2), Naming::NotFree);
            let kept = Word {
                until_ms: 1,
                ..free(7)
            };
            let table_of = table(kept);
            assert_eq!(table_of.give(2), Naming::NotFree);
            let later = name_row(&table_of.word, &table_of.high, NS_PER_MS, || {});
            assert_eq!(later, Naming::Done { replaced: 7 });
            let last = free(<u64 as Bits>::MAX_FENCE);
            assert_eq!(table(last).give(2), Naming::FenceExhausted);
        });
    }
}
