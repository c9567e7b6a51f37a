//! The zygote of the stepper, and the sections that its children run between two marks.

use nix::{
    sys::wait::{Id, WaitPidFlag, waitid},
    unistd::{ForkResult, Pid, fork, getpid},
};

use arena_core::Arena;

use super::{Role, line_sections, ring, sections};
use crate::{
    told::{Told, die_with},
    tracee::mark,
};

pub(super) const ROLES: &[Role] = &[("zygote", zygote)];

/// What a section does between its marks, made ready.
pub(super) type Ready = Box<dyn FnOnce() -> Tell>;

/// Says, behind the marks, how the section ended.
pub(super) type Tell = Box<dyn FnOnce() -> String>;

/// A section: its name, what its zygote has before it forks, and what its child prepares from that and from what
/// the scenario told.
pub(super) type Section = (
    &'static str,
    fn(&mut Told) -> Option<Arena>,
    fn(Option<&Arena>, &str) -> Ready,
);

const SECTIONS: &[&[Section]] = &[
    &[("store", nothing, store)],
    sections::SECTIONS,
    line_sections::SECTIONS,
    ring::SECTIONS,
];

/// The zygote has nothing.
pub(super) fn nothing(_told: &mut Told) -> Option<Arena> {
    None
}

/// Forks a child for each point, and reaps it when it is told to.
fn zygote(mut told: Told) {
    let name = told.arg();
    let mut sections = SECTIONS.iter().copied().flatten();
    let section = sections.find(|(section, _, _)| *section == name);
    let (_, setup, prepare) = section.expect("the scenario names a section that exists");
    let inherited = setup(&mut told);
    told.say("zygote");
    loop {
        let line = told.hear();
        let text = line
            .strip_prefix("fork ")
            .expect("a zygote is told to fork")
            .to_owned();
        let Some(child) = born(&told, || prepare(inherited.as_ref(), &text)) else {
            return;
        };
        waitid(Id::Pid(child), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)
            .expect("the child is ours");
        told.at("ended");
        waitid(Id::Pid(child), WaitPidFlag::WEXITED).expect("the child is ours, and ended");
        told.say("reaped");
    }
}

/// In the zygote: the child. In the child: nothing, after all is done.
#[expect(
    unsafe_code,
    reason = "a fork per point costs a fifth of an exec per point"
)]
fn born(told: &Told, prepare: impl FnOnce() -> Ready) -> Option<Pid> {
    let me = getpid();
    // SAFETY: the zygote has one thread, so that no lock of another thread is held in the child.
    let forked = unsafe { fork() }.expect("the machine has room for a process");
    if let ForkResult::Parent { child } = forked {
        return Some(child);
    }
    die_with(me);
    told.at(&format!("born {}", getpid()));
    let section = prepare();
    mark();
    let tell = section();
    mark();
    told.at(&format!("done {}", tell()));
    None
}

/// The stepper's own test: a file is written twice. Told: its path.
fn store(_inherited: Option<&Arena>, path: &str) -> Ready {
    let path = path.to_owned();
    Box::new(move || {
        let first = std::fs::write(&path, "first");
        let both = first.and_then(|()| std::fs::write(&path, "second"));
        Box::new(|| both.map_or_else(|e| e.to_string(), |()| "stored".to_owned()))
    })
}
