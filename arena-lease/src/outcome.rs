//! What the verbs of a lease answer.

use std::time::Duration;

use crate::PeerId;

/// The answer to `acquire`.
#[must_use = "a lease that was refused is not held"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquire {
    /// This process holds the lease.
    Held(Hold),
    /// It does not; nothing of it was changed.
    Refused(Refused),
}

impl Acquire {
    /// The hold, if the lease is held.
    pub const fn held(self) -> Option<Hold> {
        match self {
            Self::Held(hold) => Some(hold),
            Self::Refused(_) => None,
        }
    }
}

/// A lease that this process held when its clock was last read inside the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// Larger than the fence of every earlier holder of this name. Hand it to whatever the lease protects.
    pub fence: u64,
    /// The deadline, in milliseconds of `CLOCK_BOOTTIME`.
    pub until_ms: u64,
    /// How much of it was left at the last look at the clock.
    pub left: Duration,
    /// Whose work was cut short, when somebody's was: run your recovery. `None` when the lease was free, or
    /// was this process's already.
    pub took_over: Option<TookOver>,
}

/// How the last holder ended that did not release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TookOver {
    /// Its deadline had passed (or, if the holder was this process, it had been told that it lost). It may
    /// still be running and believe that it holds, until it looks at its clock: the fence is for that.
    Lapsed {
        /// Who held.
        from: PeerId,
        /// Under which fence.
        fence: u64,
    },
    /// Its process is proven gone, and its deadline had not passed.
    Dead {
        /// Who held.
        from: PeerId,
        /// Under which fence.
        fence: u64,
    },
}

/// Why `acquire` did not get the lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refused {
    /// Another process holds it and is not proven dead. Try again when it releases, dies or lapses.
    Held {
        /// Who holds.
        by: PeerId,
        /// Under which fence.
        fence: u64,
        /// Its deadline, in milliseconds of `CLOCK_BOOTTIME`.
        until_ms: u64,
        /// From the look at the clock to that deadline, if it is not renewed.
        lapses_in: Duration,
    },
    /// It is free, and its last holder asked that nobody take it yet.
    NotBefore {
        /// The fence it was released at.
        fence: u64,
        /// When it may be taken, in milliseconds of `CLOCK_BOOTTIME`.
        at_ms: u64,
        /// From the look at the clock until then.
        opens_in: Duration,
    },
    /// Other processes changed the lease under this call in each of a bounded number of attempts. Try again.
    Contended,
    /// Each deadline that this call wrote had passed before it could look at its clock again: the ttl is
    /// too short for this machine, or the process was stopped several times. Ask for a longer ttl.
    TooLate,
    /// The wait was [cancelled](crate::Cancel).
    Cancelled,
}

/// The answer to `renew`.
#[must_use = "a lease that was lost is not held"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewed {
    /// Still held.
    Held {
        /// The deadline, in milliseconds of `CLOCK_BOOTTIME`.
        until_ms: u64,
        /// How much of it was left at the last look at the clock.
        left: Duration,
    },
    /// Not held at that fence any more, and never again: the loss is final.
    Lost(Lost),
}

impl Renewed {
    /// Whether the lease is still held.
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Held { .. })
    }
}

/// How a lease was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Lost {
    /// It names another holder, or this process under another fence.
    Taken {
        /// Who it names.
        by: PeerId,
        /// Under which fence.
        fence: u64,
    },
    /// It is free: this process released it, or whoever took it has released it since.
    Released,
    /// This process was told before that it lost this fence.
    Told,
    /// The arena was destroyed, or its file was removed: others may already lead in another one.
    Removed,
    /// Each deadline that the call wrote had passed before it could look at its clock again.
    TooLate,
    /// The word of the lease is none that this library writes.
    Corrupt {
        /// The word.
        found: u128,
    },
}
