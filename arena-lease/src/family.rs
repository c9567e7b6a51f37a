//! The leases of one limit: its places, those of who waits, and how all hear of each change.

use std::ops::Deref;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};

use arena_peers::PeerId;
use arena_peers::core::futex;
use portable_atomic::AtomicU128;

use crate::cancel::Cancel;
use crate::companion::Keeps;
use crate::error::LeaseError;
use crate::guard::{Contest, LeaseGuard};
use crate::layout::{LIMITS, NamedWord};
use crate::lead_options::Lead;
use crate::lease::Lease;
use crate::leases::Leases;
use crate::limit::LimitError;
use crate::live::Holding;
use crate::loss::Loss;
use crate::name::Name;
use crate::named_words::Named;
use crate::outcome::Refused;
use crate::shape::{self, Agreement, Shape, Why};
use crate::shown::Shown;
use crate::trace;

/// How often those who had the limit in the other mode may end before it is looked who they were.
const ATTEMPTS: u32 = 64;

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
    /// Set when the state is to be shown.
    shown: OnceLock<Shown>,
}

/// What is in the way of who would take a place.
pub(crate) struct Obstacle {
    /// Who has it; `None`: nobody, but it is kept by its last holder, or others are quicker.
    pub(crate) peer: Option<PeerId>,
    /// The peer is dead, and it is kept under this fence for who works on its behalf.
    pub(crate) beyond: Option<(Keeps, u64)>,
    /// When it is out of the way at the latest, unless it is renewed.
    pub(crate) until_ms: u64,
}

/// The answer to who would take a place.
pub(crate) enum Taken {
    Won(Kept),
    Blocked(Obstacle),
    /// The limit is shared and this caller wants it exclusively, or the other way round. Who has it so.
    OtherMode(Vec<Obstacle>),
}

/// A lease of a family that this process holds. Its end, be it by a drop, is told to all who wait for a change.
#[derive(Debug)]
pub(crate) struct Kept {
    /// `None` once it was given up.
    guard: Option<LeaseGuard>,
    family: Arc<Family>,
}

impl Kept {
    /// Tells the others that it was acquired.
    fn new(guard: LeaseGuard, family: &Arc<Family>) -> Self {
        family.changed();
        Self {
            guard: Some(guard),
            family: Arc::clone(family),
        }
    }

    pub(crate) fn release(mut self) -> Result<(), Loss> {
        let guard = self.guard.take().expect("taken by its end alone");
        let released = guard.release();
        self.family.changed();
        released
    }
}

impl Deref for Kept {
    type Target = LeaseGuard;

    fn deref(&self) -> &LeaseGuard {
        self.guard.as_ref().expect("taken by its end alone")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            // How it ended is told to whoever asks the term, and to the callback.
            drop(guard);
            self.family.changed();
        }
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
        let places = shape::names_of(row.name, shape).map(|name| leases.lease(name, ttl));
        let family = Self {
            leases: leases.clone(),
            rules: rules.clone(),
            waiting: rules.clone().while_waiting(),
            shape,
            row,
            places: places.collect::<Result<_, _>>()?,
            shown: OnceLock::new(),
        };
        match shape::agree(family.word(), shape, fence, |now| family.is_idle(now)) {
            Agreement::Agreed => {}
            // A place is had when the limit is in this mode.
            Agreement::Disagreed(found) if found.is_other_mode_of(shape) => {}
            other => return Err(family.disagreed(other)),
        }
        Ok(family)
    }

    pub(crate) fn name(&self) -> Vec<u8> {
        self.row.name.to_vec()
    }

    /// How many places are worked at; those after them are waited at.
    pub(crate) fn main(&self) -> usize {
        usize::from(self.shape.main())
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

    /// What all who wait for a change sleep on.
    pub(crate) fn row(&self) -> &NamedWord {
        self.row.row()
    }

    fn disagreed(&self, why: Agreement) -> LimitError {
        match why {
            Agreement::Disagreed(found) => LimitError::Disagreed {
                name: String::from_utf8_lossy(&self.name()).into_owned(),
                found: found.to_string(),
                asked: self.shape.to_string(),
            },
            Agreement::Corrupt(found) => LeaseError::Corrupt { found }.into(),
            Agreement::Agreed | Agreement::Contended => LeaseError::Contended.into(),
        }
    }

    /// The leases of this shape, which may be another than ours, as far as they have rows.
    fn leases_of(&self, shape: Shape) -> impl Iterator<Item = Lease> {
        shape::names_of(self.row.name, shape).filter_map(|name| {
            let name = Name::new(&name)?;
            let row = self.leases.inner.table.find(&name)?;
            Some(Lease::new(self.leases.clone(), name, self.rules.ttl, row))
        })
    }

    /// Whether no place of this shape is held.
    fn is_idle(&self, shape: Shape) -> bool {
        !self
            .leases_of(shape)
            .any(|lease| self.holder(&lease).is_some())
    }

    /// The leases of the places that are worked at, in the mode that the limit is in.
    pub(crate) fn worked_at(&self) -> Vec<Lease> {
        match self.other_mode() {
            Some(other) => self.leases_of(other).collect(),
            None => self.places[..self.main()].to_vec(),
        }
    }

    /// The shape that counts, if it is that of the other mode.
    fn other_mode(&self) -> Option<Shape> {
        shape::present(self.word()).filter(|now| now.is_other_mode_of(self.shape))
    }

    /// Who has this place; nobody whose lease lapsed, or who is proven dead.
    pub(crate) fn occupant(&self, place: usize) -> Option<Obstacle> {
        self.holder(self.lease(place))
    }

    /// Has the state shown as the calling thread's name, from now on.
    pub(crate) fn show_state(&self) {
        self.shown.get_or_init(Shown::default);
    }

    /// What the thread was called before.
    pub(crate) fn restore_name(&self) {
        self.shown.get().into_iter().for_each(Shown::restore);
    }

    /// The calling thread came so far.
    pub(crate) fn stands(&self, state: &str) {
        trace::standing(&self.row.name, state);
        if let Some(shown) = self.shown.get() {
            shown.show(state);
        }
    }

    /// Its wait at places ended.
    pub(crate) fn ended(&self, state: Option<&str>) {
        match state {
            Some(state) => self.stands(state),
            None => self.restore_name(),
        }
    }

    /// Whether the rules' token was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.rules.cancel.as_ref().is_some_and(Cancel::is_cancelled)
    }

    /// The rules for who waits.
    pub(crate) fn waiting(&self) -> &Lead {
        &self.waiting
    }

    /// As [`occupant`](Self::occupant), of a lease that belongs to the family and is no place.
    pub(crate) fn holder(&self, lease: &Lease) -> Option<Obstacle> {
        let (Holding { by, beyond }, word) = lease.holding().ok()??;
        Some(Obstacle {
            peer: Some(by),
            beyond: beyond.map(|keeps| (keeps, word.fence)),
            until_ms: word.until_ms,
        })
    }

    /// Takes this place if it is free, or this process's already.
    pub(crate) fn take(self: &Arc<Self>, place: usize) -> Result<Taken, LimitError> {
        let rules = match place < self.main() {
            true => &self.rules,
            false => &self.waiting,
        };
        for _ in 0..ATTEMPTS {
            let contend = || {
                let taken = self.contend(self.lease(place), rules)?;
                Ok::<_, LimitError>(match taken {
                    Taken::Won(kept) => Ok(kept),
                    blocked => Err(blocked),
                })
            };
            let idle = |now| self.is_idle(now);
            match shape::take(self.word(), self.shape, fence, idle, contend)? {
                Ok(kept) => return Ok(Taken::Won(kept)),
                Err(Why::Place(blocked)) => return Ok(blocked),
                Err(Why::Shape(Agreement::Disagreed(found)))
                    if found.is_other_mode_of(self.shape) =>
                {
                    let holders = self
                        .leases_of(found)
                        .filter_map(|lease| self.holder(&lease));
                    let in_the_way: Vec<Obstacle> = holders.collect();
                    if !in_the_way.is_empty() {
                        return Ok(Taken::OtherMode(in_the_way));
                    }
                    // They have ended since.
                }
                Err(Why::Shape(other)) => return Err(self.disagreed(other)),
            }
        }
        Err(LeaseError::Contended.into())
    }

    /// Takes a lease of the family if it is free, or this process's already.
    pub(crate) fn contend(
        self: &Arc<Self>,
        lease: &Lease,
        rules: &Lead,
    ) -> Result<Taken, LimitError> {
        let why = match rules.contend_until(lease.clone(), 0)? {
            Contest::Won(guard) => return Ok(Taken::Won(Kept::new(guard, self))),
            Contest::Refused(why) => why,
        };
        let obstacle = |peer, until_ms| Obstacle {
            peer,
            beyond: None,
            until_ms,
        };
        Ok(Taken::Blocked(match why {
            Refused::Held { by, until_ms, .. } => match self.holder(lease) {
                Some(holder) if holder.peer == Some(by) => holder,
                // It is another's, or nobody's, by now.
                _ => obstacle(Some(by), until_ms),
            },
            Refused::NotBefore { at_ms, .. } => obstacle(None, at_ms),
            // To be tried again at once.
            Refused::Contended | Refused::TooLate | Refused::Cancelled => obstacle(None, 0),
        }))
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
