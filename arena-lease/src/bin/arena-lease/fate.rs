//! What became of a child, also when it died of a signal that has no name.
#![expect(
    unsafe_code,
    reason = "nix loses the fate of who dies of a real-time signal"
)]

use std::io;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

/// What became of it.
pub(crate) enum Fate {
    Exited(i32),
    /// By which signal.
    Killed(i32),
    /// Likewise.
    Stopped(i32),
}

/// What became of a child, as `waitid` tells with `WNOHANG` and these flags; `None`: nothing.
pub(crate) fn fate(child: Pid, flags: i32) -> io::Result<Option<Fate>> {
    let id = child.as_raw().cast_unsigned();
    // SAFETY: all zero is a siginfo_t without a signal.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes one siginfo_t, to where one is.
    let outcome = unsafe { libc::waitid(libc::P_PID, id, &raw mut info, flags | libc::WNOHANG) };
    Errno::result(outcome)?;
    // SAFETY: waitid filled in the fields of SIGCHLD, or left zeros.
    let pid = unsafe { info.si_pid() };
    // SAFETY: likewise.
    let status = unsafe { info.si_status() };
    if pid == 0 {
        return Ok(None);
    }
    Ok(Some(match info.si_code {
        libc::CLD_EXITED => Fate::Exited(status & 0xff),
        libc::CLD_STOPPED => Fate::Stopped(status),
        // With a core dump or without.
        _ => Fate::Killed(status),
    }))
}
