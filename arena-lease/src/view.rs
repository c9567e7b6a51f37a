//! The leases of an arena that is only read.

use arena_peers::core::RegionView;
use arena_peers::{ArenaView, verdict_in};

use crate::clock::{BootClock, Clock as _};
use crate::layout::{KIND, at};
use crate::name::Name;
use crate::snapshot::Snapshot;
use crate::stats::{Stats, stats_of};
use crate::table::{REGION, rows_in};

/// The leases of an arena, for who looks without joining: takes no slot, and changes nothing.
#[derive(Clone, Debug)]
pub struct LeasesView {
    region: RegionView,
    rows: u32,
}

impl LeasesView {
    /// The table of `view`; `None` when there is none, or one of another version.
    #[must_use]
    pub fn open(view: &ArenaView) -> Option<Self> {
        let region = view.find(REGION)?;
        let rows = rows_in(region.info().len_bytes)?;
        (region.info().kind == KIND).then_some(Self { region, rows })
    }

    /// The lease of this name; `None` when no row has it, or its row is damaged.
    #[must_use]
    pub fn stats(&self, name: impl AsRef<[u8]>) -> Option<Stats> {
        let name = Name::new(name.as_ref())?;
        self.stats_of(self.snapshots().find(|row| row.name == name)?)
    }

    /// The leases that have a row.
    #[must_use]
    pub fn list(&self) -> Vec<Stats> {
        self.snapshots()
            .filter_map(|row| self.stats_of(row))
            .collect()
    }

    /// How many leases there can be at once.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    fn snapshots(&self) -> impl Iterator<Item = Snapshot> {
        let named = self.region.word(at::NAMED).unwrap_or(0);
        let named = u32::try_from(named).unwrap_or(u32::MAX).min(self.rows);
        (0..named).filter_map(|index| Snapshot::in_view(&self.region, index))
    }

    fn stats_of(&self, row: Snapshot) -> Option<Stats> {
        let view = self.region.view();
        let attachment = |slot| view.attachment(slot);
        stats_of(row, BootClock.now_ns(), attachment, |peer| {
            verdict_in(view, peer)
        })
    }
}
