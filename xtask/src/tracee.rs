//! A process under ptrace: steps, breakpoints and marks. x86-64 only; elsewhere `capability` says so.

use nix::{
    errno::Errno,
    sys::{
        ptrace,
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use crate::outcome::{Outcome, Stop, ensure};

/// How a step ended.
#[derive(Debug)]
pub(crate) enum Event {
    /// One instruction further.
    Stepped,
    /// The child ran into a mark, which is now behind it.
    Mark,
    /// It is gone.
    Ended(String),
}

/// What an instruction is, as far as others can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A system call.
    Call,
    /// A locked instruction or an exchange with memory.
    Atomic,
    /// Anything else.
    Other,
}

/// A traced process, which stands still whenever nobody runs it.
#[derive(Debug)]
pub(crate) struct Tracee {
    pid: Pid,
    /// Its other threads, as far as they are held.
    others: Vec<Pid>,
}

/// What `siginfo` says when the trap was an instruction (int3) and not a step.
const SI_KERNEL: i32 = 0x80;

impl Tracee {
    /// Takes over a process that waits; it dies when we do.
    pub(crate) fn seize(pid: Pid) -> Outcome<Self> {
        let options = ptrace::Options::PTRACE_O_EXITKILL | ptrace::Options::PTRACE_O_TRACESYSGOOD;
        ptrace::seize(pid, options)?;
        Ok(Self {
            pid,
            others: Vec::new(),
        })
    }

    /// Holds all its other threads where they are, until it is let go: nothing runs in it but what is stepped.
    pub(crate) fn hold_others(&mut self) -> Outcome {
        for task in std::fs::read_dir(format!("/proc/{}/task", self.pid))? {
            let name = task?.file_name();
            let thread = name.to_str().and_then(|name| name.parse().ok());
            let thread = Pid::from_raw(thread.ok_or_else(|| Stop::failed("no thread's number"))?);
            if thread != self.pid {
                ptrace::seize(thread, ptrace::Options::PTRACE_O_EXITKILL)?;
                ptrace::interrupt(thread)?;
                waitpid(thread, Some(WaitPidFlag::__WALL))?;
                self.others.push(thread);
            }
        }
        Ok(())
    }

    /// Its pid.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets it, who stands still, run until its next mark.
    pub(crate) fn run_to_mark(&mut self) -> Outcome {
        ptrace::cont(self.pid, None)?;
        self.await_mark()
    }

    /// Waits until it, who runs, comes to its next mark.
    pub(crate) fn await_mark(&mut self) -> Outcome {
        loop {
            match self.wait()? {
                Event::Mark => return Ok(()),
                Event::Stepped => ptrace::cont(self.pid, None)?,
                Event::Ended(how) => {
                    return Err(Stop::failed(format!("{how} where a mark was expected")));
                }
            }
        }
    }

    /// Lets it, who stands still, run until its next mark; the numbers of the system calls that it made.
    pub(crate) fn calls_to_mark(&mut self) -> Outcome<Vec<i64>> {
        let (mut calls, mut inside, mut signal) = (Vec::new(), false, None);
        loop {
            ptrace::syscall(self.pid, signal.take())?;
            match waitpid(self.pid, Some(WaitPidFlag::__WALL))? {
                // It stops at the beginning and at the end of each.
                WaitStatus::PtraceSyscall(_) => {
                    inside = !inside;
                    if inside {
                        calls.push(self.call()?);
                    }
                }
                WaitStatus::Stopped(_, Signal::SIGTRAP)
                    if ptrace::getsiginfo(self.pid)?.si_code == SI_KERNEL =>
                {
                    return Ok(calls);
                }
                WaitStatus::Stopped(_, other) => signal = Some(other),
                other => {
                    return Err(Stop::failed(format!("{other:?} where a mark was expected")));
                }
            }
        }
    }

    /// Lets it run, after a mark.
    pub(crate) fn go_on(&mut self) -> Outcome {
        Ok(ptrace::cont(self.pid, None)?)
    }

    /// Executes one instruction.
    pub(crate) fn step(&mut self) -> Outcome<Event> {
        ptrace::step(self.pid, None)?;
        self.wait()
    }

    /// Kills it where it stands. It stays a zombie of its parent.
    pub(crate) fn kill(&mut self) -> Outcome {
        kill(self.pid, Signal::SIGKILL)?;
        // The process has ended when its held threads have been seen to.
        for &thread in self.others.iter().chain([&self.pid]) {
            while !matches!(
                waitpid(thread, Some(WaitPidFlag::__WALL))?,
                WaitStatus::Signaled(..) | WaitStatus::Exited(..)
            ) {}
        }
        Ok(())
    }

    /// Lets it go.
    pub(crate) fn detach(self) -> Outcome {
        for &thread in self.others.iter().chain([&self.pid]) {
            ptrace::detach(thread, None)?;
        }
        Ok(())
    }

    /// Waits for the next stop that means something; hands other signals on.
    fn wait(&mut self) -> Outcome<Event> {
        loop {
            match waitpid(self.pid, Some(WaitPidFlag::__WALL))? {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => {
                    let trap = ptrace::getsiginfo(self.pid)?;
                    return Ok(if trap.si_code == SI_KERNEL {
                        Event::Mark
                    } else {
                        Event::Stepped
                    });
                }
                WaitStatus::Stopped(_, signal) => ptrace::step(self.pid, signal)?,
                WaitStatus::Exited(_, code) => {
                    return Ok(Event::Ended(format!("exited with {code}")));
                }
                WaitStatus::Signaled(_, signal, _) => {
                    return Ok(Event::Ended(format!("died of {signal}")));
                }
                other => return Err(Stop::failed(format!("an unknown stop: {other:?}"))),
            }
        }
    }
}

/// Ends a process that was a tracee or is a child, whatever it does.
pub(crate) fn end(pid: Pid) -> Outcome {
    match kill(pid, Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(e) => return Err(e.into()),
    }
    loop {
        match waitpid(pid, Some(WaitPidFlag::__WALL)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(Errno::ECHILD) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Tracee {
    /// The address of the instruction that it executes next.
    pub(crate) fn position(&self) -> Outcome<u64> {
        Ok(ptrace::getregs(self.pid)?.rip)
    }

    /// The number of the system call that it is in.
    fn call(&self) -> Outcome<i64> {
        Ok(ptrace::getregs(self.pid)?.orig_rax.cast_signed())
    }

    /// Whether the instruction at an address has an effect that others can order.
    pub(crate) fn kind(&self, at: u64) -> Outcome<Kind> {
        let bytes = self.word(at)?.to_le_bytes();
        if bytes[..2] == [0x0f, 0x05] {
            return Ok(Kind::Call);
        }
        // An exchange with memory is locked without a prefix; its opcode may follow a REX or size prefix.
        let rest = match bytes[0] {
            0x40..=0x4f | 0x66 => &bytes[1..],
            _ => &bytes[..],
        };
        let exchange = matches!(rest[0], 0x86 | 0x87) && rest[1] < 0xc0;
        Ok(if bytes[0] == 0xf0 || exchange {
            Kind::Atomic
        } else {
            Kind::Other
        })
    }

    /// Lets the system call that it stands before fail, without being made. Not a close, nor the question
    /// whether a descriptor is open, which do not fail on one that is: the standard library takes their failure for a
    /// descriptor that others closed, and aborts.
    /// False when it is one of these.
    pub(crate) fn refuse_call(&mut self, error: Errno) -> Outcome<bool> {
        let mut registers = ptrace::getregs(self.pid)?;
        let call = i64::try_from(registers.rax).unwrap_or(-1);
        let asks_if_open = call == nix::libc::SYS_fcntl && registers.rsi == 1; // F_GETFD
        if call == nix::libc::SYS_close || asks_if_open {
            return Ok(false);
        }
        // No call has this number: the kernel does nothing, and says ENOSYS.
        registers.rax = u64::MAX;
        ptrace::setregs(self.pid, registers)?;
        let event = self.step()?;
        ensure!(
            matches!(event, Event::Stepped),
            "{event:?} at a system call"
        );
        let mut registers = ptrace::getregs(self.pid)?;
        registers.rax = i64::from(-(error as i32)).cast_unsigned();
        ptrace::setregs(self.pid, registers)?;
        Ok(true)
    }

    /// Lets it run to `at`, past `passes` earlier passes there; false when it ran into a mark instead.
    pub(crate) fn run_to(&mut self, at: u64, passes: u32) -> Outcome<bool> {
        const INT3: u64 = 0xcc;
        let word = self.word(at)?;
        let trap = (word & !0xff) | INT3;
        for pass in 0..=passes {
            if self.position()? == at && pass == 0 {
                // It stands there already: this is the first pass.
                if passes == 0 {
                    return Ok(true);
                }
                self.step()?;
                continue;
            }
            self.poke(at, trap)?;
            ptrace::cont(self.pid, None)?;
            let event = self.wait()?;
            self.poke(at, word)?;
            match event {
                Event::Mark if self.position()? == at + 1 => {
                    let mut registers = ptrace::getregs(self.pid)?;
                    registers.rip = at;
                    ptrace::setregs(self.pid, registers)?;
                }
                Event::Mark => return Ok(false),
                Event::Stepped => {
                    return Err(Stop::failed("a step where a breakpoint was expected"));
                }
                Event::Ended(how) => return Err(Stop::failed(format!("{how} inside the section"))),
            }
            if pass < passes {
                let event = self.step()?;
                ensure!(
                    matches!(event, Event::Stepped),
                    "{event:?} behind a breakpoint"
                );
            }
        }
        Ok(true)
    }

    fn word(&self, at: u64) -> Outcome<u64> {
        let address = std::ptr::without_provenance_mut(
            usize::try_from(at).expect("an address of a 64-bit process"),
        );
        let word = ptrace::read(self.pid, address)?;
        Ok(u64::from_ne_bytes(word.to_ne_bytes()))
    }

    fn poke(&self, at: u64, word: u64) -> Outcome {
        let address = std::ptr::without_provenance_mut(
            usize::try_from(at).expect("an address of a 64-bit process"),
        );
        Ok(ptrace::write(
            self.pid,
            address,
            i64::from_ne_bytes(word.to_ne_bytes()),
        )?)
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Tracee {
    pub(crate) fn position(&self) -> Outcome<u64> {
        Err(elsewhere())
    }

    fn call(&self) -> Outcome<i64> {
        Err(elsewhere())
    }

    pub(crate) fn kind(&self, _at: u64) -> Outcome<Kind> {
        Err(elsewhere())
    }

    pub(crate) fn refuse_call(&mut self, _error: Errno) -> Outcome<bool> {
        Err(elsewhere())
    }

    pub(crate) fn run_to(&mut self, _at: u64, _passes: u32) -> Outcome<bool> {
        Err(elsewhere())
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn elsewhere() -> Stop {
    Stop::Skipped("the stepper knows x86-64 only".to_owned())
}

/// A mark: a trap that the tracer sees. Without a tracer it kills the process.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "a breakpoint has no safe form")]
pub(crate) fn mark() {
    // SAFETY: int3 reads and writes no memory and no register; its trap is the tracer's, who continues behind it.
    unsafe { std::arch::asm!("int3") };
}

/// A mark: there is none on this processor yet, and no scenario that would reach it.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn mark() {}
