//! A ring for the model checker: narrow words, and atomics whose every stale value is tried.

use std::collections::HashMap;
use std::sync::Mutex as Ghost;
use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, fence};

use super::{Claim, Ended, Refusal, Spot, World, claim, end};
use crate::PeerId;
use crate::reading::{Place, Sight, is_still, land, look};
use crate::word::{Stage, Tail};

pub(crate) struct Shared {
    tail: AtomicU64,
    slots: Vec<Slot>,
    pub(crate) dead: AtomicU64,
    /// Who may store in which slot: what the protocol is to keep, known beside it.
    owners: Ghost<HashMap<u64, PeerId>>,
    died: Ghost<Vec<PeerId>>,
}

struct Slot {
    word: AtomicU64,
    number: AtomicU64,
    payload: AtomicU64,
}

loom::lazy_static! {
    /// Stored to, and read by nobody: see [`cross`].
    static ref CROSSING: AtomicU64 = AtomicU64::new(0);
}

/// A place where other threads may step in, before a load or a fence as before a store.
///
/// loom tries another order of two accesses only if one of them is the *last* before the other. In "A loads, B
/// loads, B stores" that hides from it that B could store before A loads. With a store before each access,
/// which nobody reads and which orders nothing, any two of them are in conflict.
pub(crate) fn cross() {
    CROSSING.store(0, Ordering::Relaxed);
}

impl World for Shared {
    type Bits = u64;

    fn slots(&self) -> u64 {
        self.slots.len() as u64
    }

    fn load(&self, at: Spot, order: Ordering) -> u64 {
        cross();
        self.word(at).load(order)
    }

    fn compare_exchange(
        &self,
        at: Spot,
        seen: u64,
        to: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        cross();
        self.word(at).compare_exchange(seen, to, success, failure)
    }

    fn number(&self, index: u64) -> u64 {
        let slot = &self.slots[usize::try_from(index).unwrap()];
        slot.number.load(Ordering::Relaxed)
    }

    fn set_number(&self, index: u64, number: u64) {
        let slot = &self.slots[usize::try_from(index).unwrap()];
        slot.number.store(number, Ordering::Relaxed);
    }

    fn is_dead(&self, peer: PeerId) -> bool {
        // The kernel's proof: whatever the dead one stored is visible after it.
        self.dead.fetch_add(0, Ordering::Acquire) & 1 << peer.slot() != 0
    }

    fn fence(&self, order: Ordering) {
        cross();
        fence(order);
    }
}

impl Shared {
    pub(crate) fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            tail: AtomicU64::new(0),
            slots: (0..slots)
                .map(|_| Slot {
                    word: AtomicU64::new(0),
                    number: AtomicU64::new(0),
                    payload: AtomicU64::new(0),
                })
                .collect(),
            dead: AtomicU64::new(0),
            owners: Ghost::default(),
            died: Ghost::default(),
        })
    }

    fn word(&self, at: Spot) -> &AtomicU64 {
        match at {
            Spot::Tail => &self.tail,
            Spot::Slot(index) => &self.slots[usize::try_from(index).unwrap()].word,
        }
    }

    pub(crate) fn die(&self, peer: PeerId) {
        self.died.lock().unwrap().push(peer);
        self.dead.fetch_add(1 << peer.slot(), Ordering::Release);
    }

    /// Claims slots for one record.
    pub(crate) fn begin(&self, me: PeerId, slots: u16) -> Result<Claim, Refusal> {
        let claim = claim(self, me, slots, 1)?;
        let mut owners = self.owners.lock().unwrap();
        for ahead in 0..u64::from(slots) {
            let old = owners.insert(self.index(claim.pos + ahead), me);
            if let Some(old) = old {
                assert!(
                    self.died.lock().unwrap().contains(&old),
                    "bytes of the living"
                );
            }
        }
        Ok(claim)
    }

    /// Stores the record, which is its number in each slot.
    pub(crate) fn store(&self, claim: &Claim) {
        for ahead in 0..u64::from(claim.slots) {
            self.payload(claim.pos + ahead)
                .store(claim.first, Ordering::Relaxed);
        }
    }

    fn payload(&self, pos: u64) -> &AtomicU64 {
        &self.slots[usize::try_from(self.index(pos)).unwrap()].payload
    }

    pub(crate) fn finish(&self, claim: &Claim, stage: Stage) -> Ended {
        // Before the exchange that says so to the others.
        let mut owners = self.owners.lock().unwrap();
        for ahead in 0..u64::from(claim.slots) {
            let mine = owners.remove(&self.index(claim.pos + ahead));
            assert_eq!(mine, Some(claim.owner), "others took what was not given up");
        }
        drop(owners);
        end(self, claim, stage).unwrap()
    }

    /// The number, and what became of it.
    pub(crate) fn publish(&self, me: PeerId, slots: u16) -> (u64, Ended) {
        let claim = self.begin(me, slots).unwrap();
        self.store(&claim);
        (claim.first, self.finish(&claim, Stage::Committed))
    }

    pub(crate) fn now(&self) -> Tail {
        super::load_tail(self)
    }
}

/// A cursor that counts, and holds every record that it delivers against its number.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) at: Place,
    pub(crate) delivered: Vec<u64>,
    pub(crate) abandoned: Vec<u64>,
    pub(crate) lapped: u64,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            at: Place { pos: 0, number: 1 },
            delivered: Vec::new(),
            abandoned: Vec::new(),
            lapped: 0,
        }
    }
}

impl Reader {
    /// Takes one step; `false` when there is nothing to be done now.
    pub(crate) fn step(&mut self, shared: &Shared) -> bool {
        match look(shared, self.at).unwrap() {
            Sight::Committed { at, seen, head } => {
                let copy: Vec<u64> = (0..u64::from(head.slots))
                    .map(|ahead| shared.payload(at.pos + ahead).load(Ordering::Relaxed))
                    .collect();
                self.at = at;
                if !is_still(shared, at.pos, seen) {
                    return self.jump(shared);
                }
                assert_eq!(copy, vec![at.number; copy.len()], "another's bytes");
                self.delivered.push(at.number);
                self.at = at.after(head);
                true
            }
            Sight::Abandoned { at, head } => {
                self.abandoned.push(at.number);
                self.at = at.after(head);
                true
            }
            Sight::Lapped => self.jump(shared),
            Sight::Writing { at, .. } | Sight::Empty { at } => {
                self.at = at;
                false
            }
        }
    }

    fn jump(&mut self, shared: &Shared) -> bool {
        let to = land(shared, 0).unwrap();
        assert!(to.number >= self.at.number && to.pos > self.at.pos, "back");
        self.lapped += to.number - self.at.number;
        self.at = to;
        true
    }

    pub(crate) fn drain(&mut self, shared: &Shared) {
        while self.step(shared) {}
    }

    pub(crate) fn check(&self, shared: &Shared) {
        let counted = self.delivered.len() as u64 + self.abandoned.len() as u64 + self.lapped;
        let tail = shared.now();
        let pending = tail.next() - self.at.number;
        assert_eq!(counted + pending, tail.records, "{self:?}");
    }
}

pub(crate) fn peer(slot: u16) -> PeerId {
    PeerId::new(slot, 1).unwrap()
}

pub(crate) fn check(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(f);
}
