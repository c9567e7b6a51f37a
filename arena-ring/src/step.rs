//! What each step does to a slot's word: pure functions of words as they were loaded.
//!
//! Why a decision made on old words is still right when the exchange succeeds: that slot's word is then the same, and
//! whatever else was looked at goes one way only. Bytes that were nobody's stay so until the slot is claimed, and the
//! dead stay dead.

use crate::PeerId;
use crate::word::{Head, Stage, What, Word};

/// How a slot's word stands to a position's turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// The position was not claimed; this is what the slot is in the turn before.
    Before(What),
    /// The position was claimed, and is this.
    Now(What),
    /// A later turn was claimed.
    After,
    /// The slot missed a turn: the arena is damaged.
    Odd,
}

/// Whose bytes an unclaimed slot has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bytes {
    Nobodys,
    /// Unless he is proven dead.
    Still(PeerId),
    /// As the head decides that many slots before it: [`part_of`].
    AsHead {
        owner: PeerId,
        behind: u16,
    },
}

/// What a part's head says of the part's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartOf {
    /// Its owner is done with them.
    Ended,
    /// Its owner may be storing.
    Open,
    /// Likewise, and the head's slot was claimed over it.
    Kept,
    /// The arena is damaged, or the part's slot was claimed meanwhile.
    Odd,
}

/// What an owner that is done has to do about its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Exchange the word for this one. `withdrawn`: readers have given it up.
    To { word: Word, withdrawn: bool },
    /// The slots were claimed over: free them, one by one.
    Lapsed,
    /// Somebody says that this process is dead, or the arena is damaged.
    Over,
}

impl Word {
    pub(crate) fn standing(self, turn: u64) -> Standing {
        if self.turn == turn {
            Standing::Now(self.what)
        } else if self.turn > turn {
            Standing::After
        } else if self.turn + 1 == turn {
            Standing::Before(self.what)
        } else {
            Standing::Odd
        }
    }

    /// The head of a record that a cursor at this turn has before it, and only it can go on.
    pub(crate) fn with_stage(self, stage: Stage) -> Option<Self> {
        match self.what {
            What::Head(head) => Some(Self {
                turn: self.turn,
                what: What::Head(Head { stage, ..head }),
            }),
            What::Void | What::Part { .. } | What::Kept { .. } => None,
        }
    }

    /// The owner of the head of `turn` is done, and wants it committed or let go.
    pub(crate) fn end(self, turn: u64, me: PeerId, stage: Stage) -> End {
        let (What::Head(head), Standing::Now(_)) = (self.what, self.standing(turn)) else {
            return match self.standing(turn) {
                Standing::After => End::Lapsed,
                Standing::Before(_) | Standing::Now(_) | Standing::Odd => End::Over,
            };
        };
        let to = |stage| self.with_stage(stage).expect("it is a head");
        match head.stage {
            _ if head.owner != me => End::Over,
            Stage::Writing => End::To {
                word: to(stage),
                withdrawn: false,
            },
            Stage::Withdrawn => End::To {
                word: to(Stage::LetGo),
                withdrawn: true,
            },
            Stage::Committed | Stage::Abandoned | Stage::LetGo => End::Over,
        }
    }

    /// What an owner whose head was claimed over makes of one of its slots: `None` when it is his no more.
    /// `turn` and `behind` are the slot's in the lapsed record.
    pub(crate) fn freed(self, turn: u64, me: PeerId, behind: u16) -> Option<Self> {
        let is_mine = match self.what {
            What::Part { owner, behind: at } => owner == me && at == behind && self.turn == turn,
            What::Kept { owner } => owner == me && self.turn > turn,
            What::Void | What::Head(_) => false,
        };
        is_mine.then_some(Self {
            turn: self.turn,
            what: What::Void,
        })
    }
}

impl What {
    pub(crate) fn bytes(self) -> Bytes {
        match self {
            Self::Void => Bytes::Nobodys,
            Self::Head(head) => match head.stage {
                Stage::Committed | Stage::Abandoned | Stage::LetGo => Bytes::Nobodys,
                Stage::Writing | Stage::Withdrawn => Bytes::Still(head.owner),
            },
            Self::Part { owner, behind } => Bytes::AsHead { owner, behind },
            Self::Kept { owner } => Bytes::Still(owner),
        }
    }
}

/// `head`: the word of the head's slot, loaded after the part's; `turn`: that of the head's position.
pub(crate) fn part_of(head: Word, turn: u64) -> PartOf {
    match head.standing(turn) {
        Standing::Now(What::Head(head)) => match head.stage {
            Stage::Committed | Stage::Abandoned | Stage::LetGo => PartOf::Ended,
            Stage::Writing | Stage::Withdrawn => PartOf::Open,
        },
        Standing::After if head.turn == turn + 1 => match head.what {
            // Also void: the owner frees its head last, and a head that was free may have been claimed as void.
            What::Void | What::Head(_) | What::Part { .. } => PartOf::Ended,
            What::Kept { .. } => PartOf::Kept,
        },
        Standing::Now(_) | Standing::After | Standing::Before(_) | Standing::Odd => PartOf::Odd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(slot: u16) -> PeerId {
        PeerId::new(slot, 1).unwrap()
    }

    fn head(turn: u64, stage: Stage) -> Word {
        let what = What::Head(Head {
            stage,
            owner: peer(0),
            slots: 2,
            records: 1,
        });
        Word { turn, what }
    }

    const STAGES: [Stage; 5] = [
        Stage::Writing,
        Stage::Committed,
        Stage::Abandoned,
        Stage::Withdrawn,
        Stage::LetGo,
    ];

    #[test]
    fn bytes_are_an_owners_from_its_claim_until_it_ends_it_or_a_death_is_proven() {
        for stage in STAGES {
            let open = matches!(stage, Stage::Writing | Stage::Withdrawn);
            let head = head(1, stage);
            let bytes = if open {
                Bytes::Still(peer(0))
            } else {
                Bytes::Nobodys
            };
            assert_eq!(head.what.bytes(), bytes, "{stage:?}");
            let part = if open { PartOf::Open } else { PartOf::Ended };
            assert_eq!(part_of(head, 1), part, "{stage:?}");
        }
        let owner = peer(0);
        assert_eq!(What::Void.bytes(), Bytes::Nobodys);
        assert_eq!(What::Kept { owner }.bytes(), Bytes::Still(owner));
    }

    #[test]
    fn a_part_is_kept_only_while_its_heads_slot_is() {
        let owner = peer(0);
        let at = |turn, what| part_of(Word { turn, what }, 1);
        assert_eq!(at(2, What::Kept { owner }), PartOf::Kept);
        assert_eq!(at(2, What::Void), PartOf::Ended);
        assert_eq!(at(2, What::Part { owner, behind: 1 }), PartOf::Ended);
        for stage in STAGES {
            assert_eq!(part_of(head(2, stage), 1), PartOf::Ended, "{stage:?}");
        }
        for odd in [
            at(3, What::Kept { owner }),
            at(1, What::Void),
            at(1, What::Part { owner, behind: 1 }),
            at(0, What::Void),
        ] {
            assert_eq!(odd, PartOf::Odd);
        }
    }

    #[test]
    fn an_owner_ends_its_head_once_and_only_its_own() {
        for (stage, to) in [
            (Stage::Committed, Stage::Committed),
            (Stage::LetGo, Stage::LetGo),
        ] {
            let end = head(1, Stage::Writing).end(1, peer(0), stage);
            let word = head(1, to);
            assert_eq!(
                end,
                End::To {
                    word,
                    withdrawn: false
                }
            );
            let end = head(1, Stage::Withdrawn).end(1, peer(0), stage);
            let word = head(1, Stage::LetGo);
            assert_eq!(
                end,
                End::To {
                    word,
                    withdrawn: true
                }
            );
        }
        for stage in [Stage::Committed, Stage::Abandoned, Stage::LetGo] {
            assert_eq!(head(1, stage).end(1, peer(0), Stage::Committed), End::Over);
        }
        let others = head(1, Stage::Writing).end(1, peer(1), Stage::Committed);
        assert_eq!(others, End::Over);
        let kept = Word {
            turn: 2,
            what: What::Kept { owner: peer(0) },
        };
        assert_eq!(kept.end(1, peer(0), Stage::Committed), End::Lapsed);
        // Freed and claimed by others, many turns later.
        assert_eq!(
            head(9, Stage::Writing).end(1, peer(0), Stage::Committed),
            End::Lapsed
        );
    }

    #[test]
    fn a_lapsed_owner_frees_what_is_its_own_and_nothing_else() {
        let void = |turn| {
            Some(Word {
                turn,
                what: What::Void,
            })
        };
        let part = |turn, behind| Word {
            turn,
            what: What::Part {
                owner: peer(0),
                behind,
            },
        };
        let kept = |turn, slot| Word {
            turn,
            what: What::Kept { owner: peer(slot) },
        };
        assert_eq!(part(1, 2).freed(1, peer(0), 2), void(1));
        assert_eq!(kept(4, 0).freed(1, peer(0), 2), void(4));
        for others in [
            part(2, 2),
            part(1, 1),
            kept(4, 1),
            kept(1, 0),
            head(2, Stage::Writing),
        ] {
            assert_eq!(others.freed(1, peer(0), 2), None, "{others:?}");
        }
        assert_eq!(part(1, 2).freed(1, peer(1), 2), None);
    }

    #[test]
    fn a_slot_that_missed_a_turn_is_odd() {
        let void = |turn| Word {
            turn,
            what: What::Void,
        };
        assert_eq!(void(0).standing(1), Standing::Before(What::Void));
        assert_eq!(void(1).standing(1), Standing::Now(What::Void));
        assert_eq!(void(2).standing(1), Standing::After);
        assert_eq!(void(0).standing(2), Standing::Odd);
    }
}
