//! Children that do one thing and wait, and say over a pipe where they are.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::{Read as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use arena_peers::{Arena, ArenaOptions, PeerId, Peers, Verdict, Witness};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};

/// Longer than anything takes; a test that waits for so long has failed.
pub(crate) const LONG: Option<Duration> = Some(Duration::from_secs(60));

pub(crate) fn options() -> ArenaOptions {
    ArenaOptions::new().usable_bytes(4096).slots(3)
}

/// A child that ran `at_start` and then waits for its end; killed and reaped when dropped.
pub(crate) struct Child {
    pub(crate) pid: Pid,
    pub(crate) id: PeerId,
    from: std::io::PipeReader,
    to: std::io::PipeWriter,
    reaped: bool,
}

/// The child's end of the pipes.
pub(crate) struct Line {
    from: std::io::PipeReader,
    to: std::io::PipeWriter,
}

impl Line {
    pub(crate) fn say(&mut self, id: PeerId) {
        self.to.write_all(&id.to_bits().to_le_bytes()).unwrap();
    }

    /// Waits until the parent says so.
    pub(crate) fn hear(&mut self) {
        let mut word = [0];
        self.from.read_exact(&mut word).unwrap();
    }
}

impl Child {
    pub(crate) fn start(at_start: impl FnOnce() -> PeerId) -> Child {
        Child::run(|line| line.say(at_start()))
    }

    #[expect(
        unsafe_code,
        reason = "fork: the child runs one closure and ends by a signal or _exit"
    )]
    pub(crate) fn run(body: impl FnOnce(&mut Line)) -> Child {
        let (from, their_to) = std::io::pipe().unwrap();
        let (their_from, to) = std::io::pipe().unwrap();
        // SAFETY: the child uses this crate, the allocator (which libc keeps whole over a fork) and
        // pipes, and never returns from the block.
        match unsafe { nix::unistd::fork() }.unwrap() {
            ForkResult::Child => {
                drop((from, to));
                let mut line = Line {
                    from: their_from,
                    to: their_to,
                };
                if catch_unwind(AssertUnwindSafe(|| body(&mut line))).is_err() {
                    // SAFETY: ends the child without running anything of the parent's.
                    unsafe { libc::_exit(101) };
                }
                loop {
                    nix::unistd::pause();
                }
            }
            ForkResult::Parent { child } => {
                drop((their_from, their_to));
                let mut child = Child {
                    pid: child,
                    id: PeerId::new(0, 1).unwrap(),
                    from,
                    to,
                    reaped: false,
                };
                child.id = child.hear();
                child
            }
        }
    }

    /// A child that is attached, and whose bell hangs.
    pub(crate) fn belled(path: &Path) -> Child {
        Child::start(|| {
            let arena = options().attach(path).unwrap();
            arena.hang_bell().unwrap();
            keep(arena)
        })
    }

    pub(crate) fn attached_to(path: &Path) -> Child {
        Child::start(|| keep(options().attach(path).unwrap()))
    }

    pub(crate) fn tell(&mut self) {
        self.to.write_all(&[1]).unwrap();
    }

    pub(crate) fn hear(&mut self) -> PeerId {
        let mut got = [0; 8];
        self.from.read_exact(&mut got).unwrap();
        PeerId::from_bits(u64::from_le_bytes(got)).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid, signal).unwrap();
    }

    /// Kills it and waits until it is a zombie, which nobody has reaped.
    pub(crate) fn kill(&self) {
        self.signal(Signal::SIGKILL);
        let flags = nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT;
        nix::sys::wait::waitid(nix::sys::wait::Id::Pid(self.pid), flags).unwrap();
    }

    pub(crate) fn reap(&mut self) {
        assert!(matches!(
            waitpid(self.pid, None),
            Ok(WaitStatus::Signaled(..))
        ));
        self.reaped = true;
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = kill(self.pid, Signal::SIGKILL);
            let _ = waitpid(self.pid, None);
        }
    }
}

/// Keeps the arena for as long as the process lives.
pub(crate) fn keep(arena: Arena) -> PeerId {
    let id = arena.me().unwrap();
    std::mem::forget(arena);
    id
}

pub(crate) fn place() -> (tempfile::TempDir, PathBuf, Peers) {
    place_of(3)
}

pub(crate) fn place_of(slots: u16) -> (tempfile::TempDir, PathBuf, Peers) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("arena");
    let peers = Peers::new(&options().slots(slots).open(&path).unwrap());
    (directory, path, peers)
}

pub(crate) fn witness(verdict: Verdict) -> Option<Witness> {
    match verdict {
        Verdict::Dead(proof) => Some(proof.witness()),
        Verdict::Alive | Verdict::Unknown => None,
    }
}

/// From here on the system refuses this call to this process with this error, as a container's
/// filter does.
#[expect(unsafe_code, reason = "nothing wraps seccomp")]
pub(crate) fn refuse(call: libc::c_long, errno: i32) {
    let stmt = |code: u32, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: 0,
        jf: 0,
        k,
    };
    let mut equal = stmt(
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        u32::try_from(call).unwrap(),
    );
    equal.jf = 1;
    let refused = libc::SECCOMP_RET_ERRNO | errno.cast_unsigned();
    let mut filter = [
        stmt(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        equal,
        stmt(libc::BPF_RET | libc::BPF_K, refused),
        stmt(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap(),
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: takes integers.
    let privileged = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program and its instructions live until the call has copied them.
    let filtered = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    assert_eq!((privileged, filtered), (0, 0));
}
