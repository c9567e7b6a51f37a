//! What all who share a limit must agree on: how many places it has.
//!
//! ```text
//! bits of u128   field    meaning                                       changes on
//!   0 ..  32     now      the shape that counts; 0: none yet            the first caller, a change
//!  32 ..  64     wanted   0, or the shape that somebody wants instead   who disagrees, who decides
//!  64 .. 128     turn     how often the word changed                    each change
//!
//! bits of a shape
//!   0 ..  16     places, 1 to 65,535
//!  16 ..  29     standbys; of a shared one: how many share
//!  29 ..  31     kind: 0 exclusive, 1 latest (the standbys are those of a `LatestStandby`), 2 shared
//!  31            1
//! ```
//!
//! A limit that some have exclusively and others share is one of two shapes, each with leases of its own, and
//! changes between them as between any two.
//!
//! A shape changes only while nobody has a place. Who disagrees writes what he wants, *then* looks; who takes a
//! place takes it, *then* looks at this word, and gives the place back unless it says his shape alone. So either the
//! place is seen, and the change given up, or the change is seen, and the place. Whoever meets a change decides it,
//! so one that is killed in the middle leaves nothing to others but that look. `turn` sees to it that a decision
//! that rests on an old look does not hit a later wish of the same shape.

use std::fmt;
use std::sync::atomic::Ordering;

use crate::name::Name;
use crate::protocol::Cell;
use crate::word::Bits;

/// How often the word may change under one call.
const ATTEMPTS: u32 = 64;

/// How many places a limit has, and how many may wait, or share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) places: u16,
    /// How many may wait; how many share, when it is [`Kind::Shared`].
    pub(crate) standbys: u16,
    pub(crate) kind: Kind,
}

/// Which of the limits it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Each place is one process's; others may wait.
    Exclusive,
    /// One works, and of those who wait the newest takes over.
    Latest,
    /// Many have it together, and nobody has a place.
    Shared,
}

impl Kind {
    const fn bits(self) -> u64 {
        match self {
            Self::Exclusive => 0,
            Self::Latest => 1,
            Self::Shared => 2,
        }
    }

    const fn from_bits(bits: u16) -> Option<Self> {
        match bits {
            0 => Some(Self::Exclusive),
            1 => Some(Self::Latest),
            2 => Some(Self::Shared),
            _ => None,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            places,
            standbys,
            kind,
        } = self;
        match (kind, standbys) {
            (Kind::Latest, _) => f.write_str("the latest of its standbys"),
            (Kind::Shared, _) => write!(f, "{places} at once, or shared by {standbys}"),
            (Kind::Exclusive, 0) => write!(f, "{places} at once"),
            (Kind::Exclusive, _) => write!(f, "{places} at once and {standbys} waiting"),
        }
    }
}

/// Whether the callers agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Agreement {
    Agreed,
    /// Somebody has a place of this other shape, or had when this was looked at.
    Disagreed(Shape),
    /// Others changed it under each of a bounded number of attempts.
    Contended,
    /// Not a word that this library writes.
    Corrupt(u128),
}

/// The most standbys, or sharers, that a shape has room for.
pub(crate) const MAX_STANDBYS: u16 = (1 << 13) - 1;

/// How the fields lie in a word: models use a narrower one.
struct Widths;

impl Widths {
    const fn shape<B: Bits>() -> u32 {
        B::WORD_BITS / 4
    }

    const fn places<B: Bits>() -> u32 {
        B::WORD_BITS / 8
    }

    const fn standbys<B: Bits>() -> u32 {
        Self::places::<B>() - 3
    }
}

impl Shape {
    /// How many places are worked at.
    pub(crate) fn main(self) -> u16 {
        match self.kind {
            Kind::Shared => self.standbys,
            Kind::Exclusive | Kind::Latest => self.places,
        }
    }

    /// Whether these are the two modes of one limit: neither excludes that callers agree.
    pub(crate) fn is_other_mode_of(self, other: Self) -> bool {
        let modes = [self, other].map(|shape| (shape.kind, shape.standbys));
        self.places == other.places
            && matches!(
                modes,
                [(Kind::Exclusive, 0), (Kind::Shared, _)]
                    | [(Kind::Shared, _), (Kind::Exclusive, 0)]
            )
    }

    fn bits<B: Bits>(self) -> u64 {
        let (places, standbys) = (Widths::places::<B>(), Widths::standbys::<B>());
        let flags = 4 | self.kind.bits();
        (flags << standbys | u64::from(self.standbys)) << places | u64::from(self.places)
    }

    /// Whether its numbers fit into a word, and it has a place at all.
    fn fits<B: Bits>(self) -> bool {
        let fits = |number: u16, width: u32| u64::from(number) >> width == 0;
        self.places > 0
            && fits(self.places, Widths::places::<B>())
            && fits(self.standbys, Widths::standbys::<B>())
    }

    fn from_bits<B: Bits>(bits: u64) -> Option<Self> {
        let (places, standbys) = (Widths::places::<B>(), Widths::standbys::<B>());
        let field = |at: u32, width: u32| u16::try_from(bits >> at & ((1 << width) - 1)).ok();
        let shape = Self {
            places: field(0, places)?,
            standbys: field(places, standbys)?,
            kind: Kind::from_bits(field(places + standbys, 2)?)?,
        };
        (shape.fits::<B>() && shape.bits::<B>() == bits).then_some(shape)
    }
}

/// The word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Limits {
    now: Option<Shape>,
    wanted: Option<Shape>,
    turn: u64,
}

impl Limits {
    fn decode<B: Bits>(bits: B) -> Option<Self> {
        let (wide, width) = (bits.widen(), Widths::shape::<B>());
        let field = |at: u32, width: u32| {
            let mask = u128::from(u64::MAX >> (64 - width));
            u64::try_from(wide >> at & mask).expect("the mask has 64 bits at most")
        };
        let shape = |at| match field(at, width) {
            0 => Some(None),
            bits => Shape::from_bits::<B>(bits).map(Some),
        };
        Some(Self {
            now: shape(0)?,
            wanted: shape(width)?,
            turn: field(2 * width, 2 * width),
        })
    }

    fn encode<B: Bits>(self) -> B {
        let width = Widths::shape::<B>();
        let bits = |shape: Option<Shape>| u128::from(shape.map_or(0, Shape::bits::<B>));
        let shapes = bits(self.wanted) << width | bits(self.now);
        B::narrow(u128::from(self.turn) << (2 * width) | shapes).expect("turns are not used up")
    }

    /// What the word becomes.
    fn to<B: Bits>(self, now: Shape, wanted: Option<Shape>) -> B {
        let to = Self {
            now: Some(now),
            wanted,
            turn: self.turn.wrapping_add(1) & (u64::MAX >> (64 - 2 * Widths::shape::<B>())),
        };
        to.encode()
    }
}

/// The names of the leases of a limit's places: of those that are worked at, then of those that are waited at.
pub(crate) fn names_of(limit: Name, shape: Shape) -> impl Iterator<Item = Vec<u8>> {
    let (places, others) = match shape.kind {
        Kind::Shared => (0, "shared"),
        Kind::Exclusive | Kind::Latest => (shape.places, "standby"),
    };
    let places = (1..=places).map(|place| format!("#{place}"));
    let others = (1..=shape.standbys).map(move |place| format!("#{others}{place}"));
    places
        .chain(others)
        .map(move |suffix| [limit.to_vec(), suffix.into_bytes()].concat())
}

/// Why nothing was taken.
pub(crate) enum Why<B> {
    /// The place is another's.
    Place(B),
    /// The shape is not what the caller says; never [`Agreement::Agreed`].
    Shape(Agreement),
}

/// Takes a place by `contend`, under the shape `mine`; what was taken and is not to be kept is dropped.
pub(crate) fn take<C: Cell, P, B, E>(
    cell: &C,
    mine: Shape,
    fence: impl Fn(Ordering),
    mut is_idle: impl FnMut(Shape) -> bool,
    mut contend: impl FnMut() -> Result<Result<P, B>, E>,
) -> Result<Result<P, Why<B>>, E> {
    for _ in 0..ATTEMPTS {
        match agree(cell, mine, &fence, &mut is_idle) {
            Agreement::Agreed => {}
            other => return Ok(Err(Why::Shape(other))),
        }
        match contend()? {
            Ok(place) if is_agreed(cell, mine, &fence) => return Ok(Ok(place)),
            // Somebody wants another shape: whether he gets it is decided without this place.
            Ok(place) => drop(place),
            Err(why) => return Ok(Err(Why::Place(why))),
        }
    }
    Ok(Err(Why::Shape(Agreement::Contended)))
}

/// The shape that counts.
pub(crate) fn present<C: Cell>(cell: &C) -> Option<Shape> {
    // Relaxed: it may be another at once.
    in_word(cell.load(Ordering::Relaxed)).flatten()
}

/// The shape that counts in this word, if one does yet; `None`: it is not a word that this library writes.
pub(crate) fn in_word<B: Bits>(word: B) -> Option<Option<Shape>> {
    Limits::decode(word).map(|limits| limits.now)
}

/// Whether the word says `mine` and nothing else, for a caller that has just taken a place.
fn is_agreed<C: Cell>(cell: &C, mine: Shape, fence: impl Fn(Ordering)) -> bool {
    // EDGE shape: the place was taken, then the fence, then the look at the word.
    fence(Ordering::SeqCst);
    // Relaxed: the fence orders it.
    let seen = Limits::decode(cell.load(Ordering::Relaxed));
    seen.is_some_and(|seen| (seen.now, seen.wanted) == (Some(mine), None))
}

/// Makes the shape `mine`, if it is so already, or if nobody has a place of the one that it is: `is_idle` looks.
/// `mine` fits.
pub(crate) fn agree<C: Cell>(
    cell: &C,
    mine: Shape,
    fence: impl Fn(Ordering),
    mut is_idle: impl FnMut(Shape) -> bool,
) -> Agreement {
    debug_assert!(mine.fits::<C::Bits>(), "{mine:?}");
    for _ in 0..ATTEMPTS {
        // EDGE shape, acquire half: the wish was written before the look at the places.
        let seen = cell.load(Ordering::Acquire);
        let Some(limits) = Limits::decode(seen) else {
            return Agreement::Corrupt(seen.widen());
        };
        let (to, refused) = match (limits.now, limits.wanted) {
            (Some(now), None) if now == mine => return Agreement::Agreed,
            (None, _) => (limits.to(mine, None), None),
            (Some(now), None) => (limits.to(now, Some(mine)), None),
            (Some(now), Some(wanted)) => {
                // EDGE shape: the wish was written, then the fence, then the look at the places.
                fence(Ordering::SeqCst);
                match is_idle(now) {
                    true => (limits.to(wanted, None), None),
                    false => (limits.to(now, None), Some(now).filter(|&now| now != mine)),
                }
            }
        };
        // EDGE shape, release half: whoever decides a wish has seen what its writer saw.
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        // Relaxed: (failure) the value is dropped, and the word loaded again.
        let exchanged = cell.compare_exchange(seen, to, success, failure).is_ok();
        if let Some(now) = refused.filter(|_| exchanged) {
            return Agreement::Disagreed(now);
        }
    }
    Agreement::Contended
}

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::fence;
    use loom::thread;
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::Mark as _;
    use crate::protocol::modelled::{Narrow, Number, check, cross};

    fn shape(places: u16) -> Shape {
        Shape {
            places,
            standbys: 0,
            kind: Kind::Exclusive,
        }
    }

    proptest! {
        #[test]
        fn any_bits_are_a_word_that_encodes_to_them_or_none(bits: u128, odd in 0..4_u8) {
            // Most random words have no shape.
            let bits = match odd {
                0 => bits,
                1 => bits | 1 << 31 | 1 << 63,
                2 => (bits | 1 << 31) & !(u128::from(u32::MAX) << 32),
                _ => bits & !u128::from(u64::MAX),
            };
            if let Some(limits) = Limits::decode(bits) {
                prop_assert_eq!(limits.encode::<u128>(), bits);
            }
        }

        #[test]
        fn every_shape_decodes_to_what_was_encoded(
            (places, standbys) in (1..=u16::MAX, 0..=MAX_STANDBYS),
            kind in prop::sample::select(vec![Kind::Exclusive, Kind::Latest, Kind::Shared]),
            turn: u64,
        ) {
            let now = Some(Shape { places, standbys, kind });
            for wanted in [None, now] {
                let limits = Limits { now, wanted, turn };
                prop_assert_eq!(Limits::decode(limits.encode::<u128>()), Some(limits));
            }
        }
    }

    /// A limit with one place under each of two shapes.
    struct Limit {
        word: Narrow,
        places: [Number; 2],
    }

    fn limit(now: Option<Shape>, wanted: Option<Shape>) -> Arc<Limit> {
        Arc::new(Limit {
            word: Narrow::new(
                Limits {
                    now,
                    wanted,
                    turn: 0,
                }
                .encode(),
            ),
            places: [Number::new(0), Number::new(0)],
        })
    }

    fn crossed_fence(order: Ordering) {
        cross();
        fence(order);
    }

    impl Limit {
        /// Relaxed: see the fence before.
        fn is_idle(&self, now: Shape) -> bool {
            self.place(now.places).load(Ordering::Relaxed) == 0
        }

        fn place(&self, places: u16) -> &Number {
            &self.places[usize::from(places) - 1]
        }

        fn agree(&self, places: u16) -> Agreement {
            agree(&self.word, shape(places), crossed_fence, |now| {
                self.is_idle(now)
            })
        }

        /// Whether the one place of this shape was had, and is kept.
        fn take(&self, places: u16) -> bool {
            let contend = || {
                let place = self.place(places);
                place.store(1, Ordering::Relaxed);
                Ok::<_, ()>(Ok::<_, ()>(Taken(place)))
            };
            let idle = |now| self.is_idle(now);
            let taken = take(&self.word, shape(places), crossed_fence, idle, contend);
            match taken.unwrap() {
                Ok(place) => {
                    std::mem::forget(place);
                    true
                }
                Err(_) => false,
            }
        }
    }

    /// Given back when it is dropped.
    struct Taken<'a>(&'a Number);

    impl Drop for Taken<'_> {
        fn drop(&mut self) {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    #[test]
    fn edge_shape_of_two_shapes_one_has_a_place_and_the_other_has_not() {
        check(3, || {
            let limit = limit(Some(shape(1)), None);
            let other = {
                let limit = Arc::clone(&limit);
                thread::spawn(move || limit.take(2))
            };
            let (one, other) = (limit.take(1), other.join().unwrap());
            assert!(!(one && other), "each has a place");
            assert!(one || other, "each was in the other's way");
        });
    }

    #[test]
    fn a_decision_on_an_old_look_does_not_hit_a_later_wish_of_the_same_shape() {
        loom::model(|| {
            let limit = limit(Some(shape(1)), Some(shape(2)));
            let mut looks = 0;
            let _answer = agree(&limit.word, shape(2), crossed_fence, |now| {
                looks += 1;
                let place = limit.places[usize::from(now.places) - 1].load(Ordering::Relaxed);
                if looks == 1 {
                    // After this look: the wish is given up, the place taken, and somebody has the wish again.
                    assert!(limit.take(1));
                    let seen = limit.word.load(Ordering::Acquire);
                    let to = Limits::decode(seen).unwrap().to(shape(1), Some(shape(2)));
                    let wished =
                        limit
                            .word
                            .compare_exchange(seen, to, Ordering::AcqRel, Ordering::Relaxed);
                    assert!(wished.is_ok());
                }
                place == 0
            });
            let limits = Limits::decode(limit.word.load(Ordering::Acquire)).unwrap();
            assert_eq!(
                limits.now,
                Some(shape(1)),
                "the place of that shape is kept"
            );
        });
    }

    #[test]
    fn a_change_that_was_left_half_made_is_decided_by_whoever_comes() {
        loom::model(|| {
            let abandoned = limit(Some(shape(1)), Some(shape(2)));
            assert_eq!(abandoned.agree(1), Agreement::Agreed);
            let taken = limit(Some(shape(1)), Some(shape(2)));
            taken.places[0].store(1, Ordering::Relaxed);
            assert_eq!(taken.agree(2), Agreement::Disagreed(shape(1)));
            assert_eq!(taken.agree(1), Agreement::Agreed);
        });
    }

    #[test]
    fn the_first_caller_decides_and_an_idle_limit_changes_its_shape() {
        loom::model(|| {
            let limit = limit(None, None);
            assert!(limit.take(1));
            assert_eq!(limit.agree(2), Agreement::Disagreed(shape(1)));
            limit.places[0].store(0, Ordering::Relaxed);
            assert!(limit.take(2));
            assert_eq!(limit.agree(1), Agreement::Disagreed(shape(2)));
        });
    }

    #[test]
    fn a_word_that_means_nothing_is_refused() {
        loom::model(|| {
            let limit = limit(None, None);
            limit.word.0.store(7, Ordering::Relaxed);
            assert_eq!(limit.agree(1), Agreement::Corrupt(7));
        });
    }
}
