//! Who is attached to an arena, and proof that one of them died.
//!
//! Processes that share an [`Arena`] are its peers. A peer is a slot and an epoch ([`PeerId`]),
//! never a pid: pids are reused, and mean nothing in another PID namespace. Every attached process
//! is a peer from the moment it opened the arena, and for as long as its program runs; a child made
//! by fork becomes one of its own when it first needs to be.
//!
//! # A tour
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir_in("/dev/shm")?;
//! # let path = directory.path().join("demo");
//! use arena_peers::{Arena, Peers, Verdict};
//!
//! let peers = Peers::new(&Arena::open(&path)?);
//! let me = peers.me()?;
//! for peer in peers.list() {
//!     match peers.verdict(peer.id) {
//!         Verdict::Alive => println!("{} (pid {:?}) is here", peer.id, peer.pid),
//!         Verdict::Dead(proof) => println!("{} is dead: {:?}", peer.id, proof.witness()),
//!         Verdict::Unknown => println!("{} cannot be judged from here", peer.id),
//!     }
//! }
//! assert_eq!(peers.verdict(me), Verdict::Alive);
//! # Ok(()) }
//! ```
//!
//! # Death
//!
//! [`Peers::verdict`] is never a guess and never a clock. It asks, in this order:
//!
//! | witness | says dead when | trusted |
//! |---|---|---|
//! | [`Epoch`](Witness::Epoch) | the slot's epoch moved on | always; no system call |
//! | [`Byte`](Witness::Byte) | the kernel freed the lock on the attachment's byte | always, from every namespace |
//! | [`BootId`](Witness::BootId) | the row is of another boot | where the byte cannot be asked |
//! | [`NoMemory`](Witness::NoMemory) | its bell rang, and no thread of the process has an address space any more (`process_mrelease` says `ESRCH`) | in the peer's PID namespace, identity checked |
//! | [`Pidfd`](Witness::Pidfd) | the process has ended, be it reaped or not; or another one has its pid | in the peer's PID namespace, identity checked |
//!
//! A zombie is dead. A process whose main thread ended while others go on is alive. One that called
//! exec is dead: another program runs under its pid. One that is stopped is alive. A peer that
//! is alive is never harmed by another's cleaning.
//!
//! # Death, early
//!
//! Byte and pidfd speak only after the kernel has freed the dead one's memory, which takes about
//! 0.15 s a GiB. A process that others wait for therefore [hangs a bell](Peers::hang_bell). It rings a
//! tenth of a millisecond after the kill, whatever the size of the dead. It is a notice, and not a
//! proof: a thread can end alone, and exec rings it too. Rung, the memory is asked for.
//!
//! - [`Peers::sleep`] sleeps on a word of the arena and on a peer's bell at once. Of the sleepers on
//!   one bell, in all processes, the first that wakes wakes the rest.
//! - [`Peers::verdict_cached`] makes no system call while a bell hangs and the last real verdict is a
//!   tenth of a second old at most.
//! - [`Peers::watch`] is a descriptor for an event loop, [`Peers::alarm`] rings a word at a death or a
//!   deadline. Both are served by one thread a process, "arena-watcher", which exists while there is
//!   something to watch.
//!
//! What of this the system lacks, [`capabilities`] says. Verdicts stay right without it.
//!
//! # Fork
//!
//! A child has no bell, no watcher and none of its parent's registrations: it makes its own when it
//! needs them. What it inherits may be dropped and takes nothing from the parent. It does inherit the
//! watcher's descriptors, which do nothing there and close on exec.
//!
//! # What it does not do
//!
//! - It does not notice a process that hangs: that is what a lease's time limit is for.
//! - A watch's *descriptor* does not become readable before the kernel has freed the dead one's memory,
//!   unless a thread of this process sleeps on its bell ([`Watch::wait`] does). For a peer of another
//!   PID namespace, one that called exec and one that left, it can be two seconds late.
//! - A crash that dumps core delays every notice until the dump is written, the bell included.
//! - A large peer's death seen from another PID namespace, or on a kernel before 5.15, is known when its
//!   memory is free.
//! - A process that is killed together with a sleeper, after the kernel woke that one and before it
//!   woke the rest, is noticed by the other sleepers through their alarms.

mod alarm;
mod belief;
mod capabilities;
mod sleep;
mod statm;
mod verdict;
mod watch;
mod watcher;

use std::sync::Arc;

/// The crate below, for what is not named here.
pub use arena_core as core;
pub use arena_core::{
    Arena, ArenaOptions, ArenaView, Attachment, AttachmentId as PeerId, Bell, BellError, Identity,
    JoinError, OpenError, RowState,
};

pub use alarm::{Alarm, ring};
pub use capabilities::{Capabilities, capabilities};
pub use sleep::{Sleep, Slept};
pub use verdict::{DeathProof, Verdict, Witness, verdict_in};
pub use watch::Watch;

use belief::Beliefs;
use verdict::{identity_of, judge, proof_of};

/// The peers of an arena: who they are, and whether they live.
#[derive(Debug, Clone)]
pub struct Peers {
    arena: Arena,
    beliefs: Arc<Beliefs>,
}

/// A peer, as its row described it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its slot and epoch.
    pub id: PeerId,
    /// Its pid in its own PID namespace; `None` when its row is damaged.
    pub pid: Option<u32>,
    /// Its name: its command's, unless it chose another.
    pub name: Vec<u8>,
    /// When it joined, in milliseconds of the boot clock.
    pub joined_ms: u64,
    /// Its last beat, in milliseconds of the boot clock.
    pub beat_ms: u64,
}

/// How many peers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// How many there can be at once.
    pub slots: u16,
    /// How many slots are taken, by the living and the dead.
    pub used: u16,
    /// How many of those are not proven dead.
    pub live: u16,
    /// How many slots were taken back from the dead since the arena was made. May trail.
    pub reaped: u64,
}

impl Peers {
    /// The peers of `arena`, of which this process is one once it is attached. Allocates eight bytes a
    /// slot.
    #[must_use]
    pub fn new(arena: &Arena) -> Peers {
        Peers {
            arena: arena.clone(),
            beliefs: Arc::new(Beliefs::new(arena.slots())),
        }
    }

    /// The arena.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// This process. Two loads; in a child of fork it joins the first time.
    ///
    /// # Errors
    ///
    /// Only in a child: [`JoinError`].
    pub fn me(&self) -> Result<PeerId, JoinError> {
        self.arena.me()
    }

    /// Everybody whose row is taken and whole, the dead that nobody has cleared away included. Looks
    /// at every slot; no system call.
    #[must_use]
    pub fn list(&self) -> Vec<Peer> {
        self.arena
            .attachments()
            .into_iter()
            .filter_map(peer)
            .collect()
    }

    /// Whether a peer lives: see the crate's documentation for what is asked. At most ten system
    /// calls, and when its bell rang three more a thread that it still has; none when its epoch is over.
    /// Never sleeps.
    pub fn verdict(&self, id: PeerId) -> Verdict {
        let bell = self.arena.bell(id.slot());
        judge(id, self.arena.probe(id), bell, || {
            self.identity(id).zip(self.own_identity())
        })
    }

    fn identity(&self, id: PeerId) -> Option<Identity> {
        identity_of(self.arena.attachment(id.slot()), id)
    }

    /// Joins nothing: who has no row yet is asked for.
    fn own_identity(&self) -> Option<Identity> {
        match self.arena.me_if_joined() {
            Some(me) => self.identity(me),
            None => Some(Identity::own()),
        }
    }

    /// As [`verdict`](Self::verdict), and no system call when there is reason to believe that the peer
    /// lives: its bell hangs unrung, and `verdict` said "alive" a tenth of a second ago at most, to this
    /// value or a clone of it.
    ///
    /// `now_ms` is [`clock::boot_ms`](arena_core::clock::boot_ms), read by the caller. A death is never
    /// believed: "dead" always comes with proof. Two or three loads.
    pub fn verdict_cached(&self, id: PeerId, now_ms: u64) -> Verdict {
        // The bell first: whoever sees a later occupant's bell then sees the row's later epoch.
        let bell = self.arena.bell(id.slot());
        if let Some(gone) = self.arena.outlived(id) {
            return Verdict::Dead(proof_of(gone));
        }
        if bell != Some(Bell::Hung) {
            return self.verdict(id);
        }
        if self.beliefs.holds(id, now_ms) {
            return Verdict::Alive;
        }
        let verdict = self.verdict(id);
        if verdict == Verdict::Alive {
            self.beliefs.found_alive(id, now_ms);
        }
        verdict
    }

    /// Whether [`verdict_cached`](Self::verdict_cached) says now that the peer is dead.
    #[must_use]
    pub fn is_dead(&self, id: PeerId) -> bool {
        let verdict = self.verdict_cached(id, arena_core::clock::boot_ms());
        matches!(verdict, Verdict::Dead(_))
    }

    /// Hangs this process's bell, so that others learn at once when it begins to die: for who holds
    /// something that others wait for. The first call starts a thread that sleeps; later ones are two
    /// loads.
    ///
    /// # Errors
    ///
    /// [`BellError`]: others learn of the death later, and ask more often until then.
    #[inline]
    pub fn hang_bell(&self) -> Result<(), BellError> {
        self.arena.hang_bell()
    }

    /// Takes the slots of the dead back, and says how many. Two system calls a slot that is taken.
    /// Whoever finds no free slot does it too, so nobody has to.
    pub fn reap(&self) -> usize {
        self.arena.reap()
    }

    /// Counts the peers; asks for a verdict on each.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let rows = self.arena.attachments();
        let dead = |row: &&Attachment| matches!(self.verdict(row.id), Verdict::Dead(_));
        let count = |rows: usize| u16::try_from(rows).expect("there are at most 2,046 slots");
        Counts {
            slots: self.arena.slots(),
            used: count(rows.len()),
            live: count(rows.len() - rows.iter().filter(dead).count()),
            reaped: self.arena.reaped(),
        }
    }

    /// Names this process's row: at most 40 bytes, up to the first NUL.
    ///
    /// # Errors
    ///
    /// Only in a child of fork: [`JoinError`].
    pub fn set_name(&self, name: &[u8]) -> Result<(), JoinError> {
        self.arena.set_name(name)
    }

    /// Notes the boot clock in this process's row, for people who look. Decides nothing.
    ///
    /// # Errors
    ///
    /// Only in a child of fork: [`JoinError`].
    pub fn beat(&self) -> Result<(), JoinError> {
        self.arena.beat()
    }
}

/// The peers of an arena that was opened for reading: as [`Peers::list`].
#[must_use]
pub fn list_in(view: &ArenaView) -> Vec<Peer> {
    view.attachments().into_iter().filter_map(peer).collect()
}

fn peer(row: Attachment) -> Option<Peer> {
    if row.state != RowState::Ready {
        return None;
    }
    let Attachment {
        id,
        identity,
        name,
        joined_ms,
        beat_ms,
        ..
    } = row;
    Some(Peer {
        id,
        pid: identity.map(|known| known.pid),
        name,
        joined_ms,
        beat_ms,
    })
}
