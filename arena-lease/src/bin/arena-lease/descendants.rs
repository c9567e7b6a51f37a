//! What a process started, as /proc shows it.

use std::collections::BTreeSet;

use nix::unistd::{Pid, getpgid, getpgrp};

/// A process's children; of this one, those that it was given as a subreaper included.
pub(crate) fn children(of: Pid) -> BTreeSet<Pid> {
    let mut children = BTreeSet::new();
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{of}/task")) else {
        return children;
    };
    for task in tasks.flatten() {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let pids = text.split_whitespace().filter_map(|pid| pid.parse().ok());
        children.extend(pids.map(Pid::from_raw));
    }
    children
}

/// A process and its descendants in this process's group, as far as their parents live.
pub(crate) fn started_by(process: Pid) -> BTreeSet<Pid> {
    let (mut found, mut open) = (BTreeSet::new(), vec![process]);
    while let Some(process) = open.pop() {
        if found.insert(process) {
            open.extend(children(process));
        }
    }
    found.retain(|&process| getpgid(Some(process)) == Ok(getpgrp()));
    found
}
