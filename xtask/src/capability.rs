//! What this machine lets us show, found out by trying.

use std::{path::Path, sync::OnceLock};

use nix::{sys::ptrace, unistd::geteuid};

use crate::{
    child::Plan,
    namespaces::Rooms,
    outcome::{Outcome, Stop},
    scenario::Need,
};

/// The first of `needs` that this machine does not offer, in words.
pub(crate) fn missing(needs: &[Need]) -> Option<String> {
    needs
        .iter()
        .find_map(|need| cell(*need).get_or_init(|| probe(*need)).clone())
}

/// Whether this process may do all that any scenario needs: then nothing may be skipped.
pub(crate) fn is_whole() -> bool {
    // CAP_SETGID, CAP_SETUID, CAP_SYS_PTRACE, CAP_SYS_ADMIN, as capabilities(7) numbers them.
    const NEEDED: u64 = 1 << 6 | 1 << 7 | 1 << 19 | 1 << 21;
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    cfg!(target_arch = "x86_64") && effective.is_some_and(|set| set & NEEDED == NEEDED)
}

fn cell(need: Need) -> &'static OnceLock<Option<String>> {
    static CELLS: [OnceLock<Option<String>>; 4] = [const { OnceLock::new() }; 4];
    &CELLS[match need {
        Need::Ptrace => 0,
        Need::Namespaces => 1,
        Need::TimeNamespace => 2,
        Need::OtherUser => 3,
    }]
}

fn probe(need: Need) -> Option<String> {
    let tried = match need {
        Need::Ptrace => traced(),
        Need::Namespaces => entered(Rooms {
            pid: true,
            fresh_proc: true,
            ..Rooms::default()
        }),
        Need::TimeNamespace => entered(Rooms {
            clock_ahead: Some(86_400),
            ..Rooms::default()
        }),
        Need::OtherUser if !geteuid().is_root() => Err(Stop::failed("this is not root")),
        Need::OtherUser => started(Plan::new("probe").by_user(1_001)),
    };
    let reason = match tried {
        Ok(()) => return None,
        Err(Stop::Failed(reason) | Stop::Skipped(reason)) => reason,
    };
    Some(match need {
        Need::Ptrace => format!("no process can be single-stepped here: {reason}"),
        Need::Namespaces => format!("no PID and mount namespaces here: {reason}"),
        Need::TimeNamespace => format!("no time namespaces here: {reason}"),
        Need::OtherUser => format!("needs root, to run a child as another user: {reason}"),
    })
}

fn entered(rooms: Rooms) -> Outcome {
    started(Plan::new("probe").in_rooms(rooms))
}

fn started(plan: Plan) -> Outcome {
    let mut child = plan.start(Path::new("/dev/shm"))?;
    child.expect("inside")?;
    child.finish()
}

fn traced() -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        return Err(Stop::Skipped("the stepper knows x86-64 only".to_owned()));
    }
    // One that waits: a process that ended cannot be traced.
    let mut child = Plan::new("rest").start(Path::new("/dev/shm"))?;
    child.expect("rest")?;
    Ok(ptrace::seize(
        child.pid(),
        ptrace::Options::PTRACE_O_EXITKILL,
    )?)
}
