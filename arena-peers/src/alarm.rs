//! A private word that is rung when a peer dies, when a moment of the boot clock has come, or by who
//! cancels.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arena_core::futex;

use crate::watcher::{self, Sink};
use crate::{PeerId, Peers};

/// Has a word rung by this process's watcher thread, until it is dropped.
///
/// The word is a counter of the caller's own, not in an arena; ringing adds one and wakes its
/// sleepers. Several alarms may share a word. In a child of fork an inherited alarm is mute, and
/// dropping it takes nothing from the parent's.
#[derive(Debug)]
pub struct Alarm {
    /// `None`: the watcher does not know it.
    id: Option<u64>,
    word: Arc<AtomicU32>,
    peer: Option<PeerId>,
}

/// Rings a word: who sleeps on it, or has taken a ticket to, looks again. One addition and a system
/// call. May be called by any thread, and as often as one likes.
pub fn ring(word: &AtomicU32) {
    // EDGE alarm, release half: who sees the new count sees what was stored before the ring.
    word.fetch_add(1, Ordering::Release);
    futex::wake_all(word);
}

impl Peers {
    /// Has `word` rung once when `peer` is proven dead, and once when the boot clock, which runs on
    /// while the machine sleeps, has come to `at_boot_ms`.
    ///
    /// The first watch or alarm of a process starts its watcher thread, which sleeps until there is
    /// something to be done and ends when there has been nothing to watch for a fifth of a second. Takes
    /// a lock of this process; about five system calls for a peer that is not watched yet, one for a
    /// deadline that is the earliest.
    ///
    /// The death is told when the kernel has freed the peer's memory, or as soon as any sleeper of this
    /// process has proven it: let who waits [sleep](Peers::sleep) on the bell as well. A peer of another
    /// PID namespace, or one without a bell, is asked for every two seconds.
    ///
    /// # Errors
    ///
    /// No thread, descriptor or memory is to be had.
    pub fn alarm(
        &self,
        word: &Arc<AtomicU32>,
        peer: Option<PeerId>,
        at_boot_ms: Option<u64>,
    ) -> io::Result<Alarm> {
        let sink = Sink::Alarm(Arc::clone(word));
        let id = watcher::register(self, peer, at_boot_ms, sink)?;
        Ok(Alarm {
            id: Some(id),
            word: Arc::clone(word),
            peer,
        })
    }
}

impl Alarm {
    /// An alarm that tells of no death and no deadline: only who [rings](ring) the word ends a sleep on
    /// it. Needs no thread, and costs nothing.
    #[must_use]
    pub fn by_hand(word: &Arc<AtomicU32>) -> Alarm {
        Alarm {
            id: None,
            word: Arc::clone(word),
            peer: None,
        }
    }

    /// The word's count, to be taken before looking at what one would sleep for. One load.
    #[must_use]
    pub fn ticket(&self) -> u32 {
        // EDGE alarm, acquire half.
        self.word.load(Ordering::Acquire)
    }

    /// The word.
    #[must_use]
    pub fn word(&self) -> &Arc<AtomicU32> {
        &self.word
    }

    /// Rings at this moment of the boot clock instead of the one asked for before; `None`: at none.
    /// Takes a lock of this process; a system call when it becomes the earliest.
    ///
    /// # Errors
    ///
    /// `NotFound` in a child of the process that made the alarm, and for one [by hand](Self::by_hand): make
    /// another.
    pub fn set_deadline(&self, at_boot_ms: Option<u64>) -> io::Result<()> {
        let id = self.id.ok_or(io::ErrorKind::NotFound)?;
        watcher::set_deadline(id, at_boot_ms)
    }

    /// Rings now: cancels the sleep of who sleeps on the word.
    pub fn ring(&self) {
        ring(&self.word);
    }

    /// Whose death this alarm tells of, in this process.
    pub(crate) fn tells_of(&self) -> Option<PeerId> {
        self.peer.filter(|_| self.id.is_some_and(watcher::knows))
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            watcher::unregister(id);
        }
    }
}
