//! In which order a sleeper looks, sleeps and wakes others, over anything that can be slept in.

use std::time::Duration;

use arena_core::Bell;

use super::Slept;
use crate::DeathProof;

/// The first sleep between a ring and the second attempt at a proof.
const FIRST_SLICE: Duration = Duration::from_micros(20);
/// The sleep between attempts for as long as it is likely that the peer is dying.
const DYING_SLICE: Duration = Duration::from_millis(1);
/// How many attempts that is: a tenth of a second.
const DYING_ATTEMPTS: u32 = 100;
/// The longest sleep between attempts: the peer rang and lives.
const LIVING_SLICE: Duration = Duration::from_secs(1);

/// What a sleeper has around it.
pub(super) trait Bedroom {
    type Bell;

    /// The peer's bell as it is now; `None` when there is no peer.
    fn bell(&self) -> Option<Self::Bell>;
    fn says(bell: &Self::Bell) -> Bell;
    fn has_changed(bell: &Self::Bell) -> bool;
    fn wake_rest(bell: &Self::Bell);
    /// The proof that costs nothing: the peer's row is somebody else's, or the watcher has one.
    fn outlived(&self) -> Option<DeathProof>;
    /// One attempt at a proof, by every witness.
    fn prove(&self) -> Option<DeathProof>;
    /// How long to sleep without asking when there is a peer, but no bell and no watcher that would
    /// tell of its death; `None` when somebody tells.
    fn untold(&self) -> Option<Duration>;
    /// Sleeps on everything there is and on `bell`, for `slice` at most and to the deadline.
    fn sleep(&self, bell: Option<&Self::Bell>, slice: Option<Duration>) -> Night;
}

/// How a sleep went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Night {
    /// Something woke the sleeper, or would not let it sleep.
    Ended(Rang),
    /// The slice is over.
    Over,
    /// The deadline is over.
    TimedOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rang {
    Bell,
    Other,
    /// A word had changed; it is not known which.
    Unknown,
}

pub(super) fn sleep<B: Bedroom>(room: &B) -> Slept {
    let mut attempts: u32 = 0;
    loop {
        // The bell, then the row, then sleep: whoever sees the next occupant's bell, or that of one who
        // left, sees that in the row; and what changes after the look spoils the sleep.
        let bell = room.bell();
        if let Some(proof) = room.outlived() {
            return Slept::Dead(proof);
        }
        let state = bell.as_ref().map(B::says);
        let slice = match (&bell, state) {
            (Some(bell), Some(Bell::Rung)) => {
                if attempts == 0 {
                    // Before anything that takes time: the kernel woke one of us.
                    B::wake_rest(bell);
                }
                if let Some(proof) = room.prove() {
                    return Slept::Dead(proof);
                }
                attempts += 1;
                Some(after(attempts))
            }
            (_, Some(Bell::None)) => {
                attempts = 0;
                if let Some(proof) = room.prove() {
                    return Slept::Dead(proof);
                }
                room.untold()
            }
            _ => {
                attempts = 0;
                None
            }
        };
        // A bell that rang says nothing more, and other sleepers' calls to it would only disturb.
        let listened_to = bell
            .as_ref()
            .filter(|_| state.is_some_and(|state| state != Bell::Rung));
        match room.sleep(listened_to, slice) {
            Night::Over | Night::Ended(Rang::Bell) => {}
            Night::Ended(Rang::Unknown) if listened_to.is_some_and(B::has_changed) => {}
            // The alarm may have told of the death, and tells it once.
            Night::Ended(Rang::Other | Rang::Unknown) => {
                return room.outlived().map_or(Slept::Woken, Slept::Dead);
            }
            Night::TimedOut => return Slept::TimedOut,
        }
    }
}

/// How long to sleep after this many attempts at a proof, counted from 1.
fn after(attempts: u32) -> Duration {
    if attempts <= DYING_ATTEMPTS {
        let doubled = FIRST_SLICE.saturating_mul(1 << (attempts - 1).min(10));
        return doubled.min(DYING_SLICE);
    }
    let doublings = (attempts - DYING_ATTEMPTS).min(20);
    DYING_SLICE.saturating_mul(1 << doublings).min(LIVING_SLICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_grow_from_20_microseconds_to_a_millisecond_and_at_last_to_a_second() {
        assert_eq!(after(1), Duration::from_micros(20));
        assert_eq!(after(2), Duration::from_micros(40));
        assert_eq!(after(7), DYING_SLICE);
        assert_eq!(after(DYING_ATTEMPTS), DYING_SLICE);
        assert_eq!(after(DYING_ATTEMPTS + 1), 2 * DYING_SLICE);
        assert_eq!(after(u32::MAX), LIVING_SLICE);
        assert!((1..300).all(|n| after(n) <= after(n + 1)));
    }
}
