//! The terminal, when there is one: which process group reads from it, and is sent Ctrl-C.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};

use nix::unistd::{Pid, getpgrp, getpid, tcgetpgrp, tcsetpgrp};

/// The controlling terminal of this process.
pub(crate) struct Terminal {
    file: File,
}

/// The terminal, for a child between fork and exec.
#[derive(Clone, Copy)]
pub(crate) struct ForChild {
    number: RawFd,
}

impl Terminal {
    pub(crate) fn of_this_process() -> Option<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()?;
        Some(Self { file })
    }

    /// Whether it is this process's group that reads from it.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_of(getpgrp())
    }

    /// Whether it is `group` that reads from it.
    pub(crate) fn is_of(&self, group: Pid) -> bool {
        tcgetpgrp(&self.file) == Ok(group)
    }

    /// Lets `group` read from it. The signal that it costs a process in the background is blocked.
    pub(crate) fn give_to(&self, group: Pid) {
        // A terminal that hung up is nobody's.
        let _ = tcsetpgrp(&self.file, group);
    }

    /// Lets this process's group read from it again, if `group` does now and not a third one.
    pub(crate) fn take_back_from(&self, group: Pid) {
        if self.is_of(group) {
            self.give_to(getpgrp());
        }
    }

    pub(crate) fn for_child(&self) -> ForChild {
        ForChild {
            number: self.file.as_fd().as_raw_fd(),
        }
    }
}

impl ForChild {
    /// The calling process's group, which it leads, reads from it.
    pub(crate) fn take(self) {
        #[expect(
            unsafe_code,
            reason = "a number is all that a closure can carry over fork"
        )]
        // SAFETY: the child has its parent's descriptors, and this one is closed when it executes CMD.
        let terminal = unsafe { BorrowedFd::borrow_raw(self.number) };
        let _ = tcsetpgrp(terminal, getpid());
    }
}
