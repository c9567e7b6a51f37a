//! The verbs on the real word, one after another, against a model that knows no word: several processes, time
//! that jumps, deaths, fences told lost, floors that rise.

use std::cell::{Cell as Plain, RefCell};
use std::sync::atomic::Ordering;
use std::time::Duration;

use proptest::prelude::*;

use super::rules::History;
use super::{Cell, Mark, World};
use crate::outcome::{Acquire, Lost, Refused, Renewed, TookOver};
use crate::word::{NS_PER_MS, Owner, Word};
use crate::{PeerId, Ttl};

/// After how many more uses of the row, and what happens then.
pub(super) type Interruption = (u32, Box<dyn FnOnce(&Row)>);

/// A row in the memory of this thread, whose every use can be interrupted.
pub(super) struct Row {
    word: Plain<u128>,
    asked: Number,
    told: Number,
    pub(super) now_ms: Plain<u64>,
    pub(super) gone: Plain<bool>,
    pub(super) named: Plain<bool>,
    least: Plain<u64>,
    reserved: Plain<u64>,
    pub(super) wakes: Plain<u32>,
    pub(super) slept: RefCell<Vec<Duration>>,
    pub(super) history: RefCell<History>,
    /// What is to happen before which use.
    pub(super) interruption: RefCell<Option<Interruption>>,
}

#[derive(Default)]
pub(super) struct Number(Plain<u64>);

impl Mark for Number {
    fn load(&self, _: Ordering) -> u64 {
        self.0.get()
    }

    fn store(&self, value: u64, _: Ordering) {
        self.0.set(value);
    }

    fn fetch_max(&self, value: u64, _: Ordering) -> u64 {
        self.0.replace(self.0.get().max(value))
    }

    fn fence(&self, _: Ordering) {}
}

impl Row {
    pub(super) fn new(word: Word) -> Self {
        Self {
            word: Plain::new(word.encode().unwrap()),
            asked: Number::default(),
            told: Number::default(),
            now_ms: Plain::new(0),
            gone: Plain::new(false),
            named: Plain::new(true),
            least: Plain::new(0),
            reserved: Plain::new(0),
            wakes: Plain::new(0),
            slept: RefCell::default(),
            history: RefCell::new(History::new(word)),
            interruption: RefCell::default(),
        }
    }

    pub(super) fn pass(&self, ms: u64) {
        self.now_ms.set(self.now_ms.get() + ms);
        self.history.borrow_mut().now_ms = self.now_ms.get();
    }

    pub(super) fn kill(&self, peer: PeerId) {
        self.history.borrow_mut().dead.push(peer);
    }

    pub(super) fn now(&self) -> Word {
        Word::decode(self.word.get()).unwrap()
    }

    /// A use of the row by the code under test.
    fn step(&self) {
        let taken = self.interruption.take();
        match taken {
            None => {}
            Some((0, what)) => what(self),
            Some((uses, what)) => *self.interruption.borrow_mut() = Some((uses - 1, what)),
        }
    }
}

impl Cell for Row {
    type Bits = u128;

    fn load(&self, _: Ordering) -> u128 {
        self.step();
        self.word.get()
    }

    fn compare_exchange(
        &self,
        seen: u128,
        to: u128,
        _: Ordering,
        _: Ordering,
    ) -> Result<u128, u128> {
        self.step();
        if self.word.get() != seen {
            return Err(self.word.get());
        }
        let (from, after) = (self.now(), Word::decode(to).unwrap());
        if from.fence != after.fence {
            assert!(self.reserved.get() >= after.fence, "not reserved");
            assert!(after.fence >= self.least.get(), "below the least fence");
        }
        self.history.borrow_mut().replace(from, after);
        self.word.set(to);
        Ok(seen)
    }
}

impl World for Row {
    type Cell = Self;
    type Mark = Number;

    fn word(&self) -> &Self {
        self
    }

    fn asked(&self) -> &Number {
        self.step();
        &self.asked
    }

    fn told(&self) -> &Number {
        self.step();
        &self.told
    }

    fn now_ns(&self) -> u64 {
        self.step();
        self.now_ms.get() * NS_PER_MS
    }

    fn is_named(&self) -> bool {
        self.step();
        self.named.get()
    }

    fn is_gone(&self) -> bool {
        self.step();
        self.gone.get()
    }

    fn least_fence(&self) -> u64 {
        self.step();
        self.least.get()
    }

    fn reserve(&self, fence: u64) -> bool {
        self.step();
        self.reserved.set(self.reserved.get().max(fence));
        true
    }

    fn is_dead(&self, peer: PeerId, _: u64) -> bool {
        self.step();
        self.history.borrow().dead.contains(&peer)
    }

    fn is_heir(&self, _: u64, _: PeerId) -> bool {
        false
    }

    fn taken(&self, _: u64, _: u64, _: Option<TookOver>) {
        self.step();
    }

    fn sleep(&self, half: u32, _: Option<PeerId>, timeout: Duration) {
        self.step();
        self.slept.borrow_mut().push(timeout);
        if self.now().half::<u128>() == Some(half) {
            self.pass(u64::try_from(timeout.as_millis()).unwrap().max(1));
        }
    }

    fn wake_all(&self) {
        self.wakes.set(self.wakes.get() + 1);
    }
}

pub(super) fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).unwrap()
}

/// What a lease is, without a word: the newest fence, and who has it until when.
#[derive(Default)]
struct Lease {
    fence: u64,
    holder: Option<(PeerId, u64)>,
    not_before: u64,
    told: Vec<u64>,
    least: u64,
}

/// A process that is killed comes back in the same slot, as somebody else.
struct Process {
    id: PeerId,
    fence: u64,
}

#[derive(Clone, Debug)]
enum Op {
    Acquire { who: usize, ttl: u64 },
    Renew { who: usize, ttl: u64 },
    Release { who: usize, hold: u64 },
    Mine { who: usize },
    TellLost { who: usize },
    Kill { who: usize },
    Pass { ms: u64 },
    Floor { raise: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let who = 0..3_usize;
    prop_oneof![
        4 => (who.clone(), 1..100_u64).prop_map(|(who, ttl)| Op::Acquire { who, ttl }),
        3 => (who.clone(), 1..100_u64).prop_map(|(who, ttl)| Op::Renew { who, ttl }),
        1 => (who.clone(), prop_oneof![Just(0), 1..50_u64])
            .prop_map(|(who, hold)| Op::Release { who, hold }),
        2 => who.clone().prop_map(|who| Op::Mine { who }),
        1 => who.clone().prop_map(|who| Op::TellLost { who }),
        1 => who.prop_map(|who| Op::Kill { who }),
        3 => prop_oneof![1..20_u64, 20..200_u64].prop_map(|ms| Op::Pass { ms }),
        1 => (1..5_u64).prop_map(|raise| Op::Floor { raise }),
    ]
}

impl Lease {
    fn acquire(&mut self, me: PeerId, now: u64, ttl: u64, dead: &[PeerId]) -> Acquired {
        let mut took = None;
        match self.holder {
            None if now < self.not_before => return Acquired::NotBefore,
            None => {}
            Some((by, until)) if by == me && now < until && !self.told.contains(&self.fence) => {
                self.holder = Some((me, until.max(now + ttl)));
                return Acquired::Held(self.fence, None);
            }
            Some((by, until)) if by == me || now >= until => took = Some(Took::Lapsed(by)),
            Some((by, _)) if dead.contains(&by) => took = Some(Took::Dead(by)),
            Some((by, _)) => return Acquired::Refused(by),
        }
        self.fence = (self.fence + 1).max(self.least);
        self.holder = Some((me, now + ttl));
        Acquired::Held(self.fence, took)
    }

    fn holds(&self, me: PeerId, fence: u64) -> bool {
        self.holder.is_some_and(|(by, _)| by == me) && self.fence == fence
    }

    fn renew(&mut self, me: PeerId, fence: u64, now: u64, ttl: u64) -> Option<u64> {
        if !self.holds(me, fence) || self.told.contains(&fence) {
            return None;
        }
        let until = self.holder?.1.max(now + ttl);
        self.holder = Some((me, until));
        Some(until)
    }

    fn is_mine(&self, me: PeerId, fence: u64, now: u64) -> bool {
        self.holds(me, fence)
            && !self.told.contains(&fence)
            && self.holder.is_some_and(|(_, until)| now < until)
    }
}

#[derive(PartialEq, Debug)]
enum Acquired {
    Held(u64, Option<Took>),
    Refused(PeerId),
    NotBefore,
}

#[derive(PartialEq, Debug)]
enum Took {
    Lapsed(PeerId),
    Dead(PeerId),
}

fn seen(outcome: Acquire) -> Acquired {
    match outcome {
        Acquire::Held(hold) => {
            let took = hold.took_over.map(|took| match took {
                TookOver::Lapsed { from, .. } => Took::Lapsed(from),
                TookOver::Dead { from, .. } => Took::Dead(from),
            });
            Acquired::Held(hold.fence, took)
        }
        Acquire::Refused(Refused::Held { by, .. }) => Acquired::Refused(by),
        Acquire::Refused(Refused::NotBefore { .. }) => Acquired::NotBefore,
        Acquire::Refused(other) => panic!("nobody is in the way: {other:?}"),
    }
}

proptest! {
    #[test]
    fn the_verbs_agree_with_a_lease_that_has_no_word(ops in prop::collection::vec(op(), 1..80)) {
        let row = Row::new(Word { fence: 0, owner: Owner::Nobody, until_ms: 0 });
        let mut lease = Lease::default();
        let mut processes = [0, 1, 2].map(|slot| Process {
            id: PeerId::new(slot, 1).unwrap(),
            fence: 0,
        });
        for op in ops {
            let now = row.now_ms.get();
            match op {
                Op::Acquire { who, ttl: ms } => {
                    let me = processes[who].id;
                    let dead = row.history.borrow().dead.clone();
                    let expected = lease.acquire(me, now, ms, &dead);
                    let outcome = super::acquire(&row, me, ttl(ms)).unwrap();
                    prop_assert_eq!(seen(outcome), expected);
                    if let Some(hold) = outcome.held() {
                        processes[who].fence = hold.fence;
                    }
                }
                Op::Renew { who, ttl: ms } => {
                    let Process { id, fence } = processes[who];
                    let expected = lease.renew(id, fence, now, ms);
                    match super::renew(&row, id, fence, ttl(ms)).unwrap() {
                        Renewed::Held { until_ms, .. } => {
                            prop_assert_eq!(Some(until_ms), expected);
                        }
                        Renewed::Lost(lost) => {
                            prop_assert_eq!(None, expected);
                            if let (Lost::Taken { by, fence }, Some(holder)) = (lost, lease.holder) {
                                prop_assert_eq!((by, fence), (holder.0, lease.fence));
                            }
                        }
                    }
                }
                Op::Release { who, hold } => {
                    let Process { id, fence } = processes[who];
                    let expected = lease.holds(id, fence);
                    if expected {
                        lease.holder = None;
                        lease.not_before = now + hold;
                    }
                    let released = super::release(&row, id, fence, now + hold).unwrap();
                    prop_assert_eq!(released, expected);
                }
                Op::Mine { who } => {
                    let Process { id, fence } = processes[who];
                    let expected = lease.is_mine(id, fence, now);
                    prop_assert_eq!(super::mine(&row, id, fence).unwrap(), expected);
                    if expected {
                        prop_assert_eq!(super::current(&row, id), Ok(Some(fence)));
                    }
                }
                Op::TellLost { who } => {
                    let Process { id, fence } = processes[who];
                    if lease.holds(id, fence) {
                        lease.told.push(fence);
                    }
                    super::tell_lost(&row, id, fence);
                }
                Op::Kill { who } => {
                    let old = processes[who].id;
                    row.kill(old);
                    let id = PeerId::new(old.slot(), old.generation() + 1).unwrap();
                    processes[who] = Process { id, fence: 0 };
                }
                Op::Pass { ms } => row.pass(ms),
                Op::Floor { raise } => {
                    lease.least = lease.fence + raise;
                    row.least.set(lease.least);
                }
            }
            prop_assert_eq!(row.now().fence, lease.fence);
            let holder = lease.holder.map(|(peer, _)| Owner::Peer(peer));
            prop_assert_eq!(row.now().owner, holder.unwrap_or(Owner::Nobody));
            let until = lease.holder.map_or(lease.not_before, |(_, until)| until);
            prop_assert_eq!(row.now().until_ms, until);
        }
    }
}
