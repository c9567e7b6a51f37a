//! The steps on the real words, one after another, against a model that knows no word: publishers that begin and end at
//! different times, die and are withdrawn, and readers that are late.

use proptest::prelude::*;

use super::memory::{Fate, Memory, Reader};
use super::{Claim, Ended, Refusal, World as _};
use crate::PeerId;
use crate::word::Stage;

#[derive(Clone, Debug)]
enum Op {
    Begin {
        who: usize,
        share: u16,
        records: u16,
    },
    End {
        which: usize,
        commit: bool,
    },
    Kill {
        who: usize,
    },
    Read {
        reader: usize,
        steps: usize,
    },
    Withdraw {
        reader: usize,
    },
    Publish {
        who: usize,
        times: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let who = 0..3_usize;
    prop_oneof![
        4 => (who.clone(), 0..100_u16, 1..4_u16)
            .prop_map(|(who, share, records)| Op::Begin { who, share, records }),
        3 => (0..8_usize, prop::bool::weighted(0.8))
            .prop_map(|(which, commit)| Op::End { which, commit }),
        1 => who.clone().prop_map(|who| Op::Kill { who }),
        3 => (0..3_usize, 1..6_usize).prop_map(|(reader, steps)| Op::Read { reader, steps }),
        1 => (0..3_usize).prop_map(|reader| Op::Withdraw { reader }),
        2 => (who, 1..12_usize).prop_map(|(who, times)| Op::Publish { who, times }),
    ]
}

struct Play {
    memory: Memory,
    /// A process that is killed comes back in the same slot, as somebody else.
    who: Vec<PeerId>,
    open: Vec<Claim>,
    readers: Vec<Reader>,
}

impl Play {
    fn begin(&mut self, who: usize, slots: u16, records: u16) -> Option<Claim> {
        let room = self.memory.room();
        let before = self.memory.tail_now();
        match self.memory.begin(self.who[who], slots, records) {
            Ok(claim) => {
                assert!(room >= usize::from(slots));
                assert_eq!(claim.first, before.next());
                self.memory.store(&claim);
                Some(claim)
            }
            Err(Refusal::Blocked(by)) => {
                assert!(room < usize::from(slots), "there was room");
                assert!(self.memory.is_alive(by));
                assert_eq!(self.memory.tail_now(), before, "nothing was overwritten");
                None
            }
            Err(Refusal::Fault(fault)) => panic!("{fault:?}"),
        }
    }

    fn play(&mut self, op: &Op) {
        let most = u16::try_from(self.memory.most_slots()).unwrap();
        match *op {
            Op::Begin {
                who,
                share,
                records,
            } => {
                let slots = 1 + share % most;
                let begun = self.begin(who, slots, records);
                self.open.extend(begun);
            }
            Op::End { which, commit } if !self.open.is_empty() => {
                let claim = self.open.swap_remove(which % self.open.len());
                let stage = if commit {
                    Stage::Committed
                } else {
                    Stage::LetGo
                };
                let _ = self.memory.finish(&claim, stage);
            }
            Op::End { .. } => {}
            Op::Kill { who } => {
                let id = self.who[who];
                self.memory.dead.borrow_mut().push(id);
                self.open.retain(|claim| claim.owner != id);
                self.who[who] = PeerId::new(id.slot(), id.generation() + 1).unwrap();
            }
            Op::Read { reader, steps } => {
                let reader = &mut self.readers[reader];
                for _ in 0..steps {
                    let _ = reader.step(&self.memory);
                }
                reader.check(&self.memory);
            }
            Op::Withdraw { reader } => self.readers[reader].withdraw(&self.memory),
            Op::Publish { who, times } => {
                for _ in 0..times {
                    if let Some(claim) = self.begin(who, 1, 1) {
                        let ended = self.memory.finish(&claim, Stage::Committed);
                        assert_eq!(ended, Ended::AsAsked);
                    }
                }
            }
        }
    }

    /// All end what they began; nothing is pending then, and the whole ring can be had.
    fn finish(&mut self) {
        for claim in std::mem::take(&mut self.open) {
            let _ = self.memory.finish(&claim, Stage::Committed);
        }
        self.readers.push(Reader::oldest(&self.memory));
        for reader in &mut self.readers {
            reader.drain(&self.memory);
            assert_eq!(reader.at.number, self.memory.tail_now().next());
        }
        for one in &self.readers {
            for other in &self.readers {
                let disagree = |number| other.abandoned.contains(number);
                assert!(!one.delivered.iter().any(disagree), "{one:?} {other:?}");
            }
        }
        assert_eq!(
            self.memory.room(),
            usize::try_from(self.memory.slots()).unwrap()
        );
        let most = u16::try_from(self.memory.most_slots()).unwrap();
        for _ in 0..3 {
            let published = self.memory.publish(self.who[0], most);
            assert!(
                matches!(published, Ok((_, Ended::AsAsked))),
                "{published:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn any_sequence_of_steps_gives_each_record_one_fate_that_all_are_told(
        slots in 2..18_usize,
        turns in prop_oneof![Just(0), 1..4_u64, Just((1 << 57) - 1_000)],
        numbered in prop_oneof![Just(0), 1..1_u64 << 40],
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let numbered = if turns == 0 { 0 } else { numbered };
        let memory = Memory::new(slots, turns, numbered);
        let readers = vec![Reader::oldest(&memory); 3];
        let who = [0, 1, 2].map(super::memory::peer).to_vec();
        let mut play = Play { memory, who, open: Vec::new(), readers };
        for op in &ops {
            play.play(op);
        }
        play.finish();
        let fates = play.memory.records.borrow();
        prop_assert!(!fates.iter().any(|record| record.claim.slots == 0));
        for record in fates.iter() {
            let is_open = record.fate == Fate::Open;
            prop_assert_eq!(is_open, is_open && !play.memory.is_alive(record.claim.owner));
        }
    }
}

#[test]
fn a_ring_whose_positions_are_used_up_says_so_and_overwrites_nothing() {
    let memory = Memory::new(2, (1 << 57) - 1, 7);
    let exhausted = Err(Refusal::Fault(super::Fault::Exhausted));
    assert_eq!(memory.publish(super::memory::peer(0), 1), exhausted);
    let memory = Memory::new(2, 1, u64::MAX);
    assert_eq!(memory.publish(super::memory::peer(0), 1), exhausted);
}
