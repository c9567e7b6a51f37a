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
//!  16 ..  30     standbys
//!  30            latest: the standbys are those of a `LatestStandby`
//!  31            1
//! ```
//!
//! A shape changes only while nobody has a place. Who disagrees writes what he wants, *then* looks; who takes a
//! place takes it, *then* looks at this word, and gives the place back unless it says his shape alone. So either the
//! place is seen, and the change given up, or the change is seen, and the place. Whoever meets a change decides it,
//! so one that is killed in the middle leaves nothing to others but that look. `turn` sees to it that a decision
//! that rests on an old look does not hit a later wish of the same shape.

use std::fmt;
use std::sync::atomic::Ordering;

use crate::protocol::Cell;
use crate::word::Bits;

/// How often the word may change under one call.
const ATTEMPTS: u32 = 64;

/// How many places a limit has, and how many may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) places: u16,
    pub(crate) standbys: u16,
    pub(crate) latest: bool,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            places, standbys, ..
        } = self;
        match (self.latest, standbys) {
            (true, _) => f.write_str("the latest of its standbys"),
            (false, 0) => write!(f, "{places} at once"),
            (false, _) => write!(f, "{places} at once and {standbys} waiting"),
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

/// The most standbys that a shape has room for.
pub(crate) const MAX_STANDBYS: u16 = (1 << 14) - 1;

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
        Self::places::<B>() - 2
    }
}

impl Shape {
    fn bits<B: Bits>(self) -> u64 {
        let (places, standbys) = (Widths::places::<B>(), Widths::standbys::<B>());
        let flags = 2 | u64::from(self.latest);
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
            latest: field(places + standbys, 1)? == 1,
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

/// Whether the word says `mine` and nothing else, for a caller that has just taken a place.
pub(crate) fn is_agreed<C: Cell>(cell: &C, mine: Shape, fence: impl Fn(Ordering)) -> bool {
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
            latest: false,
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
            latest: bool,
            turn: u64,
        ) {
            let now = Some(Shape { places, standbys, latest });
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
        fn agree(&self, places: u16) -> Agreement {
            agree(&self.word, shape(places), crossed_fence, |now| {
                // Relaxed: see the fence before.
                self.places[usize::from(now.places) - 1].load(Ordering::Relaxed) == 0
            })
        }

        /// Whether the one place of this shape was had, and is kept.
        fn take(&self, places: u16) -> bool {
            if self.agree(places) != Agreement::Agreed {
                return false;
            }
            let place = &self.places[usize::from(places) - 1];
            place.store(1, Ordering::Relaxed);
            let agreed = is_agreed(&self.word, shape(places), crossed_fence);
            if !agreed {
                place.store(0, Ordering::Relaxed);
            }
            agreed
        }
    }

    #[test]
    fn edge_shape_two_shapes_never_have_a_place_each() {
        check(3, || {
            let limit = limit(Some(shape(1)), None);
            let other = {
                let limit = Arc::clone(&limit);
                thread::spawn(move || limit.take(2))
            };
            let (one, other) = (limit.take(1), other.join().unwrap());
            assert!(!(one && other));
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
