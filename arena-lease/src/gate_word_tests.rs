//! The gate's word by itself: what it can say, and any sequence of steps against a plain account of who is inside.

use proptest::prelude::*;

use super::*;

fn peer(slot: u16) -> PeerId {
    PeerId::new(slot, 1).unwrap()
}

fn any_word() -> impl Strategy<Value = GateWord> {
    let inside = (0..2046_u16, 1..1_u32 << 24, 1..=MAX_INSIDE, any::<bool>()).prop_map(
        |(slot, epoch, guards, barred)| Inside {
            peer: PeerId::new(slot, epoch).unwrap(),
            guards,
            barred,
        },
    );
    let fence = 1..=<u128 as Bits>::MAX_FENCE;
    let inside = prop_oneof![Just(None), inside.prop_map(Some)];
    (fence, inside, any::<bool>(), 0..1_u64 << 20).prop_map(|(fence, inside, waited, turn)| {
        GateWord {
            fence,
            inside,
            waited: waited && inside.is_some(),
            turn,
        }
    })
}

/// What a process does at the gate.
#[derive(Clone, Copy, Debug)]
enum Act {
    Enter { who: u16, fence: u64, waits: bool },
    Leave { who: u16 },
    Die { who: u16 },
}

fn any_act() -> impl Strategy<Value = Act> {
    let who = 0..4_u16;
    prop_oneof![
        4 => (who.clone(), 1..6_u64, any::<bool>())
            .prop_map(|(who, fence, waits)| Act::Enter { who, fence, waits }),
        3 => who.clone().prop_map(|who| Act::Leave { who }),
        1 => who.prop_map(|who| Act::Die { who }),
    ]
}

/// The plain account: every guard that is inside, and the newest fence that was shown.
#[derive(Default, Debug)]
struct Account {
    guards: Vec<(PeerId, u64)>,
    newest: u64,
    dead: Vec<PeerId>,
}

impl Account {
    fn enter(&mut self, word: GateWord, me: PeerId, fence: u64, waits: bool) -> GateWord {
        let dead = self.dead.clone();
        let entry = word.enter::<u128>(fence, me, waits, |peer| dead.contains(&peer));
        if fence < self.newest {
            let newest = self.newest;
            assert_eq!(entry, Entry::Stale { newest }, "an older one is refused");
            return word;
        }
        self.newest = fence;
        match entry {
            Entry::Enter { to, recovered } => {
                let gone: Vec<_> = self
                    .guards
                    .iter()
                    .filter(|(peer, _)| dead.contains(peer))
                    .map(|(peer, _)| *peer)
                    .collect();
                assert_eq!(recovered, gone.first().copied());
                self.guards.retain(|(peer, _)| !dead.contains(peer));
                let same = |&(peer, inside): &(PeerId, u64)| peer == me && inside == fence;
                assert!(self.guards.iter().all(same), "{:?}", self.guards);
                self.guards.push((me, fence));
                to
            }
            Entry::Wait { to, behind } => {
                assert!(!dead.contains(&behind.peer));
                let (peer, inside) = self.guards[0];
                assert_eq!(behind.peer, peer);
                assert!(peer != me || inside < fence, "a process waits for itself");
                assert_eq!(to.waited, word.waited || waits);
                assert_eq!(to.inside.unwrap().barred, inside < fence);
                to
            }
            Entry::Stale { .. } | Entry::Crowded => panic!("{entry:?} at {word:?}"),
        }
    }

    fn leave(&mut self, word: GateWord, me: PeerId) -> GateWord {
        let at = self.guards.iter().position(|&(peer, _)| peer == me);
        let left = word.leave::<u128>(me);
        assert_eq!(left.is_some(), at.is_some());
        match at {
            Some(at) => {
                self.guards.remove(at);
                let left = left.unwrap();
                assert_eq!(left.inside.is_none(), self.guards.is_empty());
                assert_eq!(left.turn != word.turn, self.guards.is_empty());
                left
            }
            None => word,
        }
    }
}

proptest! {
    #[test]
    fn every_word_decodes_to_what_was_encoded(word in any_word()) {
        let bits = word.encode::<u128>().unwrap();
        prop_assert_eq!(GateWord::decode(bits), Some(word));
        prop_assert_eq!(u128::from(word.part::<u128>().unwrap()), bits & u128::from(u32::MAX));
    }

    #[test]
    fn any_bits_decode_to_a_word_that_encodes_to_them_or_to_nothing(bits: u128, odd in 0..6_u8) {
        let bits = match odd {
            0 => bits & !(0xFF << 32),
            1 => bits & !((1 << 75) - 1),
            2 => bits & !(((1 << 43) - 1) << 32) & !0xFFF,
            3 => bits & !(0xFF << 32) & !(1 << 74),
            _ => bits,
        };
        if let Some(word) = GateWord::decode(bits) {
            prop_assert_eq!(word.encode::<u128>(), Some(bits));
        }
    }

    #[test]
    fn the_narrow_word_agrees_with_the_wide_one(bits: u64) {
        if let Some(word) = GateWord::decode(bits) {
            prop_assert_eq!(word.encode::<u64>(), Some(bits));
            prop_assert_eq!(GateWord::decode(word.encode::<u128>().unwrap()), Some(word));
        }
    }

    #[test]
    fn whatever_is_done_at_a_gate_one_process_is_inside_under_one_fence(
        acts in proptest::collection::vec(any_act(), 1..60)
    ) {
        let mut word = GateWord::decode(0_u128).unwrap();
        let mut account = Account::default();
        for act in acts {
            let living = |who| Some(peer(who)).filter(|peer| !account.dead.contains(peer));
            let next = match act {
                Act::Enter { who, fence, waits } => {
                    living(who).map(|me| account.enter(word, me, fence, waits))
                }
                Act::Leave { who } => living(who).map(|me| account.leave(word, me)),
                Act::Die { who } => {
                    account.dead.push(peer(who));
                    None
                }
            };
            word = next.unwrap_or(word);
            prop_assert_eq!(GateWord::decode(word.encode::<u128>().unwrap()), Some(word));
            prop_assert_eq!(word.fence, account.newest);
            let inside = word.inside.map(|inside| (inside.peer, inside.guards));
            let expected = account.guards.first().map(|&(peer, _)| {
                (peer, u64::try_from(account.guards.len()).unwrap())
            });
            prop_assert_eq!(inside, expected);
        }
    }
}

#[test]
fn the_fields_lie_where_the_table_says() {
    let word = GateWord {
        fence: 0x15_5555_5555_5555,
        inside: Some(Inside {
            peer: PeerId::new(4, 9).unwrap(),
            guards: 3,
            barred: true,
        }),
        waited: true,
        turn: 7,
    };
    let bits = word.encode::<u128>().unwrap();
    assert_eq!(bits & 0xFF_FFFF_FFFF, 7 << 12 | 3 << 2 | 2 | 1);
    assert_eq!(bits >> 40 & 0xFF_FFFF, 9);
    assert_eq!(bits >> 64 & 0x7FF, 5);
    assert_eq!(bits >> 75, 0x15_5555_5555_5555);
}

#[test]
fn decode_refuses_guards_without_a_process_and_a_process_without_guards() {
    assert_eq!(GateWord::decode(1_u128 << 75 | 1 << 2), None);
    assert_eq!(GateWord::decode(1_u128 << 75 | 1 << 64 | 1 << 40), None);
    assert!(GateWord::decode(1_u128 << 75 | 1 << 64 | 1 << 40 | 1 << 2).is_some());
}

#[test]
fn decode_refuses_an_open_gate_with_waiters_and_somebody_inside_without_a_fence() {
    assert_eq!(GateWord::decode(1_u128 << 75 | 1), None);
    assert_eq!(GateWord::decode(1_u128 << 64 | 1 << 40 | 1 << 2), None);
}

#[test]
fn more_guards_than_can_be_counted_are_refused() {
    let inside = Inside {
        peer: peer(0),
        guards: MAX_INSIDE,
        barred: false,
    };
    let word = GateWord {
        fence: 1,
        inside: Some(inside),
        waited: false,
        turn: 0,
    };
    let entry = word.enter::<u128>(1, peer(0), true, |_| false);
    assert_eq!(entry, Entry::Crowded);
}
