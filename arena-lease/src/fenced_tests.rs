//! Fenced values: the step by itself, and the exchange under the model checker on a narrow word.

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use proptest::prelude::*;

use super::*;
use crate::protocol::modelled::Narrow;

proptest! {
    #[test]
    fn a_value_is_always_that_of_the_newest_fence_and_its_last_store(
        stores in proptest::collection::vec((1..6_u64, any::<u64>()), 1..40)
    ) {
        let (mut word, mut newest, mut expected) = (0_u128, 0, 0);
        for (fence, value) in stores {
            match step(word, fence, |_| value) {
                Ok((before, to)) => {
                    prop_assert!(fence >= newest);
                    prop_assert_eq!(before, expected);
                    (word, newest, expected) = (to, fence, value);
                }
                Err(stale) => prop_assert!(fence < newest && stale == newest),
            }
            prop_assert_eq!(word, u128::from(newest) << 64 | u128::from(expected));
        }
    }
}

struct Model {
    word: Narrow,
    work: AtomicU64,
}

fn model() -> Arc<Model> {
    Arc::new(Model {
        word: Narrow::new(0),
        work: AtomicU64::new(0),
    })
}

#[test]
fn edge_fenced_shows_a_reader_what_the_writer_did_before() {
    loom::model(|| {
        let cell = model();
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                cell.work.store(7, Ordering::Relaxed);
                update(&cell.word, 1, |_| 1).unwrap();
            })
        };
        if load(&cell.word) != 0 {
            assert_eq!(cell.work.load(Ordering::Relaxed), 7);
        }
        writer.join().unwrap();
    });
}

#[test]
fn two_leaders_that_store_at_once_leave_the_newer_value() {
    loom::model(|| {
        let cell = model();
        let older = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || update(&cell.word, 1, |value| value + 1))
        };
        let before = update(&cell.word, 2, |value| value + 10).unwrap();
        match older.join().unwrap() {
            Ok(was) => assert_eq!((was, before), (0, 1)),
            Err(error) => assert!(matches!(error, StoreError::Stale { newest: 2 })),
        }
        assert_eq!(load(&cell.word), 2 << 32 | (before + 10));
    });
}
