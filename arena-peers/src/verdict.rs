//! Whether a peer lives, and what that rests on.

use std::io;

use arena_core::{
    ArenaView, Attachment, AttachmentId as PeerId, Bell, GoneBy, Identity, Memory, PidFd, Probe,
    start_ticks,
};

use crate::capabilities::capabilities;
use crate::statm;

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
    /// Its bell rang, and no thread of it has an address space any more, though the kernel may go on
    /// freeing it for long.
    NoMemory,
}

/// A peer of an arena that was opened for reading.
///
/// As [`Peers::verdict`](crate::Peers::verdict), for who looks without joining.
pub fn verdict_in(view: &ArenaView, id: PeerId) -> Verdict {
    let identity = || identity_of(view.attachment(id.slot()), id);
    let bell = view.bell(id.slot());
    judge(id, view.probe(id), bell, || {
        identity().map(|peer| (peer, Identity::own()))
    })
}

pub(crate) fn identity_of(row: Option<Attachment>, id: PeerId) -> Option<Identity> {
    row.filter(|row| row.id == id)?.identity
}

/// The proof in core's proof.
pub(crate) fn proof_of(gone: arena_core::Gone) -> DeathProof {
    DeathProof {
        peer: gone.id(),
        witness: match gone.by() {
            GoneBy::Generation => Witness::Epoch,
            GoneBy::Byte => Witness::Byte,
        },
    }
}

/// Whether the peer's pid means here what it means to the peer.
pub(crate) fn pid_is_ours_to_ask(peer: &Identity, own: &Identity) -> bool {
    peer.pid_namespace == own.pid_namespace && own.pid_namespace != 0
}

/// `bell`: what the slot's bell said before `probe` was asked. `identities`: the peer's, and this
/// process's own, as far as both are known.
pub(crate) fn judge(
    id: PeerId,
    probe: Probe,
    bell: Option<Bell>,
    identities: impl FnOnce() -> Option<(Identity, Identity)>,
) -> Verdict {
    let dead = |witness| Verdict::Dead(DeathProof { peer: id, witness });
    let by_byte = match probe {
        Probe::Gone(gone) => return Verdict::Dead(proof_of(gone)),
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
    if !pid_is_ours_to_ask(&peer, &own) {
        return by_byte;
    }
    let fd = match open_peer(&peer) {
        Ok(Some(fd)) => fd,
        Ok(None) => return dead(Witness::Pidfd),
        Err(_) => return by_byte,
    };
    if bell == Some(Bell::Rung)
        && capabilities().mrelease
        && statm::may_have_no_memory(peer.pid)
        && fd.memory() == Memory::Gone
    {
        return dead(Witness::NoMemory);
    }
    match fd.has_ended() {
        Ok(true) => dead(Witness::Pidfd),
        Ok(false) => Verdict::Alive,
        Err(_) => by_byte,
    }
}

/// The process itself, asked for in its own PID namespace; `None` when it is gone and its pid free, or
/// another's.
pub(crate) fn open_peer(identity: &Identity) -> io::Result<Option<PidFd>> {
    let fd = match PidFd::open(identity.pid) {
        Ok(fd) => fd,
        Err(error) if error.raw_os_error() == Some(ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    let another = match fd.inode()? {
        Some(inode) if identity.pid_inode != 0 => inode != identity.pid_inode,
        // A kernel before 6.9. Equal start times prove nothing, different ones do. If it is another
        // process all the same, then ours is gone, so whatever that one says of a death is true.
        _ => match start_ticks(identity.pid) {
            Some(started) if identity.start_ticks != 0 => started != identity.start_ticks,
            // Whose pidfd this is cannot be told.
            _ => return Err(io::Error::from(io::ErrorKind::Unsupported)),
        },
    };
    Ok((!another).then_some(fd))
}

/// `ESRCH`, the same on every Linux.
const ESRCH: i32 = 3;

#[cfg(test)]
pub(crate) fn proof_for_tests(peer: PeerId) -> DeathProof {
    DeathProof {
        peer,
        witness: Witness::Pidfd,
    }
}
