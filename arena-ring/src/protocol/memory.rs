//! A ring in the memory of one thread, on the real words, whose every use can be interrupted; and what the tests know of
//! it beside the library.

use std::cell::{Cell as Plain, RefCell};
use std::sync::atomic::Ordering;

use super::{Claim, Ended, Refusal, Spot, World, claim, end, load_tail};
use crate::PeerId;
use crate::reading::{Place, Sight, give_up, is_still, land, look};
use crate::word::{Stage, Tail, What, Word};

/// After how many more uses of the ring, and what happens then.
pub(super) type Interruption = (u32, Box<dyn FnOnce(&Memory)>);

pub(super) struct Memory {
    tail: Plain<u128>,
    slots: Vec<Slot>,
    /// Which claim stores in the slot.
    owners: RefCell<Vec<Option<Claim>>>,
    pub(super) dead: RefCell<Vec<PeerId>>,
    /// By number, less `numbered`.
    pub(super) records: RefCell<Vec<Record>>,
    numbered: u64,
    pub(super) interruption: RefCell<Option<Interruption>>,
    /// A claim that an interruption made, and left open.
    kept: Plain<Option<Claim>>,
}

#[derive(Default)]
struct Slot {
    word: Plain<u128>,
    number: Plain<u64>,
    payload: Plain<u64>,
}

/// What really became of a record.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) claim: Claim,
    pub(super) fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Open,
    Committed,
    /// Dropped, or withdrawn by readers.
    GivenUp,
    Lapsed,
}

impl World for Memory {
    type Bits = u128;

    fn slots(&self) -> u64 {
        self.slots.len() as u64
    }

    fn load(&self, at: Spot, _: Ordering) -> u128 {
        self.step();
        self.word(at).get()
    }

    fn compare_exchange(
        &self,
        at: Spot,
        seen: u128,
        to: u128,
        _: Ordering,
        _: Ordering,
    ) -> Result<u128, u128> {
        self.step();
        let found = self.word(at).get();
        if found != seen {
            return Err(found);
        }
        if let (Spot::Slot(_), Some(from)) = (at, Word::decode(seen)) {
            let after = Word::decode(to).unwrap();
            assert!(after.turn == from.turn || after.turn == from.turn + 1);
        }
        self.word(at).set(to);
        Ok(seen)
    }

    fn number(&self, index: u64) -> u64 {
        self.step();
        self.slot(index).number.get()
    }

    fn set_number(&self, index: u64, number: u64) {
        self.step();
        self.slot(index).number.set(number);
    }

    fn is_dead(&self, peer: PeerId) -> bool {
        self.step();
        self.dead.borrow().contains(&peer)
    }

    fn fence(&self, _: Ordering) {}
}

impl Memory {
    /// A ring whose slots were claimed `turns` times, for `numbered` records.
    pub(super) fn new(slots: usize, turns: u64, numbered: u64) -> Self {
        let word = Word {
            turn: turns,
            what: What::Void,
        };
        let tail = Tail {
            pos: turns * slots as u64,
            records: numbered,
        };
        let slot = || Slot {
            word: Plain::new(word.encode().unwrap()),
            ..Slot::default()
        };
        Self {
            tail: Plain::new(tail.encode().unwrap()),
            slots: (0..slots).map(|_| slot()).collect(),
            owners: RefCell::new(vec![None; slots]),
            dead: RefCell::default(),
            records: RefCell::default(),
            numbered,
            interruption: RefCell::default(),
            kept: Plain::new(None),
        }
    }

    /// A use of the ring by the code under test.
    fn step(&self) {
        let taken = self.interruption.take();
        match taken {
            None => {}
            Some((0, what)) => what(self),
            Some((uses, what)) => *self.interruption.borrow_mut() = Some((uses - 1, what)),
        }
    }

    fn word(&self, at: Spot) -> &Plain<u128> {
        match at {
            Spot::Tail => &self.tail,
            Spot::Slot(index) => &self.slot(index).word,
        }
    }

    fn slot(&self, index: u64) -> &Slot {
        &self.slots[usize::try_from(index).unwrap()]
    }

    fn index_of(&self, pos: u64) -> usize {
        usize::try_from(self.index(pos)).unwrap()
    }

    pub(super) fn words(&self) -> Vec<Word> {
        let decode = |slot: &Slot| Word::decode(slot.word.get()).unwrap();
        self.slots.iter().map(decode).collect()
    }

    pub(super) fn tail_now(&self) -> Tail {
        Tail::decode(self.tail.get())
    }

    pub(super) fn is_alive(&self, peer: PeerId) -> bool {
        !self.dead.borrow().contains(&peer)
    }

    /// How many slots in a row, once around the ring, are nobody's.
    pub(super) fn room(&self) -> usize {
        let owners = self.owners.borrow();
        let is_free = |at: &usize| {
            let owner = owners[at % owners.len()];
            owner.is_none_or(|claim| !self.is_alive(claim.owner))
        };
        let from = |at: usize| (at..at + owners.len()).take_while(is_free).count();
        (0..owners.len()).map(from).max().unwrap()
    }

    /// Claims slots; the claim is open from now on.
    pub(super) fn begin(&self, me: PeerId, slots: u16, records: u16) -> Result<Claim, Refusal> {
        let claim = claim(self, me, slots, records)?;
        let mut all = self.records.borrow_mut();
        let fresh = Record {
            claim,
            fate: Fate::Open,
        };
        // Whoever was interrupted may hear of his number later than the next one of his.
        let last = usize::try_from(claim.first - self.numbered).unwrap() + usize::from(records) - 1;
        let unknown = Record {
            claim: Claim { slots: 0, ..claim },
            fate: Fate::Open,
        };
        if all.len() < last {
            all.resize(last, unknown);
        }
        for ahead in 0..usize::from(records) {
            all[last - 1 - ahead] = fresh.clone();
        }
        let mut owners = self.owners.borrow_mut();
        for ahead in 0..u64::from(slots) {
            let owner = &mut owners[self.index_of(claim.pos + ahead)];
            if let Some(old) = owner.replace(claim) {
                assert!(!self.is_alive(old.owner), "{old:?} is not over: {claim:?}");
            }
        }
        Ok(claim)
    }

    /// Stores the records: the first one's number, in each slot.
    pub(super) fn store(&self, claim: &Claim) {
        for ahead in 0..u64::from(claim.slots) {
            let index = self.index(claim.pos + ahead);
            self.slot(index).payload.set(claim.first);
        }
    }

    pub(super) fn finish(&self, claim: &Claim, stage: Stage) -> Ended {
        for ahead in 0..u64::from(claim.slots) {
            let owner = self.owners.borrow_mut()[self.index_of(claim.pos + ahead)].take();
            assert_eq!(owner, Some(*claim), "others took what was not given up");
        }
        // Before it is: readers may come in between.
        let before = match stage {
            Stage::Committed => Fate::Committed,
            _ => Fate::GivenUp,
        };
        self.set_fate(claim, before);
        let ended = end(self, claim, stage).unwrap();
        match ended {
            Ended::AsAsked => {}
            Ended::Withdrawn => self.set_fate(claim, Fate::GivenUp),
            Ended::Lapsed => self.set_fate(claim, Fate::Lapsed),
        }
        ended
    }

    fn set_fate(&self, claim: &Claim, fate: Fate) {
        for record in self.records.borrow_mut().iter_mut() {
            if record.claim == *claim {
                record.fate = fate;
            }
        }
    }

    pub(super) fn publish(&self, me: PeerId, slots: u16) -> Result<(u64, Ended), Refusal> {
        let claim = self.begin(me, slots, 1)?;
        self.store(&claim);
        Ok((claim.first, self.finish(&claim, Stage::Committed)))
    }

    pub(super) fn keep(&self, claim: Claim) {
        self.kept.set(Some(claim));
    }

    pub(super) fn kept(&self) -> Option<Claim> {
        self.kept.take()
    }

    /// Enters the claims of those who were killed before they heard of them.
    pub(super) fn note_orphans(&self) {
        for word in self.words() {
            let What::Head(head) = word.what else {
                continue;
            };
            let known = self.records.borrow().len() as u64;
            if known < u64::from(head.records) {
                let claim = Claim {
                    pos: 0,
                    owner: head.owner,
                    slots: head.slots,
                    first: self.numbered + 1,
                    records: head.records,
                };
                let fate = Fate::Open;
                self.records.borrow_mut().push(Record { claim, fate });
            }
        }
    }

    fn record(&self, number: u64) -> Record {
        self.records.borrow()[usize::try_from(number - self.numbered - 1).unwrap()].clone()
    }
}

/// A cursor that counts, and holds all that it is told against the truth.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    pub(super) at: Place,
    began: u64,
    pub(super) delivered: Vec<u64>,
    pub(super) abandoned: Vec<u64>,
    pub(super) lapped: u64,
}

impl Reader {
    pub(super) fn oldest(memory: &Memory) -> Self {
        Self::at(land(memory, 0).unwrap())
    }

    pub(super) fn at(at: Place) -> Self {
        Self {
            at,
            began: at.number,
            delivered: Vec::new(),
            abandoned: Vec::new(),
            lapped: 0,
        }
    }

    /// Takes one step; `false` when there is nothing to be done now.
    pub(super) fn step(&mut self, memory: &Memory) -> bool {
        match look(memory, self.at).unwrap() {
            Sight::Committed { at, seen, head } => {
                let copy: Vec<u64> = (0..u64::from(head.slots))
                    .map(|ahead| memory.slot(memory.index(at.pos + ahead)).payload.get())
                    .collect();
                self.at = at;
                memory.step();
                if !is_still(memory, at.pos, seen) {
                    return self.jump(memory);
                }
                for number in at.number..at.number + u64::from(head.records) {
                    let record = memory.record(number);
                    assert_eq!(record.fate, Fate::Committed, "{record:?}");
                    assert_eq!(copy, vec![record.claim.first; copy.len()], "{record:?}");
                    self.delivered.push(number);
                }
                self.at = at.after(head);
                true
            }
            Sight::Abandoned { at, head } => {
                for number in at.number..at.number + u64::from(head.records) {
                    let record = memory.record(number);
                    let open = record.fate == Fate::Open && memory.is_alive(record.claim.owner);
                    assert!(!open || self.was_withdrawn(memory, at), "{record:?}");
                    assert_ne!(record.fate, Fate::Lapsed, "{record:?}");
                    self.abandoned.push(number);
                }
                self.at = at.after(head);
                true
            }
            Sight::Lapped => self.jump(memory),
            Sight::Writing { at, .. } | Sight::Empty { at } => {
                self.at = at;
                false
            }
        }
    }

    fn was_withdrawn(&self, memory: &Memory, at: Place) -> bool {
        let word = memory.words()[memory.index_of(at.pos)];
        matches!(word.what, What::Head(head) if head.stage == Stage::Withdrawn)
    }

    /// Gives up the record that it waits for.
    pub(super) fn withdraw(&mut self, memory: &Memory) {
        if let Sight::Writing { at, seen, .. } = look(memory, self.at).unwrap() {
            give_up(memory, at, seen, Stage::Withdrawn).unwrap();
        }
    }

    fn jump(&mut self, memory: &Memory) -> bool {
        let to = land(memory, 0).unwrap();
        assert!(to.number >= self.at.number && to.pos > self.at.pos, "back");
        let oldest = load_tail(memory).pos.saturating_sub(memory.slots());
        for number in self.at.number..to.number {
            let record = memory.record(number);
            assert!(record.claim.pos < oldest, "still there: {record:?}");
        }
        self.lapped += to.number - self.at.number;
        self.at = to;
        true
    }

    pub(super) fn drain(&mut self, memory: &Memory) {
        while self.step(memory) {}
        self.check(memory);
    }

    /// Nothing is counted twice, and nothing is forgotten.
    pub(super) fn check(&self, memory: &Memory) {
        let counted = self.delivered.len() as u64 + self.abandoned.len() as u64 + self.lapped;
        let next = memory.tail_now().next();
        let pending = next - self.at.number;
        assert_eq!(counted + pending, next - self.began, "{self:?}");
        for numbers in [&self.delivered, &self.abandoned] {
            assert!(numbers.is_sorted_by(|a, b| a < b), "{self:?}");
        }
    }
}

pub(super) fn peer(slot: u16) -> PeerId {
    PeerId::new(slot, 1).unwrap()
}
