//! What each verb does to a lease word: pure functions of the word as it was loaded, the clock as it was read
//! after, and who asks.
//!
//! Why a decision made on an old word is still right when the exchange succeeds: the word is then the same, and
//! what else was looked at can only have gone one way since. A deadline that had passed has passed; a process
//! that was dead is dead; a fence that was told lost is lost.

use std::time::Duration;

use crate::outcome::{Lost, Refused, TookOver};
use crate::word::{Bits, NS_PER_MS, Owner, Word};
use crate::{PeerId, Ttl};

/// Who asks, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) me: PeerId,
    /// The boot clock, read after the word was loaded.
    pub(crate) now_ns: u64,
    pub(crate) ttl: Ttl,
    /// The largest fence of this row whose holder was told that it lost.
    pub(crate) told: u64,
    /// Whether the last holder released in favour of `me`: it need not wait until the others may.
    pub(crate) is_heir: bool,
}

/// What acquire wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    Refused(Refused),
    /// Exchange the word for this one, which has a new fence.
    Take {
        to: Word,
        took_over: Option<TookOver>,
    },
    /// The lease is ours already: move its deadline.
    Extend(Word),
    /// The row is being given another name.
    Renaming,
    /// No larger fence fits into the word.
    FenceExhausted,
    /// The ttl ends after the last deadline that the word can hold.
    ClockExhausted,
}

/// What renew wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extension {
    Lost(Lost),
    /// Exchange the word for this one; nothing to do when it is the same.
    Extend(Word),
    ClockExhausted,
}

impl Ask {
    /// The deadline that the ttl ends at, rounded up to the millisecond.
    fn end_ms<B: Bits>(&self) -> Option<u64> {
        let end = self.now_ns.checked_add(self.ttl.ns())?.div_ceil(NS_PER_MS);
        (end <= B::MAX_UNTIL_MS).then_some(end)
    }

    /// Whether `word` is this process's, at a fence that was not told lost.
    pub(crate) fn owns(&self, word: Word) -> bool {
        word.names(self.me) && self.told < word.fence
    }
}

impl Word {
    /// Acquire. `least` is the smallest fence that may be issued now; `is_dead` is asked at most once, and only
    /// about a holder whose deadline has not passed.
    #[inline]
    pub(crate) fn acquire<B: Bits>(
        self,
        ask: &Ask,
        least: u64,
        is_dead: impl FnOnce(PeerId) -> bool,
    ) -> Attempt {
        let fence = self.fence;
        let over = self.is_over(ask.now_ns);
        let took_over = match self.owner {
            Owner::Retired => return Attempt::Renaming,
            Owner::Nobody if over || ask.is_heir => None,
            Owner::Nobody => {
                return Attempt::Refused(Refused::NotBefore {
                    fence,
                    at_ms: self.until_ms,
                    opens_in: self.left(ask.now_ns),
                });
            }
            Owner::Peer(_) if ask.owns(self) && !over => {
                return match self.extended::<B>(ask) {
                    Some(to) => Attempt::Extend(to),
                    None => Attempt::ClockExhausted,
                };
            }
            Owner::Peer(from) if over || from == ask.me => Some(TookOver::Lapsed { from, fence }),
            Owner::Peer(from) if is_dead(from) => Some(TookOver::Dead { from, fence }),
            Owner::Peer(by) => {
                return Attempt::Refused(Refused::Held {
                    by,
                    fence,
                    until_ms: self.until_ms,
                    lapses_in: self.left(ask.now_ns),
                });
            }
        };
        let next = fence.saturating_add(1).max(least);
        if next > B::MAX_FENCE {
            return Attempt::FenceExhausted;
        }
        let Some(until_ms) = ask.end_ms::<B>() else {
            return Attempt::ClockExhausted;
        };
        let to = Word {
            fence: next,
            owner: Owner::Peer(ask.me),
            until_ms,
        };
        Attempt::Take { to, took_over }
    }

    /// Renew at `fence`. A deadline that has passed is moved too, as long as nobody took the lease.
    pub(crate) fn renew<B: Bits>(self, fence: u64, ask: &Ask) -> Extension {
        match self.owner {
            _ if self.fence != fence || !self.names(ask.me) => {
                Extension::Lost(self.lost_to().unwrap_or(Lost::Released))
            }
            _ if ask.told >= fence => Extension::Lost(Lost::Told),
            _ => match self.extended::<B>(ask) {
                Some(to) => Extension::Extend(to),
                None => Extension::ClockExhausted,
            },
        }
    }

    /// The word after a release by `me` at `fence`, free from `not_before_ms` on. `None` when there is nothing to
    /// release.
    pub(crate) fn release(self, fence: u64, me: PeerId, not_before_ms: u64) -> Option<Self> {
        (self.names(me) && fence == self.fence).then_some(Self {
            owner: Owner::Nobody,
            until_ms: not_before_ms,
            ..self
        })
    }

    /// Whether the caller holds at `fence` when its clock shows `now_ns`.
    pub(crate) fn is_mine(self, fence: u64, me: PeerId, told: u64, now_ns: u64) -> bool {
        self.names(me) && fence == self.fence && told < fence && !self.is_over(now_ns)
    }

    /// How a holder that finds this word has lost; `None` when the word names nobody.
    pub(crate) fn lost_to(self) -> Option<Lost> {
        match self.owner {
            Owner::Peer(by) => Some(Lost::Taken {
                by,
                fence: self.fence,
            }),
            Owner::Nobody | Owner::Retired => None,
        }
    }

    /// From `now_ns` to the deadline, or zero.
    pub(crate) fn left(self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.left_ns(now_ns))
    }

    /// The same hold with a deadline at least a ttl away, and never earlier than it was.
    fn extended<B: Bits>(self, ask: &Ask) -> Option<Self> {
        let until_ms = ask.end_ms::<B>()?.max(self.until_ms);
        Some(Self { until_ms, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = NS_PER_MS;

    fn peer(slot: u16, generation: u32) -> PeerId {
        PeerId::new(slot, generation).unwrap()
    }

    fn ask(me: PeerId, now_ms: u64, ttl_ms: u64) -> Ask {
        Ask {
            me,
            now_ns: now_ms * MS,
            ttl: Ttl::new(Duration::from_millis(ttl_ms)).unwrap(),
            told: 0,
            is_heir: false,
        }
    }

    fn held(fence: u64, by: PeerId, until_ms: u64) -> Word {
        Word {
            fence,
            owner: Owner::Peer(by),
            until_ms,
        }
    }

    fn free(fence: u64, until_ms: u64) -> Word {
        Word {
            fence,
            owner: Owner::Nobody,
            until_ms,
        }
    }

    fn acquire(word: Word, ask: &Ask, dead: bool) -> Attempt {
        word.acquire::<u128>(ask, 0, |_| dead)
    }

    #[test]
    fn a_free_lease_is_taken_at_the_next_fence() {
        let (me, took_over) = (peer(1, 1), None);
        let to = held(8, me, 130);
        let attempt = acquire(free(7, 0), &ask(me, 100, 30), false);
        assert_eq!(attempt, Attempt::Take { to, took_over });
    }

    #[test]
    fn a_fence_is_never_below_the_least() {
        let attempt = free(7, 0).acquire::<u128>(&ask(peer(1, 1), 100, 30), 1000, |_| false);
        assert!(matches!(attempt, Attempt::Take { to, .. } if to.fence == 1000));
        let attempt = free(1000, 0).acquire::<u128>(&ask(peer(1, 1), 100, 30), 1000, |_| false);
        assert!(matches!(attempt, Attempt::Take { to, .. } if to.fence == 1001));
    }

    #[test]
    fn a_free_lease_is_refused_before_its_time_and_taken_at_it() {
        let at_ms = 101;
        let refused = acquire(free(7, at_ms), &ask(peer(1, 1), 100, 30), false);
        let opens_in = Duration::from_millis(1);
        let why = Refused::NotBefore {
            fence: 7,
            at_ms,
            opens_in,
        };
        assert_eq!(refused, Attempt::Refused(why));
        let taken = acquire(free(7, at_ms), &ask(peer(1, 1), 101, 30), false);
        assert!(matches!(taken, Attempt::Take { .. }));
    }

    #[test]
    fn an_heir_takes_a_free_lease_before_the_others_may_and_nothing_from_a_holder() {
        let me = peer(1, 1);
        let heir = Ask {
            is_heir: true,
            ..ask(me, 100, 30)
        };
        let (to, took_over) = (held(8, me, 130), None);
        assert_eq!(
            acquire(free(7, 900), &heir, false),
            Attempt::Take { to, took_over }
        );
        let refused = acquire(held(7, peer(2, 1), 900), &heir, false);
        assert!(matches!(refused, Attempt::Refused(Refused::Held { .. })));
    }

    #[test]
    fn a_live_rival_is_refused_and_named() {
        let by = peer(2, 1);
        let refused = acquire(held(7, by, 150), &ask(peer(1, 1), 100, 30), false);
        let why = Refused::Held {
            by,
            fence: 7,
            until_ms: 150,
            lapses_in: Duration::from_millis(50),
        };
        assert_eq!(refused, Attempt::Refused(why));
    }

    #[test]
    fn a_dead_rival_is_taken_over_before_its_deadline() {
        let (from, fence) = (peer(2, 1), 7);
        let attempt = acquire(held(fence, from, 150), &ask(peer(1, 1), 100, 30), true);
        let took_over = Some(TookOver::Dead { from, fence });
        let to = held(8, peer(1, 1), 130);
        assert_eq!(attempt, Attempt::Take { to, took_over });
    }

    #[test]
    fn a_lapse_needs_no_proof_of_death() {
        let from = peer(2, 1);
        let never_asked = |_| unreachable!("a lapsed holder's death does not matter");
        let attempt = held(7, from, 100).acquire::<u128>(&ask(peer(1, 1), 100, 30), 0, never_asked);
        let took_over = Some(TookOver::Lapsed { from, fence: 7 });
        let to = held(8, peer(1, 1), 130);
        assert_eq!(attempt, Attempt::Take { to, took_over });
    }

    #[test]
    fn a_lease_that_is_ours_keeps_its_fence_and_its_later_deadline() {
        let me = peer(1, 1);
        let longer = acquire(held(7, me, 110), &ask(me, 100, 30), false);
        assert_eq!(longer, Attempt::Extend(held(7, me, 130)));
        let shorter = acquire(held(7, me, 900), &ask(me, 100, 30), false);
        assert_eq!(shorter, Attempt::Extend(held(7, me, 900)));
    }

    #[test]
    fn a_lease_of_ours_that_lapsed_or_was_told_lost_gets_a_new_fence() {
        let me = peer(1, 1);
        let took_over = Some(TookOver::Lapsed { from: me, fence: 7 });
        let to = held(8, me, 130);
        let lapsed = acquire(held(7, me, 100), &ask(me, 100, 30), false);
        assert_eq!(lapsed, Attempt::Take { to, took_over });
        let told = Ask {
            told: 7,
            ..ask(me, 100, 30)
        };
        assert_eq!(
            acquire(held(7, me, 190), &told, false),
            Attempt::Take { to, took_over }
        );
    }

    #[test]
    fn the_slots_earlier_user_is_another_holder() {
        let earlier = held(7, peer(1, 1), 150);
        let attempt = acquire(earlier, &ask(peer(1, 2), 100, 30), false);
        assert!(matches!(attempt, Attempt::Refused(Refused::Held { .. })));
        assert!(!earlier.is_mine(7, peer(1, 2), 0, 0));
        assert_eq!(earlier.release(7, peer(1, 2), 0), None);
    }

    #[test]
    fn the_last_fence_is_refused_and_not_wrapped() {
        let last = <u128 as Bits>::MAX_FENCE;
        assert_eq!(
            acquire(free(last, 0), &ask(peer(1, 1), 1, 1), false),
            Attempt::FenceExhausted
        );
        let past = free(1, 0).acquire::<u128>(&ask(peer(1, 1), 1, 1), u64::MAX, |_| false);
        assert_eq!(past, Attempt::FenceExhausted);
    }

    #[test]
    fn a_ttl_beyond_the_last_deadline_is_refused() {
        let me = peer(1, 1);
        let mut ask = ask(me, 1, 1);
        ask.ttl = Ttl::new(Ttl::MAX).unwrap();
        assert_eq!(acquire(free(1, 0), &ask, false), Attempt::ClockExhausted);
        let renewed = held(1, me, 5).renew::<u128>(1, &ask);
        assert_eq!(renewed, Extension::ClockExhausted);
    }

    #[test]
    fn a_deadline_is_rounded_up_so_that_the_ttl_is_whole() {
        let ask = Ask {
            now_ns: 100 * MS + 1,
            ..ask(peer(1, 1), 0, 30)
        };
        assert_eq!(ask.end_ms::<u128>(), Some(131));
    }

    #[test]
    fn renew_never_shortens() {
        let me = peer(1, 1);
        let renewed = held(7, me, 900).renew::<u128>(7, &ask(me, 100, 30));
        assert_eq!(renewed, Extension::Extend(held(7, me, 900)));
    }

    #[test]
    fn renew_moves_a_lapsed_deadline_that_nobody_took() {
        let me = peer(1, 1);
        let renewed = held(7, me, 50).renew::<u128>(7, &ask(me, 100, 30));
        assert_eq!(renewed, Extension::Extend(held(7, me, 130)));
    }

    #[test]
    fn renew_after_takeover_names_the_successor() {
        let by = peer(2, 1);
        let renewed = held(8, by, 900).renew::<u128>(7, &ask(peer(1, 1), 100, 30));
        assert_eq!(renewed, Extension::Lost(Lost::Taken { by, fence: 8 }));
    }

    #[test]
    fn renew_at_an_older_fence_of_ours_is_lost_to_ourselves() {
        let by = peer(1, 1);
        let renewed = held(8, by, 900).renew::<u128>(7, &ask(by, 100, 30));
        assert_eq!(renewed, Extension::Lost(Lost::Taken { by, fence: 8 }));
    }

    #[test]
    fn renew_after_release_is_lost() {
        let renewed = free(7, 0).renew::<u128>(7, &ask(peer(1, 1), 100, 30));
        assert_eq!(renewed, Extension::Lost(Lost::Released));
    }

    #[test]
    fn renew_of_a_fence_that_was_told_lost_is_lost() {
        let me = peer(1, 1);
        let told = Ask {
            told: 7,
            ..ask(me, 100, 30)
        };
        assert_eq!(
            held(7, me, 900).renew::<u128>(7, &told),
            Extension::Lost(Lost::Told)
        );
    }

    #[test]
    fn release_is_the_holders_alone_and_at_its_fence() {
        let me = peer(1, 1);
        assert_eq!(held(7, me, 900).release(7, me, 0), Some(free(7, 0)));
        assert_eq!(held(7, me, 900).release(6, me, 0), None);
        assert_eq!(held(7, peer(2, 1), 900).release(7, me, 0), None);
        assert_eq!(free(7, 0).release(7, me, 0), None);
    }

    #[test]
    fn mine_ends_at_the_deadline() {
        let me = peer(1, 1);
        let word = held(7, me, 100);
        assert!(word.is_mine(7, me, 0, 100 * MS - 1));
        assert!(!word.is_mine(7, me, 0, 100 * MS));
        assert!(!word.is_mine(6, me, 0, 0));
        assert!(!word.is_mine(7, me, 7, 0), "it was told lost");
    }
}
