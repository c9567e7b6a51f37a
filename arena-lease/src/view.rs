//! The leases of an arena that is only read.

use arena_peers::core::RegionView;
use arena_peers::{ArenaView, verdict_in};

use crate::clock::{BootClock, Clock as _};
use crate::error::ViewError;
use crate::layout::{HEAD_BYTES, KIND, ROW_BYTES, at};
use crate::name::Name;
use crate::snapshot::{Seen, Snapshot};
use crate::stats::{Stats, stats_of};
use crate::table::{REGION, rows_in};

/// The leases of an arena, for who looks without joining: takes no slot, and changes nothing.
#[derive(Clone, Debug)]
pub struct LeasesView {
    region: RegionView,
    rows: u32,
}

impl LeasesView {
    /// The table of `view`; `None` when nobody has made one yet, so that every lease is free.
    ///
    /// # Errors
    ///
    /// [`ViewError::Regions`], [`ViewError::Kind`], [`ViewError::Length`].
    pub fn open(view: &ArenaView) -> Result<Option<Self>, ViewError> {
        let Some(region) = view.find(REGION) else {
            return match view.refused() {
                0 => Ok(None),
                refused => Err(ViewError::Regions { refused }),
            };
        };
        let (found, len_bytes) = (region.info().kind, region.info().len_bytes);
        if found != KIND {
            return Err(ViewError::Kind {
                found,
                expected: KIND,
            });
        }
        let rows = rows_in(len_bytes).ok_or(ViewError::Length {
            found: len_bytes,
            expected: HEAD_BYTES + ROW_BYTES,
        })?;
        Ok(Some(Self { region, rows }))
    }

    /// The lease of this name; `None` when no row has it, so that it is free.
    ///
    /// # Errors
    ///
    /// [`ViewError::Name`], [`ViewError::Named`], [`ViewError::Word`]; [`ViewError::Row`] when no row has the name,
    /// and one that is damaged may have had it.
    pub fn stats(&self, name: impl AsRef<[u8]>) -> Result<Option<Stats>, ViewError> {
        let name = Self::name(name.as_ref())?;
        let mut unreadable = None;
        for row in 0..self.named()? {
            match self.snapshot(row) {
                Ok(Some(seen)) if seen.name == name => return self.stats_of(row, seen).map(Some),
                Ok(_) => {}
                Err(error) => unreadable = unreadable.or(Some(error)),
            }
        }
        unreadable.map_or(Ok(None), Err)
    }

    /// The leases that have a row; instead of one whose row is damaged, what is wrong with it.
    ///
    /// # Errors
    ///
    /// [`ViewError::Named`].
    pub fn list(&self) -> Result<Vec<Result<Stats, ViewError>>, ViewError> {
        let seen = |row| {
            let seen = self.snapshot(row).transpose()?;
            Some(seen.and_then(|seen| self.stats_of(row, seen)))
        };
        Ok((0..self.named()?).filter_map(seen).collect())
    }

    /// How many leases there can be at once.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    pub(crate) fn name(bytes: &[u8]) -> Result<Name, ViewError> {
        Name::new(bytes).ok_or_else(|| ViewError::Name {
            name: String::from_utf8_lossy(bytes).into_owned(),
        })
    }

    pub(crate) fn view(&self) -> &ArenaView {
        self.region.view()
    }

    /// How many rows ever had a name.
    fn named(&self) -> Result<u32, ViewError> {
        let found = self.region.word(at::NAMED).unwrap_or(0);
        let named = u32::try_from(found).ok().filter(|&rows| rows <= self.rows);
        named.ok_or(ViewError::Named {
            found,
            rows: self.rows,
        })
    }

    /// `None`: a row without a name.
    fn snapshot(&self, row: u32) -> Result<Option<Snapshot>, ViewError> {
        match Snapshot::in_view(&self.region, row) {
            Seen::Row(seen) => Ok(Some(seen)),
            Seen::Nameless => Ok(None),
            Seen::Damaged { name_len } => Err(ViewError::Row {
                row,
                found: name_len,
            }),
            Seen::Moving => Err(ViewError::Moving { row }),
        }
    }

    fn stats_of(&self, row: u32, seen: Snapshot) -> Result<Stats, ViewError> {
        let view = self.region.view();
        let attachment = |slot| view.attachment(slot);
        let verdict = |peer| verdict_in(view, peer);
        let stand_in = |peer| view.may_have_stand_in(peer);
        let now_ns = BootClock.now_ns();
        stats_of(seen, now_ns, attachment, verdict, stand_in).ok_or(ViewError::Word {
            row,
            found: seen.word,
        })
    }
}
