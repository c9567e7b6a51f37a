//! CMD: started in a process group of its own, signalled, awaited.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use arena_lease::Companion;
use arena_lease::peers::core::start_ticks;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, killpg, raise, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, getpid, getppid, setpgid};

use crate::descendants::{children, started_by};
use crate::exit;
use crate::fate::{Fate, fate};
use crate::terminal::Terminal;

/// Signals that are passed on to CMD.
const FORWARDED: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// CMD, running.
pub(crate) struct Running {
    /// It is never reaped, so that it stays its own.
    pid: Pid,
    group: Group,
    signals: SignalFd,
    timer: TimerFd,
    wait_children: bool,
    /// As which CMD was named, and since when it runs.
    companion: Option<(Companion, Option<u64>)>,
    /// What CMD died of.
    died_of: Cell<Option<Signal>>,
}

/// Whose process group CMD is in.
enum Group {
    /// Its own, whose number is its pid; it is given the terminal, if there is one, when this process's group has it.
    Own(Option<Terminal>),
    /// This process's: a pipeline on a terminal, which is one job, and stays that. What a key sends, all of it is sent;
    /// here is what this process was.
    Shared(Cell<Option<Signal>>),
}

/// What happened to wait for.
pub(crate) enum Event {
    /// CMD ended, and what it left behind if that is waited for. What the command exits with.
    Ended(u8),
    /// The time that was asked for has come, or the descriptor is readable.
    Due,
    /// This process was stopped together with CMD, and goes on; CMD does so when it is [continued](Running::go_on).
    Continued,
}

impl Running {
    /// Starts CMD. From now on the forwarded signals are read and act on nothing else.
    ///
    /// CMD inherits the `stand_in`, and is named as the `companion` before it runs. `last` is called when all else is
    /// ready. The outer error is the machine's or `last`'s, the inner one is of CMD.
    pub(crate) fn start(
        mut command: Command,
        wait_children: bool,
        stand_in: OwnedFd,
        companion: Option<Companion>,
        last: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<io::Result<Self>> {
        // Inherited as "ignored", it would reap CMD before it could be asked how it ended.
        // SAFETY: the default disposition runs no code of ours.
        #[expect(unsafe_code, reason = "nix marks all of signal(2) so, handlers or not")]
        let chld = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
        let mut watched = SigSet::from_iter(FORWARDED);
        watched.add(Signal::SIGCHLD);
        // CMD gets the mask that the wrapper was given: what is blocked in it would never reach it. And so that this
        // process may give the terminal away when it is in the background.
        let mut blocked = watched;
        blocked.add(Signal::SIGTTOU);
        // Read as well, so that it is known whether this process was stopped.
        watched.add(Signal::SIGCONT);
        blocked.add(Signal::SIGCONT);
        let given = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&watched, flags)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?;
        if wait_children {
            set_child_subreaper(true)?;
        }
        let terminal = Terminal::of_this_process();
        let is_shared = terminal.is_some() && is_in_a_pipeline();
        let terminal = terminal.filter(|_| !is_shared);
        let shown = terminal.as_ref().filter(|terminal| terminal.is_ours());
        let shown = shown.map(Terminal::for_child);
        let parent = getpid();
        let named = companion.clone();
        // Closed again here when CMD has been started, and by that in CMD alone.
        let stand_in = out_of_the_way(stand_in)?;
        let inherited = stand_in.as_raw_fd();
        let in_child = move || {
            #[expect(
                unsafe_code,
                reason = "a number is all that a closure can carry over fork"
            )]
            // SAFETY: a child has its parent's descriptors, and this one is open until CMD was started.
            let inherited = unsafe { BorrowedFd::borrow_raw(inherited) };
            fcntl(inherited, FcntlArg::F_SETFD(FdFlag::empty()))?;
            if let Some(companion) = &named {
                companion.is(std::process::id(), None);
            }
            if !is_shared {
                setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
            }
            if let Some(terminal) = shown {
                terminal.take();
            }
            if let SigHandler::SigIgn = chld {
                // SAFETY: as above.
                #[expect(unsafe_code, reason = "nix marks all of signal(2) so")]
                unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
            }
            given.thread_set_mask()?;
            set_pdeathsig(Signal::SIGKILL)?;
            match getppid() == parent {
                true => Ok(()),
                // It was killed before the line above took effect.
                false => Err(io::Error::from(Errno::EOWNERDEAD)),
            }
        };
        // SAFETY: between fork and exec it makes a few system calls, and none allocates or takes a lock.
        #[expect(unsafe_code, reason = "a death signal is set by the child itself")]
        unsafe {
            command.pre_exec(in_child)
        };
        last()?;
        let spawned = command.spawn();
        drop(stand_in);
        if let (Err(_), Some(_), Some(terminal)) = (&spawned, shown, &terminal) {
            // The group that it was given to is gone.
            terminal.give_to(getpgrp());
        }
        Ok(spawned.map(|child| {
            let pid = i32::try_from(child.id()).expect("the kernel's pids are positive ints");
            let started = start_ticks(child.id());
            if let Some(companion) = &companion {
                companion.is(child.id(), started);
            }
            Self {
                pid: Pid::from_raw(pid),
                group: match is_shared {
                    true => Group::Shared(Cell::new(None)),
                    false => Group::Own(terminal),
                },
                signals,
                timer,
                wait_children,
                companion: companion.map(|companion| (companion, started)),
                died_of: Cell::new(None),
            }
        }))
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether CMD has closed what it inherited; told once.
    pub(crate) fn lost_stand_in(&mut self) -> bool {
        let pid = self.pid.as_raw().cast_unsigned();
        let companion = self.companion.as_mut();
        companion.is_some_and(|(companion, started)| companion.lost_stand_in(pid, *started))
    }

    /// The terminal, if CMD has a group of its own.
    fn terminal(&self) -> Option<&Terminal> {
        match &self.group {
            Group::Own(terminal) => terminal.as_ref(),
            Group::Shared(_) => None,
        }
    }

    /// Sends a signal to CMD, and to what it started in its group. One that is stopped goes on, to act on it.
    pub(crate) fn end_with(&self, signal: Signal) {
        // They may have ended by themselves.
        for signal in [signal, Signal::SIGCONT] {
            match self.group {
                Group::Own(_) => drop(killpg(self.pid, signal)),
                Group::Shared(_) => {
                    for process in started_by(self.pid) {
                        let _ = kill(process, signal);
                    }
                }
            }
        }
        if self.wait_children && signal == Signal::SIGKILL {
            for child in children(getpid()) {
                let _ = kill(child, signal);
            }
        }
    }

    /// What the terminal ended CMD with, if it did: whoever called this process is to see that.
    pub(crate) fn interrupted(&self) -> Option<Interrupt> {
        let signal = self.died_of.get()?;
        match &self.group {
            Group::Own(terminal) => {
                let is_key = is_key(signal) && terminal.as_ref()?.is_of(self.pid);
                // And it was not sent it.
                is_key.then_some(Interrupt {
                    signal,
                    to_group: true,
                })
            }
            Group::Shared(key) => (key.get() == Some(signal)).then_some(Interrupt {
                signal,
                to_group: false,
            }),
        }
    }

    /// Lets CMD go on after this process did.
    pub(crate) fn go_on(&self) {
        if let Some(terminal) = self.terminal().filter(|terminal| terminal.is_ours()) {
            terminal.give_to(self.pid);
        }
        let _ = killpg(self.pid, Signal::SIGCONT);
    }

    /// Waits until CMD has ended, `time` has passed on the boot clock, or `told` is readable, passing signals on
    /// meanwhile.
    pub(crate) fn wait(
        &mut self,
        time: Duration,
        told: Option<BorrowedFd<'_>>,
    ) -> io::Result<Event> {
        // Zero would disarm it.
        let time = TimeSpec::from_duration(time.max(Duration::from_nanos(1)));
        self.timer
            .set(Expiration::OneShot(time), TimerSetTimeFlags::empty())?;
        loop {
            self.pass_on_all()?;
            if let Some(code) = self.ended()? {
                return Ok(Event::Ended(code));
            }
            if let Some(by) = self.stopped()?
                && self.stop_too(by)?
            {
                return Ok(Event::Continued);
            }
            let mut ready = vec![
                PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.timer.as_fd(), PollFlags::POLLIN),
            ];
            ready.extend(told.map(|told| PollFd::new(told, PollFlags::POLLIN)));
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if ready[1..].iter().any(|fd| fd.any().unwrap_or(false)) {
                return Ok(Event::Due);
            }
        }
    }

    /// What to exit with, when there is nobody left to wait for.
    fn ended(&self) -> io::Result<Option<u8>> {
        let code = match fate(self.pid, libc::WEXITED | libc::WNOWAIT)? {
            Some(Fate::Exited(code)) => code,
            Some(Fate::Killed(signal)) => {
                self.died_of.set(Signal::try_from(signal).ok());
                i32::from(exit::SIGNAL) + signal
            }
            Some(Fate::Stopped(_)) | None => return Ok(None),
        };
        if self.wait_children {
            for child in children(getpid()) {
                if child != self.pid
                    && waitpid(child, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive)
                {
                    return Ok(None);
                }
            }
        }
        // Signals have numbers up to 64.
        Ok(Some(u8::try_from(code).unwrap_or(exit::SIGNAL)))
    }

    /// By which signal CMD was stopped, if it was since this was last asked.
    fn stopped(&self) -> io::Result<Option<i32>> {
        match fate(self.pid, libc::WSTOPPED) {
            Ok(Some(Fate::Stopped(by))) => Ok(Some(by)),
            Ok(_) => Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// CMD was stopped. Where there is a terminal, whoever started this process is to see that its job stands, and
    /// gets the terminal back; returns when it was continued. Whether CMD is to go on too.
    ///
    /// The signal is the one that the kernel drops when nobody would continue this process: there is no shell above
    /// with job control. Without this process it would have dropped CMD's too, unless that was STOP.
    fn stop_too(&self, by: i32) -> io::Result<bool> {
        let Some(terminal) = self.terminal() else {
            return Ok(false);
        };
        terminal.take_back_from(self.pid);
        // What came before says nothing.
        self.pass_on_all()?;
        raise(Signal::SIGTSTP)?;
        Ok(self.pass_on_all()? || by != libc::SIGSTOP)
    }

    /// Passes on the signals that came; whether this process was continued.
    fn pass_on_all(&self) -> io::Result<bool> {
        let mut was_continued = false;
        while let Some(info) = self.signals.read_signal()? {
            let number = i32::try_from(info.ssi_signo).ok();
            let signal = number.and_then(|number| Signal::try_from(number).ok());
            match (signal, &self.group) {
                (Some(Signal::SIGCONT), _) => was_continued = true,
                (Some(signal), Group::Shared(key))
                    if is_key(signal) && info.ssi_code == libc::SI_KERNEL =>
                {
                    key.set(Some(signal));
                }
                (Some(signal), _) if FORWARDED.contains(&signal) => {
                    // It may have ended by itself.
                    let _ = kill(self.pid, signal);
                }
                _ => {}
            }
        }
        Ok(was_continued)
    }
}

/// The same descriptor under a number that no shell script uses: a script that redirects it closes ours.
fn out_of_the_way(fd: OwnedFd) -> io::Result<OwnedFd> {
    const FROM: i32 = 700;
    match fcntl(&fd, FcntlArg::F_DUPFD_CLOEXEC(FROM)) {
        // SAFETY: the system has just made it, for this caller.
        #[expect(unsafe_code, reason = "nix gives no owner to what fcntl(2) makes")]
        Ok(number) => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        // It may not have so many.
        Err(Errno::EINVAL | Errno::EMFILE) => Ok(fd),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether a key of the terminal sends it.
fn is_key(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGQUIT)
}

/// Whether stdin or stdout is a pipe (or what some shells take for one): then other processes of this job may need
/// the terminal, and who they are cannot be known.
fn is_in_a_pipeline() -> bool {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    [stdin.as_fd(), stdout.as_fd()].into_iter().any(|fd| {
        fstat(fd).is_ok_and(|meta| {
            let kind = SFlag::from_bits_truncate(meta.st_mode & SFlag::S_IFMT.bits());
            kind == SFlag::S_IFIFO || kind == SFlag::S_IFSOCK
        })
    })
}

/// A signal that a key sent, and CMD died of.
pub(crate) struct Interrupt {
    signal: Signal,
    /// Whether it was sent to CMD's group alone.
    to_group: bool,
}

impl Interrupt {
    /// Dies of it as CMD did, and sends it to this process's group if the terminal did not, so that a script is ended
    /// by Ctrl-C as it would be without the wrapper.
    pub(crate) fn pass_to_the_caller(self) {
        // SAFETY: the default disposition runs no code of ours.
        #[expect(unsafe_code, reason = "nix marks all of signal(2) so, handlers or not")]
        let default = unsafe { signal(self.signal, SigHandler::SigDfl) };
        let _ = default.and_then(|_| match self.to_group {
            true => killpg(getpgrp(), self.signal),
            false => raise(self.signal),
        });
        // Kept until here, so that it comes last.
        let _ = SigSet::from(self.signal).thread_unblock();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(terminal) = self.terminal() {
            terminal.take_back_from(self.pid);
        }
    }
}
