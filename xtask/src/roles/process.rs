//! What a process can do to itself that a shared-memory library has to survive: fork, raw clone, losing its
//! descriptors or its main thread, becoming another program.

use std::{
    io::{Read, Write},
    os::unix::process::CommandExt,
    process::Command,
};

use nix::{
    libc,
    sys::{
        resource::{Resource, getrlimit, setrlimit},
        wait::waitpid,
    },
    unistd::{ForkResult, Pid, fork, pause, pipe},
};

/// Ends this process as a crash does, with a core file written into `directory`.
pub(super) fn dump_core(directory: &str) -> String {
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE).expect("there is such a limit");
    setrlimit(Resource::RLIMIT_CORE, hard, hard).expect("the hard limit may be had");
    std::env::set_current_dir(directory).expect("the scenario's directory is there");
    std::process::abort()
}

/// Forks. `None` in the child.
fn forked() -> Option<Pid> {
    // SAFETY: children's processes have one thread when they are told to fork, so that no lock is left held.
    match unsafe { fork() }.expect("the machine has room for a process") {
        ForkResult::Parent { child } => Some(child),
        ForkResult::Child => None,
    }
}

/// Forks a child that sleeps without exec until it is killed; gives its pid.
pub(crate) fn fork_sleeper() -> String {
    match forked() {
        Some(child) => child.to_string(),
        None => wait_for_ever(),
    }
}

/// Forks a child that dies with this process. `None` in the child.
pub(crate) fn fork_worker() -> Option<Pid> {
    let parent = nix::unistd::getpid();
    let child = forked();
    if child.is_none() {
        crate::told::die_with(parent);
    }
    child
}

/// The same by the system call alone, so that no handler of a library runs.
pub(crate) fn raw_clone_sleeper() -> String {
    // SAFETY: like fork: no new stack and no shared memory is asked for, so the child goes on in a copy.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    match child {
        0 => wait_for_ever(),
        child => child.to_string(),
    }
}

/// Forks a child that goes back through `main`, running every destructor. `None` in the child; otherwise how it ended.
pub(crate) fn fork_and_return() -> Option<String> {
    let child = forked()?;
    Some(format!("{:?}", waitpid(child, None)))
}

/// Runs `ask` in a forked child, which then ends at once; gives its answer.
pub(crate) fn ask_in_fork(ask: impl FnOnce() -> String) -> String {
    let (from, to) = pipe().expect("the process may have two more descriptors");
    let Some(child) = forked() else {
        drop(from);
        _ = std::fs::File::from(to).write_all(ask().as_bytes());
        // SAFETY: ends this process and touches nothing; its parent's objects are not ours to destroy.
        unsafe { libc::_exit(0) }
    };
    drop(to);
    let mut answer = String::new();
    let read = std::fs::File::from(from).read_to_string(&mut answer);
    let ended = waitpid(child, None);
    match (read, ended) {
        (Ok(_), Ok(nix::sys::wait::WaitStatus::Exited(_, 0))) => answer,
        other => format!("failed {other:?}"),
    }
}

/// Closes all descriptors there are, standard ones included.
pub(crate) fn close_everything() {
    // SAFETY: this process uses no descriptor afterwards; it waits to be killed.
    let closed = unsafe { libc::close_range(0, libc::c_uint::MAX, 0) };
    assert_eq!(closed, 0, "close_range exists since Linux 5.9");
}

/// Ends the calling thread alone, which the caller makes sure is the main one.
pub(crate) fn end_this_thread() -> ! {
    loop {
        // SAFETY: the thread's stack holds nothing that another thread uses: what it had was moved away.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}

/// Sleeps until a signal ends the process.
pub(crate) fn wait_for_ever() -> ! {
    loop {
        pause();
    }
}

/// Becomes another program: this one, as `role`. Comes back only with the reason why not.
pub(crate) fn become_role(role: &str) -> String {
    Command::new("/proc/self/exe")
        .args(["child", role])
        .exec()
        .to_string()
}
