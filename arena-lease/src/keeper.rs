//! One thread a process that renews the leases of all its guards.
//!
//! It is started for the first guard and ends when there has been none for a while. Between renewals it sleeps on a
//! private word, which is rung for a new guard, one that is gone, a cancellation, and, by the process's watcher thread,
//! at the moment of the boot clock at which something is due. State and lock lie behind memory that fork empties: a
//! child keeps nothing of its parent's alive.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arena_peers::core::futex;
use arena_peers::core::thread::start_quiet;
use arena_peers::core::wiped::PerProcess;
use arena_peers::ring;

use crate::term::Term;
use crate::wait::{Bedside, On};

/// How long the thread stays when there is nothing to keep.
const LINGER: Duration = Duration::from_millis(200);

/// It renews, which asks the system for a file's status, and calls back.
const STACK_BYTES: usize = 256 * 1024;

#[derive(Debug, Default)]
struct State {
    terms: BTreeMap<u64, Term>,
    /// The word of the thread, while there is one.
    thread: Option<Arc<AtomicU32>>,
}

static KEEPER: PerProcess<State> = PerProcess::forked_freely();

/// Renews the lease of `term` until it ends, or is [forgotten](forget).
pub(crate) fn keep(term: &Term) -> io::Result<()> {
    KEEPER.with(|state| {
        let word = match &state.thread {
            Some(word) => Arc::clone(word),
            None => {
                let word = Arc::new(AtomicU32::new(0));
                let for_thread = Arc::clone(&word);
                start_quiet("arena-keeper", STACK_BYTES, move || run(&for_thread))?;
                state.thread.insert(word).clone()
            }
        };
        term.heed(&word);
        state.terms.insert(term.id(), term.clone());
        ring(&word);
        Ok(())
    })?
}

/// Renews it no longer.
pub(crate) fn forget(term: &Term) {
    // Dropped when the lock is free: it may hold the last handle of an arena.
    let _forgotten = KEEPER.with(|state| {
        let forgotten = state.terms.remove(&term.id());
        if let Some(word) = &state.thread {
            ring(word);
        }
        forgotten
    });
}

/// Runs `call`, but not on the keeper's thread: whatever it takes, the leases of others are renewed meanwhile.
pub(crate) fn aside(call: impl FnOnce() + Send + Clone + 'static) {
    /// As a thread of the program's own has it.
    const STACK_BYTES: usize = 2 << 20;
    let started = IS_KEEPER
        .get()
        .then(|| start_quiet("arena-told", STACK_BYTES, call.clone()));
    if !matches!(started, Some(Ok(_))) {
        // Elsewhere; or no thread is to be had.
        call();
    }
}

thread_local! {
    static IS_KEEPER: Cell<bool> = const { Cell::new(false) };
}

/// The thread.
fn run(word: &Arc<AtomicU32>) {
    IS_KEEPER.set(true);
    // Its ticket is taken now, and then after each sleep: before the look at what there is to keep.
    let bedside = Bedside::on(word);
    loop {
        // EDGE alarm, acquire half.
        let ticket = word.load(Ordering::Acquire);
        let Ok(terms) = KEEPER.with(|state| Vec::from_iter(state.terms.values().cloned())) else {
            return;
        };
        let Some(peers) = terms.first().map(|term| term.lease().peers().clone()) else {
            let _woken = futex::wait(word, ticket, Some(LINGER));
            if is_over() {
                return;
            }
            continue;
        };
        let mut next = Duration::MAX;
        for term in terms {
            match term.tend() {
                Some(wait) => next = next.min(wait),
                None => forget(&term),
            }
        }
        bedside.sleep(&peers, On::default(), next);
    }
}

/// Whether the thread is to end, which nobody changes any more then.
fn is_over() -> bool {
    let over = KEEPER.with(|state| {
        let over = state.terms.is_empty();
        if over {
            state.thread = None;
        }
        over
    });
    over.unwrap_or(true)
}
