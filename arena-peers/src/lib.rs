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
//! | [`Pidfd`](Witness::Pidfd) | the process has ended, be it reaped or not; or another one has its pid | in the peer's PID namespace |
//!
//! A zombie is dead. A process whose main thread ended while others go on is alive. One that called
//! exec is dead: another program runs under its pid. One that is stopped is alive. A peer that
//! is alive is never harmed by another's cleaning.
//!
//! # What it does not do
//!
//! It does not notice a process that hangs: that is what a lease's time limit is for. It does not
//! tell a peer's death before the kernel has freed its memory (about 0.15 s a GiB).

use std::io;

/// The crate below, for what is not named here.
pub use arena_core as core;
pub use arena_core::{
    Arena, ArenaOptions, ArenaView, Attachment, AttachmentId as PeerId, Identity, JoinError,
    OpenError, RowState,
};
use arena_core::{GoneBy, PidFd, Probe, start_ticks};

/// The peers of an arena: who they are, and whether they live.
#[derive(Debug, Clone)]
pub struct Peers {
    arena: Arena,
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

/// Whether a peer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Its program's memory exists, or its process runs.
    Alive,
    /// It does not, and here is the proof.
    Dead(DeathProof),
    /// It cannot be told from here: the row is damaged, or the system does not answer.
    Unknown,
}

/// Proof that a peer's process is gone: the kernel said so, and not a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a proof that is dropped recovers nothing"]
pub struct DeathProof {
    peer: PeerId,
    witness: Witness,
}

impl DeathProof {
    /// Whose death.
    #[must_use]
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// What proves it.
    #[must_use]
    pub fn witness(&self) -> Witness {
        self.witness
    }
}

/// What proved a death: see the crate's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Witness {
    /// Its slot belongs to a later epoch.
    Epoch,
    /// The lock on its byte is free.
    Byte,
    /// It ran in another boot.
    BootId,
    /// Its process has ended, or its pid is another's.
    Pidfd,
}

impl Peers {
    /// The peers of `arena`, of which this process is one. Costs nothing.
    #[must_use]
    pub fn new(arena: &Arena) -> Peers {
        Peers {
            arena: arena.clone(),
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

    /// Whether a peer lives: see the crate's documentation for what is asked. At most nine system
    /// calls; none when its epoch is over.
    pub fn verdict(&self, id: PeerId) -> Verdict {
        let identity = |id| identity_of(self.arena.attachment(PeerId::slot(id)), id);
        let own = || self.arena.me_if_joined().and_then(identity);
        judge(id, self.arena.probe(id), || identity(id).zip(own()))
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

/// A peer of an arena that was opened for reading.
///
/// As [`Peers::verdict`], for who looks without joining.
pub fn verdict_in(view: &ArenaView, id: PeerId) -> Verdict {
    let identity = || identity_of(view.attachment(id.slot()), id);
    judge(id, view.probe(id), || {
        identity().map(|peer| (peer, Identity::own()))
    })
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

fn identity_of(row: Option<Attachment>, id: PeerId) -> Option<Identity> {
    row.filter(|row| row.id == id)?.identity
}

/// `identities`: the peer's, and this process's own, as far as both are known.
fn judge(
    id: PeerId,
    probe: Probe,
    identities: impl FnOnce() -> Option<(Identity, Identity)>,
) -> Verdict {
    let dead = |witness| Verdict::Dead(DeathProof { peer: id, witness });
    let by_byte = match probe {
        Probe::Gone(gone) => {
            return dead(match gone.by() {
                GoneBy::Generation => Witness::Epoch,
                GoneBy::Byte => Witness::Byte,
            });
        }
        Probe::Held => Verdict::Alive,
        Probe::Unknown => Verdict::Unknown,
    };
    let Some((peer, own)) = identities() else {
        return by_byte;
    };
    // Only where the byte cannot be asked: two views of one machine may disagree about the boot.
    let other_boot = peer.boot_id != own.boot_id && peer.boot_id != 0 && own.boot_id != 0;
    if other_boot && by_byte == Verdict::Unknown {
        return dead(Witness::BootId);
    }
    if peer.pid_namespace != own.pid_namespace || own.pid_namespace == 0 {
        return by_byte;
    }
    match ask_pidfd(&peer) {
        Ok(true) => dead(Witness::Pidfd),
        Ok(false) => Verdict::Alive,
        Err(_) => by_byte,
    }
}

/// Whether the process is gone, asked in its own PID namespace.
fn ask_pidfd(identity: &Identity) -> io::Result<bool> {
    let fd = match PidFd::open(identity.pid) {
        Ok(fd) => fd,
        Err(error) if error.raw_os_error() == Some(ESRCH) => return Ok(true),
        Err(error) => return Err(error),
    };
    match fd.inode()? {
        Some(inode) if identity.pid_inode != 0 => {
            if inode != identity.pid_inode {
                return Ok(true);
            }
        }
        // A kernel before 6.9. Equal start times prove nothing, different ones do.
        _ => match start_ticks(identity.pid) {
            Some(started) if identity.start_ticks != 0 => {
                if started != identity.start_ticks {
                    return Ok(true);
                }
            }
            // Whose pidfd this is cannot be told.
            _ => return Err(io::Error::from(io::ErrorKind::Unsupported)),
        },
    }
    fd.has_ended()
}

/// `ESRCH`, the same on every Linux.
const ESRCH: i32 = 3;
