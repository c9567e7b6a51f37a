//! A peer that somebody watches, and by what.

use arena_core::{AttachmentId as PeerId, Bell, PidFd};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::io;

use crate::verdict::{open_peer, pid_is_ours_to_ask};
use crate::{DeathProof, Peers};

/// How often a peer is asked for of which nothing tells: one of another PID namespace, or without a
/// bell.
const LOOK_NS: u64 = 2_000_000_000;
/// How soon after its bell was found rung; doubled from then on.
const FIRST_LOOK_NS: u64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Subject {
    pub(super) peers: Peers,
    pub(super) peer: PeerId,
    pidfd: Option<PidFd>,
    /// Whether a listener has nothing but this thread: no sleep on the bell.
    pub(super) wants_looks: bool,
    pub(super) dead: Option<DeathProof>,
    next_ns: u64,
}

impl Subject {
    pub(super) fn new(peers: &Peers, peer: PeerId) -> Subject {
        Subject {
            peers: peers.clone(),
            peer,
            pidfd: pidfd_of(peers, peer),
            wants_looks: false,
            dead: None,
            next_ns: FIRST_LOOK_NS,
        }
    }

    pub(super) fn listen(&self, epoll: &Epoll, number: u64) -> io::Result<()> {
        if let Some(fd) = &self.pidfd {
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, number))?;
        }
        Ok(())
    }

    /// Taken out by hand: a child of fork that has the descriptor too would keep it in.
    pub(super) fn unlisten(&self, epoll: &Epoll) {
        if let Some(fd) = &self.pidfd {
            match epoll.delete(fd) {
                Ok(()) | Err(Errno::ENOENT) => {}
                // The descriptor was closed behind our back, and with it the entry.
                Err(_) => {}
            }
        }
    }

    /// It ended, its pidfd says, but there is no proof: only looks are left.
    pub(super) fn forget_pidfd(&mut self) {
        self.pidfd = None;
    }

    /// In how many nanoseconds to look again; `None` when something else tells of the death.
    pub(super) fn until_look_ns(&mut self) -> Option<u64> {
        let bell = self.peers.arena().bell(self.peer.slot());
        if self.dead.is_some()
            || !self.wants_looks && self.pidfd.is_some() && bell == Some(Bell::Hung)
        {
            return None;
        }
        if bell != Some(Bell::Rung) {
            self.next_ns = FIRST_LOOK_NS;
            return Some(LOOK_NS);
        }
        let now = self.next_ns;
        self.next_ns = (now * 2).min(LOOK_NS);
        Some(now)
    }
}

/// The peer's process; `None` when its pid means nothing here, or it is gone: the first look finds out.
fn pidfd_of(peers: &Peers, peer: PeerId) -> Option<PidFd> {
    let (peer, own) = (peers.identity(peer)?, peers.own_identity()?);
    let asked = peer.boot_id == own.boot_id && pid_is_ours_to_ask(&peer, &own);
    asked.then(|| open_peer(&peer).ok().flatten()).flatten()
}
