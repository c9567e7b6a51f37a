//! One thread a process that waits for deaths and deadlines on behalf of all who asked.
//!
//! It sleeps in epoll, over the pidfds of the watched and one timer of the boot clock; both can be
//! changed from any thread while it sleeps, so there are no commands. All state lies behind memory
//! that a child of fork finds empty: there the watcher is unborn, and what the parent registered is
//! unknown. (Descriptors are inherited as always; they close on exec.)

mod subject;
mod table;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arena_core::thread::start_quiet;
use arena_core::wiped::PerProcess;
use arena_core::{AttachmentId as PeerId, clock};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::watch::Signal;
use crate::{DeathProof, Peers, Verdict, ring};
use subject::Subject;
use table::Table;

/// How long the thread stays when there is nothing to watch, so that a quick succession of short
/// waits is served by one.
const LINGER_NS: u64 = 200_000_000;

/// It asks for verdicts, which read small files.
const STACK_BYTES: usize = 128 * 1024;

/// Whom to tell, and how.
#[derive(Debug, Clone)]
pub(crate) enum Sink {
    /// A caller's word: of death and deadline.
    Alarm(Arc<AtomicU32>),
    /// A [`Watch`](crate::Watch): of death.
    Watch(Arc<Signal>),
}

impl Sink {
    fn tell(&self, proof: Option<DeathProof>) {
        match (self, proof) {
            (Sink::Alarm(word), _) => ring(word),
            (Sink::Watch(signal), Some(proof)) => signal.tell(proof),
            (Sink::Watch(_), None) => {}
        }
    }
}

/// What to tell whom; done when the lock is free again.
type Calls = Vec<(Sink, Option<DeathProof>)>;

#[derive(Debug, Default)]
struct State {
    table: Table,
    eyes: Option<Arc<Eyes>>,
    /// What the timer is set to, in nanoseconds of the boot clock.
    armed_ns: Option<u64>,
}

/// What the thread sleeps on.
#[derive(Debug)]
struct Eyes {
    epoll: Epoll,
    timer: TimerFd,
}

static PROCESS: PerProcess<State> = PerProcess::forked_freely();

/// Numbers of registrations and subjects. It is not wiped: a child's numbers are beyond those that
/// it inherited, so a handle of the parent's is never taken for one of its own.
static NEXT: AtomicU64 = AtomicU64::new(TIMER + 1);

/// The timer's number among what epoll reports.
const TIMER: u64 = 0;

fn next_number() -> u64 {
    // Relaxed: only that it is another one.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Registers; the number is for [`unregister`].
pub(crate) fn register(
    peers: &Peers,
    peer: Option<PeerId>,
    at_boot_ms: Option<u64>,
    sink: Sink,
) -> io::Result<u64> {
    let id = next_number();
    let dead = PROCESS.with(|state| {
        let eyes = state.open_eyes()?;
        let subject = match peer {
            Some(peer) => Some(state.subject(&eyes, peers, peer)?),
            None => None,
        };
        let wants_looks = matches!(sink, Sink::Watch(_));
        let dead = state.table.enter(id, subject, sink.clone(), wants_looks);
        state.table.set_deadline(id, at_boot_ms.map(nanoseconds));
        state.arm(&eyes)?;
        io::Result::Ok(dead)
    });
    match dead.flatten() {
        Ok(None) => Ok(id),
        Ok(proof) => {
            sink.tell(proof);
            Ok(id)
        }
        Err(error) => {
            unregister(id);
            Err(error)
        }
    }
}

/// Forgets a registration of this process; does nothing about one of its parent's.
pub(crate) fn unregister(id: u64) {
    // Dropped when the lock is free: it may hold the last handle of an arena.
    let _forgotten = PROCESS.with(|state| {
        let forgotten = state.table.leave(id);
        if let Some(eyes) = state.eyes.clone() {
            if let Some(subject) = &forgotten {
                subject.unlisten(&eyes.epoll);
            }
            if state.table.is_empty() {
                state.table.linger_until(clock::boot_ns() + LINGER_NS);
            }
            // Without the timer the thread stays until it is needed again.
            let _armed = state.arm(&eyes);
        }
        forgotten
    });
}

pub(crate) fn set_deadline(id: u64, at_boot_ms: Option<u64>) -> io::Result<()> {
    PROCESS.with(|state| {
        let eyes = state.eyes.clone().filter(|_| state.table.knows(id));
        let eyes = eyes.ok_or(io::ErrorKind::NotFound)?;
        state.table.set_deadline(id, at_boot_ms.map(nanoseconds));
        state.arm(&eyes)
    })?
}

/// Whether this process registered it, and not its parent.
pub(crate) fn knows(id: u64) -> bool {
    PROCESS
        .with(|state| state.table.knows(id))
        .is_ok_and(|known| known)
}

/// The proof that this process has of a death that somebody waits for.
pub(crate) fn proof(peers: &Peers, peer: PeerId) -> Option<DeathProof> {
    let found = PROCESS.with(|state| {
        let subject = state.table.find(peers, peer)?;
        state.table.subject(subject)?.dead
    });
    found.ok().flatten()
}

/// A thread of this process has proven a death: all who wait for it here are told.
pub(crate) fn report(peers: &Peers, proof: DeathProof) {
    let calls = PROCESS.with(|state| {
        let subject = state.table.find(peers, proof.peer());
        subject.map_or(Calls::new(), |subject| state.bury(subject, proof))
    });
    make(calls.unwrap_or_default());
}

fn make(calls: Calls) {
    for (sink, proof) in calls {
        sink.tell(proof);
    }
}

fn nanoseconds(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

impl State {
    fn open_eyes(&mut self) -> io::Result<Arc<Eyes>> {
        if let Some(eyes) = &self.eyes {
            return Ok(Arc::clone(eyes));
        }
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let eyes = Arc::new(Eyes {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            timer: TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?,
        });
        let event = EpollEvent::new(EpollFlags::EPOLLIN, TIMER);
        eyes.epoll.add(&eyes.timer, event)?;
        let for_thread = Arc::clone(&eyes);
        start_quiet("arena-watcher", STACK_BYTES, move || watch(&for_thread))?;
        self.armed_ns = None;
        self.eyes = Some(Arc::clone(&eyes));
        Ok(eyes)
    }

    fn subject(&mut self, eyes: &Eyes, peers: &Peers, peer: PeerId) -> io::Result<u64> {
        if let Some(known) = self.table.find(peers, peer) {
            return Ok(known);
        }
        let number = next_number();
        let subject = Subject::new(peers, peer);
        subject.listen(&eyes.epoll, number)?;
        self.table.add_subject(number, subject);
        Ok(number)
    }

    /// Sets the timer to what comes next, unless it is set to that or to something earlier.
    fn arm(&mut self, eyes: &Eyes) -> io::Result<()> {
        let Some(next) = self.table.next_ns() else {
            return Ok(());
        };
        if self.armed_ns.is_some_and(|armed| armed <= next) {
            return Ok(());
        }
        // Zero would unset it.
        let at = TimeSpec::from_duration(std::time::Duration::from_nanos(next.max(1)));
        eyes.timer.set(
            Expiration::OneShot(at),
            TimerSetTimeFlags::TFD_TIMER_ABSTIME,
        )?;
        self.armed_ns = Some(next);
        Ok(())
    }

    /// The subject is dead: nobody looks at it any more, and its listeners are to be told.
    fn bury(&mut self, subject: u64, proof: DeathProof) -> Calls {
        if let (Some(subject), Some(eyes)) = (self.table.subject(subject), &self.eyes) {
            subject.unlisten(&eyes.epoll);
        }
        self.table.bury(subject, proof)
    }
}

/// The thread.
fn watch(eyes: &Eyes) {
    let mut events = [EpollEvent::empty(); 32];
    loop {
        let count = match eyes.epoll.wait(&mut events, EpollTimeout::NONE) {
            Ok(count) => count,
            Err(Errno::EINTR) => continue,
            // Somebody closed the descriptor behind our back.
            Err(_) => return close_eyes(),
        };
        let ready: Vec<u64> = events[..count].iter().map(EpollEvent::data).collect();
        let due = PROCESS.with(|state| {
            if ready.contains(&TIMER) {
                // Level-triggered: read, so that it is quiet until it is set again.
                let _expired = eyes.timer.wait();
                state.armed_ns = None;
            }
            state.table.due(clock::boot_ns(), &ready)
        });
        let Ok(due) = due else { return };
        make(due.calls);
        // Verdicts are asked for without the lock.
        let verdicts: Vec<_> = due
            .looks
            .into_iter()
            .map(|(subject, peers, peer)| (subject, peers.verdict(peer), peers))
            .collect();
        let after = PROCESS.with(|state| {
            let mut calls = Calls::new();
            for (subject, verdict, _) in &verdicts {
                match verdict {
                    Verdict::Dead(proof) => calls.extend(state.bury(*subject, *proof)),
                    Verdict::Alive | Verdict::Unknown => {
                        let ended = ready.contains(subject);
                        if let (true, Some(found)) = (ended, state.table.subject(*subject)) {
                            // Readable, and yet no proof: it would be readable for ever.
                            found.unlisten(&eyes.epoll);
                        }
                        state.table.lives(*subject, clock::boot_ns(), ended);
                    }
                }
            }
            let idle = state.table.is_over(clock::boot_ns());
            if idle {
                state.eyes = None;
            } else {
                // A timer that cannot be set: the next registration tries again.
                let _armed = state.arm(eyes);
            }
            (calls, idle)
        });
        let Ok((calls, idle)) = after else { return };
        make(calls);
        if idle {
            return;
        }
    }
}

fn close_eyes() {
    // The next registration opens new ones.
    let _closed = PROCESS.with(|state| state.eyes = None);
}
