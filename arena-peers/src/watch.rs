//! A descriptor that becomes readable when a peer dies.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::sleep::{Bedside, Sleep};
use crate::watcher::{self, Sink};
use crate::{DeathProof, PeerId, Peers, Slept, ring};

/// Watches one peer: readable, for poll, epoll and async runtimes, from its proven death on.
///
/// Reading from the descriptor is of no use; [`proof`](Self::proof) says what there is to know. In a
/// child of fork an inherited watch still answers `proof` and [`wait`](Self::wait), but its
/// descriptor is the parent's: make another.
#[derive(Debug)]
pub struct Watch {
    id: u64,
    peers: Peers,
    peer: PeerId,
    signal: Arc<Signal>,
}

/// What the watcher thread tells a [`Watch`].
#[derive(Debug)]
pub(crate) struct Signal {
    event: EventFd,
    word: AtomicU32,
    proof: OnceLock<DeathProof>,
}

impl Signal {
    pub(crate) fn tell(&self, proof: DeathProof) {
        if self.proof.set(proof).is_ok() {
            // It can only fail when 2^64 - 2 were written before.
            let _written = self.event.write(1);
            ring(&self.word);
        }
    }
}

impl Peers {
    /// Watches `peer`, which may be dead already.
    ///
    /// Costs what [`alarm`](Self::alarm) costs, and a descriptor of its own. Peers that are watched
    /// several times take one more descriptor together.
    ///
    /// # Errors
    ///
    /// No thread, descriptor or memory is to be had.
    pub fn watch(&self, peer: PeerId) -> io::Result<Watch> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let signal = Arc::new(Signal {
            event: EventFd::from_flags(flags)?,
            word: AtomicU32::new(0),
            proof: OnceLock::new(),
        });
        let sink = Sink::Watch(Arc::clone(&signal));
        let id = watcher::register(self, Some(peer), None, sink)?;
        Ok(Watch {
            id,
            peers: self.clone(),
            peer,
            signal,
        })
    }
}

impl Watch {
    /// Who is watched.
    #[must_use]
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// The proof, once the descriptor is readable. No system call.
    #[must_use]
    pub fn proof(&self) -> Option<DeathProof> {
        self.signal.proof.get().copied()
    }

    /// Sleeps until the peer is dead, at most for `timeout` (`None`: without limit), which is counted on
    /// `CLOCK_MONOTONIC`.
    ///
    /// Sooner than the descriptor where the peer has a bell: see [`Peers::sleep`].
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Option<DeathProof> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            // EDGE alarm, acquire half.
            let ticket = self.signal.word.load(Ordering::Acquire);
            if let Some(proof) = self.proof() {
                return Some(proof);
            }
            let alarm = Bedside {
                word: &self.signal.word,
                ticket,
                tells_of: Some(self.peer).filter(|_| watcher::knows(self.id)),
            };
            let sleep = Sleep {
                peer: Some(self.peer),
                timeout: deadline.map(|at| at.saturating_duration_since(Instant::now())),
                ..Sleep::default()
            };
            match self.peers.sleep_beside(&sleep, Some(alarm)) {
                Slept::Dead(proof) => {
                    self.signal.tell(proof);
                    return Some(proof);
                }
                Slept::TimedOut => return self.proof(),
                Slept::Woken => {}
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.event.as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        watcher::unregister(self.id);
    }
}
