//! At most so many at once, and so many who wait.

use std::num::NonZeroU16;
use std::sync::Arc;

use crate::family::{Family, Kept, Taken};
use crate::lead_options::Lead;
use crate::leases::Leases;
use crate::limit::{ConcurrencyLimit, LimitError, Place, at_most};
use crate::patience::{Pace, Patience};
use crate::shape::{Kind, Shape};
use crate::vigil::{Awake, Vigil};

/// At most N processes at once, and at most M more that wait for a place.
///
/// Who finds all N places taken takes one of the M where one waits, and is told at once when there is none. The
/// places to wait at of the limit `jobs` are the leases `jobs#standby1` and so on.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let arena = arena_lease::ArenaOptions::new().anonymous()?;
/// use std::num::NonZeroU16;
/// use arena_lease::{Lead, Leases, Patience, Standby, WithStandby};
///
/// let leases = Leases::open(&arena)?;
/// let one = NonZeroU16::MIN;
/// let limit = WithStandby::open(&leases, "indexer", one, one, &Lead::default())?;
/// match limit.acquire(&Patience::new())? {
///     Standby::Held(place) => println!("working as number {}", place.id()),
///     Standby::Full => println!("one works, and another waits"),
///     other => println!("did not wait any longer: {other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct WithStandby {
    limit: ConcurrencyLimit,
}

/// How waiting for a place ended. Whatever it is, no place is kept but the one in `Held`.
#[derive(Debug)]
#[must_use = "dropped at once, the place is given up at once"]
pub enum Standby {
    /// This process has a place to work at.
    Held(Place),
    /// All places are taken, those to wait at included; or this one was lost while it was waited at (the process
    /// was stopped for longer than the ttl), and another process has it.
    Full,
    /// The patience is over.
    TimedOut,
    /// The rules' token was cancelled.
    Cancelled,
}

impl Standby {
    /// The place, if there is one.
    #[must_use]
    pub fn held(self) -> Option<Place> {
        match self {
            Self::Held(place) => Some(place),
            Self::Full | Self::TimedOut | Self::Cancelled => None,
        }
    }
}

impl WithStandby {
    /// The limit of this name. Takes no place; `rules` as in [`ConcurrencyLimit::open`].
    ///
    /// # Errors
    ///
    /// As [`ConcurrencyLimit::open`]; [`LimitError::Option`] for more than 8,191 who wait.
    pub fn open(
        leases: &Leases,
        name: impl AsRef<[u8]>,
        places: NonZeroU16,
        standbys: NonZeroU16,
        rules: &Lead,
    ) -> Result<Self, LimitError> {
        at_most("the number of standbys", standbys)?;
        let shape = Shape {
            places: places.get(),
            standbys: standbys.get(),
            kind: Kind::Exclusive,
        };
        let family = Family::open(leases, name.as_ref(), shape, rules)?;
        Ok(Self {
            limit: ConcurrencyLimit::of(family),
        })
    }

    /// Shows how far the calling thread came as its name, which is the process's in ps and top when it is the main
    /// thread: `acquire`, `standby1` and so on, `primary`; `no-lock-acquired` when all
    /// places are taken, those to wait at included, and `no-lock-timeout`. (The kernel
    /// keeps 15 bytes of it.) It is called as before when this limit and its places are dropped, or by
    /// [`restore_name`](Self::restore_name). Off unless called.
    #[must_use]
    pub fn show_state(self) -> Self {
        self.limit.family().show_state();
        self
    }

    /// Calls the thread as it was called before [`show_state`](Self::show_state).
    pub fn restore_name(&self) {
        self.limit.family().restore_name();
    }

    /// The limit without its standbys: who has the places, and taking one without waiting.
    #[must_use]
    pub fn limit(&self) -> &ConcurrencyLimit {
        &self.limit
    }

    /// Takes a place to work at; while there is none, waits at one of the places for that, if one is free.
    ///
    /// Sleeps until a place is given up, a holder dies or a deadline passes.
    ///
    /// # Errors
    ///
    /// [`LimitError`]. Never because of what other processes hold.
    pub fn acquire(&self, patience: &Patience) -> Result<Standby, LimitError> {
        patience.check()?;
        let family = self.limit.family();
        family.stands("acquire");
        let how = self.wait(patience).map(|how| match how {
            // A place of who is cancelled is not had, or lost.
            Standby::Full if family.is_cancelled() => Standby::Cancelled,
            how => how,
        });
        family.ended(match &how {
            Ok(Standby::Held(_)) => Some("primary"),
            Ok(Standby::Full) => Some("no-lock-acquired"),
            Ok(Standby::TimedOut) => Some("no-lock-timeout"),
            Ok(Standby::Cancelled) | Err(_) => None,
        });
        how
    }

    fn wait(&self, patience: &Patience) -> Result<Standby, LimitError> {
        let family = self.limit.family();
        if let Ok(place) = self.limit.attempt()? {
            return Ok(Standby::Held(place));
        }
        let Some(mut waiting) = Waiting::begin(family, family.main()..family.len())? else {
            return Ok(Standby::Full);
        };
        let mut vigil = Vigil::new(family);
        let mut pace = Pace::new(patience, family.lease(0));
        loop {
            vigil.listen();
            let in_the_way = match self.limit.attempt()? {
                Ok(place) => return Ok(Standby::Held(place)),
                Err(in_the_way) => in_the_way,
            };
            if !waiting.go_on()? {
                return Ok(Standby::Full);
            }
            let Some(until_ns) = pace.go_on() else {
                return Ok(Standby::TimedOut);
            };
            match vigil.sleep(in_the_way, until_ns)? {
                Awake::Look | Awake::TimeIsUp => {}
                Awake::Cancelled => return Ok(Standby::Cancelled),
            }
        }
    }
}

/// A place that is waited at, given up when this is dropped.
pub(crate) struct Waiting<'a> {
    family: &'a Arc<Family>,
    /// `None` once it was lost.
    kept: Option<Kept>,
    index: usize,
}

impl<'a> Waiting<'a> {
    /// At the first of these places that is free.
    pub(crate) fn begin(
        family: &'a Arc<Family>,
        places: impl IntoIterator<Item = usize>,
    ) -> Result<Option<Self>, LimitError> {
        for index in places {
            if let Taken::Won(kept) = family.take(index)? {
                return Ok(Some(Self::at(family, index, kept)));
            }
        }
        Ok(None)
    }

    pub(crate) fn at(family: &'a Arc<Family>, index: usize, kept: Kept) -> Self {
        family.stands(&format!("standby{}", index + 1 - family.main()));
        Self {
            family,
            kept: Some(kept),
            index,
        }
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Whether the place is still this process's: one that was lost is taken again, if nobody else has it.
    pub(crate) fn go_on(&mut self) -> Result<bool, LimitError> {
        if self.kept.as_ref().is_some_and(|kept| kept.is_leading()) {
            return Ok(true);
        }
        self.kept = None;
        if let Taken::Won(kept) = self.family.take(self.index)? {
            self.kept = Some(kept);
        }
        Ok(self.kept.is_some())
    }
}
