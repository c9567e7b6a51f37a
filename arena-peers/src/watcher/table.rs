//! Who is watched, for whom, and what comes next: the watcher's memory, without any system call.

use std::collections::{BTreeMap, BTreeSet};

use arena_core::AttachmentId as PeerId;

use super::{Calls, Sink, Subject};
use crate::{DeathProof, Peers};

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: BTreeMap<u64, Entry>,
    subjects: BTreeMap<u64, (Subject, BTreeSet<u64>)>,
    /// By mapping and id: openings of one arena have mappings of their own.
    numbers: BTreeMap<(usize, u64), u64>,
    /// Boot-clock nanoseconds and what is due then.
    timers: BTreeSet<(u64, Timer)>,
    /// When the thread ends, if nothing is registered until then.
    over_ns: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Deadline(u64),
    Look(u64),
}

#[derive(Debug)]
struct Entry {
    subject: Option<u64>,
    sink: Sink,
    deadline_ns: Option<u64>,
}

/// What the thread has to do.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) calls: Calls,
    pub(super) looks: Vec<(u64, Peers, PeerId)>,
}

fn key(peers: &Peers, peer: PeerId) -> (usize, u64) {
    (peers.arena().base_address(), peer.to_bits())
}

impl Table {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn knows(&self, id: u64) -> bool {
        self.entries.contains_key(&id)
    }

    pub(super) fn find(&self, peers: &Peers, peer: PeerId) -> Option<u64> {
        self.numbers.get(&key(peers, peer)).copied()
    }

    pub(super) fn subject(&self, number: u64) -> Option<&Subject> {
        self.subjects.get(&number).map(|(subject, _)| subject)
    }

    pub(super) fn add_subject(&mut self, number: u64, subject: Subject) {
        let at = key(&subject.peers, subject.peer);
        self.numbers.insert(at, number);
        self.subjects.insert(number, (subject, BTreeSet::new()));
    }

    /// Adds a listener. The proof, if its subject is known to be dead: nobody else will tell it.
    pub(super) fn enter(
        &mut self,
        id: u64,
        subject: Option<u64>,
        sink: Sink,
        wants_looks: bool,
    ) -> Option<DeathProof> {
        self.over_ns = None;
        let entry = Entry {
            subject,
            sink,
            deadline_ns: None,
        };
        self.entries.insert(id, entry);
        let number = subject?;
        let (subject, listeners) = self.subjects.get_mut(&number)?;
        listeners.insert(id);
        let more = listeners.len() == 1 || wants_looks && !subject.wants_looks;
        subject.wants_looks |= wants_looks;
        if more && subject.until_look_ns().is_some() {
            // At once: it may have died before anybody listened.
            self.timers.insert((0, Timer::Look(number)));
        }
        subject.dead
    }

    /// Removes a listener, and its subject if it was the last.
    pub(super) fn leave(&mut self, id: u64) -> Option<Subject> {
        self.set_deadline(id, None);
        let number = self.entries.remove(&id)?.subject?;
        let (_, listeners) = self.subjects.get_mut(&number)?;
        listeners.remove(&id);
        if !listeners.is_empty() {
            return None;
        }
        let (subject, _) = self.subjects.remove(&number)?;
        self.numbers.remove(&key(&subject.peers, subject.peer));
        self.timers
            .retain(|(_, timer)| *timer != Timer::Look(number));
        Some(subject)
    }

    pub(super) fn set_deadline(&mut self, id: u64, at_ns: Option<u64>) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        if let Some(before) = entry.deadline_ns.take() {
            self.timers.remove(&(before, Timer::Deadline(id)));
        }
        entry.deadline_ns = at_ns;
        if let Some(at) = at_ns {
            self.timers.insert((at, Timer::Deadline(id)));
        }
    }

    pub(super) fn linger_until(&mut self, at_ns: u64) {
        self.over_ns = Some(at_ns);
    }

    /// Whether the thread may end.
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        self.is_empty() && self.over_ns.is_none_or(|at| at <= now_ns)
    }

    /// When there is something to do next.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(at, _)| *at);
        [timer, self.over_ns].into_iter().flatten().min()
    }

    /// What is due by now, `ready` subjects included.
    pub(super) fn due(&mut self, now_ns: u64, ready: &[u64]) -> Due {
        let mut due = Due::default();
        let mut look = BTreeSet::from_iter(ready.iter().copied());
        while let Some(&(at, timer)) = self.timers.first()
            && at <= now_ns
        {
            self.timers.pop_first();
            match timer {
                Timer::Look(number) => {
                    look.insert(number);
                }
                Timer::Deadline(id) => {
                    if let Some(entry) = self.entries.get_mut(&id) {
                        entry.deadline_ns = None;
                        due.calls.push((entry.sink.clone(), None));
                    }
                }
            }
        }
        for number in look {
            if let Some((subject, _)) = self.subjects.get(&number)
                && subject.dead.is_none()
            {
                due.looks
                    .push((number, subject.peers.clone(), subject.peer));
            }
        }
        due
    }

    /// A look found no proof. `ended`: although its pidfd said that it ended.
    pub(super) fn lives(&mut self, number: u64, now_ns: u64, ended: bool) {
        let Some((subject, _)) = self.subjects.get_mut(&number) else {
            return;
        };
        if ended {
            subject.forget_pidfd();
        }
        self.timers
            .retain(|(_, timer)| *timer != Timer::Look(number));
        if let Some(wait) = subject.until_look_ns() {
            self.timers.insert((now_ns + wait, Timer::Look(number)));
        }
    }

    /// The subject is dead: whom to tell.
    pub(super) fn bury(&mut self, number: u64, proof: DeathProof) -> Calls {
        let Some((subject, listeners)) = self.subjects.get_mut(&number) else {
            return Calls::new();
        };
        if subject.dead.replace(proof).is_some() {
            return Calls::new();
        }
        self.timers
            .retain(|(_, timer)| *timer != Timer::Look(number));
        let entries = listeners.iter().filter_map(|id| self.entries.get(id));
        entries
            .map(|entry| (entry.sink.clone(), Some(proof)))
            .collect()
    }
}
