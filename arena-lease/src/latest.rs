//! One works, and of those who wait the newest stays.

use std::time::Duration;

use crate::PeerId;
use crate::family::{Family, Obstacle, Taken};
use crate::lead_options::Lead;
use crate::lease::Lease;
use crate::leases::Leases;
use crate::limit::{ConcurrencyLimit, LimitError, Place};
use crate::patience::{Pace, Patience};
use crate::shape::{Kind, Shape};
use crate::standby::Waiting;
use crate::vigil::{Awake, Vigil};

/// The place where one works, and the places where one waits: 1 is next to it.
const PRIMARY: usize = 0;
const FIRST: usize = 1;
const SECOND: usize = 2;
const ENTRY: usize = 3;

/// One works; of those who wait for it, the newest takes over, and older ones bow out. For rolling restarts: start the
/// new worker beside the old, and end the old.
///
/// There are four places: `primary`, and `standby1` to `standby3`. A worker enters at `standby3`, or is told at once
/// that somebody just does; it moves on whenever the place before its own is free; it works at `primary`. Who is at
/// `standby1` bows out when `standby2` is taken. So at most four are alive, and once all have moved the last that
/// entered is the one that waits.
///
/// The places of `indexer` are the leases `indexer#1` and `indexer#standby1` to `indexer#standby3`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let arena = arena_lease::ArenaOptions::new().anonymous()?;
/// use arena_lease::{LatestStandby, Lead, Leases, Patience, Succession};
///
/// let leases = Leases::open(&arena)?;
/// let latest = LatestStandby::open(&leases, "indexer", &Lead::default())?;
/// match latest.acquire(&Patience::new())? {
///     Succession::Primary(place) => println!("working under fence {}", place.fence()),
///     Succession::Replaced { by } => println!("{by} is newer, and waits instead"),
///     other => println!("{other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LatestStandby {
    limit: ConcurrencyLimit,
    /// Held by who asks the one that works to make room.
    request: Lease,
    replaces: bool,
}

/// How it ended. Whatever it is, no place is kept but the one in `Primary`.
#[derive(Debug)]
#[must_use = "dropped at once, the place is given up at once"]
pub enum Succession {
    /// This process is the one that works.
    Primary(Place),
    /// Another has just entered, and did not move on yet; or this process waits already.
    EntryTaken,
    /// The patience is over.
    TimedOut,
    /// A newer one waits instead.
    Replaced {
        /// Who.
        by: PeerId,
    },
    /// This place was lost while it was waited at (the process was stopped for longer than the ttl).
    Lapsed,
    /// The rules' token was cancelled.
    Cancelled,
}

impl Succession {
    /// The place, if this process is the one that works.
    #[must_use]
    pub fn primary(self) -> Option<Place> {
        match self {
            Self::Primary(place) => Some(place),
            _ => None,
        }
    }
}

impl LatestStandby {
    /// The succession of this name. Takes no place; `rules` as in [`ConcurrencyLimit::open`].
    ///
    /// # Errors
    ///
    /// As [`ConcurrencyLimit::open`].
    pub fn open(leases: &Leases, name: impl AsRef<[u8]>, rules: &Lead) -> Result<Self, LimitError> {
        let shape = Shape {
            places: 1,
            standbys: 3,
            kind: Kind::Latest,
        };
        let family = Family::open(leases, name.as_ref(), shape, rules)?;
        let request = [name.as_ref(), b"#replace"].concat();
        Ok(Self {
            request: leases.lease(request, rules.ttl.duration())?,
            limit: ConcurrencyLimit::of(family),
            replaces: false,
        })
    }

    /// Whether the one that works is to be asked to make room, once this process is next. It is asked, and not made
    /// to: nobody works beside it. Off unless told.
    #[must_use]
    pub fn replace(mut self, replaces: bool) -> Self {
        self.replaces = replaces;
        self
    }

    /// Shows how far the calling thread came as its name, which is the process's in ps and top when it is the main
    /// thread: `acquire`, `standby3` to `standby1`, `primary`; `no-lock-acquired` when the
    /// entry was taken, `no-lock-timeout`, `no-lock-retired` when a newer one waits instead. (The kernel
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

    /// Who asks the one that works to make room: a newer worker that was told to [`replace`](Self::replace) it. One
    /// load, and a verdict on who asks.
    #[must_use]
    pub fn wanted_by(&self) -> Option<PeerId> {
        let me = self.request.me_if_joined();
        let asking = self.limit.family().holder(&self.request)?;
        asking.peer.filter(|by| Some(*by) != me)
    }

    /// As [`wanted_by`](Self::wanted_by), and waits for up to `wait`, on the boot clock, until somebody asks. `None` also
    /// when the rules' token was cancelled.
    ///
    /// # Errors
    ///
    /// [`LimitError`]: the arena was removed.
    pub fn wait_wanted(&self, wait: Duration) -> Result<Option<PeerId>, LimitError> {
        let family = self.limit.family();
        let until_ns = self.request.in_ns(wait);
        let mut vigil = Vigil::new(family);
        loop {
            vigil.listen();
            if let Some(by) = self.wanted_by() {
                return Ok(Some(by));
            }
            match vigil.sleep(Vec::new(), until_ns)? {
                Awake::Look => {}
                Awake::TimeIsUp | Awake::Cancelled => return Ok(None),
            }
        }
    }

    /// The places, and who has them.
    #[must_use]
    pub fn limit(&self) -> &ConcurrencyLimit {
        &self.limit
    }

    /// Enters, moves on as others give way, and works at last; or is told why not.
    ///
    /// A process that works already is given its place again, and disturbs nobody. Sleeps until somebody gives way,
    /// dies or lapses, or a newer one comes; moves do not wait for any clock.
    ///
    /// # Errors
    ///
    /// [`LimitError`]. Never because of what other processes hold.
    pub fn acquire(&self, patience: &Patience) -> Result<Succession, LimitError> {
        patience.check()?;
        let family = self.limit.family();
        family.stands("acquire");
        let how = self.succeed(patience).map(|how| match how {
            // A place of who is cancelled is not had, or lost.
            Succession::EntryTaken | Succession::Lapsed if family.is_cancelled() => {
                Succession::Cancelled
            }
            how => how,
        });
        family.ended(match &how {
            Ok(Succession::Primary(_)) => Some("primary"),
            Ok(Succession::EntryTaken | Succession::Lapsed) => Some("no-lock-acquired"),
            Ok(Succession::TimedOut) => Some("no-lock-timeout"),
            Ok(Succession::Replaced { .. }) => Some("no-lock-retired"),
            Ok(Succession::Cancelled) | Err(_) => None,
        });
        how
    }

    fn succeed(&self, patience: &Patience) -> Result<Succession, LimitError> {
        let family = self.limit.family();
        if family.lease(PRIMARY).mine()
            && let Ok(place) = self.limit.attempt()?
        {
            return Ok(Succession::Primary(place));
        }
        // Another thread of this process waits: the process would get its own places again.
        let waits = (FIRST..=ENTRY).any(|place| family.lease(place).mine());
        let entered = match waits {
            true => None,
            false => Waiting::begin(family, [ENTRY])?,
        };
        let Some(mut waiting) = entered else {
            return Ok(Succession::EntryTaken);
        };
        let mut vigil = Vigil::new(family);
        let mut pace = Pace::new(patience, family.lease(PRIMARY));
        let mut request = None;
        loop {
            vigil.listen();
            let in_the_way = match self.step(&waiting)? {
                Step::Ended(how) => return Ok(how),
                Step::To(next) => {
                    // The place behind is given up when this one is had.
                    waiting = next;
                    pace.moved();
                    continue;
                }
                Step::Blocked(in_the_way) => in_the_way,
            };
            if !waiting.go_on()? {
                return Ok(Succession::Lapsed);
            }
            if self.replaces && waiting.index() == FIRST && request.is_none() {
                // Taken: by one that bows out just now, and its end wakes this one.
                request = match family.contend(&self.request, family.waiting())? {
                    Taken::Won(kept) => Some(kept),
                    Taken::Blocked(_) | Taken::OtherMode(_) => None,
                };
            }
            let Some(until_ns) = pace.go_on() else {
                return Ok(Succession::TimedOut);
            };
            // Who takes the place behind wakes this one too.
            match vigil.sleep(in_the_way, until_ns)? {
                Awake::Look | Awake::TimeIsUp => {}
                Awake::Cancelled => return Ok(Succession::Cancelled),
            }
        }
    }

    /// What can be done from this place now.
    fn step<'a>(&'a self, waiting: &Waiting<'a>) -> Result<Step<'a>, LimitError> {
        let family = self.limit.family();
        if waiting.index() > FIRST {
            let before = waiting.index() - 1;
            return Ok(match family.take(before)? {
                Taken::Won(kept) => Step::To(Waiting::at(family, before, kept)),
                Taken::Blocked(obstacle) => Step::Blocked(vec![obstacle]),
                Taken::OtherMode(holders) => Step::Blocked(holders),
            });
        }
        if let Some(by) = newer(family) {
            return Ok(Step::Ended(Succession::Replaced { by }));
        }
        Ok(match self.limit.attempt()? {
            Ok(place) => match newer(family) {
                // It came before this one took the place, or so shortly after that nothing was done there yet.
                Some(by) => Step::Ended(Succession::Replaced { by }),
                None => Step::Ended(Succession::Primary(place)),
            },
            Err(in_the_way) => Step::Blocked(in_the_way),
        })
    }
}

enum Step<'a> {
    To(Waiting<'a>),
    Blocked(Vec<Obstacle>),
    Ended(Succession),
}

/// Who is next in the line, and so newer than who is at the first standby.
fn newer(family: &Family) -> Option<PeerId> {
    let me = family.lease(SECOND).me_if_joined();
    family.occupant(SECOND)?.peer.filter(|by| Some(*by) != me)
}
