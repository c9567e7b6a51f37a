//! A second process that a holder's death does not outrun: what runs on the holder's behalf.
//!
//! ```text
//! bits of u128   field          meaning
//!   0 ..  48     started        when it started, in clock ticks since boot; 0: not known yet
//!  48 ..  71     pid            in the namespace
//!  71 ..  72     stands in      whether it inherited what stands in for the holder
//!  72 .. 104     pid namespace  its inode
//! 104 .. 128     fence          the low bits of the fence that it is a companion under
//! ```
//!
//! One word, so that it is never half of one and half of another; it counts only under its fence, so a holder that comes
//! late with it changes nothing for its successor. Zero: nobody.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arena_peers::core::thread::start_quiet;
use arena_peers::core::{PidFd, start_ticks};
use arena_peers::{PeerId, ring};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::error::LeaseError;
use crate::lease::Lease;
use crate::protocol;
use crate::wait::Bedside;

const STARTED_BITS: u32 = 48;
/// Linux has none beyond 2^22.
const PID_BITS: u32 = 23;
const STANDS_IN_BITS: u32 = 1;
const NAMESPACE_BITS: u32 = 32;
const FENCE_BITS: u32 = 24;

const STACK_BYTES: usize = 64 * 1024;

/// Lets a lease outlive its holder until another process has ended too: see [`Lease::companion`].
#[derive(Clone, Debug)]
pub struct Companion {
    lease: Lease,
    me: PeerId,
    fence: u64,
    namespace: u64,
    stands_in: bool,
}

impl Lease {
    /// Prepares to name a process that works on behalf of this one, which holds under `fence`.
    ///
    /// From the naming on a rival that proves this process dead takes over only when that one has ended as well (its own
    /// children do not count), or when the deadline has passed. A rival in another PID namespace cannot ask for it, and
    /// waits for the deadline, unless the companion inherits a [`stand_in`](Companion::stand_in).
    ///
    /// # Errors
    ///
    /// In a child of fork that cannot join the arena.
    pub fn companion(&self, fence: u64) -> Result<Companion, LeaseError> {
        Ok(Companion {
            lease: self.clone(),
            me: self.me()?,
            fence,
            namespace: own_namespace().unwrap_or(0),
            stands_in: false,
        })
    }
}

impl Companion {
    /// A descriptor for the companion to inherit, made before it is [named](Self::is): a rival in another PID namespace
    /// then waits until this and all its copies are closed, or for the deadline.
    ///
    /// It closes on exec until that is changed. Whatever else inherits it, children of the companion too, is waited for
    /// as if it were the companion; and a companion that closes it is not waited for from there, until
    /// [that is noticed](Self::lost_stand_in).
    ///
    /// # Errors
    ///
    /// No descriptor is to be had.
    pub fn stand_in(&mut self) -> Result<OwnedFd, LeaseError> {
        let stand_in = self.lease.leases().arena().stand_in()?;
        self.stands_in = true;
        Ok(stand_in)
    }

    /// Whether the stand-in, which is still open in the companion as far as this process knows, is closed everywhere:
    /// then rivals in other PID namespaces wait for the deadline from now on. To be asked now and then while the
    /// companion, named as for [`is`](Self::is), lives. Three system calls.
    pub fn lost_stand_in(&mut self, pid: u32, started: Option<u64>) -> bool {
        let arena = self.lease.leases().arena();
        let is_lost = self.stands_in && !arena.may_have_stand_in(self.me);
        if is_lost {
            self.stands_in = false;
            self.is(pid, started);
        }
        is_lost
    }

    /// Names the process. `started` is its start time in clock ticks, if known: without it another process that gets
    /// the same pid is taken for it, until the deadline.
    ///
    /// A few loads and an exchange: no lock, no allocation, no system call. So a child may name itself between fork and
    /// exec. Nothing happens when the lease is not held under this fence any more.
    pub fn is(&self, pid: u32, started: Option<u64>) {
        /// How often another process's late exchange may come between.
        const ATTEMPTS: u32 = 16;
        let bedside = Bedside::default();
        let live = self.lease.live(&bedside);
        let companion = &live.row.companion;
        for _ in 0..ATTEMPTS {
            // Relaxed (both): the exchange is of what was seen before the look at who holds.
            let seen = companion.load(Ordering::Relaxed);
            let held = protocol::load(&live)
                .is_ok_and(|(_, word)| word.names(self.me) && word.fence == self.fence);
            let named = pack(&Named {
                fence: self.fence,
                namespace: self.namespace,
                stands_in: self.stands_in,
                pid,
                started: started.unwrap_or(0),
            });
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            // Relaxed: whoever asks for it has the kernel's proof that this process is dead.
            if !held
                || companion
                    .compare_exchange(seen, named, success, failure)
                    .is_ok()
            {
                return;
            }
        }
    }
}

fn field(word: u128, at: u32, bits: u32) -> u64 {
    u64::try_from(word >> at & ((1 << bits) - 1)).expect("the mask has 48 bits at most")
}

/// A word, in parts.
struct Named {
    fence: u64,
    namespace: u64,
    stands_in: bool,
    pid: u32,
    started: u64,
}

fn pack(named: &Named) -> u128 {
    let fields = [
        (named.fence, FENCE_BITS),
        (named.namespace, NAMESPACE_BITS),
        (named.stands_in.into(), STANDS_IN_BITS),
        (named.pid.into(), PID_BITS),
        (named.started, STARTED_BITS),
    ];
    fields.into_iter().fold(0, |word, (value, bits)| {
        word << bits | u128::from(value & ((1 << bits) - 1))
    })
}

/// Whether a companion keeps a lease from a holder's successor.
#[derive(Debug)]
pub(crate) enum Keeps {
    No,
    /// Until it ends.
    Yes(PidFd),
    /// It cannot be told.
    Perhaps,
    /// Something stands in for the holder.
    StandIn,
}

/// Who is the companion in `word`, if it is one under `fence`. What else there is to know is asked for only then:
/// `namespace` is this process's, `stand_in` whether something may stand in for the holder.
pub(crate) fn keeps(
    word: u128,
    fence: u64,
    namespace: impl FnOnce() -> Option<u64>,
    stand_in: impl FnOnce() -> bool,
) -> Keeps {
    let pid = field(word, STARTED_BITS, PID_BITS);
    let tag = field(word, 128 - FENCE_BITS, FENCE_BITS);
    if pid == 0 || tag != fence & ((1 << FENCE_BITS) - 1) {
        return Keeps::No;
    }
    let stands_in = field(word, STARTED_BITS + PID_BITS, STANDS_IN_BITS) != 0;
    // Where its pid says nothing.
    let unseen = || match stands_in {
        false => Keeps::Perhaps,
        true if stand_in() => Keeps::StandIn,
        true => Keeps::No,
    };
    let lies_in = field(word, 128 - FENCE_BITS - NAMESPACE_BITS, NAMESPACE_BITS);
    if namespace().map(|own| own & ((1 << NAMESPACE_BITS) - 1)) != Some(lies_in) {
        return unseen();
    }
    let pid = u32::try_from(pid).expect("it has 23 bits");
    let process = match PidFd::open(pid) {
        Ok(process) => process,
        Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => return Keeps::No,
        Err(_) => return unseen(),
    };
    // After the descriptor: of the process that it is of, or of a later one, and then it has ended.
    let started = field(word, 0, STARTED_BITS);
    let found = start_ticks(pid).map(|ticks| ticks & ((1 << STARTED_BITS) - 1));
    match process.has_ended() {
        Ok(true) => Keeps::No,
        _ if started != 0 && found.is_some_and(|found| found != started) => Keeps::No,
        _ => Keeps::Yes(process),
    }
}

/// The PID namespace of this process, if /proc shows it.
pub(crate) fn own_namespace() -> Option<u64> {
    let meta = std::fs::metadata("/proc/thread-self/ns/pid");
    meta.ok().map(|meta| meta.ino())
}

/// Rings a private word when a process has ended, until this is dropped: a thread that sleeps.
#[derive(Debug)]
pub(crate) struct EndOf {
    stop: Arc<EventFd>,
}

impl EndOf {
    pub(crate) fn told_by(process: PidFd, word: &Arc<AtomicU32>) -> io::Result<Self> {
        let stop = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?);
        let (stopped, word) = (Arc::clone(&stop), Arc::clone(word));
        start_quiet("arena-companion", STACK_BYTES, move || {
            let mut fds = [
                PollFd::new(process.as_fd(), PollFlags::POLLIN),
                PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
            ];
            while let Err(Errno::EINTR) = poll(&mut fds, PollTimeout::NONE) {}
            ring(&word);
        })?;
        Ok(Self { stop })
    }
}

impl Drop for EndOf {
    fn drop(&mut self) {
        // A counter that nobody else adds to is never full.
        let _ = self.stop.write(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_process_keeps_its_lease_and_a_zombie_another_start_or_fence_does_not() {
        let started = start_ticks(std::process::id()).unwrap();
        let me = || Named {
            fence: (1 << 40) + 5,
            namespace: (1 << 32) - 7,
            stands_in: false,
            pid: std::process::id(),
            started,
        };
        let asked = |named: &Named, stand_in| {
            let here = || Some(me().namespace);
            keeps(pack(named), me().fence, here, || stand_in)
        };
        let unasked = || -> bool { unreachable!("it can be told without") };
        let here = |named: &Named| {
            let here = || Some(me().namespace);
            keeps(pack(named), me().fence, here, unasked)
        };
        assert!(matches!(here(&me()), Keeps::Yes(_)));
        let started_unknown = Named { started: 0, ..me() };
        assert!(matches!(here(&started_unknown), Keeps::Yes(_)));
        let later = Named {
            started: started + 1,
            stands_in: true,
            ..me()
        };
        assert!(matches!(here(&later), Keeps::No));
        let nobody = Named { pid: 0, ..me() };
        let under_another = Named {
            fence: me().fence + 1,
            ..me()
        };
        for word in [0, pack(&nobody), pack(&under_another)] {
            let namespace = || -> Option<u64> { unreachable!("nobody is named") };
            let keeps = keeps(word, me().fence, namespace, unasked);
            assert!(matches!(keeps, Keeps::No));
        }
        let elsewhere = |stands_in| Named {
            namespace: 8,
            stands_in,
            ..me()
        };
        assert!(matches!(here(&elsewhere(false)), Keeps::Perhaps));
        assert!(matches!(asked(&elsewhere(true), true), Keeps::StandIn));
        assert!(matches!(asked(&elsewhere(true), false), Keeps::No));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = PidFd::open(child.id()).unwrap();
        let mut fds = [PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE).unwrap();
        let zombie = Named {
            pid: child.id(),
            started: 0,
            ..me()
        };
        assert!(matches!(here(&zombie), Keeps::No));
        child.wait().unwrap();
    }
}
