//! The edges of a row's word, each under the scheduler and the memory model of loom.
//!
//! A row's byte is an atomic: the kernel's release of it at a death is a store of FREE with Release, the taking
//! of it an exchange, and a probe a load with Acquire, which like any load in the model may be stale.

use super::*;
use loom::sync::atomic::AtomicU64 as LoomU64;
use loom::thread;
use std::sync::Arc;

/// Explores every execution of `f` with at most three preemptions.
pub(crate) fn check(f: impl Fn() + Sync + Send + 'static) {
    check_bounded(3, f);
}

/// Explores every execution of `f` with at most `preemptions`; for models in which three take minutes.
pub(crate) fn check_bounded(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

/// A place in an execution where other threads may step in, before a load as before a store.
///
/// loom tries another order of two accesses only if one of them is the *last* before the other. In "A loads, B
/// loads, B stores" that hides from it that B could store before A loads, and most exchanges here follow a
/// load of their own. A store that nobody reads goes before each access, so that any two of them are in
/// conflict; as nobody reads it, it orders nothing.
pub(crate) struct Crossing(LoomU64);

impl Crossing {
    pub(crate) fn new() -> Self {
        Self(LoomU64::new(0))
    }

    pub(crate) fn pass(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A 64-bit word of the protocols.
pub(crate) struct ModelWord {
    word: LoomU64,
    crossing: Crossing,
}

impl ModelWord {
    pub(crate) fn new(word: u64) -> Self {
        Self {
            word: LoomU64::new(word),
            crossing: Crossing::new(),
        }
    }
}

impl AtomicWord for ModelWord {
    fn load(&self, order: Ordering) -> u64 {
        self.crossing.pass();
        self.word.load(order)
    }

    fn exchange(&self, current: u64, new: u64, success: Ordering) -> Result<(), u64> {
        self.crossing.pass();
        self.word
            .compare_exchange(current, new, success, Ordering::Relaxed)
            .map(drop)
    }

    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }
}

const SLOT: u16 = 5;
const FREE: u64 = 0;
const HELD: u64 = 1;

/// A byte as the kernel keeps it.
pub(crate) struct ModelByte(ModelWord);

pub(crate) struct TakenByte(u16);

impl HeldByte for TakenByte {
    fn slot(&self) -> u16 {
        self.0
    }
}

impl ModelByte {
    pub(crate) fn held() -> Self {
        Self(ModelWord::new(HELD))
    }

    pub(crate) fn free() -> Self {
        Self(ModelWord::new(FREE))
    }

    /// What the kernel does at the death of the holder.
    pub(crate) fn die(&self) {
        assert_eq!(self.0.exchange(HELD, FREE, Ordering::Release), Ok(()));
    }

    pub(crate) fn try_take(&self, slot: u16) -> Option<TakenByte> {
        self.0
            .exchange(FREE, HELD, Ordering::AcqRel)
            .ok()
            .map(|()| TakenByte(slot))
    }

    pub(crate) fn ask(&self) -> Byte {
        match self.0.load(Ordering::Acquire) {
            FREE => Byte::Free,
            _ => Byte::Held,
        }
    }
}

pub(crate) fn row_of(id: AttachmentId, state: RowState) -> AttachmentWord<ModelWord> {
    let row = Row::new(id.generation(), state).unwrap();
    AttachmentWord(ModelWord::new(row.encode()))
}

struct Model {
    row: AttachmentWord<ModelWord>,
    byte: ModelByte,
    /// Something that the first occupant stores, or an identity.
    data: LoomU64,
}

impl Model {
    fn new(byte: ModelByte) -> Arc<Self> {
        Arc::new(Self {
            row: row_of(first(), RowState::Ready),
            byte,
            data: LoomU64::new(0),
        })
    }

    /// The first occupant stores something and dies.
    fn die(&self) {
        self.data.store(1, Ordering::Relaxed);
        self.byte.die();
    }

    /// Whoever learns from the row alone that the first occupant is over sees what it stored.
    fn expect_gone_sees_all(&self) {
        if self.row.life(first(), || Byte::Held) == Life::Gone {
            assert_eq!(self.data.load(Ordering::Relaxed), 1);
        }
    }
}

fn first() -> AttachmentId {
    AttachmentId::new(SLOT, 1).unwrap()
}

fn spawn(model: &Arc<Model>, f: fn(&Model)) -> thread::JoinHandle<()> {
    let model = Arc::clone(model);
    thread::spawn(move || f(&model))
}

#[test]
fn row_claimed_a_reaper_stopped_after_its_probe_does_not_end_the_next_occupant() {
    check(|| {
        let model = Model::new(ModelByte::free());
        let reaper = spawn(&model, |model| {
            if let Reaped::Emptied { generation } = model.row.reap(|| model.byte.ask()) {
                assert_eq!(generation, first().generation());
            }
        });
        let byte = model.byte.try_take(SLOT).unwrap();
        let id = model.row.claim(&byte).unwrap();
        assert!(id.generation() > first().generation());
        assert!(model.row.ready(id));
        reaper.join().unwrap();
        assert_eq!(
            model.row.load(),
            Ok(Row::new(id.generation(), RowState::Ready).unwrap())
        );
    });
}

#[test]
fn row_claimed_two_reapers_end_one_generation_once() {
    check(|| {
        let model = Model::new(ModelByte::free());
        let reaper = spawn(&model, |model| {
            let _ = model.row.reap(|| model.byte.ask());
        });
        let _ = model.row.reap(|| model.byte.ask());
        reaper.join().unwrap();
        assert_eq!(model.row.load(), Ok(Row::new(2, RowState::Empty).unwrap()));
    });
}

#[test]
fn row_claimed_an_occupant_is_never_taken_for_dead() {
    check(|| {
        let model = Model::new(ModelByte::free());
        let viewer = spawn(&model, |model| {
            if let Ok(row) = model.row.load()
                && row.state() != RowState::Empty
                && row.generation() > first().generation()
            {
                let id = AttachmentId::new(SLOT, row.generation()).unwrap();
                assert_eq!(model.row.life(id, || model.byte.ask()), Life::Held);
            }
        });
        let byte = model.byte.try_take(SLOT).unwrap();
        let id = model.row.claim(&byte).unwrap();
        assert!(model.row.ready(id));
        viewer.join().unwrap();
    });
}

#[test]
fn row_claimed_by_the_next_occupant_shows_what_the_dead_one_stored() {
    check(|| {
        let model = Model::new(ModelByte::held());
        let dying = spawn(&model, Model::die);
        let joiner = spawn(&model, |model| {
            if let Some(byte) = model.byte.try_take(SLOT) {
                assert!(model.row.claim(&byte).is_ok());
            }
        });
        model.expect_gone_sees_all();
        dying.join().unwrap();
        joiner.join().unwrap();
    });
}

#[test]
fn row_reaped_shows_what_the_dead_one_stored() {
    check(|| {
        let model = Model::new(ModelByte::held());
        let dying = spawn(&model, Model::die);
        let reaper = spawn(&model, |model| {
            let _ = model.row.reap(|| model.byte.ask());
        });
        model.expect_gone_sees_all();
        dying.join().unwrap();
        reaper.join().unwrap();
    });
}

#[test]
fn row_left_shows_what_the_one_who_left_stored() {
    check(|| {
        let model = Model::new(ModelByte::held());
        let owner = spawn(&model, |model| {
            model.data.store(1, Ordering::Relaxed);
            assert!(model.row.leave(first()));
            model.byte.die();
        });
        model.expect_gone_sees_all();
        owner.join().unwrap();
    });
}

#[test]
fn row_ready_shows_the_whole_identity() {
    check(|| {
        let model = Arc::new(Model {
            row: row_of(first(), RowState::Joining),
            byte: ModelByte::held(),
            data: LoomU64::new(0),
        });
        let owner = spawn(&model, |model| {
            model.data.store(1, Ordering::Relaxed);
            assert!(model.row.ready(first()));
            assert!(model.row.leaving(first()));
        });
        let row = model.row.load().unwrap();
        if row.state() != RowState::Joining {
            assert_eq!(model.data.load(Ordering::Relaxed), 1);
        }
        owner.join().unwrap();
    });
}

#[test]
fn row_identity_is_never_that_of_another_occupant() {
    check(|| {
        let model = Arc::new(Model {
            row: row_of(first(), RowState::Ready),
            byte: ModelByte::free(),
            data: LoomU64::new(1),
        });
        let joiner = spawn(&model, |model| {
            let byte = model.byte.try_take(SLOT).unwrap();
            let id = model.row.claim(&byte).unwrap();
            model
                .data
                .store(u64::from(id.generation()), Ordering::Relaxed);
            assert!(model.row.ready(id));
        });
        if let Some((row, identity)) = model.row.snapshot(|| model.data.load(Ordering::Relaxed))
            && row.state() == RowState::Ready
        {
            assert_eq!(identity, u64::from(row.generation()));
        }
        joiner.join().unwrap();
    });
}
