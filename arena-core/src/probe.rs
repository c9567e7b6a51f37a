//! Proof that an attached process is gone.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use crate::attachment_word::{Byte, Life};
use crate::file::{ArenaFile, LockByte};
use crate::id::AttachmentId;
use crate::layout::Row;

/// Proof that the process which was attached as [`id`](Gone::id) is gone: the program ended, was
/// killed, or was replaced by exec. Made by [`Arena::probe`](crate::Arena::probe) alone, never from
/// a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a proof that is dropped recovers nothing"]
pub struct Gone {
    id: AttachmentId,
    by: GoneBy,
}

/// What the proof rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoneBy {
    /// Its row belongs to a later generation.
    Generation,
    /// The kernel gave up the lock on its byte.
    Byte,
}

impl Gone {
    /// Who is gone.
    #[must_use]
    pub fn id(&self) -> AttachmentId {
        self.id
    }

    /// What the proof rests on.
    #[must_use]
    pub fn by(&self) -> GoneBy {
        self.by
    }
}

/// The answer to whether a process is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Probe {
    /// It is, and here is the proof.
    Gone(Gone),
    /// Its byte is locked: the program's memory still exists.
    Held,
    /// It cannot be told: the row is damaged, or the file cannot be asked.
    Unknown,
}

pub(crate) fn probe(
    id: AttachmentId,
    rows: &[Row],
    own: Option<AttachmentId>,
    file: &ArenaFile,
) -> Probe {
    let Some(row) = rows.get(usize::from(id.slot())) else {
        return Probe::Unknown;
    };
    let mut by = GoneBy::Generation;
    let life = row.state.life(id, || {
        by = GoneBy::Byte;
        if own == Some(id) {
            Byte::Held
        } else {
            ask(id.slot(), own, file)
        }
    });
    match life {
        Life::Gone => Probe::Gone(Gone { id, by }),
        Life::Held => Probe::Held,
        Life::Unknown => Probe::Unknown,
    }
}

/// What the row alone proves: no system call.
pub(crate) fn outlived(id: AttachmentId, rows: &[Row]) -> Option<Gone> {
    let row = rows.get(usize::from(id.slot()))?;
    let by = GoneBy::Generation;
    (row.state.life(id, || Byte::Unknown) == Life::Gone).then_some(Gone { id, by })
}

/// What the kernel says about a slot's byte. `own` is this process's id: on a descriptor that is
/// right its own byte reads locked, since the lock belongs to another description. Looked at last: a
/// number that somebody closed and reused meanwhile does not pass.
pub(crate) fn ask(slot: u16, own: Option<AttachmentId>, file: &ArenaFile) -> Byte {
    look(own, file, |fd| LockByte::of_slot(slot).is_locked(fd))
}

/// Whether somebody may stand in for `id`: `true` unless the kernel says that nobody does.
pub(crate) fn may_have_stand_in(
    id: AttachmentId,
    own: Option<AttachmentId>,
    file: &ArenaFile,
) -> bool {
    look(own, file, |fd| LockByte::of_stand_in(id).is_shared(fd)) != Byte::Free
}

fn look(
    own: Option<AttachmentId>,
    file: &ArenaFile,
    is_held: impl FnOnce(BorrowedFd<'_>) -> io::Result<bool>,
) -> Byte {
    let Ok(fd) = file.descriptor() else {
        return Byte::Unknown;
    };
    let answer = match is_held(fd.as_fd()) {
        Ok(true) => return Byte::Held,
        Ok(false) => Byte::Free,
        Err(_) => return Byte::Unknown,
    };
    let own_is_held =
        own.is_none_or(|own| matches!(LockByte::of_slot(own.slot()).is_locked(&fd), Ok(true)));
    if own_is_held && file.is(&fd) {
        answer
    } else {
        Byte::Unknown
    }
}
