//! The leases of one limit: its places, those of who waits, and how all hear of each change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use arena_peers::core::futex::{self, Word};
use arena_peers::{Alarm, PeerId};
use portable_atomic::AtomicU128;

use crate::cancel::Cancel;
use crate::error::LeaseError;
use crate::guard::{Contest, LeaseGuard};
use crate::layout::LIMITS;
use crate::lead_options::Lead;
use crate::lease::Lease;
use crate::leases::Leases;
use crate::limit::LimitError;
use crate::name::Name;
use crate::named_words::Named;
use crate::outcome::Refused;
use crate::shape::{self, Agreement, Shape};
use crate::wait::{Bedside, On};
use crate::word::{NS_PER_MS, Owner};

/// How often a place that was taken is given back because somebody tried to change the limit's shape.
const ATTEMPTS: u32 = 64;

/// How long to sleep where a death would not be told.
const UNTOLD: Duration = Duration::from_secs(1);

/// A limit, as one process uses it.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) leases: Leases,
    pub(crate) rules: Lead,
    waiting: Lead,
    shape: Shape,
    row: Named,
    /// The leases of the places that are worked at, then of those that are waited at, in order.
    places: Vec<Lease>,
}

/// What is in the way of who would take a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Obstacle {
    /// Who has it; `None`: nobody, but it is kept by its last holder, or others are quicker.
    pub(crate) peer: Option<PeerId>,
    /// When it is out of the way at the latest, unless it is renewed.
    until_ms: u64,
}

/// The answer to who would take a place.
pub(crate) enum Taken {
    Won(LeaseGuard),
    Blocked(Obstacle),
}

impl From<Refused> for Obstacle {
    fn from(why: Refused) -> Self {
        let (peer, until_ms) = match why {
            Refused::Held { by, until_ms, .. } => (Some(by), until_ms),
            Refused::NotBefore { at_ms, .. } => (None, at_ms),
            // To be tried again at once.
            Refused::Contended | Refused::TooLate | Refused::Cancelled => (None, 0),
        };
        Self { peer, until_ms }
    }
}

impl Family {
    pub(crate) fn open(
        leases: &Leases,
        name: &[u8],
        shape: Shape,
        rules: &Lead,
    ) -> Result<Self, LimitError> {
        let row = Named::open(leases.arena(), LIMITS, name)?;
        let ttl = rules.ttl.duration();
        let lease = |suffix: String| {
            let name = [name, suffix.as_bytes()].concat();
            leases.lease(name, ttl)
        };
        let places = (1..=shape.places).map(|place| lease(format!("#{place}")));
        let standbys = (1..=shape.standbys).map(|place| lease(format!("#standby{place}")));
        let family = Self {
            leases: leases.clone(),
            rules: rules.clone(),
            waiting: rules.clone().while_waiting(),
            shape,
            row,
            places: places.chain(standbys).collect::<Result<_, _>>()?,
        };
        family.agree()?;
        Ok(family)
    }

    pub(crate) fn name(&self) -> Vec<u8> {
        self.row.name.to_vec()
    }

    /// How many places are worked at; those after them are waited at.
    pub(crate) fn main(&self) -> usize {
        usize::from(self.shape.places)
    }

    /// How many places there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn lease(&self, place: usize) -> &Lease {
        &self.places[place]
    }

    fn word(&self) -> &AtomicU128 {
        self.row.word()
    }

    fn agree(&self) -> Result<(), LimitError> {
        match shape::agree(self.word(), self.shape, fence, |now| self.is_idle(now)) {
            Agreement::Agreed => Ok(()),
            Agreement::Disagreed(found) => Err(LimitError::Disagreed {
                name: String::from_utf8_lossy(&self.name()).into_owned(),
                found: found.to_string(),
                asked: self.shape.to_string(),
            }),
            Agreement::Contended => Err(LeaseError::Contended.into()),
            Agreement::Corrupt(found) => Err(LeaseError::Corrupt { found }.into()),
        }
    }

    /// Whether no place of this shape, which may be another than ours, is held.
    fn is_idle(&self, shape: Shape) -> bool {
        let name = self.name();
        let held = |suffix: String| {
            Name::new(&[&name[..], suffix.as_bytes()].concat())
                .and_then(|name| self.leases.inner.table.find(&name).map(|row| (name, row)))
                .and_then(|(name, row)| {
                    let lease = Lease::new(self.leases.clone(), name, self.rules.ttl, row);
                    self.holder(&lease)
                })
                .is_some()
        };
        !(1..=shape.places).any(|place| held(format!("#{place}")))
            && !(1..=shape.standbys).any(|place| held(format!("#standby{place}")))
    }

    /// Who has this place; nobody whose lease lapsed, or who is proven dead.
    pub(crate) fn occupant(&self, place: usize) -> Option<Obstacle> {
        self.holder(self.lease(place))
    }

    /// The rules for who waits.
    pub(crate) fn waiting(&self) -> &Lead {
        &self.waiting
    }

    /// As [`occupant`](Self::occupant), of a lease that belongs to the family and is no place.
    pub(crate) fn holder(&self, lease: &Lease) -> Option<Obstacle> {
        let (word, _) = lease.seen().ok()??;
        let Owner::Peer(peer) = word.owner else {
            return None;
        };
        let is_over = word.is_over(lease.now_ns()) || self.leases.inner.is_dead(peer);
        (!is_over).then_some(Obstacle {
            peer: Some(peer),
            until_ms: word.until_ms,
        })
    }

    /// Takes this place if it is free, or this process's already.
    pub(crate) fn take(&self, place: usize) -> Result<Taken, LimitError> {
        let rules = match place < self.main() {
            true => &self.rules,
            false => &self.waiting,
        };
        for _ in 0..ATTEMPTS {
            let guard = match rules.contend_until(self.lease(place).clone(), 0)? {
                Contest::Won(guard) => guard,
                Contest::Refused(why) => return Ok(Taken::Blocked(why.into())),
            };
            if shape::is_agreed(self.word(), self.shape, fence) {
                self.changed();
                return Ok(Taken::Won(guard));
            }
            // Somebody wants another shape: whether he gets it is decided without this place.
            drop(guard);
            self.agree()?;
        }
        Err(LeaseError::Contended.into())
    }

    /// A place was taken, or given up: wakes who waits for one. A process that is killed before this had a
    /// place, and its death wakes them; one that is stopped delays them to the deadline that they saw.
    pub(crate) fn changed(&self) {
        let row = self.row.row();
        // EDGE changed, waker's half: the lease's word was replaced, then the fence, then the look at who waits. A
        // release, so that who sees the count sees the word.
        row.changes.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        // Relaxed: the fence orders it.
        if row.waited.load(Ordering::Relaxed) != 0 {
            futex::wake_all(&row.changes);
        }
    }
}

/// One caller's wait for a change of the family.
pub(crate) struct Vigil<'a> {
    family: &'a Family,
    bedside: Bedside,
    /// Who is watched, besides the one who is slept behind.
    alarms: BTreeMap<PeerId, Alarm>,
    seen: u32,
}

impl<'a> Vigil<'a> {
    /// To be made before the caller looks whether he was cancelled.
    pub(crate) fn new(family: &'a Family) -> Self {
        Self {
            bedside: Bedside::heeding(family.rules.cancel.as_ref()),
            family,
            alarms: BTreeMap::new(),
            seen: 0,
        }
    }

    /// To be called before each look at the places after which the caller may sleep.
    pub(crate) fn listen(&mut self) {
        let row = self.family.row.row();
        // EDGE changed, waiter's half: the registration, then the fence, then the looks.
        row.waited.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // EDGE changed, acquire half.
        self.seen = row.changes.load(Ordering::Acquire);
    }

    /// Sleeps until a place is taken or given up, one of those in the way dies or lapses, the rules' token is
    /// cancelled, the arena is destroyed, or `until_ns` of the lease's clock.
    pub(crate) fn sleep(
        &mut self,
        in_the_way: &[Obstacle],
        until_ns: u64,
    ) -> Result<Awake, LimitError> {
        let family = self.family;
        let lease = family.lease(0);
        let now_ns = lease.now_ns();
        if now_ns >= until_ns {
            return Ok(Awake::TimeIsUp);
        }
        if family
            .rules
            .cancel
            .as_ref()
            .is_some_and(Cancel::is_cancelled)
        {
            return Ok(Awake::Cancelled);
        }
        let gone_ms = in_the_way.iter().map(|obstacle| obstacle.until_ms).min();
        let gone_ns = gone_ms.map_or(u64::MAX, |ms| ms.saturating_mul(NS_PER_MS));
        let mut until_ns = until_ns.min(gone_ns);
        let mut peers = in_the_way.iter().filter_map(|obstacle| obstacle.peer);
        let behind = peers.next();
        if !self.watch(&peers.collect()) {
            until_ns = until_ns.min(lease.in_ns(UNTOLD));
        }
        let word = Word::of(&family.row.row().changes);
        let left = Duration::from_nanos(until_ns.saturating_sub(now_ns));
        let on = On {
            word: Some((word, self.seen)),
            behind,
            ..On::default()
        };
        self.bedside.sleep(lease.peers(), on, left);
        match family.leases.inner.is_removed(lease.now_ns()) {
            true => Err(LeaseError::Removed.into()),
            false => Ok(Awake::Look),
        }
    }

    /// Whether the deaths of all of these will be told.
    fn watch(&mut self, others: &BTreeSet<PeerId>) -> bool {
        let word: Arc<AtomicU32> = self.bedside.word();
        let peers = self.family.lease(0).peers();
        self.alarms.retain(|peer, _| others.contains(peer));
        for &peer in others {
            if !self.alarms.contains_key(&peer)
                && let Ok(alarm) = peers.alarm(&word, Some(peer), None)
            {
                self.alarms.insert(peer, alarm);
            }
        }
        self.alarms.len() == others.len()
    }
}

/// Why a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awake {
    /// Something may have changed.
    Look,
    TimeIsUp,
    Cancelled,
}
