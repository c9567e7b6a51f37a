//! CMD: started, signalled, awaited.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::{Pid, getpid, getppid};

use crate::exit;

/// Signals that are passed on to CMD.
const FORWARDED: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// CMD, running.
pub(crate) struct Running {
    child: Child,
    pid: Pid,
    signals: SignalFd,
    timer: TimerFd,
}

/// What happened to wait for.
pub(crate) enum Event {
    Ended(ExitStatus),
    /// The time that was asked for has come.
    Due,
}

impl Running {
    /// Starts CMD. From now on the forwarded signals are read and act on nothing else.
    ///
    /// The outer error is the machine's, the inner one is of CMD.
    pub(crate) fn start(mut command: Command) -> io::Result<io::Result<Self>> {
        // Inherited as "ignored", it would reap CMD before it could be asked how it ended.
        // SAFETY: the default disposition runs no code of ours.
        #[expect(unsafe_code, reason = "nix marks all of signal(2) so, handlers or not")]
        let reset = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) };
        reset?;
        let mut watched = SigSet::from_iter(FORWARDED);
        watched.add(Signal::SIGCHLD);
        // CMD gets the mask that the wrapper was given: what is blocked in it would never reach it.
        let given = watched.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&watched, flags)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?;
        let parent = getpid();
        let in_child = move || {
            given.thread_set_mask()?;
            set_pdeathsig(Signal::SIGKILL)?;
            match getppid() == parent {
                true => Ok(()),
                // It was killed before the line above took effect.
                false => Err(io::Error::from(Errno::EOWNERDEAD)),
            }
        };
        // SAFETY: between fork and exec it makes three system calls, and neither allocates nor takes a lock.
        #[expect(unsafe_code, reason = "a death signal is set by the child itself")]
        unsafe {
            command.pre_exec(in_child)
        };
        Ok(command.spawn().map(|child| {
            let pid = i32::try_from(child.id()).expect("the kernel's pids are positive ints");
            Self {
                pid: Pid::from_raw(pid),
                child,
                signals,
                timer,
            }
        }))
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to CMD. It is not reaped before it was seen to have ended, so the pid is its own.
    pub(crate) fn send(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill(self.pid, signal);
    }

    /// Waits until CMD has ended or `time` has passed on the boot clock, passing signals on meanwhile.
    pub(crate) fn wait(&mut self, time: Duration) -> io::Result<Event> {
        // Zero would disarm it.
        let time = TimeSpec::from_duration(time.max(Duration::from_nanos(1)));
        self.timer
            .set(Expiration::OneShot(time), TimerSetTimeFlags::empty())?;
        loop {
            while let Some(info) = self.signals.read_signal()? {
                self.pass_on(info.ssi_signo, info.ssi_code);
            }
            if let Some(status) = self.child.try_wait()? {
                return Ok(Event::Ended(status));
            }
            let mut ready = [
                PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.timer.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let due = ready[1].any().unwrap_or(false);
            if due {
                return Ok(Event::Due);
            }
        }
    }

    fn pass_on(&self, number: u32, code: i32) {
        let signal = i32::try_from(number)
            .ok()
            .and_then(|number| Signal::try_from(number).ok());
        // What the terminal sends (Ctrl-C, a hang-up) goes to CMD by itself: it is in the same process group.
        let from_terminal = code == libc::SI_KERNEL;
        if let Some(signal) = signal.filter(|signal| FORWARDED.contains(signal))
            && !from_terminal
        {
            self.send(signal);
        }
    }
}

/// What the command exits with when CMD ended so.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
    code.or(signal.map(|signal| exit::SIGNAL.saturating_add(signal)))
        .unwrap_or(exit::SIGNAL)
}
