//! One lease, as one process uses it.

mod row;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::PeerId;
use crate::cancel::Cancel;
use crate::error::LeaseError;
use crate::leases::Leases;
use crate::name::Name;
use crate::outcome::{Acquire, Lost, Refused, Renewed};
use crate::protocol::{self, Fault, World as _};
use crate::snapshot::{Snapshot, pack_heir};
use crate::stats::{Holder, Stats};
use crate::term::nanoseconds;
use crate::trace;
use crate::ttl::Ttl;
use crate::wait::Bedside;
use crate::word::{Bits, NS_PER_MS};
use row::MOVES;

/// A lease: one holder at a time, a successor when it releases, dies or lapses, and a fence that grows with
/// each.
///
/// **The process holds, not the handle**: every handle of a process on the same name holds when one of them
/// acquired, and dropping a handle releases nothing. A child of fork is another process and holds nothing of its
/// parent's.
///
/// A handle remembers the fence that was last acquired *through it*. [`renew`](Self::renew),
/// [`release`](Self::release) and [`mine`](Self::mine) are about that fence: work that began under one fence is
/// never continued under another by mistake. A handle that acquired nothing itself speaks for whatever the
/// process holds. A clone remembers what its original did when it was cloned.
#[derive(Debug)]
pub struct Lease {
    leases: Leases,
    name: Name,
    ttl: Ttl,
    row: AtomicU32,
    /// 0: none.
    acquired: AtomicU64,
}

impl Clone for Lease {
    fn clone(&self) -> Self {
        Self {
            leases: self.leases.clone(),
            name: self.name,
            ttl: self.ttl,
            row: AtomicU32::new(self.row()),
            // Relaxed: a number of this handle's own.
            acquired: AtomicU64::new(self.acquired.load(Ordering::Relaxed)),
        }
    }
}

impl Lease {
    pub(crate) fn new(leases: Leases, name: Name, ttl: Ttl, row: u32) -> Self {
        Self {
            leases,
            name,
            ttl,
            row: AtomicU32::new(row),
            acquired: AtomicU64::new(0),
        }
    }

    /// Acquires the lease for this process, or says who has it.
    ///
    /// Held already by this process: the deadline is moved to at least the ttl from now, under the same fence.
    /// Free, lapsed, or held by a process that is proven dead: taken, under a new fence. Of a lease of this
    /// process's that lapsed, or that it was told it lost, the fence is new too.
    ///
    /// The ttl is measured on `CLOCK_BOOTTIME`, which runs on while the machine sleeps. Takes no lock. Two looks
    /// at the clock, one or two exchanges. While another process holds, no exchange; and a dozen system calls that
    /// ask whether it is dead, none while its bell is believed. Another process may take the lease as soon as the deadline passed, and not before.
    ///
    /// # Errors
    ///
    /// [`LeaseError`]: the arena was removed, is damaged, or has nothing left to give. Never because of what
    /// other processes hold.
    pub fn acquire(&self) -> Result<Acquire, LeaseError> {
        self.acquire_until(self.ttl, 0, None)
    }

    /// [`acquire`](Self::acquire) with another ttl, for this time.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`LeaseError::Ttl`].
    pub fn acquire_for(&self, ttl: Duration) -> Result<Acquire, LeaseError> {
        self.acquire_until(Ttl::new(ttl)?, 0, None)
    }

    /// Waits for up to `wait` until this process holds the lease; `Duration::MAX` is for ever.
    ///
    /// Sleeps, and looks at nothing meanwhile: a release, a takeover, the holder's death and its lapse wake it.
    /// While the holder renews that is once a ttl. `wait` is measured on `CLOCK_BOOTTIME`. The first wait of a
    /// process starts a thread that sleeps as long as somebody waits; where the system refuses it, or sleeping on
    /// several words at once ([`peers::capabilities`](arena_peers::capabilities)), it looks now and then. Who of
    /// several waiters gets the lease is not defined.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire). That somebody else still held at the end is no error, but
    /// [`Acquire::Refused`].
    pub fn acquire_timeout(&self, wait: Duration) -> Result<Acquire, LeaseError> {
        self.acquire_until(self.ttl, self.in_ns(wait), None)
    }

    /// [`acquire_timeout`](Self::acquire_timeout), which `cancel` ends at once, from any thread, with
    /// [`Refused::Cancelled`]. Cancelled before, it acquires nothing, even what is free; cancelled while it
    /// acquires, it may have.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub fn acquire_unless_cancelled(
        &self,
        wait: Duration,
        cancel: &Cancel,
    ) -> Result<Acquire, LeaseError> {
        self.acquire_until(self.ttl, self.in_ns(wait), Some(cancel))
    }

    /// `wait` from now, on the boot clock.
    pub(crate) fn in_ns(&self, wait: Duration) -> u64 {
        self.now_ns().saturating_add(nanoseconds(wait))
    }

    pub(crate) fn acquire_until(
        &self,
        ttl: Ttl,
        end_ns: u64,
        cancel: Option<&Cancel>,
    ) -> Result<Acquire, LeaseError> {
        let me = self.inner().arena.me()?;
        let bedside = Bedside::heeding(cancel);
        let cancelled = || {
            cancel
                .is_some_and(Cancel::is_cancelled)
                .then_some(Refused::Cancelled)
        };
        if let Some(why) = cancelled() {
            return Ok(Acquire::Refused(why));
        }
        for _ in 0..MOVES {
            let outcome = self.on_row_beside(&bedside, |row| {
                protocol::acquire_until(row, me, ttl, end_ns, || {
                    match self.inner().is_removed(row.now_ns()) {
                        true => Err(Fault::Gone),
                        false => Ok(cancelled()),
                    }
                })
            })?;
            match outcome {
                Some(Acquire::Held(hold)) => {
                    let now_ns = now_of(hold.until_ms, hold.left);
                    if self.inner().is_removed(now_ns) {
                        self.release_at(hold.fence)?;
                        return Err(LeaseError::Removed);
                    }
                    // Refused: successors learn of this process's death later, and nothing else changes.
                    let _ = self.inner().peers.hang_bell();
                    if self.acquired() != Some(hold.fence) {
                        trace::acquired(&self.name, &hold);
                    }
                    // Relaxed: a number of this handle's own.
                    self.acquired.store(hold.fence, Ordering::Relaxed);
                    return Ok(Acquire::Held(hold));
                }
                Some(Acquire::Refused(why)) => {
                    trace::refused(&self.name, &why);
                    return Ok(Acquire::Refused(why));
                }
                // The row went to another name while this one was free.
                None => self.move_to(self.inner().find_or_name(&self.name)?),
            }
        }
        Err(LeaseError::Contended)
    }

    /// Moves the end of the lease to at least its ttl from now, or says that it is lost, and to whom.
    ///
    /// It is lost when another process acquired it, when this process released it or acquired it anew, when this
    /// process was told before that it lost, and when the arena is gone. A lease that lapsed and that nobody took is
    /// renewed. Never shortens a deadline. Once told, a loss is final: that fence is never renewed again.
    ///
    /// Lock-free; two looks at the clock, no system call, except that at most ten times a second it asks the
    /// system whether the arena's file was removed.
    ///
    /// # Errors
    ///
    /// [`LeaseError::TtlBeyondClock`], [`LeaseError::Contended`]: the lease is what it was.
    pub fn renew(&self) -> Result<Renewed, LeaseError> {
        match self.current() {
            Some(fence) => self.renew_at(fence),
            None => Ok(Renewed::Lost(self.lost())),
        }
    }

    /// [`renew`](Self::renew), of exactly this fence.
    ///
    /// # Errors
    ///
    /// As [`renew`](Self::renew).
    pub fn renew_at(&self, fence: u64) -> Result<Renewed, LeaseError> {
        let Some(me) = self.me_if_joined() else {
            return Ok(Renewed::Lost(self.lost()));
        };
        let renewed = self.on_row(|row| protocol::renew(row, me, fence, self.ttl))?;
        if let Some(Renewed::Held { until_ms, left }) = renewed
            && self.inner().is_removed(now_of(until_ms, left))
        {
            self.forfeit_at(fence);
            return Ok(Renewed::Lost(Lost::Removed));
        }
        Ok(renewed.unwrap_or(Renewed::Lost(Lost::Released)))
    }

    /// Gives the lease up, so that another process may take it at once, and wakes those who wait.
    ///
    /// `true`: it was this process's until now (it may have lapsed, and nobody had taken it). `false`: it was not,
    /// and nothing was changed. Lock-free; a system call only when somebody waits, or waited.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Corrupt`], [`LeaseError::Contended`].
    pub fn release(&self) -> Result<bool, LeaseError> {
        match self.current() {
            Some(fence) => self.release_at(fence),
            None => Ok(false),
        }
    }

    /// [`release`](Self::release), of exactly this fence.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    pub fn release_at(&self, fence: u64) -> Result<bool, LeaseError> {
        let Some(me) = self.me_if_joined() else {
            return Ok(false);
        };
        let released = self.on_row(|row| protocol::release(row, me, fence, 0))?;
        Ok(released.unwrap_or(false))
    }

    /// [`release_at`](Self::release_at), but nobody acquires, this process included, before the lease has been
    /// away for `min_hold` since it was acquired under `fence`: for a job that must not run twice in a period, and
    /// takes less. Should this process die instead, the lease passes on at once.
    ///
    /// Measured on `CLOCK_BOOTTIME` from the acquisition, in milliseconds.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release), and [`LeaseError::TtlBeyondClock`] for a `min_hold` that ends after the last
    /// moment a lease word can hold: the lease is what it was.
    pub fn release_held_for(&self, fence: u64, min_hold: Duration) -> Result<bool, LeaseError> {
        self.release_with(fence, min_hold, None)
    }

    /// [`release_at`](Self::release_at) in favour of `heir`: for `head_start` from now nobody else acquires, this process
    /// included. When `heir` does not want the lease, or is dead, all the others have lost that time.
    ///
    /// Measured on `CLOCK_BOOTTIME`, in milliseconds.
    ///
    /// # Errors
    ///
    /// As [`release_held_for`](Self::release_held_for).
    pub fn release_to(
        &self,
        fence: u64,
        heir: PeerId,
        head_start: Duration,
    ) -> Result<bool, LeaseError> {
        self.release_with(fence, Duration::ZERO, Some((heir, head_start)))
    }

    /// A minimum hold binds the heir too: as long as it lasts, nobody is favoured.
    pub(crate) fn release_with(
        &self,
        fence: u64,
        min_hold: Duration,
        heir: Option<(PeerId, Duration)>,
    ) -> Result<bool, LeaseError> {
        let Some(me) = self.me_if_joined() else {
            return Ok(false);
        };
        let released = self.on_row(|row| {
            let min_ms = milliseconds(min_hold);
            let now_ms = row.now_ns() / NS_PER_MS;
            let noted = Snapshot::of(row.row).and_then(|seen| seen.since_ms(fence));
            // Not noted: another holder's by now, or this one was stopped before it noted it.
            let since_ms = noted.unwrap_or(now_ms);
            let kept_ms = match min_ms {
                0 => 0,
                min_ms => since_ms.saturating_add(min_ms),
            };
            let not_before_ms = match heir {
                Some((heir, head_start)) if kept_ms <= now_ms => {
                    let (_, word) = protocol::load(row)?;
                    if word.fence != fence || !word.names(me) {
                        return Ok(false);
                    }
                    // Relaxed: published by the release (EDGE handover). Should the lease be lost before that, it is of no
                    // effect: its fence is not the word's.
                    row.row
                        .heir
                        .store(pack_heir(fence, heir), Ordering::Relaxed);
                    (now_ms + 1).saturating_add(milliseconds(head_start))
                }
                _ => kept_ms,
            };
            if not_before_ms > <u128 as Bits>::MAX_UNTIL_MS {
                return Err(Fault::ClockExhausted);
            }
            protocol::release(row, me, fence, not_before_ms)
        })?;
        Ok(released.unwrap_or(false))
    }

    /// Whether this process holds the lease, under the fence that this handle acquired.
    ///
    /// `true` means: when the clock was read, inside this call, no other process could hold. It may be over by
    /// the time that the caller acts on it; what must not be done twice checks the fence where it is done. Three
    /// loads and a look at the clock; no system call, no store.
    #[must_use]
    pub fn mine(&self) -> bool {
        self.current().is_some_and(|fence| self.mine_at(fence))
    }

    /// [`mine`](Self::mine), under exactly this fence.
    #[must_use]
    pub fn mine_at(&self, fence: u64) -> bool {
        let Some(me) = self.me_if_joined() else {
            return false;
        };
        let mine = self.on_row(|row| protocol::mine(row, me, fence));
        matches!(mine, Ok(Some(true))) && !self.inner().was_removed()
    }

    /// Gives the fence up without freeing the lease: from now on nothing of this process renews it, and
    /// [`mine`](Self::mine) is false for it. For who decided by his own clock that he lost, before the deadline;
    /// [`release`](Self::release) afterwards lets a successor in before it.
    ///
    /// Does nothing unless this process holds under `fence`.
    pub fn forfeit_at(&self, fence: u64) {
        if let Some(me) = self.me_if_joined() {
            protocol::tell_lost(&self.live(&Bedside::default()), me, fence);
        }
    }

    /// Who holds: `None` when the lease is free, lapsed, or held by a process that is proven dead; also when its row
    /// is damaged, which [`stats`](Self::stats) tells. Two looks at the clock; a dozen system calls, none while the
    /// holder's bell is believed (a tenth of a second after this process last made sure).
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        self.stats().ok()?.holder
    }

    /// The newest fence of this name, whoever it was issued to: an older one is over. While nobody has acquired
    /// the name, a number that is below every fence it will have. One load. 0 for a row that is damaged, or
    /// that went to another name while this one was free.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.word().map_or(0, |word| word.fence)
    }

    /// The fence that was last acquired through this handle.
    #[must_use]
    pub fn acquired(&self) -> Option<u64> {
        // Relaxed: a number of this handle's own.
        Some(self.acquired.load(Ordering::Relaxed)).filter(|&fence| fence != 0)
    }

    /// What is known of the lease. A dozen system calls while somebody holds, none while the
    /// holder's bell is believed.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Corrupt`], [`LeaseError::Contended`].
    pub fn stats(&self) -> Result<Stats, LeaseError> {
        let snapshot = self.on_row(|row| {
            let seen = Snapshot::of(row.row).filter(|found| found.name == self.name);
            let seen = seen.ok_or(Fault::Renamed)?;
            self.inner()
                .stats(seen)
                .ok_or(Fault::Corrupt(seen.word.into()))
        })?;
        // No row has the name: it went to another while this one was free.
        Ok(snapshot.unwrap_or_else(|| Stats {
            name: self.name.to_vec(),
            held: false,
            holder: None,
            fence: 0,
            acquires: 0,
            steals: 0,
            lapses_in: None,
            opens_in: None,
        }))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        self.name.to_vec()
    }

    /// The ttl that [`acquire`](Self::acquire) and [`renew`](Self::renew) ask for.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl.duration()
    }

    /// The table it lies in.
    #[must_use]
    pub fn leases(&self) -> &Leases {
        &self.leases
    }
}

/// Rounded up.
fn milliseconds(time: Duration) -> u64 {
    let part_ms = u64::from(time.subsec_nanos().div_ceil(1_000_000));
    time.as_secs().saturating_mul(1_000).saturating_add(part_ms)
}

/// The clock at the look that left `left` of a lease until `until_ms`.
fn now_of(until_ms: u64, left: Duration) -> u64 {
    until_ms
        .saturating_mul(NS_PER_MS)
        .saturating_sub(nanoseconds(left))
}
