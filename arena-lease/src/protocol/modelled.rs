//! A lease for the model checker: a narrow word, atomics whose every stale value is tried, and a futex without
//! timeouts.

use std::sync::Mutex as Ghost;
use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};

use super::rules::History;
use super::{Cell, Fault, Mark, World};
use crate::name::Name;
use crate::outcome::{Acquire, Renewed, TookOver};
use crate::word::{NS_PER_MS, Owner, Word, narrow::half_of};
use crate::{PeerId, Ttl};

pub(crate) const TTL_MS: u64 = 100;

pub(crate) struct Shared {
    pub(crate) word: Narrow,
    pub(crate) asked: Number,
    pub(crate) told: Number,
    /// A name of two words, so that it can be torn.
    pub(crate) name_len: Number,
    pub(crate) name: [Number; 2],
    pub(crate) counters: [Number; 3],
    /// The table's.
    pub(crate) high: Number,
    /// The name that the verbs mean; `None`: whichever the row has.
    meant: Option<Name>,
    pub(crate) clock_ms: AtomicU64,
    pub(crate) gone: AtomicU64,
    pub(crate) dead: AtomicU64,
    /// What holders write and successors read, unsynchronised but for the lease.
    pub(crate) work: AtomicU64,
    /// What the clock said when it was last read.
    pub(super) read_ms: Ghost<u64>,
    sleepers: Mutex<()>,
    rung: Condvar,
    pub(super) history: Ghost<History>,
}

impl Cell for Shared {
    type Bits = u64;

    fn load(&self, order: Ordering) -> u64 {
        self.word.load(order)
    }

    fn compare_exchange(
        &self,
        seen: u64,
        to: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let result = self.word.compare_exchange(seen, to, success, failure);
        if result.is_ok() {
            let (from, to) = (Word::decode(seen).unwrap(), Word::decode(to).unwrap());
            self.history.lock().unwrap().replace(from, to);
        }
        result
    }
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

/// A word that is exchanged.
pub(crate) struct Narrow(pub(crate) AtomicU64);

impl Narrow {
    pub(crate) fn new(bits: u64) -> Self {
        Self(AtomicU64::new(bits))
    }
}

impl Cell for Narrow {
    type Bits = u64;

    fn load(&self, order: Ordering) -> u64 {
        cross();
        self.0.load(order)
    }

    fn compare_exchange(
        &self,
        seen: u64,
        to: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        cross();
        self.0.compare_exchange(seen, to, success, failure)
    }
}

pub(crate) struct Number(AtomicU64);

impl Number {
    pub(crate) fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
}

impl Mark for Number {
    fn load(&self, order: Ordering) -> u64 {
        cross();
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        cross();
        self.0.store(value, order);
    }

    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        cross();
        self.0.fetch_max(value, order)
    }

    fn fence(&self, order: Ordering) {
        cross();
        fence(order);
    }
}

impl World for Shared {
    type Cell = Self;
    type Mark = Number;

    fn word(&self) -> &Self {
        self
    }

    fn asked(&self) -> &Number {
        &self.asked
    }

    fn told(&self) -> &Number {
        &self.told
    }

    fn now_ns(&self) -> u64 {
        // A read-modify-write, so that it is the newest value as a clock's is; relaxed, because reading a clock
        // makes nothing else visible.
        let now_ms = self.clock_ms.fetch_add(0, Ordering::Relaxed);
        *self.read_ms.lock().unwrap() = now_ms;
        now_ms * NS_PER_MS
    }

    fn is_named(&self) -> bool {
        let is = |name: Name| name.is(&self.name_len, &self.name);
        self.meant.is_none_or(is)
    }

    fn is_gone(&self) -> bool {
        self.gone.fetch_add(0, Ordering::Relaxed) != 0
    }

    fn least_fence(&self) -> u64 {
        0
    }

    fn reserve(&self, _: u64) -> bool {
        true
    }

    fn is_dead(&self, peer: PeerId, _: u64) -> bool {
        // The kernel's proof: whatever the dead one stored is visible after it.
        self.dead.fetch_add(0, Ordering::Acquire) & 1 << peer.slot() != 0
    }

    fn is_heir(&self, _: u64, _: PeerId) -> bool {
        false
    }

    fn taken(&self, _: u64, _: u64, _: Option<TookOver>) {}

    fn sleep(&self, half: u32, _: Option<PeerId>, _: Duration) {
        // No timeout: a wake-up that was lost is a deadlock here. Like the kernel, looks under the lock that
        // wakers take.
        let guard = self.sleepers.lock().unwrap();
        if half_of(self.word.0.load(Ordering::Relaxed)) == half {
            drop(self.rung.wait(guard).unwrap());
        }
    }

    fn wake_all(&self) {
        drop(self.sleepers.lock().unwrap());
        self.rung.notify_all();
    }
}

impl Shared {
    /// A lease that `holder` has at fence 1 from time 0 on.
    pub(crate) fn held_by(holder: PeerId) -> Arc<Self> {
        let word = Word {
            fence: 1,
            owner: Owner::Peer(holder),
            until_ms: TTL_MS,
        };
        Self::new(word)
    }

    pub(crate) fn new(word: Word) -> Arc<Self> {
        Self::named(word, None)
    }

    /// A row that has the name 1.
    pub(crate) fn named(word: Word, meant: Option<Name>) -> Arc<Self> {
        let bits = word.encode().unwrap();
        let shared = Self {
            word: Narrow::new(bits),
            asked: Number::new(0),
            told: Number::new(0),
            name_len: Number::new(0),
            name: [0, 0].map(Number::new),
            counters: [1, 1, 1].map(Number::new),
            high: Number::new(0),
            meant,
            clock_ms: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            work: AtomicU64::new(0),
            read_ms: Ghost::new(0),
            sleepers: Mutex::new(()),
            rung: Condvar::new(),
            history: Ghost::new(History::new(word)),
        };
        name(1).store(&shared.name_len, &shared.name);
        Arc::new(shared)
    }

    pub(crate) fn pass(&self, ms: u64) {
        self.clock_ms.fetch_add(ms, Ordering::Relaxed);
        self.history.lock().unwrap().now_ms += ms;
    }

    pub(crate) fn die(&self, peer: PeerId) {
        self.dead.fetch_add(1 << peer.slot(), Ordering::Release);
        self.history.lock().unwrap().dead.push(peer);
    }

    pub(crate) fn acquire(&self, me: PeerId) -> Result<Acquire, Fault> {
        let outcome = super::acquire(self, me, ttl());
        if let Ok(Acquire::Held(hold)) = outcome {
            self.claim(me, hold.fence, hold.until_ms, hold.left);
        }
        outcome
    }

    pub(crate) fn renew(&self, me: PeerId, fence: u64) -> Renewed {
        let renewed = super::renew(self, me, fence, ttl()).unwrap();
        if let Renewed::Held { until_ms, left } = renewed {
            self.claim(me, fence, until_ms, left);
        }
        renewed
    }

    pub(crate) fn claim(&self, me: PeerId, fence: u64, until_ms: u64, left: Duration) {
        let mut history = self.history.lock().unwrap();
        history.claim(me, fence, until_ms, left);
    }

    pub(crate) fn check_claims(&self) {
        self.history.lock().unwrap().check_claims();
    }
}

/// Names of two words, which differ in both.
pub(crate) fn name(number: u8) -> Name {
    Name::new(&[number; 16]).unwrap()
}

pub(crate) fn peer(slot: u16) -> PeerId {
    PeerId::new(slot, 1).unwrap()
}

pub(crate) fn ttl() -> Ttl {
    Ttl::new(Duration::from_millis(TTL_MS)).unwrap()
}

pub(crate) fn check(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(f);
}
