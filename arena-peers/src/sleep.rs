//! Sleeping until something changes or a peer dies, without looking in between.

#[cfg(test)]
mod loom_tests;
mod protocol;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use arena_core::futex::{self, Wait, WaitAny, Word};
use arena_core::{Bell, SeenBell};

use crate::capabilities::{capabilities, lost_futex_waitv};
use crate::verdict::proof_of;
use crate::{Alarm, DeathProof, PeerId, Peers, Verdict, watcher};
use protocol::{Bedroom, Night, Rang};

/// What a sleeper sleeps on. Each part is optional; all of them end the sleep.
///
/// To lose no wake-up, in this order: take the alarm's [`ticket`](Alarm::ticket), load the word that
/// `word` is a part of, decide to sleep, call [`Peers::sleep`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Sleep<'a> {
    /// A word of the arena, and what it was when the caller decided to sleep.
    pub word: Option<(Word<'a>, u32)>,
    /// Another one, likewise.
    pub also: Option<(Word<'a>, u32)>,
    /// A peer whose death ends the sleep.
    pub peer: Option<PeerId>,
    /// An alarm, and its ticket: rung by the watcher thread, or by who cancels. One that watches
    /// `peer` covers what the bell does not: a peer without one.
    pub alarm: Option<(&'a Alarm, u32)>,
    /// Whether the arena's destruction ends the sleep; one that was destroyed before ends it at once.
    pub until_gone: bool,
    /// `None`: without limit.
    pub timeout: Option<Duration>,
}

/// Why a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Slept {
    /// The word changed, or its sleepers were woken, or the alarm rang, or the arena was destroyed, or a
    /// signal came, or nothing at all: look again.
    Woken,
    /// The peer is dead.
    Dead(DeathProof),
    /// The timeout is over.
    TimedOut,
}

/// How long to sleep where several words cannot be slept on.
const SLICE: Duration = Duration::from_millis(10);

/// How long to sleep when neither a bell nor the watcher would tell of a death.
const UNTOLD: Duration = Duration::from_secs(1);

impl Peers {
    /// Sleeps until one of the things in `sleep` happens.
    ///
    /// The timeout is counted on `CLOCK_MONOTONIC`, which stands still while the machine sleeps; a
    /// deadline on the boot clock is an [`Alarm`]'s. When the peer's bell rings, this thread wakes the
    /// other sleepers on that bell, then asks for the proof, at first every 20 microseconds, then
    /// every millisecond, and after a tenth of a second, when the process evidently lives, ever more
    /// rarely, up to once a second.
    ///
    /// Two system calls when the peer has a bell that hangs; a verdict more when it has none. Where the
    /// kernel lacks `futex_waitv` ([`Capabilities`](crate::Capabilities)) it wakes a hundred times a
    /// second to look.
    pub fn sleep(&self, sleep: &Sleep<'_>) -> Slept {
        let alarm = sleep.alarm.map(|(alarm, ticket)| Bedside {
            word: alarm.word(),
            ticket,
            tells_of: alarm.tells_of(),
        });
        self.sleep_beside(sleep, alarm)
    }

    pub(crate) fn sleep_beside(&self, sleep: &Sleep<'_>, alarm: Option<Bedside<'_>>) -> Slept {
        let deadline = sleep
            .timeout
            .and_then(|timeout| Instant::now().checked_add(timeout));
        let slept = protocol::sleep(&Bed {
            peers: self,
            word: sleep.word,
            also: sleep.also,
            peer: sleep.peer,
            alarm,
            until_gone: sleep.until_gone,
            deadline,
        });
        if let Slept::Dead(proof) = slept {
            watcher::report(self, proof);
        }
        slept
    }
}

/// The private word that the watcher bumps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bedside<'a> {
    pub(crate) word: &'a AtomicU32,
    pub(crate) ticket: u32,
    /// Whose death it tells of in this process; `None` in a child of the process that registered it.
    pub(crate) tells_of: Option<PeerId>,
}

#[derive(Debug)]
struct Bed<'a> {
    peers: &'a Peers,
    word: Option<(Word<'a>, u32)>,
    also: Option<(Word<'a>, u32)>,
    peer: Option<PeerId>,
    alarm: Option<Bedside<'a>>,
    until_gone: bool,
    deadline: Option<Instant>,
}

impl<'a> Bedroom for Bed<'a> {
    type Bell = SeenBell<'a>;

    fn bell(&self) -> Option<SeenBell<'a>> {
        self.peers.arena().seen_bell(self.peer?.slot())
    }

    fn says(bell: &SeenBell<'a>) -> Bell {
        bell.state()
    }

    fn has_changed(bell: &SeenBell<'a>) -> bool {
        bell.has_changed()
    }

    fn wake_rest(bell: &SeenBell<'a>) {
        bell.wake_rest();
    }

    fn outlived(&self) -> Option<DeathProof> {
        let (arena, peer) = (self.peers.arena(), self.peer?);
        let by_row = arena.outlived(peer).map(proof_of);
        by_row.or_else(|| watcher::proof(self.peers, peer))
    }

    fn prove(&self) -> Option<DeathProof> {
        match self.peers.verdict(self.peer?) {
            Verdict::Dead(proof) => Some(proof),
            Verdict::Alive | Verdict::Unknown => None,
        }
    }

    fn untold(&self) -> Option<Duration> {
        let told = self.alarm.is_some_and(|alarm| alarm.tells_of == self.peer);
        (self.peer.is_some() && !told).then_some(UNTOLD)
    }

    fn sleep(&self, bell: Option<&SeenBell<'a>>, slice: Option<Duration>) -> Night {
        let left = self
            .deadline
            .map(|at| at.saturating_duration_since(Instant::now()));
        let most = match (left, slice) {
            (Some(left), Some(slice)) => Some(left.min(slice)),
            (left, slice) => left.or(slice),
        };
        let bell_word = bell.map(SeenBell::futex);
        let alarm = self.alarm.map(|alarm| (Word::of(alarm.word), alarm.ticket));
        let gone = self.until_gone.then(|| (self.peers.arena().gone_word(), 0));
        let mut words = [(Word::of(&NOBODYS), 0); futex::MOST_WORDS];
        let mut count = 0;
        // The bell first, so that it is known by its index.
        for word in [bell_word, self.word, self.also, alarm, gone]
            .into_iter()
            .flatten()
        {
            words[count] = word;
            count += 1;
        }
        let night = if capabilities().futex_waitv {
            match futex::wait_any(&words[..count.max(1)], most) {
                WaitAny::Woken(0) if bell.is_some() => Night::Ended(Rang::Bell),
                WaitAny::Woken(_) | WaitAny::Interrupted => Night::Ended(Rang::Other),
                WaitAny::Changed => Night::Ended(Rang::Unknown),
                WaitAny::TimedOut => Night::Over,
                WaitAny::Refused(_) => {
                    lost_futex_waitv();
                    return self.sleep(bell, slice);
                }
            }
        } else {
            self.doze(bell_word, most.map_or(SLICE, |most| most.min(SLICE)))
        };
        match night {
            Night::Over if self.deadline.is_some_and(|at| at <= Instant::now()) => Night::TimedOut,
            night => night,
        }
    }
}

/// A word on which those sleep who have nothing to sleep on.
static NOBODYS: AtomicU32 = AtomicU32::new(0);

impl Bed<'_> {
    /// A short sleep on the word that is most likely to change first; then a look at the others.
    fn doze(&self, bell: Option<(Word<'_>, u32)>, slice: Duration) -> Night {
        if self.is_told() {
            return Night::Ended(Rang::Other);
        }
        let alarm = self.alarm.map(|alarm| (Word::of(alarm.word), alarm.ticket));
        let idle = (Word::of(&NOBODYS), 0);
        let (word, expected) = self.word.or(alarm).or(bell).unwrap_or(idle);
        match word.wait(expected, Some(slice)) {
            Wait::Woken | Wait::Changed => Night::Ended(Rang::Unknown),
            Wait::TimedOut if self.is_told() => Night::Ended(Rang::Other),
            Wait::TimedOut => Night::Over,
            Wait::Refused(_) => {
                std::thread::sleep(slice);
                Night::Ended(Rang::Unknown)
            }
        }
    }

    /// By the alarm, the arena's end, or the other word.
    fn is_told(&self) -> bool {
        let rang = self.alarm.is_some_and(|alarm| {
            // EDGE alarm, acquire half.
            alarm.word.load(Ordering::Acquire) != alarm.ticket
        });
        // The kernel alone may look at a part of a word: without time to sleep it does that.
        let has_changed =
            |(word, seen): (Word<'_>, u32)| word.wait(seen, Some(Duration::ZERO)) == Wait::Changed;
        rang || self.until_gone && self.peers.arena().is_gone()
            || self.also.is_some_and(has_changed)
    }
}
