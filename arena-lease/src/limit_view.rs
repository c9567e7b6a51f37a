//! The limits of an arena that is only read.

use std::collections::BTreeMap;

use arena_peers::core::{OutOfBounds, RegionView};

use crate::error::ViewError;
use crate::layout::{LIMITS, NAME_WORDS, named_at as at};
use crate::limit::PlaceState;
use crate::name::Name;
use crate::named_words;
use crate::shape::{self, Kind, Shape};
use crate::stats::Stats;
use crate::view::LeasesView;

/// A limit, as it was at some moment. What its callers agree on, and who has places; each at another moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitState {
    /// Which it is; of one that can be had in two modes, the one that it is in.
    pub kind: Kind,
    /// How many places there are to work at.
    pub places: u16,
    /// How many may wait; of one that is shared now, how many may share it.
    pub standbys: u16,
    /// The places that somebody works at, in order; of one that is shared now, the shares that somebody has.
    pub working: Vec<PlaceState>,
    /// The places that somebody waits at, the next one first.
    pub waiting: Vec<PlaceState>,
}

impl LeasesView {
    /// The limit of this name; `None` when there is none, or nobody has used it yet.
    ///
    /// Looks at every limit and at every lease; asks for a verdict on each holder.
    ///
    /// # Errors
    ///
    /// [`ViewError::Name`], [`ViewError::Kind`], [`ViewError::Limit`]; as [`list`](Self::list), and the error of a row
    /// that is damaged, and may be one of its places.
    pub fn limit(&self, name: impl AsRef<[u8]>) -> Result<Option<LimitState>, ViewError> {
        let name = Self::name(name.as_ref())?;
        let Some(region) = self.view().find(LIMITS.0) else {
            return Ok(None);
        };
        let (found, expected) = (region.info().kind, LIMITS.1);
        if found != expected {
            return Err(ViewError::Kind { found, expected });
        }
        let rows = named_words::rows_in(region.info().len_bytes);
        let mut words = named_words::places(rows).filter_map(|at| word_of(&region, at, &name).ok());
        let Some(word) = words.find_map(|word| word) else {
            return Ok(None);
        };
        let shape = shape::in_word(word).ok_or(ViewError::Limit { found: word })?;
        shape.map(|shape| self.state(name, shape)).transpose()
    }

    fn state(&self, name: Name, shape: Shape) -> Result<LimitState, ViewError> {
        let mut damaged = None;
        let mut leases: BTreeMap<Vec<u8>, Stats> = BTreeMap::new();
        for row in self.list()? {
            match row {
                Ok(stats) => drop(leases.insert(stats.name.clone(), stats)),
                Err(error) => damaged = damaged.or(Some(error)),
            }
        }
        let worked_at = usize::from(shape.main());
        let (mut working, mut waiting) = (Vec::new(), Vec::new());
        for (index, lease) in shape::names_of(name, shape).enumerate() {
            match leases.remove(&lease).map(|stats| stats.holder) {
                Some(None) => {}
                Some(holder) if index < worked_at => working.push(PlaceState { lease, holder }),
                Some(holder) => waiting.push(PlaceState { lease, holder }),
                // It has no row; or that one is damaged.
                None => {
                    if let Some(error) = damaged.take() {
                        return Err(error);
                    }
                }
            }
        }
        Ok(LimitState {
            kind: shape.kind,
            places: shape.places,
            standbys: shape.standbys,
            working,
            waiting,
        })
    }
}

/// The word of the row at `at`, if it has this name.
fn word_of(region: &RegionView, at: u64, name: &Name) -> Result<Option<u128>, OutOfBounds> {
    // Each of these loads is an acquire, and a row that has a length has its name.
    let name_len = region.word(at + at::NAME_LEN)?;
    let mut words = [0; NAME_WORDS];
    for (offset, word) in (at + at::NAME..).step_by(8).zip(&mut words) {
        *word = region.word(offset)?;
    }
    let is_it = Name::from_words(name_len, words).as_ref() == Some(name);
    is_it.then(|| region.wide(at + at::WORD)).transpose()
}
