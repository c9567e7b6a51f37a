//! How a subscription ends from outside: by a signal, or because nobody reads its output any more. It may be asleep
//! then, or stuck in a write.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arena_ring::CursorStats;
use arena_ring::peers::core::thread::start_quiet;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::out::say;

/// How long the subscriber has to write out what it holds, before it is ended without.
const PATIENCE: Duration = Duration::from_millis(200);

/// What the subscriber and the thread that may end it know of each other.
pub(crate) struct Ending {
    what: String,
    /// The same as in `state`, for who looks often.
    is_asked: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    missed: CursorStats,
    /// The subscriber holds nothing that was not written.
    is_at_rest: bool,
    /// The subscriber is to end.
    is_asked: bool,
    /// It ends by itself.
    is_over: bool,
}

/// Why it is to end.
enum Why {
    Signal(Signal),
    NobodyReads,
}

impl Ending {
    /// Starts the thread. `what` is subscribed to, for people. To be called before the program has other threads: signals
    /// that end it are blocked from then on.
    pub(crate) fn start(what: String) -> io::Result<Arc<Self>> {
        const STACK_BYTES: usize = 128 * 1024;
        let ignored = ignored();
        let mut ending = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            if ignored & (1 << (signal as u32 - 1)) == 0 {
                ending.add(signal);
            }
        }
        ending.thread_block()?;
        let signals = SignalFd::with_flags(&ending, SfdFlags::SFD_CLOEXEC)?;
        let shared = Arc::new(Self {
            what,
            is_asked: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        start_quiet("arena-ending", STACK_BYTES, move || {
            // Without a poll, the subscriber ends by itself.
            if let Ok(why) = wait(&signals) {
                own.end(&why);
            }
        })?;
        Ok(shared)
    }

    /// Whether the subscriber is to end; then it writes out what it holds, and [`rest`](Self::rest)s.
    pub(crate) fn is_asked(&self) -> bool {
        // Relaxed: nothing is read because of it.
        self.is_asked.load(Ordering::Relaxed)
    }

    /// The subscriber holds nothing that was not written, and has missed so much. Does not return when it is to end.
    pub(crate) fn rest(&self, missed: CursorStats) {
        let _resting = self.settle(missed);
    }

    /// The subscriber goes on.
    pub(crate) fn go_on(&self) {
        self.lock().is_at_rest = false;
    }

    /// The subscriber ends, and tells what it has missed. Does not return when it is ended anyway.
    pub(crate) fn over(&self, missed: CursorStats) {
        let mut state = self.settle(missed);
        state.is_over = true;
        self.tell(&state);
    }

    fn settle(&self, missed: CursorStats) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        (state.missed, state.is_at_rest) = (missed, true);
        self.changed.notify_all();
        let going_on = self.changed.wait_while(state, |state| state.is_asked);
        going_on.unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the program, once the subscriber is at rest.
    fn end(&self, why: &Why) {
        let mut state = self.lock();
        if !state.is_over {
            state.is_asked = true;
            // Relaxed: as above.
            self.is_asked.store(true, Ordering::Relaxed);
            let resting = self
                .changed
                .wait_timeout_while(state, PATIENCE, |state| !state.is_at_rest);
            state = resting.unwrap_or_else(PoisonError::into_inner).0;
            self.tell(&state);
        }
        // The lock is kept, so that the subscriber does nothing more.
        match why {
            Why::Signal(signal) => {
                // As it would have done without being caught.
                let _ = raise(*signal);
                let _ = SigSet::from(*signal).thread_unblock();
            }
            Why::NobodyReads if state.is_asked => std::process::exit(0),
            // It has an exit code of its own.
            Why::NobodyReads => {}
        }
    }

    fn tell(&self, state: &State) {
        let CursorStats {
            lapped, abandoned, ..
        } = state.missed;
        if lapped + abandoned > 0 {
            say(&format!(
                "missed of {}: {lapped} records that were overwritten before they were read, {abandoned} that were never finished",
                self.what
            ));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait(signals: &SignalFd) -> nix::Result<Why> {
    let stdout = io::stdout();
    loop {
        let mut ready = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            // Asked for nothing, it tells that it was closed at the other end.
            PollFd::new(stdout.as_fd(), PollFlags::empty()),
        ];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let is_closed = ready[1].any().unwrap_or(false);
        let asked = ready[0].any().unwrap_or(false);
        let asked = asked.then(|| signals.read_signal()).transpose()?.flatten();
        let number = asked.and_then(|info| i32::try_from(info.ssi_signo).ok());
        if let Some(signal) = number.and_then(|number| Signal::try_from(number).ok()) {
            return Ok(Why::Signal(signal));
        }
        if is_closed {
            return Ok(Why::NobodyReads);
        }
    }
}

/// The signals that this process was started to ignore, a bit each. One that is blocked comes although it is ignored.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
