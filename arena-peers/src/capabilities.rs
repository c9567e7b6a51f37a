//! What this system offers of that which is optional.

use std::sync::atomic::{AtomicU32, Ordering};

use arena_core::{Bell, Memory, PidFd, futex};

/// What is to be had here of what makes a death known early or waiting cheap. Whatever is missing,
/// verdicts stay right: they come later, or cost more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Descriptors of processes (kernel 5.3). Without: a death is known by the byte alone, and watches
    /// ask for it every two seconds.
    pub pidfd: bool,
    /// An identity of processes that is never used twice (kernel 6.9). Without: by pid and start time,
    /// which a fast reuse can repeat, and the byte.
    pub pidfd_identity: bool,
    /// `process_mrelease` (kernel 5.15). Without: no [`Witness::NoMemory`](crate::Witness::NoMemory).
    pub mrelease: bool,
    /// Sleeping on several words (`futex_waitv`, kernel 5.16). Without: sleepers wake a hundred times
    /// a second to look.
    pub futex_waitv: bool,
    /// Robust lists, on which [bells](crate::Arena::hang_bell) hang. Without: deaths are known when
    /// the memory is free, and no verdict is believed for a while.
    pub robust_list: bool,
}

/// What this system offers. Asked once a process, eight system calls; then one load.
#[must_use]
pub fn capabilities() -> Capabilities {
    // Relaxed: the word is all there is, and asking twice does no harm.
    let mut known = KNOWN.load(Ordering::Relaxed);
    if known & ASKED == 0 {
        known = ask();
        // Relaxed: as above.
        KNOWN.store(known, Ordering::Relaxed);
    }
    Capabilities {
        pidfd: known & PIDFD != 0,
        pidfd_identity: known & PIDFD_IDENTITY != 0,
        mrelease: known & MRELEASE != 0,
        futex_waitv: known & FUTEX_WAITV != 0,
        robust_list: known & ROBUST_LIST != 0,
    }
}

/// The kernel refused `futex_waitv` after all: a filter was installed since.
pub(crate) fn lost_futex_waitv() {
    let _asked = capabilities();
    // Relaxed: as in `capabilities`.
    KNOWN.fetch_and(!FUTEX_WAITV, Ordering::Relaxed);
}

static KNOWN: AtomicU32 = AtomicU32::new(0);
const ASKED: u32 = 1;
const PIDFD: u32 = 2;
const PIDFD_IDENTITY: u32 = 4;
const MRELEASE: u32 = 8;
const FUTEX_WAITV: u32 = 16;
const ROBUST_LIST: u32 = 32;

fn ask() -> u32 {
    let own = PidFd::open(std::process::id()).ok();
    let own = own.as_ref();
    let identity = own.is_some_and(|own| matches!(own.inode(), Ok(Some(_))));
    // Of a live process the right answer is "in use". A filter that answers at random does not pass.
    let mrelease = own.is_some_and(|own| own.memory() == Memory::InUse);
    [
        (true, ASKED),
        (own.is_some(), PIDFD),
        (identity, PIDFD_IDENTITY),
        (mrelease, MRELEASE),
        (futex::any_is_offered(), FUTEX_WAITV),
        (Bell::is_offered(), ROBUST_LIST),
    ]
    .iter()
    .filter(|(offered, _)| *offered)
    .fold(0, |bits, (_, bit)| bits | bit)
}
