//! Reading: what a cursor finds at its place, whether it was still there after it was copied, and where to go on when
//! the ring was overwritten under it.
//!
//! Generic as [`crate::protocol`] is. A reader changes nothing but a record that nobody is going to finish.

use std::sync::atomic::Ordering;

use crate::PeerId;
use crate::protocol::{Fault, World, exchange, help, load, load_tail};
use crate::step::Standing;
use crate::word::{Bits as _, Head, Stage, Tail, What, Word};

/// How often a reader looks for the oldest record while others overwrite it, each time that part of the ring further
/// from it, before it goes to the newest.
const LANDINGS: u64 = 8;

/// How often a head may change while it is looked at: each change is a stage on.
const CHANGES: u32 = 64;

/// Where a reader is: at the head of a record, or between records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) pos: u64,
    /// The number of the first record at or after the position.
    pub(crate) number: u64,
}

/// What a reader finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sight<B> {
    /// Whole records: copy them, and then ask [`is_still`].
    Committed { at: Place, seen: B, head: Head },
    /// Records that nobody will ever read; go on at [`Place::after`].
    Abandoned { at: Place, head: Head },
    /// Records that `head`'s owner is storing; it is not proven dead.
    Writing { at: Place, seen: B, head: Head },
    /// Nothing was published here yet.
    Empty { at: Place },
    /// What was here was overwritten: go on where [`land`] says.
    Lapped,
}

impl Place {
    /// The place after the records of a head.
    pub(crate) fn after(self, head: Head) -> Self {
        Self {
            pos: self.pos.saturating_add(head.slots.into()),
            number: self.number.saturating_add(head.records.into()),
        }
    }

    fn newest(tail: Tail) -> Self {
        Self {
            pos: tail.pos,
            number: tail.next(),
        }
    }
}

/// What there is at a place, or after the void slots that follow it. `at` in the answer is beyond those.
pub(crate) fn look<W: World>(world: &W, mut at: Place) -> Result<Sight<W::Bits>, Fault> {
    let mut voids = 0;
    let mut changes = 0;
    loop {
        let (seen, word) = load(world, at.pos)?;
        let head = match word.standing(world.turn(at.pos)) {
            Standing::Before(_) => return Ok(Sight::Empty { at }),
            Standing::Odd => return Err(Fault::Corrupt(seen.widen())),
            Standing::After => return Ok(Sight::Lapped),
            Standing::Now(What::Void | What::Kept { .. }) => {
                at.pos = at.pos.checked_add(1).ok_or(Fault::Exhausted)?;
                voids += 1;
                if voids > world.slots() {
                    // Enough for one look.
                    return Ok(Sight::Empty { at });
                }
                continue;
            }
            Standing::Now(What::Part { .. }) => return Err(Fault::Corrupt(seen.widen())),
            Standing::Now(What::Head(head)) if u64::from(head.slots) > world.most_slots() => {
                return Err(Fault::Corrupt(seen.widen()));
            }
            Standing::Now(What::Head(head)) => head,
        };
        match head.stage {
            Stage::Committed => return Ok(Sight::Committed { at, seen, head }),
            Stage::Abandoned | Stage::Withdrawn | Stage::LetGo => {
                return Ok(Sight::Abandoned { at, head });
            }
            Stage::Writing => {}
        }
        // A reader goes on only from claims that are finished, so that it never is beyond the tail's numbers.
        let tail = load_tail(world);
        if tail.pos == at.pos {
            help(world, tail, word)?;
        }
        if !world.is_dead(head.owner) {
            return Ok(Sight::Writing { at, seen, head });
        }
        changes += 1;
        if changes > CHANGES {
            return Err(Fault::Contended);
        }
        // Whoever changes it first decides for all; look again.
        give_up(world, at, seen, Stage::Abandoned)?;
    }
}

/// Ends a record that is being written, in the name of all readers: abandoned, when its owner is proven dead, or
/// withdrawn. `false`: it was ended meanwhile.
pub(crate) fn give_up<W: World>(
    world: &W,
    at: Place,
    seen: W::Bits,
    stage: Stage,
) -> Result<bool, Fault> {
    let word = Word::decode(seen).and_then(|word| word.with_stage(stage));
    let word = word.ok_or(Fault::Corrupt(seen.widen()))?;
    exchange(world, at.pos, seen, word)
}

/// Whether the records at a place are still those that were seen there, after they were copied: then the copy is
/// theirs. The head suffices: positions are claimed in order, so nobody stores in its later slots before its word has
/// changed.
pub(crate) fn is_still<W: World>(world: &W, pos: u64, seen: W::Bits) -> bool {
    // EDGE overtaken, reader's half: of a store of a later writer that was copied, the claim is seen.
    world.fence(Ordering::Acquire);
    // Relaxed: ordered by the fence.
    world.load(world.at(pos), Ordering::Relaxed) == seen
}

/// The place of the newest record to come.
pub(crate) fn newest<W: World>(world: &W) -> Place {
    Place::newest(load_tail(world))
}

/// The oldest place that can still be read, but for `slack` slots, which are the next to be overwritten.
pub(crate) fn land<W: World>(world: &W, slack: u64) -> Result<Place, Fault> {
    for landing in 0..LANDINGS {
        let slack = slack.max(world.slots() / LANDINGS * landing);
        if let Some(place) = try_land(world, slack)? {
            return Ok(place);
        }
    }
    Ok(newest(world))
}

/// `None`: it was overwritten meanwhile.
fn try_land<W: World>(world: &W, slack: u64) -> Result<Option<Place>, Fault> {
    let tail = load_tail(world);
    let (_, word) = load(world, tail.pos)?;
    if let Standing::Now(_) = word.standing(world.turn(tail.pos)) {
        // The oldest slots are being claimed: that is finished first, or the tail does not say which are left.
        help(world, tail, word)?;
        return Ok(None);
    }
    let mut pos = match tail.pos.checked_sub(world.slots()) {
        Some(oldest) => oldest.saturating_add(slack).min(tail.pos),
        None => 0,
    };
    // The first head, or the tail. Parts before it are of a record whose head is gone.
    let mut first = None;
    // How many records there are from it up to `pos`.
    let mut records = 0_u64;
    loop {
        if pos == tail.pos {
            let number = tail.next().saturating_sub(records);
            let pos = first.unwrap_or(pos);
            return Ok(Some(Place { pos, number }));
        }
        let (seen, word) = load(world, pos)?;
        let corrupt = Fault::Corrupt(seen.widen());
        let slots = match word.standing(world.turn(pos)) {
            Standing::After => return Ok(None),
            Standing::Before(_) | Standing::Odd => return Err(corrupt),
            Standing::Now(What::Part { .. }) if first.is_some() => return Err(corrupt),
            Standing::Now(What::Void | What::Kept { .. } | What::Part { .. }) => 1,
            Standing::Now(What::Head(head)) => {
                let here = *first.get_or_insert(pos);
                if head.stage == Stage::Committed {
                    // Only a committed head is known to have its number.
                    let number = world.number(world.index(pos));
                    if !is_still(world, pos, seen) {
                        return Ok(None);
                    }
                    let number = number.checked_sub(records).ok_or(corrupt)?;
                    return Ok(Some(Place { pos: here, number }));
                }
                records = records.saturating_add(head.records.into());
                u64::from(head.slots)
            }
        };
        pos = pos.saturating_add(slots);
        if pos > tail.pos {
            return Err(corrupt);
        }
    }
}

/// Who has the oldest unfinished record below `tail`, be he alive or dead. `word_at` gives the word of a position's
/// slot.
pub(crate) fn unfinished(
    tail: Tail,
    slots: u32,
    word_at: impl Fn(u64) -> Option<Word>,
) -> Option<PeerId> {
    let slots = u64::from(slots);
    (tail.pos.saturating_sub(slots)..tail.pos).find_map(|pos| {
        match word_at(pos)?.standing(pos / slots + 1) {
            Standing::Now(What::Head(head)) if head.stage == Stage::Writing => Some(head.owner),
            _ => None,
        }
    })
}
