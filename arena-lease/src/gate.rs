//! A gate: whoever writes goes through it with a fence, one process at a time, and never back to an older fence.

use std::time::Duration;

use arena_peers::core::{clock, futex};
use arena_peers::{Arena, JoinError, PeerId, Peers, Sleep, Slept};

use crate::gate_protocol::{self, Door, Fault, Outcome};
use crate::gate_word::{GateWord, Inside, MAX_INSIDE};
use crate::layout::GATES;
use crate::named_words::{GateOpenError, Named};
use crate::wait::FIRST_LOOK;
use crate::word::Bits;

/// A named place that is entered with a fence and left, in front of something that must not be written by a leader
/// of before.
///
/// **The newest fence that was shown decides.** From the moment at which somebody shows a fence, nobody enters with
/// an older one, also if that somebody waits, or gave up waiting. A newer fence waits until whoever is inside has
/// left, or until its process is proven gone. So a leader that was stopped *inside* cannot be overtaken unnoticed:
/// the newer one is told who it waits for, and may decide to end that process.
///
/// Guards of one process under one fence are inside together; another process that shows the same fence (a
/// command that the leader started, say) waits for its turn. A child of fork is another process, and a guard that
/// it inherited does nothing.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir_in("/dev/shm")?;
/// # let path = directory.path().join("demo");
/// use std::time::Duration;
/// use arena_lease::{Arena, Enter, Gate};
///
/// let gate = Gate::open(&Arena::open(&path)?, "ledger")?;
/// # let fence = 7;
/// match gate.enter(fence, Duration::from_secs(5))? {
///     Enter::Entered(guard) => {
///         if let Some(dead) = guard.recovered_from() {
///             println!("{dead} died in here: look for work that is half done");
///         }
///         // Write; then the guard leaves.
///     }
///     Enter::Stale { newest } => println!("stop working: {newest} leads"),
///     Enter::Busy { by, .. } => println!("{by} does not leave"),
/// }
/// # Ok(()) }
/// ```
///
/// # What it does not do
///
/// It guards what everybody writes *through it*: who writes without entering is not kept from it. It knows fences
/// and not leases, so any number may be shown, and one that is too large locks everybody out who has a smaller one.
/// What a process started in there may go on after its death: it is waited for only if it inherited what stands in for
/// the process ([`Arena::stand_in`]).
/// It lies in its arena: when that is destroyed and made anew, the new gate remembers nothing, and does not know who
/// is still inside the old one. A guard that is leaked keeps its process inside until that ends; a process that executes
/// another program has ended.
#[derive(Clone, Debug)]
pub struct Gate {
    named: Named,
    peers: Peers,
}

/// The answer to [`Gate::enter`].
#[derive(Debug)]
#[must_use = "a gate that was not entered protects nothing"]
pub enum Enter {
    /// This process is inside until the guard is dropped.
    Entered(GateGuard),
    /// A newer fence was shown here: this leader is over.
    Stale {
        /// The newest.
        newest: u64,
    },
    /// Somebody is still inside, and not proven gone. Try again, or see to it that he ends.
    Busy {
        /// Who. If he is dead, it is something that stands in for him ([`Arena::stand_in`]).
        by: PeerId,
        /// How many guards of that process are inside.
        guards: u64,
    },
}

impl Enter {
    /// The guard, if the gate was entered.
    #[must_use]
    pub fn entered(self) -> Option<GateGuard> {
        match self {
            Self::Entered(guard) => Some(guard),
            Self::Stale { .. } | Self::Busy { .. } => None,
        }
    }
}

/// Why a gate could not be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnterError {
    /// No lease issues such a fence.
    #[error("{found} is no fence: 1 to {max}", max = crate::MAX_FENCE)]
    Fence {
        /// What was shown.
        found: u64,
    },
    /// The arena was destroyed, or its file removed. Open it again by name.
    #[error("the arena was destroyed or its file removed: its gates protect nothing any more")]
    Removed,
    /// This process, a child of fork, could not attach to the arena.
    #[error("this process cannot join the arena")]
    Join(#[from] JoinError),
    /// This process has as many guards inside as can be. Drop some.
    #[error("this process is inside {MAX_INSIDE} times already")]
    Crowded,
    /// The gate's word is none that this library writes: the arena is damaged. Destroy it.
    #[error("the gate is damaged: its word {found:#034x} means nothing")]
    Corrupt {
        /// The word.
        found: u128,
    },
    /// Others changed the gate under each of a bounded number of attempts. Try again.
    #[error("the gate was changed by others again and again")]
    Contended,
}

/// A gate as it was at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GateState {
    /// The newest fence that was shown; 0: none.
    pub newest: u64,
    /// Who is inside, alive or dead.
    pub inside: Option<PeerId>,
    /// How many guards that process has inside.
    pub guards: u64,
    /// Whether it entered under an older fence than the newest.
    pub is_barred: bool,
}

impl Gate {
    /// The gate of this name: 1 to [`MAX_NAME_BYTES`](crate::MAX_NAME_BYTES) bytes, any but NUL.
    ///
    /// A name that is new is given one of 64 rows, for the life of the arena, and only that takes a lock.
    /// Otherwise: a look at the rows, no system call.
    ///
    /// # Errors
    ///
    /// [`GateOpenError`].
    pub fn open(arena: &Arena, name: impl AsRef<[u8]>) -> Result<Self, GateOpenError> {
        Ok(Self {
            named: Named::open(arena, GATES, name.as_ref())?,
            peers: Peers::new(arena),
        })
    }

    /// Enters with `fence`, waiting for up to `wait` (measured on `CLOCK_BOOTTIME`; zero: not at all) while
    /// another process, or an older fence of this one, is inside.
    ///
    /// From this call on older fences are refused, whatever it returns but an error. A wait sleeps until who is
    /// inside leaves or dies, and looks by itself once a second. One exchange and no system call while the gate is
    /// open, but for the first time in a process, which hangs its bell
    /// ([`Peers::hang_bell`](arena_peers::Peers::hang_bell)). A process that dies inside is followed at
    /// once, on proof; one that is stopped there is not followed, however long it takes.
    ///
    /// # Errors
    ///
    /// [`EnterError`]. That the fence is too old, or somebody else inside, is no error.
    pub fn enter(&self, fence: u64, wait: Duration) -> Result<Enter, EnterError> {
        if !(1..=<u128 as Bits>::MAX_FENCE).contains(&fence) {
            return Err(EnterError::Fence { found: fence });
        }
        let me = self.peers.me()?;
        let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = clock::boot_ns().saturating_add(wait_ns);
        // Before it is inside, so that no death in there goes unheard. Refused: others learn of it later.
        let _ = self.peers.hang_bell();
        match gate_protocol::enter(self, me, fence, end_ns) {
            Ok(Outcome::Entered { recovered }) => Ok(Enter::Entered(GateGuard {
                gate: self.clone(),
                me,
                fence,
                recovered,
            })),
            Ok(Outcome::Stale { newest }) => Ok(Enter::Stale { newest }),
            Ok(Outcome::Busy {
                behind: Inside { peer, guards, .. },
            }) => Ok(Enter::Busy { by: peer, guards }),
            Err(Fault::Gone) => Err(EnterError::Removed),
            Err(Fault::Corrupt(found)) => Err(EnterError::Corrupt { found }),
            Err(Fault::Crowded) => Err(EnterError::Crowded),
            Err(Fault::Contended) => Err(EnterError::Contended),
        }
    }

    /// The gate as it is; `None` when it is damaged. One load.
    #[must_use]
    pub fn state(&self) -> Option<GateState> {
        let (_, GateWord { fence, inside, .. }) = gate_protocol::load(self).ok()?;
        Some(GateState {
            newest: fence,
            inside: inside.map(|inside| inside.peer),
            guards: inside.map_or(0, |inside| inside.guards),
            is_barred: inside.is_some_and(|inside| inside.barred),
        })
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        self.named.name.to_vec()
    }

    /// The arena.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        self.named.arena()
    }
}

impl Door for Gate {
    type Cell = portable_atomic::AtomicU128;

    fn word(&self) -> &Self::Cell {
        self.named.word()
    }

    fn now_ns(&self) -> u64 {
        clock::boot_ns()
    }

    fn is_gone(&self) -> bool {
        self.arena().is_gone()
    }

    fn is_removed(&self) -> bool {
        self.arena().is_gone() || self.arena().is_unlinked()
    }

    fn is_dead(&self, peer: PeerId) -> bool {
        self.peers.is_dead(peer) && !self.arena().may_have_stand_in(peer)
    }

    fn sleep(&self, part: u32, behind: PeerId, timeout: Duration) {
        let part = (futex::Word::quarter_of::<0>(self.named.word()), part);
        let on = |peer, timeout| Sleep {
            word: Some(part),
            peer,
            until_gone: true,
            timeout: Some(timeout),
            ..Sleep::default()
        };
        // Whatever ended the sleep, the caller looks at the word, and judges who is inside, anew.
        if !self.peers.is_dead(behind) {
            // This process itself would have to die first.
            let peer = Some(behind).filter(|_| self.arena().me_if_joined() != Some(behind));
            let _slept = self.peers.sleep(&on(peer, timeout));
            return;
        }
        // Nothing tells when that ends which stands in for him: most often soon, as he did.
        let (mut left, mut look) = (timeout, FIRST_LOOK);
        while !left.is_zero() && self.arena().may_have_stand_in(behind) {
            let slept = self.peers.sleep(&on(None, look.min(left)));
            if slept != Slept::TimedOut {
                return;
            }
            (left, look) = (left.saturating_sub(look), look * 2);
        }
    }

    fn wake_all(&self) {
        let _ = futex::Word::quarter_of::<0>(self.named.word()).wake_all();
    }
}

/// This process is inside a gate; dropping it leaves. In a child of fork it does nothing.
#[derive(Debug)]
#[must_use = "dropped at once, the gate is left at once"]
pub struct GateGuard {
    gate: Gate,
    me: PeerId,
    fence: u64,
    recovered: Option<PeerId>,
}

impl GateGuard {
    /// The fence that it entered with.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Who was inside before and died there, so that its work may be half done. `None` when the last one left.
    #[must_use]
    pub fn recovered_from(&self) -> Option<PeerId> {
        self.recovered
    }

    /// The gate.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl Drop for GateGuard {
    fn drop(&mut self) {
        if self.gate.arena().me_if_joined() == Some(self.me) {
            gate_protocol::leave(&self.gate, self.me);
        }
    }
}
