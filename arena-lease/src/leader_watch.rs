//! A watch on who leads.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arena_peers::core::thread::start_quiet;
use arena_peers::core::wiped::PerProcess;
use arena_peers::ring;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::PeerId;
use crate::error::LeaseError;
use crate::lease::Lease;
use crate::leases::Leases;
use crate::live::Live;
use crate::protocol;
use crate::stats::Stats;
use crate::wait::{Bedside, On};
use crate::word::Word;

/// How often a name is looked for that has no row, though who names one tells: he may be killed before he does.
const NAMELESS: Duration = Duration::from_secs(1);

/// How often in a row the lease is read again because it changed hands meanwhile.
const TRIES: u32 = 64;

/// It asks for verdicts, which read small files.
const STACK_BYTES: usize = 128 * 1024;

/// Of each process its own number: a child finds 0, and takes another. (Two can share a pid, and neither need be
/// attached.)
static PROCESS: PerProcess<u64> = PerProcess::forked_freely();

/// The next number. Not wiped: those of a child are beyond its parent's.
static NEXT: AtomicU64 = AtomicU64::new(1);

fn this_process() -> Option<u64> {
    let number = PROCESS.with(|number| {
        if *number == 0 {
            // Relaxed: only that it is another one.
            *number = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        *number
    });
    number.ok()
}

/// Tells whenever another process leads, or nobody: after an acquisition, a release, a takeover, the holder's proven
/// death, its lapse, and the renewal of a lease that had lapsed.
///
/// [`next`](Self::next) waits for it; the descriptor is for poll, epoll and async runtimes. What is told is the state,
/// not each step to it: when a lease changed hands several times between two looks, the last is told. Renewals
/// are not told, and wake nobody.
///
/// A watch is a thread that sleeps, and a descriptor. In a child of fork `next` and `try_next` work, but the descriptor is
/// the parent's: make another watch.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let arena = arena_lease::ArenaOptions::new().anonymous()?;
/// use std::time::Duration;
/// use arena_lease::Leases;
///
/// let leases = Leases::open(&arena)?;
/// let mut watch = leases.watch("nightly")?;
/// // The first is how things are.
/// assert!(!watch.next(Duration::MAX)?.unwrap().held);
/// assert_eq!(watch.next(Duration::ZERO)?, None);
///
/// leases.lease("nightly", Duration::from_secs(30))?.acquire()?;
/// let holder = watch.next(Duration::MAX)?.unwrap().holder.unwrap();
/// assert_eq!(holder.pid, Some(std::process::id()));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct LeaderWatch {
    lease: Lease,
    told: Option<Leader>,
    /// Whose the thread is.
    process: Option<u64>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    event: EventFd,
    /// Rung to end the thread.
    word: Arc<AtomicU32>,
    is_over: AtomicBool,
}

/// Who leads, and the newest fence: what a change is a change of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Leader {
    by: Option<PeerId>,
    fence: u64,
}

impl Leases {
    /// Watches who holds the lease of this name. Acquires nothing, gives it no row, and needs no attachment
    /// ([`ArenaOptions::unattached`](crate::ArenaOptions::unattached)).
    ///
    /// Starts a thread, and takes one descriptor.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Name`], [`LeaseError::Helper`].
    pub fn watch(&self, name: impl AsRef<[u8]>) -> Result<LeaderWatch, LeaseError> {
        let lease = self.lease_if_any(name.as_ref())?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_flags(flags).map_err(|errno| LeaseError::Helper(errno.into()))?;
        let shared = Arc::new(Shared {
            event,
            word: Arc::default(),
            is_over: AtomicBool::new(false),
        });
        let (for_thread, seen_by) = (lease.clone(), Arc::clone(&shared));
        let thread = start_quiet("arena-leader", STACK_BYTES, move || {
            seen_by.watch(&for_thread);
        });
        Ok(LeaderWatch {
            lease,
            told: None,
            process: this_process(),
            shared,
            thread: Some(thread.map_err(LeaseError::Helper)?),
        })
    }
}

impl LeaderWatch {
    /// Waits for up to `timeout` (`Duration::MAX`: for ever) until the leader is another one than was told last, and tells
    /// it; the first time, at once. `None`: the time is over.
    ///
    /// `timeout` is counted on `CLOCK_MONOTONIC`. While nothing changes it wakes once a ttl of the holder's.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Removed`] when the arena is gone (by rm(1): when it next wakes), [`LeaseError::Corrupt`] when it is
    /// damaged: the watch has ended. [`LeaseError::Contended`]: try again.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Stats>, LeaseError> {
        let bedside = Bedside::default();
        // Before the look: what happens from here on makes the descriptor readable again.
        self.clear();
        // A deadline beyond what the clock can say is none.
        let until = Instant::now().checked_add(timeout);
        let left = || match until {
            Some(until) => until.checked_duration_since(Instant::now()),
            None => Some(Duration::MAX),
        };
        for _ in 0..TRIES {
            let Some(leader) = next_leader(&self.lease, &bedside, self.told, left)? else {
                return Ok(None);
            };
            let stats = match self.lease.stats() {
                Err(LeaseError::Contended) => continue,
                stats => stats?,
            };
            let now = Leader {
                by: stats.holder.as_ref().map(|holder| holder.peer),
                fence: stats.fence,
            };
            // An older fence: the row was given another name meanwhile.
            if now.fence >= leader.fence && self.told != Some(now) {
                self.told = Some(now);
                return Ok(Some(stats));
            }
        }
        Err(LeaseError::Contended)
    }

    /// [`next`](Self::next) without waiting.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub fn try_next(&mut self) -> Result<Option<Stats>, LeaseError> {
        self.next(Duration::ZERO)
    }

    /// The name of the lease.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        self.lease.name()
    }

    fn is_forked(&self) -> bool {
        this_process() != self.process
    }

    /// Makes the descriptor unreadable.
    fn clear(&self) {
        if !self.is_forked() {
            // It fails when there is nothing to clear.
            let _count = self.shared.event.read();
        }
    }
}

/// Readable when there may be something for [`LeaderWatch::try_next`], an error included, and made unreadable by it.
impl AsFd for LeaderWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

impl Drop for LeaderWatch {
    fn drop(&mut self) {
        if self.is_forked() {
            // The thread is not here.
            return;
        }
        // EDGE cancelled, release half.
        self.shared.is_over.store(true, Ordering::Release);
        ring(&self.shared.word);
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it had, it would have ended all the same.
            let _ended = thread.join();
        }
    }
}

impl Shared {
    /// The thread.
    fn watch(&self, lease: &Lease) {
        // Its ticket is taken before the look whether it is over.
        let bedside = Bedside::on(&self.word);
        // EDGE cancelled, acquire half.
        let left = || (!self.is_over.load(Ordering::Acquire)).then_some(Duration::MAX);
        let mut told = None;
        loop {
            let next = next_leader(lease, &bedside, told, left);
            if let Ok(None) = next {
                return;
            }
            // It can only fail when 2^64 - 2 were written before.
            let _written = self.event.write(1);
            match next {
                Ok(leader) => told = leader,
                Err(LeaseError::Contended) => bedside.sleep(lease.peers(), On::default(), NAMELESS),
                // Whoever is told looks for himself. What is gone or damaged stays so.
                Err(_) => return,
            }
        }
    }
}

/// Sleeps until who leads is not `told`; `None` when no time is `left`.
fn next_leader(
    lease: &Lease,
    bedside: &Bedside,
    told: Option<Leader>,
    left: impl Fn() -> Option<Duration>,
) -> Result<Option<Leader>, LeaseError> {
    loop {
        if lease.is_removed() {
            return Err(LeaseError::Removed);
        }
        // Before the look for the name.
        let namings = lease.leases().inner.table.namings();
        let turn = lease.on_row_beside(bedside, |row| {
            let word = protocol::watched(row)?;
            let leader = Leader::of(row, word);
            if told != Some(leader) {
                return Ok(Some(Some(leader)));
            }
            let Some(left) = left() else {
                return Ok(Some(None));
            };
            row.watch(word, leader.by, left);
            Ok(None)
        })?;
        match turn {
            Some(None) => {}
            Some(Some(leader)) => return Ok(leader),
            None => {
                let nobody = Leader { by: None, fence: 0 };
                if told != Some(nobody) {
                    return Ok(Some(nobody));
                }
                let Some(left) = left() else {
                    return Ok(None);
                };
                let on = On {
                    word: Some(namings),
                    ..On::default()
                };
                bedside.sleep(lease.peers(), on, left.min(NAMELESS));
            }
        }
    }
}

impl Leader {
    fn of(row: &Live<'_>, word: Word) -> Self {
        Self {
            by: row.holding(word).map(|holding| holding.by),
            fence: word.fence,
        }
    }
}
