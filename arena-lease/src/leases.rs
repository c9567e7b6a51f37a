//! The leases of an arena.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arena_peers::core::clock::boot_ms;
use arena_peers::{Arena, PeerId, Peers, Verdict};

use crate::clock::{BootClock, Clock};
use crate::error::{LeaseError, TableError};
use crate::lease::Lease;
use crate::name::Name;
use crate::stats::{Stats, stats_of};
use crate::table::Table;
use crate::word::NS_PER_MS;
use crate::{Ttl, snapshot::Snapshot};

/// How often, at most, a process asks whether the arena's file was removed.
const LINKS_EVERY_NS: u64 = 100 * NS_PER_MS;

/// The leases of an arena: a table of rows, one a name.
///
/// A handle; clones share it, and opening it again costs little. Usable in a child of fork.
#[derive(Clone, Debug)]
pub struct Leases {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) table: Table,
    pub(crate) arena: Arena,
    pub(crate) peers: Peers,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) busy_timeout: Duration,
    /// When the arena's file was last looked at.
    looked_ns: AtomicU64,
    removed: AtomicBool,
}

/// How to open a table of leases.
#[derive(Clone, Debug)]
#[must_use = "options open nothing by themselves"]
pub struct LeasesOptions {
    rows: Option<u32>,
    busy_timeout: Duration,
    clock: Option<Arc<dyn Clock>>,
}

impl Default for LeasesOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl LeasesOptions {
    /// The defaults: the rows that the table has, or 1,024 when it is new; [`BootClock`]; one second.
    pub const fn new() -> Self {
        Self {
            rows: None,
            busy_timeout: Duration::from_secs(1),
            clock: None,
        }
    }

    /// How many leases there can be at once: 1 to [`MAX_ROWS`](crate::MAX_ROWS), 256 bytes of the arena each.
    /// Unset, an existing table is taken as it is; set, one of another size is refused.
    pub const fn rows(mut self, rows: u32) -> Self {
        self.rows = Some(rows);
        self
    }

    /// How long the naming of a row waits for another process that is stopped in the middle of one.
    pub const fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// Another clock than the machine's, for tests: see [`Clock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Opens the table of `arena`, which is made when there is none. Takes the arena's lock only then.
    ///
    /// # Errors
    ///
    /// [`TableError`].
    pub fn open(self, arena: &Arena) -> Result<Leases, TableError> {
        Ok(Leases {
            inner: Arc::new(Inner {
                table: Table::open(arena, self.rows)?,
                arena: arena.clone(),
                peers: Peers::new(arena),
                clock: self.clock.unwrap_or_else(|| Arc::new(BootClock)),
                busy_timeout: self.busy_timeout,
                looked_ns: AtomicU64::new(0),
                removed: AtomicBool::new(false),
            }),
        })
    }
}

impl Leases {
    /// Opens the table of `arena` with the default options: see [`LeasesOptions::open`].
    ///
    /// # Errors
    ///
    /// [`TableError`].
    pub fn open(arena: &Arena) -> Result<Self, TableError> {
        LeasesOptions::new().open(arena)
    }

    /// The table of `arena`, if it has one: makes none, takes no lock, and needs no attachment.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn find(arena: &Arena) -> Result<Option<Self>, TableError> {
        // One whose entry is damaged is none: opening it says so.
        let is_there = Table::is_in(arena) || arena.refused() > 0;
        is_there.then(|| Self::open(arena)).transpose()
    }

    /// The lease of this name: 1 to [`MAX_NAME_BYTES`](crate::MAX_NAME_BYTES) bytes, any but NUL. Acquires
    /// nothing. `ttl` is what [`Lease::acquire`] and [`Lease::renew`] ask for.
    ///
    /// A name that has no row yet is given one, and only that takes the table's lock. Otherwise: a look at every
    /// row that ever had a name, no system call.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Name`], [`LeaseError::Ttl`], [`LeaseError::TableFull`]; [`LeaseError::Lock`] when another
    /// process is stopped while it names a row.
    pub fn lease(&self, name: impl AsRef<[u8]>, ttl: Duration) -> Result<Lease, LeaseError> {
        let name = name_of(name.as_ref())?;
        let ttl = Ttl::new(ttl)?;
        let row = self.inner.find_or_name(&name)?;
        Ok(Lease::new(self.clone(), name, ttl, row))
    }

    /// The lease of this name, whether it has a row or not: for who only looks.
    pub(crate) fn lease_if_any(&self, name: &[u8]) -> Result<Lease, LeaseError> {
        let name = name_of(name)?;
        // The first is as good as any: its name is compared.
        let row = self.inner.table.find(&name).unwrap_or(0);
        Ok(Lease::new(self.clone(), name, Ttl::DEFAULT, row))
    }

    /// The leases that have a row, with what is known of them.
    #[must_use]
    pub fn list(&self) -> Vec<Stats> {
        let inner = &self.inner;
        (0..inner.table.named())
            .filter_map(|index| inner.stats(Snapshot::of(inner.table.row(index))?))
            .collect()
    }

    /// The arena.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        &self.inner.arena
    }

    /// How many leases there can be at once.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.inner.table.rows()
    }
}

fn name_of(bytes: &[u8]) -> Result<Name, LeaseError> {
    Name::new(bytes).ok_or_else(|| LeaseError::Name {
        name: String::from_utf8_lossy(bytes).into_owned(),
    })
}

impl Inner {
    pub(crate) fn find_or_name(&self, name: &Name) -> Result<u32, LeaseError> {
        self.table
            .find_or_name(name, &*self.clock, self.busy_timeout)
    }

    /// No system call while the peer's bell is believed.
    fn verdict(&self, peer: PeerId) -> Verdict {
        self.peers.verdict_cached(peer, boot_ms())
    }

    pub(crate) fn is_dead(&self, peer: PeerId) -> bool {
        self.peers.is_dead(peer)
    }

    pub(crate) fn stats(&self, row: Snapshot) -> Option<Stats> {
        let attachment = |slot| self.arena.attachment(slot);
        let verdict = |peer| self.verdict(peer);
        let stand_in = |peer| self.arena.may_have_stand_in(peer);
        stats_of(row, self.clock.now_ns(), attachment, verdict, stand_in)
    }

    /// Whether the arena's file was removed, as far as this process knows: it asks the system at most ten times
    /// a second of the clock.
    pub(crate) fn is_removed(&self, now_ns: u64) -> bool {
        // Relaxed (all): what is removed stays so, and a look too many or few changes nothing.
        let looked = self.looked_ns.load(Ordering::Relaxed);
        if looked == 0 || now_ns.saturating_sub(looked) >= LINKS_EVERY_NS {
            self.looked_ns.store(now_ns.max(1), Ordering::Relaxed);
            if self.arena.is_unlinked() {
                self.removed.store(true, Ordering::Relaxed);
            }
        }
        self.was_removed()
    }

    /// Whether a look found that the file was removed.
    pub(crate) fn was_removed(&self) -> bool {
        // Relaxed: as above.
        self.removed.load(Ordering::Relaxed)
    }
}
