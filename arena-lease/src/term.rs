//! One leadership: from its acquisition to its loss, under one fence.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arena_peers::ring;

use crate::PeerId;
use crate::cancel::{Cancel, Listening};
use crate::error::LeaseError;
use crate::keeper;
use crate::lead_options::{Lead, OnLost};
use crate::lease::Lease;
use crate::loss::Loss;
use crate::outcome::{Hold, Lost, Renewed, TookOver};
use crate::wait::{Bedside, On};
use crate::word::{NS_PER_MS, Word};

/// How often a look at the lease that came too late is repeated because somebody renewed meanwhile.
const LOOKS: u32 = 16;

/// One leadership of this process, under one fence, and how it ended: what the body of
/// [`lead`](crate::lead) is given, and what a [`LeaseGuard`](crate::LeaseGuard) keeps alive.
///
/// A handle; clones are the same term, and may be given to other threads. They keep nothing alive: when the guard is
/// gone the term has ended. In a child of fork the term is lost ([`Loss::Forked`]), and the parent's goes on.
#[derive(Clone, Debug)]
pub struct Term {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: u64,
    lease: Lease,
    hold: Hold,
    me: PeerId,
    rules: Lead,
    /// When the work was last known to be healthy, on the lease's clock.
    beat_ns: AtomicU64,
    /// When the lease is to be renewed next; the keeper's alone.
    renew_ns: AtomicU64,
    step_down: AtomicBool,
    heir: OnceLock<(PeerId, Duration)>,
    /// As `heir`, never touched in a child of fork, where it may have been copied half-written.
    loss: OnceLock<Loss>,
    /// The loss, for who awaits it.
    #[cfg(feature = "tokio")]
    heard: tokio::sync::SetOnce<Loss>,
    /// Rung whenever who waits for the end has something to look at.
    word: Arc<AtomicU32>,
    listening: OnceLock<[Option<Listening>; 2]>,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Term {
    pub(crate) fn new(lease: Lease, hold: Hold, me: PeerId, rules: &Lead) -> Self {
        let now_ns = lease.now_ns();
        Self {
            inner: Arc::new(Inner {
                // Relaxed: only that it is another one.
                id: NEXT.fetch_add(1, Ordering::Relaxed),
                lease,
                hold,
                me,
                beat_ns: AtomicU64::new(now_ns),
                renew_ns: AtomicU64::new(now_ns.saturating_add(nanoseconds(rules.renew_every))),
                rules: rules.clone(),
                step_down: AtomicBool::new(false),
                heir: OnceLock::new(),
                loss: OnceLock::new(),
                #[cfg(feature = "tokio")]
                heard: tokio::sync::SetOnce::new(),
                word: Arc::default(),
                listening: OnceLock::new(),
            }),
        }
    }

    /// Has the cancellation of the options' token told to who waits here, and to `keeper`.
    pub(crate) fn heed(&self, keeper: &Arc<AtomicU32>) {
        if let Some(cancel) = &self.inner.rules.cancel {
            // Refused (no memory): it is noticed at the next look.
            let listen = |word| cancel.listen(word).ok();
            let listening = [listen(&self.inner.word), listen(keeper)];
            let _once = self.inner.listening.set(listening);
        }
    }

    /// The fence: larger than that of every earlier leader. Hand it to whatever the work writes to.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.inner.hold.fence
    }

    /// Whose work was cut short, when somebody's was: run your recovery.
    #[must_use]
    pub fn took_over(&self) -> Option<TookOver> {
        self.inner.hold.took_over
    }

    /// The lease. Releasing it, or acquiring it anew, ends this term.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.inner.lease
    }

    /// Whether this process leads: the same as asking whether there is no [`loss`](Self::loss).
    ///
    /// `true` means: when the clock was read, inside this call, the deadline was more than the margin away, and no
    /// other process could lead. `false` is final, and from the margin before the deadline on it is the answer
    /// whatever became of the renewals. It may be over by the time that the caller acts on it; what must not be done
    /// twice checks the fence where it is done. A few loads and a look at the clock; no system call.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.look().is_ok()
    }

    /// Why this process no longer leads; `None` while it does. Once told, it is the same for ever. Costs what
    /// [`is_leading`](Self::is_leading) does.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.look().err()
    }

    /// Says that the work goes on: see [`LeadOptions::health_limit`](crate::LeadOptions::health_limit). Nothing,
    /// when the term has ended. A look at the clock and a store.
    pub fn beat(&self) {
        if self.told().is_none() {
            // Relaxed: a moment, which orders nothing. Raised only: two threads may beat.
            self.inner
                .beat_ns
                .fetch_max(self.inner.lease.now_ns(), Ordering::Relaxed);
        }
    }

    /// Asks the work to come to its end in good order: [`goes_on`](Self::goes_on) is false from now on. This process
    /// leads until the work is done, and then releases. From any thread.
    pub fn step_down(&self) {
        // EDGE cancelled, release half.
        self.inner.step_down.store(true, Ordering::Release);
        ring(&self.inner.word);
    }

    /// [`step_down`](Self::step_down) in favour of `heir`: when the lease is released, for `head_start` nobody else
    /// acquires it. See [`Lease::release_to`]. The first heir stands. A minimum hold that is not over binds
    /// the heir too.
    pub fn step_down_for(&self, heir: PeerId, head_start: Duration) {
        if !self.is_forked() {
            let _first = self.inner.heir.set((heir, head_start));
        }
        self.step_down();
    }

    pub(crate) fn heir(&self) -> Option<(PeerId, Duration)> {
        self.inner.heir.get().copied()
    }

    /// Whether [`step_down`](Self::step_down) was called. One load.
    #[must_use]
    pub fn is_stepping_down(&self) -> bool {
        // EDGE cancelled, acquire half.
        self.inner.step_down.load(Ordering::Acquire)
    }

    /// Whether the work is to go on: this process leads, and was not asked to step down.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.is_leading() && !self.is_stepping_down()
    }

    /// Sleeps for `time`, or until the work is not to [go on](Self::goes_on), and says whether it is.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn tick(_: u64) {}
    /// arena_lease::lead("nightly", |term| {
    ///     while term.rest(Duration::from_secs(1)) {
    ///         tick(term.fence());
    ///     }
    /// })?;
    /// # Ok::<(), arena_lease::LeadError>(())
    /// ```
    #[must_use]
    pub fn rest(&self, time: Duration) -> bool {
        self.sleep(time, || self.is_stepping_down()).is_none() && !self.is_stepping_down()
    }

    /// Sleeps until the term ends, for at most `timeout` (`Duration::MAX`: without limit), and says why it did.
    ///
    /// Looks for itself when the margin before the deadline begins, so it does not depend on the keeper's thread.
    #[must_use]
    pub fn wait_lost(&self, timeout: Duration) -> Option<Loss> {
        self.sleep(timeout, || false)
    }

    fn sleep(&self, timeout: Duration, is_over: impl Fn() -> bool) -> Option<Loss> {
        let lease = &self.inner.lease;
        let until_ns = lease.now_ns().saturating_add(nanoseconds(timeout));
        // Its ticket is taken before the looks that decide whether to sleep.
        let bedside = Bedside::on(&self.inner.word);
        loop {
            let end_ns = match self.look() {
                Ok(end_ns) => end_ns,
                Err(loss) => return Some(loss),
            };
            let now_ns = lease.now_ns();
            if now_ns >= until_ns || is_over() {
                return None;
            }
            let rest = Duration::from_nanos(end_ns.min(until_ns).saturating_sub(now_ns));
            bedside.sleep(lease.peers(), On::default(), rest);
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn heard(&self) -> &tokio::sync::SetOnce<Loss> {
        &self.inner.heard
    }

    pub(crate) fn rules(&self) -> &Lead {
        &self.inner.rules
    }

    /// Whether this is a child of the process whose term it is.
    pub(crate) fn is_forked(&self) -> bool {
        self.inner.lease.me_if_joined() != Some(self.inner.me)
    }

    /// The loss, if it was told already.
    pub(crate) fn told(&self) -> Option<Loss> {
        if self.is_forked() {
            return Some(Loss::Forked);
        }
        self.inner.loss.get().copied()
    }

    /// Until when this process leads if nothing happens, on the lease's clock; or how it lost.
    pub(crate) fn look(&self) -> Result<u64, Loss> {
        match self.told() {
            Some(loss) => Err(loss),
            None => self.standing().map_err(|loss| self.settle(loss)),
        }
    }

    /// What word, clocks and token say, whatever was told.
    pub(crate) fn standing(&self) -> Result<u64, Loss> {
        let rules = &self.inner.rules;
        if rules.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
            return Err(Loss::Cancelled);
        }
        let margin_ns = nanoseconds(rules.margin);
        let mut before = None;
        for _ in 0..LOOKS {
            let word = self
                .held()
                .map_err(|loss| match self.inner.lease.is_gone() {
                    true => Loss::Removed,
                    false => loss,
                })?;
            let sick_ns = self.sick_ns();
            let now_ns = self.inner.lease.now_ns();
            // After the clock: there now, it was there when the clock was read.
            if self.inner.lease.is_gone() {
                return Err(Loss::Removed);
            }
            let lapse_ns = word.until_ms.saturating_mul(NS_PER_MS);
            let end_ns = lapse_ns.min(sick_ns).saturating_sub(margin_ns);
            if now_ns < end_ns {
                return Ok(end_ns);
            }
            // This thread may have been stopped between word and clock, and the lease renewed meanwhile. If it is the
            // same still, it was so at the first reading of the clock.
            if before == Some((word, sick_ns)) {
                return Err(match sick_ns < lapse_ns {
                    true => Loss::Unhealthy,
                    false => Loss::Lapsed,
                });
            }
            before = Some((word, sick_ns));
        }
        // Not by this library's renewals: each of them is a ttl further.
        Err(Loss::Lapsed)
    }

    /// The word, if it is this term's.
    fn held(&self) -> Result<Word, Loss> {
        let inner = &*self.inner;
        let (word, told) = match inner.lease.seen() {
            Ok(Some(seen)) => seen,
            // The row went to another name, so it had been free.
            Ok(None) => return Err(Loss::Released),
            Err(LeaseError::Removed) => return Err(Loss::Removed),
            Err(LeaseError::Corrupt { .. }) => return Err(Loss::Damaged),
            Err(_) => return Err(Loss::Lapsed),
        };
        let fence = inner.hold.fence;
        match word.lost_to() {
            _ if word.names(inner.me) && word.fence == fence => match told >= fence {
                true if inner.lease.is_unlinked() => Err(Loss::Removed),
                // By another handle of this process.
                true => Err(Loss::Released),
                false => Ok(word),
            },
            Some(Lost::Taken { by, fence }) => Err(Loss::TakenOver { by, fence }),
            _ if word.fence == fence => Err(Loss::Released),
            // Somebody took it and has released it since.
            _ => Err(Loss::Lapsed),
        }
    }

    /// When the health limit is over.
    fn sick_ns(&self) -> u64 {
        // Relaxed: see `beat`.
        let beat_ns = self.inner.beat_ns.load(Ordering::Relaxed);
        let limit = self.inner.rules.health_limit;
        limit.map_or(u64::MAX, |limit| beat_ns.saturating_add(nanoseconds(limit)))
    }

    /// The term has ended, in this way unless it was told before in another. The reason that stands.
    pub(crate) fn settle(&self, loss: Loss) -> Loss {
        let inner = &*self.inner;
        if inner.loss.set(loss).is_ok() {
            // So that no other handle renews what this one called lost.
            inner.lease.forfeit_at(inner.hold.fence);
            ring(&inner.word);
            inner.lease.trace_end(inner.hold.fence, loss);
            #[cfg(feature = "tokio")]
            inner.heard.set(loss).expect("it was settled once");
            if let Some(OnLost(tell)) = &inner.rules.on_lost {
                let tell = Arc::clone(tell);
                // Its panic is the panic hook's to report: this may be a drop in a panic.
                let call = move || drop(catch_unwind(AssertUnwindSafe(|| tell(loss))));
                keeper::aside(call);
            }
        }
        *inner.loss.get().expect("it was set above")
    }

    /// Renews if it is time. In how long to come again; `None`: never, it is over.
    pub(crate) fn tend(&self) -> Option<Duration> {
        let inner = &*self.inner;
        let mut end_ns = match self.look() {
            Ok(end_ns) => end_ns,
            Err(Loss::Unhealthy) => return self.give_up(),
            Err(_) => return None,
        };
        let now_ns = inner.lease.now_ns();
        // Relaxed: the keeper's alone.
        let mut due_ns = inner.renew_ns.load(Ordering::Relaxed);
        if now_ns >= due_ns {
            let wait = match inner.lease.renew_at(inner.hold.fence) {
                Ok(Renewed::Held { .. }) => inner.rules.renew_every,
                Ok(Renewed::Lost(lost)) => {
                    self.settle(self.standing().err().unwrap_or(loss_of(lost)));
                    return None;
                }
                // The lease is what it was.
                Err(_) => inner.rules.renew_every / 8,
            };
            due_ns = now_ns.saturating_add(nanoseconds(wait));
            inner.renew_ns.store(due_ns, Ordering::Relaxed);
            end_ns = self.look().ok()?;
        }
        let next_ns = due_ns.min(end_ns);
        Some(Duration::from_nanos(
            next_ns.saturating_sub(inner.lease.now_ns()),
        ))
    }

    /// Releases what unhealthy work holds, once its limit is over.
    fn give_up(&self) -> Option<Duration> {
        let lease = &self.inner.lease;
        let left_ns = self.sick_ns().saturating_sub(lease.now_ns());
        if left_ns > 0 && !lease.is_gone() {
            return Some(Duration::from_nanos(left_ns));
        }
        // Refused: it lapses.
        let _released = lease.release_at(self.fence());
        None
    }
}

/// The loss that a refused renewal is, when the word does not tell.
fn loss_of(lost: Lost) -> Loss {
    match lost {
        Lost::Taken { by, fence } => Loss::TakenOver { by, fence },
        Lost::Removed => Loss::Removed,
        Lost::Corrupt { .. } => Loss::Damaged,
        Lost::TooLate => Loss::Lapsed,
        Lost::Released | Lost::Told => Loss::Released,
    }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    let part_ns = u64::from(time.subsec_nanos());
    time.as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(part_ns)
}
