//! A row of the table in shared memory, as the verbs use it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arena_peers::PeerId;

use crate::companion::{Keeps, keeps, own_namespace};
use crate::layout::Row;
use crate::leases::Inner;
use crate::name::Name;
use crate::outcome::TookOver;
use crate::protocol::World;
use crate::snapshot::{pack_heir, pack_since};
use crate::wait::{Bedside, On, UNTOLD};
use crate::word::{NS_PER_MS, Owner, Word};

/// A row, and what its verbs ask about the world.
pub(crate) struct Live<'a> {
    pub(crate) row: &'a Row,
    pub(crate) name: &'a Name,
    pub(crate) inner: &'a Inner,
    pub(crate) bedside: &'a Bedside,
}

/// Who holds.
pub(crate) struct Holding {
    pub(crate) by: PeerId,
    /// It is dead, and who works on its behalf is not, or cannot be asked.
    pub(crate) beyond: Option<Keeps>,
}

impl Live<'_> {
    /// Who holds by this word: nobody whose lease lapsed, or who is proven dead and left no companion.
    pub(crate) fn holding(&self, word: Word) -> Option<Holding> {
        let Owner::Peer(by) = word.owner else {
            return None;
        };
        if word.is_over(self.now_ns()) {
            return None;
        }
        let beyond = match self.inner.is_dead(by) {
            false => None,
            true => match self.keeps(by, word.fence) {
                Keeps::No => return None,
                keeps => Some(keeps),
            },
        };
        Some(Holding { by, beyond })
    }

    /// Sleeps until who leads may be another one than `leader`, whom `word` was found to name.
    pub(crate) fn watch(&self, word: Word, leader: Option<PeerId>, timeout: Duration) {
        let half = word.half::<u128>().expect("it was decoded");
        let bits: u128 = word.encode().expect("likewise");
        // A renewal changes this, and does not matter while the holder is known to lead.
        let low = u32::try_from(bits & u128::from(u32::MAX)).expect("the mask has 32 bits");
        let on = On {
            word: Some((self.row.half(), half)),
            also: leader.is_none().then(|| (self.row.deadline(), low)),
            behind: leader,
        };
        let timeout = match leader {
            Some(_) => timeout.min(word.left(self.now_ns())),
            None => timeout,
        };
        self.sleep_on(on, timeout);
    }

    /// Sleeps, and behind one that is dead until its companion is.
    fn sleep_on(&self, on: On<'_>, timeout: Duration) {
        let Some(by) = on.behind.filter(|&by| self.inner.is_dead(by)) else {
            return self.bedside.sleep(&self.inner.peers, on, timeout);
        };
        let word = Word::decode(self.row.word.load(Ordering::Relaxed));
        let Some(word) = word.filter(|word| word.names(by)) else {
            // It is another's by now.
            return;
        };
        let most = match self.keeps(by, word.fence) {
            Keeps::No => return,
            Keeps::Perhaps => Duration::MAX,
            Keeps::Yes(process) => match self.bedside.hear_of(word.fence, process) {
                true => Duration::MAX,
                false => UNTOLD,
            },
            Keeps::StandIn => self.bedside.until_look(word.fence),
        };
        let timeout = timeout.min(most);
        let on = On { behind: None, ..on };
        self.bedside.sleep(&self.inner.peers, on, timeout);
    }

    fn keeps(&self, by: PeerId, fence: u64) -> Keeps {
        // Relaxed: the kernel proved its writer dead before.
        let companion = self.row.companion.load(Ordering::Relaxed);
        let stand_in = || self.inner.arena.may_have_stand_in(by);
        keeps(companion, fence, own_namespace, stand_in)
    }
}

impl World for Live<'_> {
    type Cell = portable_atomic::AtomicU128;
    type Mark = AtomicU64;

    fn word(&self) -> &Self::Cell {
        &self.row.word
    }

    fn asked(&self) -> &AtomicU64 {
        &self.row.asked
    }

    fn told(&self) -> &AtomicU64 {
        &self.row.told
    }

    fn now_ns(&self) -> u64 {
        self.inner.clock.now_ns()
    }

    fn is_named(&self) -> bool {
        self.name.is(&self.row.name_len, &self.row.name)
    }

    fn is_gone(&self) -> bool {
        self.inner.arena.is_gone()
    }

    fn least_fence(&self) -> u64 {
        self.inner.arena.fence_minimum()
    }

    fn reserve(&self, fence: u64) -> bool {
        self.inner.arena.reserve_fence(fence)
    }

    fn is_dead(&self, peer: PeerId, fence: u64) -> bool {
        self.inner.is_dead(peer) && matches!(self.keeps(peer, fence), Keeps::No)
    }

    fn is_heir(&self, fence: u64, peer: PeerId) -> bool {
        // Relaxed: stored before the word was exchanged (EDGE handover).
        self.row.heir.load(Ordering::Relaxed) == pack_heir(fence, peer)
    }

    fn taken(&self, fence: u64, now_ns: u64, took_over: Option<TookOver>) {
        // Relaxed (all): statistics.
        self.row.acquires.fetch_add(1, Ordering::Relaxed);
        if took_over.is_some() {
            self.row.steals.fetch_add(1, Ordering::Relaxed);
        }
        let since = pack_since(fence, now_ns / NS_PER_MS);
        self.row.since.store(since, Ordering::Relaxed);
    }

    fn sleep(&self, half: u32, behind: Option<PeerId>, timeout: Duration) {
        let on = On {
            word: Some((self.row.half(), half)),
            behind,
            ..On::default()
        };
        self.sleep_on(on, timeout);
    }

    fn wake_all(&self) {
        self.row.wake_all();
    }
}
