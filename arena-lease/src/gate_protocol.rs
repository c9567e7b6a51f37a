//! Entering and leaving a gate: load the word, decide ([`crate::gate_word`]), exchange.
//!
//! Generic over everything they touch, so that real processes and the model checker run the same lines. No lock:
//! a process that is killed anywhere here is inside or not, by one exchange, and that it died is proven by others;
//! one that is stopped between its exchange and the wake-up delays sleepers by one [`SLICE`].

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::PeerId;
use crate::gate_word::{Entry, GateWord, Inside};
use crate::protocol::Cell;
use crate::word::Bits;

/// How often in a row an exchange may fail. A failure means that another's succeeded.
const ATTEMPTS: u32 = 1 << 16;

/// The longest sleep without a look at the gate.
const SLICE: Duration = Duration::from_secs(1);

/// A gate, and what entering it needs of the world.
pub(crate) trait Door {
    type Cell: Cell;

    fn word(&self) -> &Self::Cell;
    /// The boot clock.
    fn now_ns(&self) -> u64;
    /// Whether the arena was destroyed.
    fn is_gone(&self) -> bool;
    /// As [`is_gone`](Self::is_gone), and whether its file was removed. After a sleep, so it may ask the system.
    fn is_removed(&self) -> bool;
    /// Whether the kernel proves that the peer's process is gone.
    fn is_dead(&self, peer: PeerId) -> bool;
    /// Sleeps until woken, the low part of the word is not `part`, `behind` is proven dead, or the time is up.
    fn sleep(&self, part: u32, behind: PeerId, timeout: Duration);
    fn wake_all(&self);
}

type BitsOf<D> = <<D as Door>::Cell as Cell>::Bits;

/// What became of an attempt to enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Entered { recovered: Option<PeerId> },
    Stale { newest: u64 },
    Busy { behind: Inside },
}

/// Why it could not be attempted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Gone,
    Corrupt(u128),
    Crowded,
    Contended,
}

/// See [`crate::Gate::enter`]. `fence` is neither 0 nor larger than a word can hold; waits until `end_ns`.
pub(crate) fn enter<D: Door>(
    door: &D,
    me: PeerId,
    fence: u64,
    end_ns: u64,
) -> Result<Outcome, Fault> {
    let mut failures = 0;
    while failures < ATTEMPTS {
        let (seen, word) = load(door)?;
        let left = Duration::from_nanos(end_ns.saturating_sub(door.now_ns()));
        let entry = word.enter::<BitsOf<D>>(fence, me, !left.is_zero(), |peer| door.is_dead(peer));
        let (to, behind) = match entry {
            // Both may be because of an arena that is no longer the one that others use.
            Entry::Stale { .. } | Entry::Crowded if door.is_gone() => return Err(Fault::Gone),
            Entry::Stale { newest } => return Ok(Outcome::Stale { newest }),
            Entry::Crowded => return Err(Fault::Crowded),
            Entry::Wait { to, behind } => (to, behind),
            Entry::Enter { to, recovered } => {
                if !exchange(door, seen, to) {
                    failures += 1;
                    continue;
                }
                // Those who slept until the dead one was gone now sleep behind this process, or are too old.
                if word.waited && recovered.is_some() {
                    door.wake_all();
                }
                // After the exchange: clear now, nobody had entered a successor of this arena before.
                if door.is_gone() {
                    leave(door, me);
                    return Err(Fault::Gone);
                }
                return Ok(Outcome::Entered { recovered });
            }
        };
        // The exchange is the second look: whoever was inside was so when the word began to say that somebody
        // waits, and whoever leaves after that reads it in the word that he replaces.
        if to != word && !exchange(door, seen, to) {
            failures += 1;
            continue;
        }
        if to.fence != word.fence && word.waited {
            // They wait with fences that are too old now.
            door.wake_all();
        }
        if door.is_gone() {
            return Err(Fault::Gone);
        }
        if left.is_zero() {
            return Ok(Outcome::Busy { behind });
        }
        failures = 0;
        let part = to.part::<BitsOf<D>>().expect("it was exchanged in");
        door.sleep(part, behind.peer, left.min(SLICE));
        if door.is_removed() {
            return Err(Fault::Gone);
        }
    }
    Err(Fault::Contended)
}

/// A guard of `me` leaves. Nothing happens when `me` is not inside: the arena is damaged.
pub(crate) fn leave<D: Door>(door: &D, me: PeerId) {
    // Without a bound: each failure is an exchange of somebody else's, and one who did not leave stays inside.
    loop {
        let Ok((seen, word)) = load(door) else {
            return;
        };
        let Some(to) = word.leave::<BitsOf<D>>(me) else {
            return;
        };
        if exchange(door, seen, to) {
            if to.inside.is_none() && word.waited {
                door.wake_all();
            }
            return;
        }
    }
}

/// The word as it is.
pub(crate) fn load<D: Door>(door: &D) -> Result<(BitsOf<D>, GateWord), Fault> {
    // Relaxed: a decision on an old word ends in an exchange that fails, or in a refusal, which orders nothing.
    let seen = door.word().load(Ordering::Relaxed);
    let word = GateWord::decode(seen).ok_or(Fault::Corrupt(seen.widen()))?;
    Ok((seen, word))
}

fn exchange<D: Door>(door: &D, seen: BitsOf<D>, to: GateWord) -> bool {
    // Of a word that this library wrote: a fence that was compared, and counts that the steps bound.
    let Some(to) = to.encode() else {
        return false;
    };
    // EDGE left, release half: whatever was done inside before a guard left is visible to whoever enters next, and
    // to the other guards' successor: exchanges continue each other's releases.
    // EDGE left, acquire half: the exchange itself, and not the load before: a word comes back when a guard enters
    // beside another and leaves again, so the load may have read an older store.
    let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
    // Relaxed: (failure) the value is dropped, and the word is loaded again.
    door.word()
        .compare_exchange(seen, to, success, failure)
        .is_ok()
}

#[cfg(test)]
#[path = "gate_loom_tests.rs"]
mod loom_tests;
