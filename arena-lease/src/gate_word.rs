//! The gate's word: who is inside, and from which fence on one may come in.
//!
//! ```text
//! bits of u128   field      meaning                                             changes on
//!   0            waited     somebody may sleep until who is inside has left     a wait, the last leave
//!   1            barred     those inside came under an older fence              a newer fence, the last leave
//!   2 ..  12     inside     how many guards are inside, all of one process      enter, leave
//!  12 ..  32     turn       how often the fields above it changed under         a newer fence that waits, the last leave,
//!                          sleepers, modulo 2^20                               a recovery
//!  32 ..  40     0
//!  40 ..  64     epoch      of the process inside                               enter, the last leave
//!  64 ..  75     slot + 1   likewise; 0: the gate is open                       likewise
//!  75 .. 128     fence      the newest that was shown: older ones are refused   a newer fence
//!
//! state              who may change it next
//! open               whoever shows a fence that is not older, to entered
//! entered            the process inside, under the same fence, to entered (more) or entered (fewer) or open; whoever
//!                    shows a newer fence, to barred; whoever has proof of the process's death, to entered (by itself)
//! entered, barred    the process inside, to barred (fewer) or open; proof of death, to entered
//! ```
//!
//! Any other combination decodes to `None`. Zero is an open gate that no fence was shown to. Bits 0 to 32 are what
//! waiters sleep on: `turn` makes them other ones after an opening, also when the same process came back, and
//! after a newer fence was shown.

use crate::PeerId;
use crate::word::Bits;

const WAITED: u64 = 1;
const BARRED: u64 = 2;
const INSIDE_AT: u32 = 2;
const INSIDE_BITS: u32 = 10;
const TURN_AT: u32 = INSIDE_AT + INSIDE_BITS;
const PEER_BITS: u32 = PeerId::SLOT_BITS + PeerId::GENERATION_BITS;

/// The most guards that a process can have inside a gate at once.
pub(crate) const MAX_INSIDE: u64 = (1 << INSIDE_BITS) - 1;

/// The process inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inside {
    pub(crate) peer: PeerId,
    /// 1 to [`MAX_INSIDE`].
    pub(crate) guards: u64,
    /// Whether a newer fence was shown since it entered.
    pub(crate) barred: bool,
}

/// A gate's word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GateWord {
    pub(crate) fence: u64,
    pub(crate) inside: Option<Inside>,
    pub(crate) waited: bool,
    pub(crate) turn: u64,
}

/// What becomes of an attempt to enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// Enters, by this word.
    Enter {
        to: GateWord,
        /// Who died inside.
        recovered: Option<PeerId>,
    },
    /// Has to wait, and this word says so.
    Wait { to: GateWord, behind: Inside },
    /// A newer fence was shown.
    Stale { newest: u64 },
    /// As many guards of this process are inside as can be.
    Crowded,
}

/// The width of `turn`.
const fn turn_bits<B: Bits>() -> u32 {
    let low = if B::DEADLINE_BITS < 32 {
        B::DEADLINE_BITS
    } else {
        32
    };
    low - TURN_AT
}

impl GateWord {
    /// `None` when this library does not write such a word.
    pub(crate) fn decode<B: Bits>(bits: B) -> Option<Self> {
        let wide = bits.widen();
        let field = |shift: u32, mask: u64| {
            u64::try_from((wide >> shift) & u128::from(mask)).expect("the mask has 64 bits")
        };
        let low = field(0, (1 << B::DEADLINE_BITS) - 1);
        let peer = field(B::DEADLINE_BITS, (1 << PEER_BITS) - 1);
        let fence = field(B::DEADLINE_BITS + PEER_BITS, B::MAX_FENCE);
        let (waited, barred) = (low & WAITED != 0, low & BARRED != 0);
        let guards = low >> INSIDE_AT & MAX_INSIDE;
        let turn = low >> TURN_AT;
        let inside = match (peer, guards) {
            (0, 0) if !waited && !barred => None,
            (0, _) | (_, 0) => return None,
            (peer, guards) => Some(Inside {
                peer: PeerId::from_bits(peer)?,
                guards,
                barred,
            }),
        };
        if turn >> turn_bits::<B>() != 0 || inside.is_some() && fence == 0 {
            return None;
        }
        Some(Self {
            fence,
            inside,
            waited,
            turn,
        })
    }

    /// `None` when a field is too large for the word, or says what no word says.
    pub(crate) fn encode<B: Bits>(self) -> Option<B> {
        let (peer, guards, barred) = match self.inside {
            None if self.waited => return None,
            None => (0, 0, false),
            Some(inside) => (inside.peer.to_bits(), inside.guards, inside.barred),
        };
        let fits = self.fence <= B::MAX_FENCE && self.turn >> turn_bits::<B>() == 0;
        let counted = self.inside.is_none() || (1..=MAX_INSIDE).contains(&guards);
        if !fits || !counted || self.inside.is_some() && self.fence == 0 {
            return None;
        }
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let flags = flag(self.waited, WAITED) | flag(barred, BARRED);
        let low = flags | guards << INSIDE_AT | self.turn << TURN_AT;
        let high = u128::from(self.fence) << PEER_BITS | u128::from(peer);
        B::narrow(high << B::DEADLINE_BITS | u128::from(low))
    }

    /// The low 32 bits, which waiters sleep on.
    pub(crate) fn part<B: Bits>(self) -> Option<u32> {
        let low = self.encode::<B>()?.widen() & u128::from(u32::MAX);
        let low = low & ((1 << B::DEADLINE_BITS) - 1);
        Some(u32::try_from(low).expect("the mask has 32 bits"))
    }

    /// `me` shows `fence`, which is not 0; `waits`: and will sleep if it has to.
    pub(crate) fn enter<B: Bits>(
        self,
        fence: u64,
        me: PeerId,
        waits: bool,
        is_dead: impl FnOnce(PeerId) -> bool,
    ) -> Entry {
        if fence < self.fence {
            return Entry::Stale { newest: self.fence };
        }
        let first = Inside {
            peer: me,
            guards: 1,
            barred: false,
        };
        let entered = |turn, recovered| Entry::Enter {
            to: Self {
                fence,
                inside: Some(first),
                turn,
                ..self
            },
            recovered,
        };
        match self.inside {
            None => entered(self.turn, None),
            Some(inside) if inside.peer == me && fence == self.fence && !inside.barred => {
                let more = Inside {
                    guards: inside.guards + 1,
                    ..inside
                };
                match more.guards <= MAX_INSIDE {
                    true => Entry::Enter {
                        to: Self {
                            inside: Some(more),
                            ..self
                        },
                        recovered: None,
                    },
                    false => Entry::Crowded,
                }
            }
            Some(inside) if inside.peer != me && is_dead(inside.peer) => {
                entered(self.next_turn::<B>(), Some(inside.peer))
            }
            Some(inside) => Entry::Wait {
                to: Self {
                    fence,
                    inside: Some(Inside {
                        barred: inside.barred || fence > self.fence,
                        ..inside
                    }),
                    waited: self.waited || waits,
                    turn: match fence > self.fence {
                        true => self.next_turn::<B>(),
                        false => self.turn,
                    },
                },
                behind: inside,
            },
        }
    }

    /// A guard of `me` leaves; `None` when `me` is not inside.
    pub(crate) fn leave<B: Bits>(self, me: PeerId) -> Option<Self> {
        let inside = self.inside.filter(|inside| inside.peer == me)?;
        Some(match inside.guards - 1 {
            0 => Self {
                inside: None,
                waited: false,
                turn: self.next_turn::<B>(),
                ..self
            },
            guards => Self {
                inside: Some(Inside { guards, ..inside }),
                ..self
            },
        })
    }

    fn next_turn<B: Bits>(self) -> u64 {
        (self.turn + 1) & ((1 << turn_bits::<B>()) - 1)
    }
}

#[cfg(test)]
#[path = "gate_word_tests.rs"]
mod tests;
