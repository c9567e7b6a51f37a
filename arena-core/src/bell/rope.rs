//! The thread whose end rings the bell.
#![expect(unsafe_code, reason = "nothing wraps set_robust_list")]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::gettid;

use super::{BellError, hang, take_down};
use crate::clock;
use crate::map::Mapping;
use crate::thread::start_quiet;

/// The thread does nothing but sleep; this is what starting and ending it takes, with room to spare.
const STACK_BYTES: usize = 64 * 1024;

/// After a refusal, how long until the next attempt, so that a caller may ask on every verb.
const RETRY_MS: u64 = 1_000;

/// What holds a process's bell.
#[derive(Debug, Default)]
pub(crate) enum BellRope {
    /// Nobody asked for a bell.
    #[default]
    Slack,
    /// A thread holds it.
    Taut(Ringer),
    /// The system refused, at this millisecond of the boot clock.
    Refused { at_ms: u64, refusal: Refusal },
}

/// A thread that sleeps until it is told to take the bell down, or dies with its process.
#[derive(Debug)]
pub(crate) struct Ringer {
    done: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Refusal {
    Thread(Errno),
    RobustList(Errno),
}

impl From<Refusal> for BellError {
    fn from(refusal: Refusal) -> BellError {
        match refusal {
            Refusal::Thread(errno) => BellError::Thread {
                source: errno.into(),
            },
            Refusal::RobustList(errno) => BellError::RobustList {
                source: errno.into(),
            },
        }
    }
}

impl BellRope {
    /// Starts the thread, unless there is one, for the bell at `at` of the mapping.
    pub(crate) fn hang(&mut self, mapping: &Arc<Mapping>, at: u64) -> Result<(), BellError> {
        match self {
            BellRope::Taut(_) => return Ok(()),
            BellRope::Refused { at_ms, refusal }
                if clock::boot_ms().saturating_sub(*at_ms) < RETRY_MS =>
            {
                return Err((*refusal).into());
            }
            BellRope::Slack | BellRope::Refused { .. } => {}
        }
        let started = Ringer::start(Arc::clone(mapping), at);
        match started {
            Ok(ringer) => {
                *self = BellRope::Taut(ringer);
                Ok(())
            }
            Err(refusal) => {
                let at_ms = clock::boot_ms();
                *self = BellRope::Refused { at_ms, refusal };
                Err(refusal.into())
            }
        }
    }

    /// Takes the bell down and waits until its thread has ended.
    pub(crate) fn take_down(&mut self) {
        if let BellRope::Taut(ringer) = std::mem::take(self) {
            ringer.stop();
        }
    }
}

impl Ringer {
    fn start(mapping: Arc<Mapping>, at: u64) -> Result<Ringer, Refusal> {
        let done = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::sync_channel(1);
        let until = Arc::clone(&done);
        let thread = start_quiet("arena-bell", STACK_BYTES, move || {
            // The thread's own share of the mapping: what the kernel writes to stays mapped.
            let bell: &AtomicU32 = mapping
                .at(at)
                .expect("the length was compared with the geometry");
            hold(bell, &until, &tell);
        })
        .map_err(|error| Refusal::Thread(Errno::from_raw(error.raw_os_error().unwrap_or(0))))?;
        match told.recv() {
            Ok(Ok(())) => Ok(Ringer { done, thread }),
            Ok(Err(errno)) => {
                let _ended = thread.join();
                Err(Refusal::RobustList(errno))
            }
            Err(mpsc::RecvError) => Err(Refusal::Thread(Errno::EAGAIN)),
        }
    }

    fn stop(self) {
        // EDGE bell-done, release half: nothing but the flag itself is handed over.
        self.done.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // It does not panic; if it had, it would have ended all the same.
        let _ended = self.thread.join();
    }
}

/// A robust list as the kernel walks it: `struct robust_list_head` and its only node.
#[repr(C)]
struct RobustList {
    first: *const Node,
    /// From a node to the word that belongs to it.
    word_offset: libc::c_long,
    pending: *const Node,
    node: Node,
}

#[repr(C)]
struct Node {
    /// The head again: the list's end.
    next: *const RobustList,
}

/// What `set_robust_list` wants to be told: the length of the head without the node.
const HEAD_BYTES: usize = std::mem::offset_of!(RobustList, node);
static_assertions::const_assert_eq!(HEAD_BYTES, 24);

/// Hangs the bell, sleeps until `done`, takes it down. If the thread ends anywhere in between, be it
/// with the process or alone, the kernel rings.
fn hold(bell: &AtomicU32, done: &AtomicBool, tell: &mpsc::SyncSender<Result<(), Errno>>) {
    let mut list = RobustList {
        first: ptr::null(),
        word_offset: 0,
        pending: ptr::null(),
        node: Node { next: ptr::null() },
    };
    // No list leads to this thread's memory before here, and none after `set_robust_list(null)`.
    let node = ptr::from_ref(&list.node);
    let distance = bell.as_ptr().addr().wrapping_sub(node.addr());
    list.word_offset = distance.cast_signed() as libc::c_long;
    list.node.next = &raw const list;
    list.first = &raw const list.node;
    // The list first, then the word: killed in between, the bell never hung.
    if let Err(errno) = set_robust_list(&raw const list) {
        let _heard = tell.send(Err(errno));
        return;
    }
    let tid = gettid().as_raw().cast_unsigned();
    hang(bell, tid);
    let _heard = tell.send(Ok(()));
    // EDGE bell-done, acquire half.
    while !done.load(Ordering::Acquire) {
        thread::park();
    }
    take_down(bell, tid);
    let emptied = set_robust_list(ptr::null());
    debug_assert!(emptied.is_ok(), "the same call was accepted above");
}

fn set_robust_list(list: *const RobustList) -> Result<(), Errno> {
    // SAFETY: the kernel notes the address, for this thread, and follows it when the thread ends. `hold`
    // passes its own frame's list, which lies there unmoved until `hold` calls again with null, or
    // until the thread is killed in that frame. All that the kernel then writes is the word at node +
    // word_offset, if it holds this thread's id: the bell, which the caller of `hold` keeps mapped.
    let outcome = unsafe { libc::syscall(libc::SYS_set_robust_list, list, HEAD_BYTES) };
    Errno::result(outcome).map(drop)
}

/// Whether robust lists are to be had: with a length that is wrong on purpose the call says
/// `EINVAL`, and changes nothing.
pub(super) fn is_offered() -> bool {
    // SAFETY: a list of a wrong length is refused before anything is looked at.
    let outcome = unsafe { libc::syscall(libc::SYS_set_robust_list, ptr::null::<u8>(), 0usize) };
    outcome == -1 && Errno::last() == Errno::EINVAL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell::{Bell, SeenBell, TAKEN_DOWN};
    use std::os::fd::AsFd as _;

    fn mapping() -> Arc<Mapping> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        Arc::new(Mapping::writable(file.as_fd(), 4096).unwrap())
    }

    fn state(mapping: &Mapping) -> Bell {
        SeenBell::look(mapping.at(120).unwrap()).state()
    }

    #[test]
    fn bell_that_is_taken_down_says_so_and_does_not_ring_when_its_thread_ends() {
        let mapping = mapping();
        let mut rope = BellRope::default();
        rope.hang(&mapping, 120).unwrap();
        assert_eq!(state(&mapping), Bell::Hung);
        rope.take_down();
        let word: &AtomicU32 = mapping.at(120).unwrap();
        // Relaxed: the thread that stored it was joined.
        assert_eq!(word.load(Ordering::Relaxed), TAKEN_DOWN);
    }
}
