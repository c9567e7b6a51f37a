//! The verbs: load the word, *then* read the clock, decide ([`crate::step`]), exchange, and look again.
//!
//! Generic over everything they touch, so that real processes, the model checker and the sequential property
//! test run the same lines. Nothing here takes a lock, and a process that is killed or stopped between any two
//! of these lines delays nobody beyond the ttl that it wrote.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::outcome::{Acquire, Hold, Lost, Refused, Renewed, TookOver};
use crate::step::{Ask, Attempt, Extension};
use crate::word::{Bits, Owner, Word};
use crate::{PeerId, Ttl};

/// How often a verb tries again after another process changed the word under it. A failed exchange means that
/// somebody else's succeeded, and what it wrote mostly decides the verb, so a second failure is rare already.
const ATTEMPTS: u32 = 64;

/// How often in a row a waiter tries again after that many attempts.
const CONTENTIONS: u32 = 16;

/// How often a verb writes a new deadline because the one that it had written was nearly over when it looked.
const CONFIRMATIONS: u32 = 8;

/// The atomic that carries a lease word.
pub(crate) trait Cell {
    type Bits: Bits;
    fn load(&self, order: Ordering) -> Self::Bits;
    fn compare_exchange(
        &self,
        seen: Self::Bits,
        to: Self::Bits,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Bits, Self::Bits>;
}

/// A number beside the word.
pub(crate) trait Mark {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fetch_max(&self, value: u64, order: Ordering) -> u64;
    /// A fence between accesses to this number and to others.
    fn fence(&self, order: Ordering);
}

/// A row of the lease table, and what its verbs need of the world.
pub(crate) trait World {
    type Cell: Cell;
    type Mark: Mark;

    fn word(&self) -> &Self::Cell;
    /// The largest fence that somebody waits behind, or ever waited behind. Only ever raised.
    fn asked(&self) -> &Self::Mark;
    /// The largest fence whose holder was told that it lost, likewise. In the row and not in the process: a fence has one
    /// holder for ever, so nobody else's is touched by it.
    fn told(&self) -> &Self::Mark;
    /// The boot clock.
    fn now_ns(&self) -> u64;
    /// Whether the row still has the name that the caller means. Read after the word was loaded.
    fn is_named(&self) -> bool;
    /// Whether the arena was destroyed.
    fn is_gone(&self) -> bool;
    /// The smallest fence that may be issued from now on.
    fn least_fence(&self) -> u64;
    /// Makes sure that no later arena of this name issues `fence` again. `false`: there is none left.
    fn reserve(&self, fence: u64) -> bool;
    /// Whether the kernel proves that the peer's process is gone, and whoever worked on its behalf under `fence`.
    fn is_dead(&self, peer: PeerId, fence: u64) -> bool;
    /// Whether the release of `fence` favoured `peer`. Read after the word was loaded.
    fn is_heir(&self, fence: u64, peer: PeerId) -> bool;
    /// The lease changed hands; for statistics, which may trail.
    fn taken(&self, fence: u64, now_ns: u64, took_over: Option<TookOver>);
    /// Sleeps until woken, the half-word is not `half`, the holder `behind` is proven dead, or the time is up.
    fn sleep(&self, half: u32, behind: Option<PeerId>, timeout: Duration);
    fn wake_all(&self);
}

pub(crate) type BitsOf<W> = <<W as World>::Cell as Cell>::Bits;

/// Why a verb could not be carried out at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The row has another name now, or is about to: look the name up again.
    Renamed,
    /// The arena was destroyed.
    Gone,
    /// No larger fence is left.
    FenceExhausted,
    /// The ttl ends after the last deadline that a word can hold.
    ClockExhausted,
    /// Not a word that this library writes.
    Corrupt(Odd),
    /// The bound of attempts was reached.
    Contended,
}

/// A word that is none of this library's, in two halves: a `u128` would make the results of all verbs twice as long, and
/// slower to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Odd {
    high: u64,
    low: u64,
}

impl From<u128> for Odd {
    fn from(found: u128) -> Self {
        let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).expect("it has 64 bits");
        Self {
            high: half(found >> 64),
            low: half(found),
        }
    }
}

impl From<Odd> for u128 {
    fn from(odd: Odd) -> Self {
        Self::from(odd.high) << 64 | Self::from(odd.low)
    }
}

/// See [`crate::Lease::acquire`].
#[inline]
pub(crate) fn acquire<W: World>(world: &W, me: PeerId, ttl: Ttl) -> Result<Acquire, Fault> {
    // From whom this call took over, also when it lost what it took and took it again.
    let mut taken_from = None;
    for _ in 0..ATTEMPTS {
        let (seen, word) = load(world)?;
        let ask = Ask {
            // Nobody but a holder writes it, so of a free word it is the releaser's.
            is_heir: word.owner == Owner::Nobody && world.is_heir(word.fence, me),
            ..ask(world, me, ttl)
        };
        let (to, took_over) = match word.acquire::<BitsOf<W>>(&ask, world.least_fence(), |peer| {
            world.is_dead(peer, word.fence)
        }) {
            Attempt::Take { to, took_over } => (to, took_over),
            Attempt::Extend(to) => (to, None),
            Attempt::Refused(_) if world.is_gone() => return Err(Fault::Gone),
            Attempt::Refused(why) => return Ok(Acquire::Refused(why)),
            Attempt::Renaming => return Err(Fault::Renamed),
            Attempt::FenceExhausted => return Err(Fault::FenceExhausted),
            Attempt::ClockExhausted => return Err(Fault::ClockExhausted),
        };
        let is_new = to.fence != word.fence;
        if is_new && !world.reserve(to.fence) {
            return Err(Fault::FenceExhausted);
        }
        if !exchange(world, seen, to) {
            continue;
        }
        if is_new {
            world.taken(to.fence, ask.now_ns, took_over);
            wake_if_asked(world, word.fence);
        }
        taken_from = taken_from.or(took_over);
        match confirm(world, me, ttl, to)? {
            Confirmed::Held { until_ms, left } => {
                return Ok(Acquire::Held(Hold {
                    fence: to.fence,
                    until_ms,
                    left,
                    took_over: taken_from,
                }));
            }
            Confirmed::TooLate => return Ok(Acquire::Refused(Refused::TooLate)),
            Confirmed::Gone => return Err(Fault::Gone),
            // Each further try would use up a fence, and be told lost too.
            Confirmed::Lost(_) => check_told(world)?,
        }
    }
    Ok(Acquire::Refused(Refused::Contended))
}

/// Acquire, waiting until `end_ns` on the boot clock (for ever: `u64::MAX`; not at all: 0, which is no further look
/// at the clock) for whoever holds.
///
/// `look` is called after each sleep, for what neither word nor clock tells; `Some` ends the wait.
pub(crate) fn acquire_until<W: World>(
    world: &W,
    me: PeerId,
    ttl: Ttl,
    end_ns: u64,
    mut look: impl FnMut() -> Result<Option<Refused>, Fault>,
) -> Result<Acquire, Fault> {
    let (mut registered, mut contended) = (None, 0);
    let rest = || match end_ns {
        0 => Duration::ZERO,
        end_ns => Duration::from_nanos(end_ns.saturating_sub(world.now_ns())),
    };
    loop {
        let outcome = acquire(world, me, ttl)?;
        let (word, behind, left) = match outcome {
            Acquire::Refused(Refused::Held {
                by,
                fence,
                until_ms,
                lapses_in,
            }) => (held(by, fence, until_ms), Some(by), lapses_in),
            Acquire::Refused(Refused::NotBefore {
                fence,
                at_ms,
                opens_in,
            }) => (free(fence, at_ms), None, opens_in),
            // Bounded: a row whose words contradict each other would be contended for ever.
            Acquire::Refused(Refused::Contended)
                if contended < CONTENTIONS && !rest().is_zero() =>
            {
                contended += 1;
                continue;
            }
            Acquire::Held(_) | Acquire::Refused(_) => return Ok(outcome),
        };
        let rest = rest();
        if rest.is_zero() {
            return Ok(outcome);
        }
        if registered != Some(word.fence) {
            // EDGE asked, waiter's half: the registration, then the fence, then (in the next `acquire`) the
            // second look at the word. Whoever replaces the word does so, passes its own fence, and then looks
            // for registrations: at least one of the two sees the other.
            world.asked().fetch_max(word.fence, Ordering::Relaxed);
            world.asked().fence(Ordering::SeqCst);
            registered = Some(word.fence);
            continue;
        }
        let half = word
            .half::<BitsOf<W>>()
            .expect("the word was decoded from such bits");
        world.sleep(half, behind, rest.min(left));
        contended = 0;
        if let Some(why) = look()? {
            return Ok(Acquire::Refused(why));
        }
    }
}

/// The word, whose replacement wakes who sleeps on its half from now on, and so does the renewal of one that lapsed.
pub(crate) fn watched<W: World>(world: &W) -> Result<Word, Fault> {
    let (_, mut word) = load(world)?;
    for _ in 0..ATTEMPTS {
        // EDGE asked, waiter's half: as in `acquire_until`.
        world.asked().fetch_max(word.fence, Ordering::Relaxed);
        world.asked().fence(Ordering::SeqCst);
        let (_, again) = load(world)?;
        if again.fence == word.fence {
            return Ok(again);
        }
        word = again;
    }
    Err(Fault::Contended)
}

/// See [`crate::Lease::renew`].
pub(crate) fn renew<W: World>(
    world: &W,
    me: PeerId,
    fence: u64,
    ttl: Ttl,
) -> Result<Renewed, Fault> {
    for _ in 0..ATTEMPTS {
        let (seen, word) = match load(world) {
            Ok(loaded) => loaded,
            Err(Fault::Corrupt(odd)) => {
                return Ok(Renewed::Lost(Lost::Corrupt { found: odd.into() }));
            }
            Err(fault) => return Err(fault),
        };
        let ask = ask(world, me, ttl);
        let to = match word.renew::<BitsOf<W>>(fence, &ask) {
            Extension::Lost(lost) => return Ok(Renewed::Lost(lost)),
            Extension::Extend(to) => to,
            Extension::ClockExhausted => return Err(Fault::ClockExhausted),
        };
        if to != word && !exchange(world, seen, to) {
            continue;
        }
        if word.is_over(ask.now_ns) {
            // Who watches took the lease for nobody's.
            wake_if_asked(world, fence);
        }
        let lost = match confirm(world, me, ttl, to)? {
            Confirmed::Held { until_ms, left } => return Ok(Renewed::Held { until_ms, left }),
            Confirmed::Lost(lost) => lost,
            Confirmed::Gone => Lost::Removed,
            Confirmed::TooLate => Lost::TooLate,
        };
        // The word still names the caller in some of these cases, and the loss is final.
        tell_lost(world, me, fence);
        return Ok(Renewed::Lost(lost));
    }
    Err(Fault::Contended)
}

/// See [`crate::Lease::release`]. The lease is free from `not_before_ms` on.
pub(crate) fn release<W: World>(
    world: &W,
    me: PeerId,
    fence: u64,
    not_before_ms: u64,
) -> Result<bool, Fault> {
    for _ in 0..ATTEMPTS {
        let (seen, word) = load(world)?;
        let Some(to) = word.release(fence, me, not_before_ms) else {
            return Ok(false);
        };
        if exchange(world, seen, to) {
            wake_if_asked(world, word.fence);
            return Ok(true);
        }
    }
    Err(Fault::Contended)
}

/// See [`crate::Lease::mine`].
pub(crate) fn mine<W: World>(world: &W, me: PeerId, fence: u64) -> Result<bool, Fault> {
    let (_, word) = load(world)?;
    let told = told(world);
    // GONE after the clock: clear now, it was clear when the clock was read.
    Ok(word.is_mine(fence, me, told, world.now_ns()) && !world.is_gone())
}

/// The fence that `me` has, if it has one.
pub(crate) fn current<W: World>(world: &W, me: PeerId) -> Result<Option<u64>, Fault> {
    let (_, word) = load(world)?;
    // EDGE unnamed, acquire half: the name was compared before the word is loaded again. If the next verb finds
    // the same fence, the row had the same name all along.
    world.asked().fence(Ordering::Acquire);
    Ok(word.names(me).then_some(word.fence))
}

/// From now on `fence` is lost, though its deadline may not have passed: it is never renewed, and acquiring
/// again gives a new one. Does nothing unless `me` is its holder.
pub(crate) fn tell_lost<W: World>(world: &W, me: PeerId, fence: u64) {
    if load(world).is_ok_and(|(_, word)| word.fence == fence && word.names(me)) {
        // EDGE told, release half: the fence had been issued. (Whoever acts on being told is a thread of this
        // process, and whoever was told first happens before it.)
        world.told().fetch_max(fence, Ordering::Release);
    }
}

/// Nobody is told that a fence is lost which was not issued: such a number is damaged.
fn check_told<W: World>(world: &W) -> Result<(), Fault> {
    // EDGE told, acquire half: the word is at least as new as whoever was told saw it.
    let told = world.told().load(Ordering::Acquire);
    let (_, word) = load(world)?;
    match told > word.fence {
        true => Err(Fault::Corrupt(Odd::from(u128::from(told)))),
        false => Ok(()),
    }
}

enum Confirmed {
    Held { until_ms: u64, left: Duration },
    TooLate,
    Gone,
    Lost(Lost),
}

/// Looks whether `word`, which was just exchanged in, still gives the caller something; moves its deadline when
/// less than half of the ttl is left.
#[inline]
fn confirm<W: World>(world: &W, me: PeerId, ttl: Ttl, mut word: Word) -> Result<Confirmed, Fault> {
    let fence = word.fence;
    for remaining in (0..=CONFIRMATIONS).rev() {
        let ask = ask(world, me, ttl);
        // After the clock: clear now, it was clear when the clock was read.
        if world.is_gone() {
            return Ok(Confirmed::Gone);
        }
        if !ask.owns(word) {
            return Ok(Confirmed::Lost(Lost::Told));
        }
        let left = word.left_ns(ask.now_ns);
        if left >= ttl.ns() / 2 || remaining == 0 {
            return Ok(match left {
                0 => Confirmed::TooLate,
                _ => Confirmed::Held {
                    until_ms: word.until_ms,
                    left: Duration::from_nanos(left),
                },
            });
        }
        let to = match word.renew::<BitsOf<W>>(fence, &ask) {
            Extension::Lost(lost) => return Ok(Confirmed::Lost(lost)),
            Extension::Extend(to) => to,
            Extension::ClockExhausted => return Err(Fault::ClockExhausted),
        };
        let seen = word.encode().expect("it was exchanged in, or decoded");
        if exchange(world, seen, to) {
            word = to;
            continue;
        }
        match load(world) {
            Ok((_, now)) if now.fence == fence && now.names(me) => word = now,
            Ok((_, now)) => return Ok(Confirmed::Lost(now.lost_to().unwrap_or(Lost::Released))),
            Err(Fault::Corrupt(odd)) => {
                return Ok(Confirmed::Lost(Lost::Corrupt { found: odd.into() }));
            }
            Err(fault) => return Err(fault),
        }
    }
    unreachable!("the last look returns")
}

/// The word first, then the name; the clock is read after this.
///
/// That the name is right says so of the word only as long as the word is the same. A verb that exchanges it learns
/// that; one that only looks, looks for a fence that was issued under the right name, and a row changes its name
/// only together with its fence.
pub(crate) fn load<W: World>(world: &W) -> Result<(BitsOf<W>, Word), Fault> {
    // EDGE handover, acquire half: what holders stored before they gave the lease up is visible to the next one.
    // EDGE named, acquire half: the name that was written before this word is visible to the comparison.
    let seen = world.word().load(Ordering::Acquire);
    let word = Word::decode(seen).ok_or(Fault::Corrupt(seen.widen().into()))?;
    match world.is_named() {
        true => Ok((seen, word)),
        false => Err(Fault::Renamed),
    }
}

fn exchange<W: World>(world: &W, seen: BitsOf<W>, to: Word) -> bool {
    let to = to.encode().expect("the steps check what they write");
    // EDGE handover, release half: whatever a holder stored before it released, or before it last renewed, is
    // visible to whoever loads this word or a later one.
    // Not an acquire: `seen` was loaded with one, and no value of the word comes back, so this replaces the same
    // store.
    let (success, failure) = (Ordering::Release, Ordering::Relaxed);
    // Relaxed: (failure) the value is dropped, and the word is loaded again.
    world
        .word()
        .compare_exchange(seen, to, success, failure)
        .is_ok()
}

fn ask<W: World>(world: &W, me: PeerId, ttl: Ttl) -> Ask {
    Ask {
        me,
        now_ns: world.now_ns(),
        ttl,
        told: told(world),
        is_heir: false,
    }
}

pub(crate) fn told<W: World>(world: &W) -> u64 {
    // Relaxed: see `tell_lost`.
    world.told().load(Ordering::Relaxed)
}

/// Wakes whoever may sleep behind `replaced`. A process that is killed or stopped before this has delayed the
/// sleepers to the deadline that they saw, and no longer.
fn wake_if_asked<W: World>(world: &W, replaced: u64) {
    // EDGE asked, waker's half: the word was replaced, then the fence, then the look at the registrations.
    world.asked().fence(Ordering::SeqCst);
    // Relaxed: the fence orders it.
    if world.asked().load(Ordering::Relaxed) >= replaced {
        world.wake_all();
    }
}

fn held(by: PeerId, fence: u64, until_ms: u64) -> Word {
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

#[cfg(test)]
mod interrupted;
#[cfg(test)]
mod model;
#[cfg(test)]
pub(crate) mod modelled;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod sequential;
