//! What was found out a moment ago about each slot: a peer whose bell hangs unrung is believed for
//! a little while, so that asking again costs no system call.

use std::sync::atomic::{AtomicU64, Ordering};

use arena_core::AttachmentId as PeerId;

/// How long a verdict is believed while the bell hangs. What it bounds is a bell that never rings: one
/// that is damaged, or was cut down in the instant before its process left.
pub(crate) const BELIEVED_MS: u64 = 100;

/// One word a slot.
///
/// ```text
/// bits     field
///  0..=23  epoch of the peer that was found alive; 0: nobody was
/// 24..=63  when, in milliseconds of the boot clock
/// ```
#[derive(Debug)]
pub(crate) struct Beliefs(Box<[AtomicU64]>);

impl Beliefs {
    pub(crate) fn new(slots: u16) -> Beliefs {
        Beliefs((0..slots).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn found_alive(&self, id: PeerId, now_ms: u64) {
        if let Some(word) = self.0.get(usize::from(id.slot())) {
            // Relaxed: the word is all there is.
            word.store(encode(id, now_ms), Ordering::Relaxed);
        }
    }

    pub(crate) fn holds(&self, id: PeerId, now_ms: u64) -> bool {
        let Some(word) = self.0.get(usize::from(id.slot())) else {
            return false;
        };
        // Relaxed: as above.
        is_fresh(word.load(Ordering::Relaxed), id, now_ms)
    }
}

const fn encode(id: PeerId, now_ms: u64) -> u64 {
    now_ms << PeerId::GENERATION_BITS | id.generation() as u64
}

/// A clock that was read before the belief was formed is no reason to believe it.
const fn is_fresh(word: u64, id: PeerId, now_ms: u64) -> bool {
    let at_ms = word >> PeerId::GENERATION_BITS;
    encode(id, at_ms) == word && now_ms >= at_ms && now_ms - at_ms <= BELIEVED_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn belief_is_of_one_epoch_and_lasts_a_tenth_of_a_second() {
        let id = |generation| PeerId::new(1, generation).unwrap();
        let beliefs = Beliefs::new(2);
        assert!(!beliefs.holds(id(3), 0), "nobody was found alive");
        beliefs.found_alive(id(3), 1_000);
        for (who, now_ms, held) in [
            (3, 1_000, true),
            (3, 1_100, true),
            (3, 1_101, false),
            (3, 999, false),
            (2, 1_000, false),
            (4, 1_000, false),
        ] {
            assert_eq!(beliefs.holds(id(who), now_ms), held, "{who} {now_ms}");
        }
        let beyond = PeerId::new(2, 1).unwrap();
        beliefs.found_alive(beyond, 1_000);
        assert!(!beliefs.holds(beyond, 1_000));
    }
}
