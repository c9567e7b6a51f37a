//! Publishing: load the tail and the slots, decide ([`crate::step`]), exchange.
//!
//! Generic over everything they touch, so that real processes, the model checker and the sequential tests run the
//! same lines. Nothing here takes a lock or waits, and a process that is killed or stopped between any two of these
//! lines leaves words that say whose the slots are.

use std::sync::atomic::Ordering;

use crate::PeerId;
use crate::step::{Bytes, End, PartOf, Standing, part_of};
use crate::word::{Bits, Head, Stage, Tail, What, Word};

/// How often an exchange may fail, beside one turn around the ring. A failure means that another's succeeded.
const ATTEMPTS: u64 = 1 << 16;

/// How often a claim is looked for anew that others came before, and that had no room.
const LOOKS: u32 = 64;

/// How often one slot's word may change under an exchange. Within a turn there are three changes at most.
const CHANGES: u32 = 64;

/// A word of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spot {
    Tail,
    /// The slot of this index, which is below the number of slots.
    Slot(u64),
}

/// A ring, and what its steps need of the world.
pub(crate) trait World {
    type Bits: Bits;

    /// How many slots there are: at least 2.
    fn slots(&self) -> u64;
    fn load(&self, at: Spot, order: Ordering) -> Self::Bits;
    fn compare_exchange(
        &self,
        at: Spot,
        seen: Self::Bits,
        to: Self::Bits,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Bits, Self::Bits>;
    /// The number of the first record of the head in this slot: payload, like the records themselves.
    fn number(&self, index: u64) -> u64;
    fn set_number(&self, index: u64, number: u64);
    /// Whether the kernel proves that the peer's process is gone.
    fn is_dead(&self, peer: PeerId) -> bool;
    /// A fence between accesses to words and to payload.
    fn fence(&self, order: Ordering);

    fn index(&self, pos: u64) -> u64 {
        pos % self.slots()
    }

    fn turn(&self, pos: u64) -> u64 {
        pos / self.slots() + 1
    }

    fn at(&self, pos: u64) -> Spot {
        Spot::Slot(self.index(pos))
    }

    /// The most slots that one publish may take.
    fn most_slots(&self) -> u64 {
        (self.slots() / 2).min(Self::Bits::MAX_COUNT)
    }
}

/// Why a step could not be carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Not a word that this library writes there.
    Corrupt(u128),
    /// No position or number is left, or the arena is damaged.
    Exhausted,
    /// The bound of attempts was reached.
    Contended,
}

/// Why nothing was claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// There is no room between the slots that unfinished records have.
    Blocked(PeerId),
    Fault(Fault),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Slots that are this process's to store in, until it ends the claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) pos: u64,
    pub(crate) owner: PeerId,
    pub(crate) slots: u16,
    /// The number of the first record.
    pub(crate) first: u64,
    pub(crate) records: u16,
}

/// What became of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    AsAsked,
    /// Readers had given it up.
    Withdrawn,
    /// Others had claimed its slots, once around the ring.
    Lapsed,
}

/// Takes `slots` slots in a row, at least 1 and at most [`World::most_slots`], for `records` records, at least 1.
pub(crate) fn claim<W: World>(
    world: &W,
    me: PeerId,
    slots: u16,
    records: u16,
) -> Result<Claim, Refusal> {
    let mut looks = 0;
    for _ in 0..world.slots().saturating_mul(2).saturating_add(ATTEMPTS) {
        let tail = load_tail(world);
        let (seen, word) = load(world, tail.pos)?;
        let turn = world.turn(tail.pos);
        let what = match word.standing(turn) {
            Standing::Before(what) => what,
            Standing::Now(_) => {
                help(world, tail, word)?;
                continue;
            }
            // The tail moved on meanwhile.
            Standing::After => continue,
            Standing::Odd => return Err(Fault::Corrupt(seen.widen()).into()),
        };
        let mut alive = Alive::new(world, me);
        let here = alive.owner_of(tail.pos, what)?;
        let ahead = match here {
            Some(_) => here,
            None => alive.first_owner(tail.pos, 1..u64::from(slots))?,
        };
        let to = match (here, ahead) {
            (None, None) => What::Head(Head {
                stage: Stage::Writing,
                owner: me,
                slots,
                records,
            }),
            // Nothing is overwritten for a record that has no room anyway.
            (_, Some(Owner { peer, .. })) if !alive.is_there_room(tail.pos, slots)? => {
                looks += 1;
                // Smaller records of others may find room all the time.
                if looks == LOOKS || load_tail(world) == tail {
                    return Err(Refusal::Blocked(peer));
                }
                continue;
            }
            (None, Some(_)) => What::Void,
            // The slot of its head was claimed before this one, so it is kept; unless this one was claimed meanwhile.
            (
                Some(Owner {
                    part_of: Some(PartOf::Open | PartOf::Odd),
                    ..
                }),
                _,
            ) => {
                if load(world, tail.pos)?.0 == seen {
                    return Err(Fault::Corrupt(seen.widen()).into());
                }
                continue;
            }
            (Some(Owner { peer, .. }), _) => What::Kept { owner: peer },
        };
        let to = Word { turn, what: to };
        if !exchange(world, tail.pos, seen, to)? {
            continue;
        }
        // Whatever becomes of this process now, others can finish it.
        help(world, tail, to)?;
        if let What::Head(_) = to.what {
            // EDGE overtaken, writer's half: whoever sees one of the stores that follow, sees the exchange above and
            // those before it, and so knows that what was in these slots is no more.
            world.fence(Ordering::Release);
            let first = tail.next();
            world.set_number(world.index(tail.pos), first);
            return Ok(Claim {
                pos: tail.pos,
                owner: me,
                slots,
                first,
                records,
            });
        }
    }
    Err(Fault::Contended.into())
}

/// Finishes the claim that `word` in the slot of `tail.pos` says was made there: its other slots, then the tail.
///
/// Anybody may do it at any time. Each exchange replaces what the slot was in the turn before, so a late one fails.
pub(crate) fn help<W: World>(world: &W, tail: Tail, word: Word) -> Result<(), Fault> {
    let odd = Fault::Corrupt(word.encode::<W::Bits>().map_or(0, Bits::widen));
    let (slots, records) = match word.what {
        What::Void | What::Kept { .. } => (1, 0),
        What::Part { .. } => return Err(odd),
        What::Head(head) if u64::from(head.slots) > world.most_slots() => return Err(odd),
        What::Head(head) => {
            for behind in 1..head.slots {
                take_part(world, tail.pos, head.owner, behind)?;
            }
            (u64::from(head.slots), u64::from(head.records))
        }
    };
    let next = Tail {
        pos: tail.pos.checked_add(slots).ok_or(Fault::Exhausted)?,
        records: tail.records.checked_add(records).ok_or(Fault::Exhausted)?,
    };
    let (seen, to) = (tail.encode(), next.encode());
    let (Some(seen), Some(to)) = (seen, to) else {
        return Err(Fault::Exhausted);
    };
    // EDGE claimed, release half: whoever sees the tail sees every claim below it. Not an acquire: the claims that this
    // one finishes were loaded with one, and an exchange carries on what the one that it replaces released.
    let (success, failure) = (Ordering::Release, Ordering::Relaxed);
    // Relaxed: (failure) somebody else did it.
    let _done = world.compare_exchange(Spot::Tail, seen, to, success, failure);
    Ok(())
}

fn take_part<W: World>(world: &W, pos: u64, owner: PeerId, behind: u16) -> Result<(), Fault> {
    let at = pos.checked_add(behind.into()).ok_or(Fault::Exhausted)?;
    let turn = world.turn(at);
    let to = Word {
        turn,
        what: What::Part { owner, behind },
    };
    for _ in 0..CHANGES {
        let (seen, word) = load(world, at)?;
        match word.standing(turn) {
            Standing::Before(_) => {
                if exchange(world, at, seen, to)? {
                    return Ok(());
                }
            }
            Standing::Now(_) | Standing::After => return Ok(()),
            Standing::Odd => return Err(Fault::Corrupt(seen.widen())),
        }
    }
    Err(Fault::Contended)
}

/// Ends a claim: `stage` is committed, when all its records are stored, or let go.
pub(crate) fn end<W: World>(world: &W, claim: &Claim, stage: Stage) -> Result<Ended, Fault> {
    let turn = world.turn(claim.pos);
    let mut word = Word {
        turn,
        what: What::Head(Head {
            stage: Stage::Writing,
            owner: claim.owner,
            slots: claim.slots,
            records: claim.records,
        }),
    };
    for _ in 0..CHANGES {
        let (to, withdrawn) = match word.end(turn, claim.owner, stage) {
            End::To { word, withdrawn } => (word, withdrawn),
            End::Over => return Ok(Ended::Withdrawn),
            End::Lapsed => {
                // The head last: until then its slot says that the parts are kept.
                for behind in (0..claim.slots).rev() {
                    free(world, claim, behind)?;
                }
                return Ok(Ended::Lapsed);
            }
        };
        let seen = word.encode().ok_or(Fault::Exhausted)?;
        if exchange(world, claim.pos, seen, to)? {
            return Ok(match withdrawn {
                true => Ended::Withdrawn,
                false => Ended::AsAsked,
            });
        }
        word = load(world, claim.pos)?.1;
    }
    Err(Fault::Contended)
}

/// Others may pass the slot over once more under each attempt, once around the ring.
fn free<W: World>(world: &W, claim: &Claim, behind: u16) -> Result<(), Fault> {
    let pos = claim.pos + u64::from(behind);
    for _ in 0..ATTEMPTS {
        let (seen, word) = load(world, pos)?;
        let Some(to) = word.freed(world.turn(pos), claim.owner, behind) else {
            return Ok(());
        };
        if exchange(world, pos, seen, to)? {
            return Ok(());
        }
    }
    Err(Fault::Contended)
}

pub(crate) fn load_tail<W: World>(world: &W) -> Tail {
    // EDGE claimed, acquire half: every position below the tail is seen as claimed.
    Tail::decode(world.load(Spot::Tail, Ordering::Acquire))
}

/// The word of the slot of `pos`, whatever its turn.
pub(crate) fn load<W: World>(world: &W, pos: u64) -> Result<(W::Bits, Word), Fault> {
    // EDGE written, acquire half: of a committed head, the records are seen as their owner stored them.
    // EDGE freed, acquire half: what an owner stored before it ended its claim is not seen after what a later owner
    // stores.
    let seen = world.load(world.at(pos), Ordering::Acquire);
    let word = Word::decode(seen).ok_or(Fault::Corrupt(seen.widen()))?;
    Ok((seen, word))
}

pub(crate) fn exchange<W: World>(
    world: &W,
    pos: u64,
    seen: W::Bits,
    to: Word,
) -> Result<bool, Fault> {
    let to = to.encode().ok_or(Fault::Exhausted)?;
    // EDGE written, release half; EDGE freed, release half: see `load`.
    // Not an acquire: `seen` was loaded with one, or is this process's own, and no value of a word comes back.
    let (success, failure) = (Ordering::Release, Ordering::Relaxed);
    // Relaxed: (failure) the value is dropped, and the word is loaded again.
    let at = world.at(pos);
    Ok(world
        .compare_exchange(at, seen, to, success, failure)
        .is_ok())
}

/// Whose bytes are in the way of a claim.
#[derive(Clone, Copy, Debug)]
struct Owner {
    peer: PeerId,
    /// What its head says, of a part.
    part_of: Option<PartOf>,
}

/// Looks for slots whose bytes are nobody's; asks about each owner in a row once.
struct Alive<'a, W: World> {
    world: &'a W,
    alive: PeerId,
}

impl<'a, W: World> Alive<'a, W> {
    fn new(world: &'a W, me: PeerId) -> Self {
        Self { world, alive: me }
    }

    /// Who has the bytes of the slot that is `what` in the turn before that of `pos`.
    fn owner_of(&mut self, pos: u64, what: What) -> Result<Option<Owner>, Fault> {
        let owner = match what.bytes() {
            Bytes::Nobodys => return Ok(None),
            Bytes::Still(peer) => Owner {
                peer,
                part_of: None,
            },
            Bytes::AsHead { owner, behind } => {
                let head = pos.checked_sub(self.world.slots() + u64::from(behind));
                let head = head.ok_or(Fault::Corrupt(behind.into()))?;
                let word = load(self.world, head)?.1;
                match part_of(word, self.world.turn(head)) {
                    PartOf::Ended => return Ok(None),
                    part_of => Owner {
                        peer: owner,
                        part_of: Some(part_of),
                    },
                }
            }
        };
        if owner.peer != self.alive && self.world.is_dead(owner.peer) {
            return Ok(None);
        }
        self.alive = owner.peer;
        Ok(Some(owner))
    }

    /// The first of the slots `pos + ahead` that has an owner. A slot that was claimed meanwhile has none: then the
    /// tail moved, and the exchange at `pos` fails.
    fn first_owner(
        &mut self,
        pos: u64,
        ahead: impl Iterator<Item = u64>,
    ) -> Result<Option<Owner>, Fault> {
        for ahead in ahead {
            if let Some(owner) = self.owner_at(pos, ahead)? {
                return Ok(Some(owner));
            }
        }
        Ok(None)
    }

    fn owner_at(&mut self, pos: u64, ahead: u64) -> Result<Option<Owner>, Fault> {
        let at = pos.checked_add(ahead).ok_or(Fault::Exhausted)?;
        let (seen, word) = load(self.world, at)?;
        match word.standing(self.world.turn(at)) {
            Standing::Before(what) => self.owner_of(at, what),
            Standing::Now(_) | Standing::After => Ok(None),
            Standing::Odd => Err(Fault::Corrupt(seen.widen())),
        }
    }

    /// Whether `slots` slots in a row have no owner, once around the ring from `pos` on.
    fn is_there_room(&mut self, pos: u64, slots: u16) -> Result<bool, Fault> {
        let mut row = 0;
        for ahead in 0..self.world.slots() + u64::from(slots) {
            let owner = self.owner_at(pos, ahead % self.world.slots())?;
            row = if owner.is_some() { 0 } else { row + 1 };
            if row == slots {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod interrupted;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod model;
#[cfg(test)]
mod modelled;
#[cfg(test)]
mod sequential;
