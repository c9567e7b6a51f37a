//! A second process that a holder's death does not outrun: what runs on the holder's behalf.
//!
//! ```text
//! bits of u128   field          meaning
//!   0 ..  48     started        when it started, in clock ticks since boot; 0: not known yet
//!  48 ..  72     pid            in the namespace
//!  72 .. 104     pid namespace  its inode
//! 104 .. 128     fence          the low bits of the fence that it is a companion under
//! ```
//!
//! One word, so that it is never half of one and half of another; it counts only under its fence, so a holder that comes
//! late with it changes nothing for its successor. Zero: nobody.

use std::io;
use std::os::fd::AsFd as _;
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
const PID_BITS: u32 = 24;
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
}

impl Lease {
    /// Prepares to name a process that works on behalf of this one, which holds under `fence`.
    ///
    /// From the naming on a rival that proves this process dead takes over only when that one has ended as well (its own
    /// children do not count), or when the deadline has passed. A rival in another PID namespace cannot ask, and waits
    /// for the deadline.
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
        })
    }
}

impl Companion {
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
            let named = pack(self.fence, self.namespace, pid, started.unwrap_or(0));
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

fn pack(fence: u64, namespace: u64, pid: u32, started: u64) -> u128 {
    let part = |value: u64, bits: u32| u128::from(value & ((1 << bits) - 1));
    let high = part(fence, FENCE_BITS) << NAMESPACE_BITS | part(namespace, NAMESPACE_BITS);
    let high = high << PID_BITS | part(pid.into(), PID_BITS);
    high << STARTED_BITS | part(started, STARTED_BITS)
}

/// Whether a companion keeps a lease from a holder's successor.
#[derive(Debug)]
pub(crate) enum Keeps {
    No,
    /// Until it ends.
    Yes(PidFd),
    /// It cannot be told.
    Perhaps,
}

/// Who is the companion in `word`, if it is one under `fence`. `namespace` is this process's, asked for only then.
pub(crate) fn keeps(word: u128, fence: u64, namespace: impl FnOnce() -> Option<u64>) -> Keeps {
    let pid = field(word, STARTED_BITS, PID_BITS);
    let tag = field(word, STARTED_BITS + PID_BITS + NAMESPACE_BITS, FENCE_BITS);
    if pid == 0 || tag != fence & ((1 << FENCE_BITS) - 1) {
        return Keeps::No;
    }
    let lies_in = field(word, STARTED_BITS + PID_BITS, NAMESPACE_BITS);
    if namespace().map(|own| own & ((1 << NAMESPACE_BITS) - 1)) != Some(lies_in) {
        return Keeps::Perhaps;
    }
    let pid = u32::try_from(pid).expect("it has 24 bits");
    let process = match PidFd::open(pid) {
        Ok(process) => process,
        Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => return Keeps::No,
        Err(_) => return Keeps::Perhaps,
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
        let pid = std::process::id();
        let started = start_ticks(pid).unwrap();
        let fence = (1 << 40) + 5;
        let yes = |word| matches!(keeps(word, fence, || Some(7)), Keeps::Yes(_));
        let no = |word| matches!(keeps(word, fence, || Some(7)), Keeps::No);
        assert!(yes(pack(fence, 7, pid, started)));
        assert!(yes(pack(fence, 7, pid, 0)));
        assert!(no(pack(fence, 7, pid, started + 1)));
        let elsewhere = keeps(pack(fence, 8, pid, started), fence, || Some(7));
        assert!(matches!(elsewhere, Keeps::Perhaps));
        for word in [0, pack(fence, 7, 0, 0), pack(fence + 1, 7, pid, started)] {
            let keeps = keeps(word, fence, || unreachable!("nobody is named"));
            assert!(matches!(keeps, Keeps::No));
        }
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = PidFd::open(child.id()).unwrap();
        let mut fds = [PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE).unwrap();
        assert!(no(pack(fence, 7, child.id(), 0)), "a zombie");
        child.wait().unwrap();
    }
}
