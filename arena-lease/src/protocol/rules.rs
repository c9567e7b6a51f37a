//! What the tests of the verbs know beside the library: the chain of words, who is dead, who claimed to hold
//! and when.

use std::time::Duration;

use crate::PeerId;
use crate::word::{Owner, Word};

/// The truth of one lease.
#[derive(Debug)]
pub(super) struct History {
    word: Word,
    pub(super) now_ms: u64,
    pub(super) dead: Vec<PeerId>,
    /// (holder, fence, clock at which the library said that it holds)
    claims: Vec<(PeerId, u64, u64)>,
}

impl History {
    pub(super) fn new(word: Word) -> Self {
        Self {
            word,
            now_ms: 0,
            dead: Vec::new(),
            claims: Vec::new(),
        }
    }

    /// Holds an exchange against the rules, whichever verb made it.
    pub(super) fn replace(&mut self, from: Word, to: Word) {
        assert_eq!(self.word, from, "an exchange replaces the newest word");
        self.word = to;
        let over = self.now_ms >= from.until_ms;
        match (from.owner, to.owner) {
            (Owner::Peer(_), Owner::Nobody) => {
                assert_eq!(from.fence, to.fence, "a release keeps the fence");
                return;
            }
            (old, Owner::Peer(_)) if from.fence == to.fence => {
                assert_eq!(old, to.owner, "a fence has one holder");
                assert!(to.until_ms >= from.until_ms, "a deadline was shortened");
                return;
            }
            (Owner::Nobody, Owner::Retired) => {
                assert!(over, "renamed before its time");
                assert_eq!(from.fence, to.fence, "retiring keeps the fence");
                return;
            }
            (Owner::Retired, Owner::Nobody) => {}
            (Owner::Nobody, Owner::Peer(_)) => assert!(over, "taken before its time"),
            (Owner::Peer(old), Owner::Peer(new)) => {
                let may = over || old == new || self.dead.contains(&old);
                assert!(may, "stolen from a live holder");
            }
            odd => panic!("nobody makes this step: {odd:?}"),
        }
        assert!(to.fence > from.fence, "fences grow");
    }

    /// The library said that `me` holds `fence`, and that its last look at the clock was `left` before `until_ms`.
    pub(super) fn claim(&mut self, me: PeerId, fence: u64, until_ms: u64, left: Duration) {
        let at_ms = until_ms - u64::try_from(left.as_millis()).unwrap();
        assert!(at_ms < until_ms, "held when it was over");
        self.claims.push((me, fence, at_ms));
    }

    /// No two processes claim at clocks that overlap, whoever was told first. Only for histories in which nobody
    /// releases or dies: there the clock does not tell before from after.
    pub(super) fn check_claims(&self) {
        for &(one, earlier, at) in &self.claims {
            for &(other, later, then) in &self.claims {
                let fine = one == other || earlier >= later || at < then;
                assert!(
                    fine,
                    "fence {earlier} at {at} ms, fence {later} at {then} ms"
                );
            }
        }
    }
}
