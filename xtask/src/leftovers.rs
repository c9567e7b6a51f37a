//! What must be as it was once a scenario is over: no process, no descriptor, no file.

use std::collections::BTreeSet;

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, waitid, waitpid},
    },
    unistd::Pid,
};

use crate::{
    child::{PATIENCE, until},
    outcome::{Outcome, ensure},
};

/// The open descriptors of this process, with what they lead to.
pub(crate) fn descriptors() -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return BTreeSet::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            // The directory that is being read is gone by the time anybody looks.
            (!target.ends_with("fd"))
                .then(|| format!("{} -> {}", entry.file_name().display(), target.display()))
        })
        .collect()
}

/// Fails when a child of this process is left, alive or a zombie.
pub(crate) fn no_children() -> Outcome {
    let peek =
        WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::All, peek) {
        Err(Errno::ECHILD) => Ok(()),
        found => {
            let names: Vec<String> = children().into_iter().map(name_of).collect();
            ensure!(false, "a child is left ({found:?}): {}", names.join(", "));
            Ok(())
        }
    }
}

/// Reaps what died with its own parent and so came to this process; a failure when one of them lives on.
pub(crate) fn reap_orphans() -> Outcome {
    let gone = until(PATIENCE, || {
        matches!(
            waitpid(None, Some(WaitPidFlag::WNOHANG)),
            Err(Errno::ECHILD)
        )
    });
    gone.map_err(|stop| stop.within("processes that should have died with their parent"))
}

/// Kills and reaps whatever children this process has, those that it inherited included.
pub(crate) fn clear_children() {
    loop {
        for pid in children() {
            _ = kill(pid, Signal::SIGKILL);
        }
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => return,
            Ok(nix::sys::wait::WaitStatus::StillAlive) => {
                std::thread::sleep(std::time::Duration::from_millis(1))
            }
            _ => {}
        }
    }
}

/// The names in /dev/shm that carry this run's mark.
pub(crate) fn marked_files(mark: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/dev/shm") else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains(mark))
        .collect()
}

fn children() -> Vec<Pid> {
    let me = std::process::id();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| parent_of(*pid) == Some(me))
        .map(Pid::from_raw)
        .collect()
}

fn parent_of(pid: i32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
}

fn name_of(pid: Pid) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!(
        "{pid} {}",
        String::from_utf8_lossy(&line).replace('\0', " ").trim_end()
    )
}
