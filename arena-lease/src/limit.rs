//! At most so many at once.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arena_peers::core::wiped::PerProcess;

use crate::error::LeaseError;
use crate::family::{Family, Kept, Obstacle, Taken};
use crate::lead_options::Lead;
use crate::lease::Lease;
use crate::leases::Leases;
use crate::loss::Loss;
use crate::named_words::GateOpenError;
use crate::shape::{Kind, MAX_STANDBYS, Shape};
use crate::stats::Holder;
use crate::term::Term;
use crate::vigil::{Awake, Vigil};

/// At most N processes at once: N places, each a lease of its own, so that none ever leaks.
///
/// A place is free again when its holder gives it up, when it dies, and at the latest when its ttl is over. The
/// process holds, and not the handle: a process that has a place gets the same again. A child of fork has none of
/// its parent's.
///
/// The places of the limit `jobs` are the leases `jobs#1`, `jobs#2` …, so every place has its own fence, and
/// [`Lease`](crate::Lease) shows who has it. All callers must name the same N: one that does not is refused while
/// anybody has a place, and changes N for all when nobody has.
///
/// A limit can be [shared](Self::open_shared) as well: then its N places are free while nobody shares, and it is
/// shared while nobody has one of its places.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let arena = arena_lease::ArenaOptions::new().anonymous()?;
/// use std::num::NonZeroU16;
/// use arena_lease::{ConcurrencyLimit, Lead, Leases};
///
/// let leases = Leases::open(&arena)?;
/// let limit = ConcurrencyLimit::open(&leases, "jobs", NonZeroU16::MIN, &Lead::default())?;
/// match limit.try_acquire()? {
///     Some(place) => println!("working as number {}", place.id()),
///     None => println!("enough others are at it"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: u64,
    family: Arc<Family>,
}

/// The places that this process has, by limit. Not in the limit itself, so that a child of fork never finds its
/// lock held.
static PLACES: PerProcess<BTreeMap<u64, Weak<Held>>> = PerProcess::forked_freely();

/// Numbers of limits. Not wiped: those of a child are beyond the ones that it inherited.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A place of a limit, kept until the last clone is dropped.
///
/// It is the [`Term`] of its lease: ask [`is_leading`](Term::is_leading) or [`heartbeat`](Self::heartbeat) whether it is
/// still held.
#[derive(Clone, Debug)]
#[must_use = "dropped at once, the place is given up at once"]
pub struct Place {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    kept: Kept,
    index: usize,
}

/// One place of a limit, as it was at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceState {
    /// The name of its lease.
    pub lease: Vec<u8>,
    /// Who has it.
    pub holder: Option<Holder>,
}

/// Why a limit could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The name cannot be a limit's, or there is no room for it.
    #[error("cannot open the limit")]
    Open(#[from] GateOpenError),
    /// A lease of the limit could not be used. (Names are shorter than a lease's: places have a suffix.)
    #[error("cannot use a place of the limit")]
    Lease(#[from] LeaseError),
    /// Others have places of a limit of another size. Name the same, or wait until they have ended.
    #[error("the limit {name:?} is {found}, and cannot become {asked} while it is in use")]
    Disagreed {
        /// The limit.
        name: String,
        /// What it is.
        found: String,
        /// What was asked for.
        asked: String,
    },
    /// The options make no sense.
    #[error("{what} must not be {found}")]
    Option {
        /// Which.
        what: &'static str,
        /// What it was.
        found: String,
    },
}

impl ConcurrencyLimit {
    /// The limit of this name: 1 to 80 bytes, any but NUL. Takes no place.
    ///
    /// `rules` say how places are held: ttl, margin, health limit and so on; their wait and jitter are not used.
    ///
    /// # Errors
    ///
    /// [`LimitError::Disagreed`], when others use it with another number; [`LimitError::Open`], [`LimitError::Lease`].
    pub fn open(
        leases: &Leases,
        name: impl AsRef<[u8]>,
        places: NonZeroU16,
        rules: &Lead,
    ) -> Result<Self, LimitError> {
        let shape = Shape {
            places: places.get(),
            standbys: 0,
            kind: Kind::Exclusive,
        };
        Ok(Self::of(Family::open(leases, name.as_ref(), shape, rules)?))
    }

    /// The same limit for who shares it: up to `sharers` at once, and none of them beside one that has one of its
    /// `places`. As readers stand to writers: whoever [opens](Self::open) the limit with the same `places`, and no
    /// standbys, gets a place when all who share have ended.
    ///
    /// Each share is a lease, `jobs#shared1` and so on, and a row of the table. A process that has a place in the one
    /// mode is in its own way in the other. Nobody is preferred: while some always share, nobody gets a place.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let arena = arena_lease::ArenaOptions::new().anonymous()?;
    /// use std::num::NonZeroU16;
    /// use arena_lease::{ConcurrencyLimit, Lead, Leases};
    ///
    /// let (leases, rules) = (Leases::open(&arena)?, Lead::default());
    /// let (one, many) = (NonZeroU16::MIN, NonZeroU16::new(64).unwrap());
    /// let readers = ConcurrencyLimit::open_shared(&leases, "index", one, many, &rules)?;
    /// let writer = ConcurrencyLimit::open(&leases, "index", one, &rules)?;
    /// let reading = readers.try_acquire()?;
    /// assert!(writer.try_acquire()?.is_none());
    /// drop(reading);
    /// assert!(writer.try_acquire()?.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); [`LimitError::Option`] for more than 8,191 who share.
    pub fn open_shared(
        leases: &Leases,
        name: impl AsRef<[u8]>,
        places: NonZeroU16,
        sharers: NonZeroU16,
        rules: &Lead,
    ) -> Result<Self, LimitError> {
        at_most("the number of sharers", sharers)?;
        let shape = Shape {
            places: places.get(),
            standbys: sharers.get(),
            kind: Kind::Shared,
        };
        Ok(Self::of(Family::open(leases, name.as_ref(), shape, rules)?))
    }

    pub(crate) fn of(family: Family) -> Self {
        Self {
            inner: Arc::new(Inner {
                // Relaxed: only that it is another one.
                id: NEXT.fetch_add(1, Ordering::Relaxed),
                family: Arc::new(family),
            }),
        }
    }

    pub(crate) fn family(&self) -> &Arc<Family> {
        &self.inner.family
    }

    /// Takes a place if one is free; the one that this process has, if it has one. `None`: all are taken, or the limit
    /// is in the other mode ([`open_shared`](Self::open_shared)).
    ///
    /// Never sleeps. Costs up to N refused acquires.
    ///
    /// # Errors
    ///
    /// [`LimitError`]. Never because of what other processes hold.
    pub fn try_acquire(&self) -> Result<Option<Place>, LimitError> {
        Ok(self.attempt()?.ok())
    }

    /// As [`try_acquire`](Self::try_acquire), and waits for up to `wait` (on the boot clock) until a place is free, or
    /// until the rules' token is cancelled.
    ///
    /// Who waits sleeps until a place is given up, a holder dies or a deadline passes. Which of several waiters comes
    /// next is not defined.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub fn acquire_timeout(&self, wait: Duration) -> Result<Option<Place>, LimitError> {
        let family = self.family();
        let until_ns = family.lease(0).in_ns(wait);
        if let Ok(place) = self.attempt()? {
            return Ok(Some(place));
        }
        let mut vigil = Vigil::new(family);
        loop {
            vigil.listen();
            let in_the_way = match self.attempt()? {
                Ok(place) => return Ok(Some(place)),
                Err(in_the_way) => in_the_way,
            };
            match vigil.sleep(in_the_way, until_ns)? {
                Awake::Look => {}
                Awake::TimeIsUp | Awake::Cancelled => return Ok(None),
            }
        }
    }

    /// How many places are taken, by living processes whose deadline has not passed; of a limit that is shared now, how
    /// many share it. Each place at another moment.
    #[must_use]
    pub fn in_use(&self) -> usize {
        let family = self.family();
        let leases = family.worked_at();
        leases
            .iter()
            .filter(|lease| family.holder(lease).is_some())
            .count()
    }

    /// The places, with who has them: first those that are worked at, or the shares of a limit that is shared now, then
    /// those that are waited at.
    #[must_use]
    pub fn places(&self) -> Vec<PlaceState> {
        let family = self.family();
        let standbys = (family.main()..family.len()).map(|place| family.lease(place).clone());
        let leases = family.worked_at().into_iter().chain(standbys);
        let state = |lease: Lease| PlaceState {
            lease: lease.name(),
            holder: lease.holder(),
        };
        leases.map(state).collect()
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        self.family().name()
    }

    /// A place, or what is in the way at each.
    pub(crate) fn attempt(&self) -> Result<Result<Place, Vec<Obstacle>>, LimitError> {
        let attempted = PLACES.with(|places| {
            let kept = places.get(&self.inner.id).and_then(Weak::upgrade);
            if let Some(held) = kept.filter(|held| held.kept.is_leading()) {
                return Ok(Ok(Place { held }));
            }
            let taken = self.take_any();
            if let Ok(Ok(place)) = &taken {
                places.insert(self.inner.id, Arc::downgrade(&place.held));
            }
            taken
        });
        attempted.map_err(LeaseError::Helper)?
    }

    fn take_any(&self) -> Result<Result<Place, Vec<Obstacle>>, LimitError> {
        let family = self.family();
        // First the one that this process has by another handle.
        let own = (0..family.main()).find(|&place| family.lease(place).mine());
        let mut in_the_way = Vec::new();
        for index in own.into_iter().chain(0..family.main()) {
            match family.take(index)? {
                Taken::Won(kept) => return Ok(Ok(Place::new(kept, index))),
                Taken::Blocked(obstacle) => in_the_way.push(obstacle),
                Taken::OtherMode(holders) => return Ok(Err(holders)),
            }
        }
        Ok(Err(in_the_way))
    }
}

/// Refuses a number of leases behind the places that a shape has no room for.
pub(crate) fn at_most(what: &'static str, number: NonZeroU16) -> Result<(), LimitError> {
    match number.get() > MAX_STANDBYS {
        true => Err(LimitError::Option {
            what,
            found: number.to_string(),
        }),
        false => Ok(()),
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nothing in a child of fork, whose map never had it.
        let _place = PLACES.with(|places| places.remove(&self.id));
    }
}

impl Place {
    fn new(kept: Kept, index: usize) -> Self {
        Self {
            held: Arc::new(Held { kept, index }),
        }
    }

    /// Which place it is: 1 to N, or to as many as share.
    #[must_use]
    pub fn id(&self) -> u16 {
        u16::try_from(self.held.index + 1).expect("there are at most 65,535 places")
    }

    /// Whether the place is still held; once lost, it stays so. Also tells the health limit that the work goes on.
    ///
    /// # Errors
    ///
    /// How it was lost.
    pub fn heartbeat(&self) -> Result<(), Loss> {
        self.beat();
        self.loss().map_or(Ok(()), Err)
    }

    /// Gives the place up, for all clones, and says whether it was held until now.
    ///
    /// # Errors
    ///
    /// How it had been lost before.
    pub fn release(self) -> Result<(), Loss> {
        match Arc::try_unwrap(self.held) {
            Ok(held) => held.kept.release(),
            // The others still work there.
            Err(held) => held.kept.loss().map_or(Ok(()), Err),
        }
    }
}

impl Deref for Place {
    type Target = Term;

    fn deref(&self) -> &Term {
        &self.held.kept
    }
}
