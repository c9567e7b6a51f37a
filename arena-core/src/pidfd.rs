//! Descriptors of processes: the kernel's identity of one, and whether it has ended.
#![expect(
    unsafe_code,
    reason = "nix does not wrap pidfd_open and process_mrelease"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::fstat;
use nix::sys::statfs::fstatfs;

/// `PIDFS_MAGIC`: from kernel 6.9 on a pidfd lies on a file system of its own, where the inode
/// number identifies the process for as long as the machine runs.
const PIDFS_MAGIC: i64 = 0x5049_4446;

/// A descriptor of one process, whatever becomes of its pid.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process that has this pid in this process's PID namespace. One system call.
    ///
    /// # Errors
    ///
    /// `ESRCH` when no process has that pid; what the system said otherwise (a kernel before 5.3
    /// says `ENOSYS`).
    pub fn open(pid: u32) -> io::Result<PidFd> {
        let pid =
            libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        // SAFETY: takes two integers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so `fd` is open and nobody else's.
        Ok(PidFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The number that identifies the process among all of this boot; `None` on a kernel before
    /// 6.9. Two system calls.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub fn inode(&self) -> io::Result<Option<u64>> {
        if fstatfs(&self.0)?.filesystem_type().0 != PIDFS_MAGIC {
            return Ok(None);
        }
        Ok(Some(fstat(&self.0)?.st_ino))
    }

    /// Whether all its threads have ended, be it reaped or not. One system call.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub fn has_ended(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut fds, PollTimeout::ZERO) {
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
                Ok(ready) => return Ok(ready > 0),
            }
        }
    }

    /// What the kernel says about the process's memory. One system call (`process_mrelease`, kernel
    /// 5.15).
    ///
    /// To be asked of a process that has begun to die and whose /proc/PID/task/*/statm all read zero:
    /// earlier, the call may free the dying one's memory here and now, 60 ms a GiB.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let fd = self.0.as_raw_fd();
        // SAFETY: takes two integers. It may free pages of a process that is being killed, and of no
        // other: to any other it says EINVAL.
        let outcome = unsafe { libc::syscall(libc::SYS_process_mrelease, fd, 0) };
        match nix::errno::Errno::result(outcome).map(drop) {
            Err(nix::Error::ESRCH) => Memory::Gone,
            Err(nix::Error::EINVAL) => Memory::InUse,
            Ok(()) | Err(_) => Memory::Unknown,
        }
    }
}

/// Whether a process still has an address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// No thread of it has one: nothing of its program can run any more.
    Gone,
    /// It has, and is not being killed.
    InUse,
    /// It cannot be told: the process is being killed and still has its memory, or the call is not to
    /// be had.
    Unknown,
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for PidFd {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_not_ended_and_has_one_identity() {
        let one = PidFd::open(std::process::id()).unwrap();
        let two = PidFd::open(std::process::id()).unwrap();
        assert!(!one.has_ended().unwrap());
        assert_eq!(one.inode().unwrap(), two.inode().unwrap());
        assert_eq!(one.memory(), Memory::InUse);
    }

    #[test]
    fn zombie_has_ended_before_anybody_reaps_it() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let fd = PidFd::open(child.id()).unwrap();
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE).unwrap();
        assert!(fd.has_ended().unwrap());
        assert_ne!(
            fd.inode().unwrap(),
            PidFd::open(std::process::id()).unwrap().inode().unwrap()
        );
        assert_eq!(fd.memory(), Memory::Gone);
        child.wait().unwrap();
        assert_eq!(fd.memory(), Memory::Gone);
        assert_eq!(
            PidFd::open(u32::MAX).unwrap_err().raw_os_error(),
            Some(libc::ESRCH)
        );
    }
}
