//! Leading as a scope: a body that runs while this process leads.

use arena_peers::{Arena, OpenError};

use crate::error::{LeaseError, TableError};
use crate::guard::Contest;
use crate::lead_options::Lead;
use crate::leases::Leases;
use crate::loss::Loss;
use crate::outcome::Refused;
use crate::term::Term;

/// The arena of who names none.
const DEFAULT_ARENA: &str = "default";

/// How leading ended.
#[must_use = "work whose leadership was lost may have been done beside another leader's"]
#[derive(Debug)]
pub enum Led<T> {
    /// The body returned this while the process led. The lease is released.
    Done(T),
    /// The body returned this when the leadership had been lost.
    Lost {
        /// What the body returned.
        value: T,
        /// Why it was lost.
        loss: Loss,
    },
    /// This process did not lead: the options' wait was over, or cancelled. The body was not run.
    Refused(Refused),
}

impl<T> Led<T> {
    /// What the body returned, if the process led to its end.
    #[must_use]
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(value) => Some(value),
            Self::Lost { .. } | Self::Refused(_) => None,
        }
    }
}

/// Why this process could not even contend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeadError {
    /// The default arena cannot be opened.
    #[error("cannot open the default arena")]
    Open(#[from] OpenError),
    /// It has no table of leases, and cannot be given one.
    #[error("cannot open the leases of the default arena")]
    Table(#[from] TableError),
    /// The lease cannot be used.
    #[error("cannot use the lease")]
    Lease(#[from] LeaseError),
}

/// Waits until this process leads `name` in the default arena, runs `body`, and releases.
///
/// As [`Lead::lead`] with the default [`LeadOptions`](crate::LeadOptions). The arena is made if there is none.
///
/// ```no_run
/// # fn report(_fence: u64) {}
/// let led = arena_lease::lead("nightly", |term| {
///     for part in 0..10 {
///         if !term.is_leading() {
///             return false;
///         }
///         report(term.fence());
///     }
///     true
/// })?;
/// # Ok::<(), arena_lease::LeadError>(())
/// ```
///
/// # Errors
///
/// [`LeadError`].
pub fn lead<T>(name: impl AsRef<[u8]>, body: impl FnOnce(&Term) -> T) -> Result<Led<T>, LeadError> {
    let leases = Leases::open(&Arena::open(DEFAULT_ARENA)?)?;
    Ok(Lead::default().lead(&leases, name, body)?)
}

impl Lead {
    /// Waits until this process leads `name`, runs `body` once, and releases the lease when it returns or panics.
    ///
    /// The lease is renewed meanwhile by a thread. Nothing ends the body from outside: when the leadership is lost, the
    /// [`Term`] says so, and the body is to return.
    ///
    /// It is the *process* that leads: two threads of it that lead the same name do so at once, until the first of them
    /// releases. Between threads, use a mutex.
    ///
    /// # Errors
    ///
    /// As [`contend`](Self::contend); the body was not run then.
    pub fn lead<T>(
        &self,
        leases: &Leases,
        name: impl AsRef<[u8]>,
        body: impl FnOnce(&Term) -> T,
    ) -> Result<Led<T>, LeaseError> {
        let guard = match self.contend(leases, name)? {
            Contest::Won(guard) => guard,
            Contest::Refused(why) => return Ok(Led::Refused(why)),
        };
        let value = body(&guard);
        Ok(match guard.release() {
            Ok(()) => Led::Done(value),
            Err(loss) => Led::Lost { value, loss },
        })
    }

    /// As [`lead`](Self::lead), and contends again whenever the body returns from a leadership that was lost, until it
    /// returns from one that was not.
    ///
    /// Each term has a new fence. The end is also: a wait that is over, a cancellation, the removal of the arena, and
    /// in a child of fork its parent's term; then as in [`lead`](Self::lead).
    ///
    /// # Errors
    ///
    /// As [`contend`](Self::contend).
    pub fn lead_again<T>(
        &self,
        leases: &Leases,
        name: impl AsRef<[u8]>,
        mut body: impl FnMut(&Term) -> T,
    ) -> Result<Led<T>, LeaseError> {
        loop {
            match self.lead(leases, &name, &mut body)? {
                Led::Lost { loss, .. } if loss.may_lead_again() => {}
                led => return Ok(led),
            }
        }
    }
}
