//! A token that ends waiting.

use std::collections::BTreeMap;
use std::io;
use std::iter::successors;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use arena_peers::core::wiped::PerProcess;
use arena_peers::ring;

/// Ends the waits that it was given to, from any thread and for good.
///
/// Clones are the same token. It may be given to any number of waits, of any leases. In a child of fork an
/// inherited token is a copy: it is as cancelled as the parent's was, and neither hears of the other.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let arena = arena_lease::ArenaOptions::new().anonymous()?;
/// use std::time::Duration;
/// use arena_lease::{Acquire, Cancel, Leases, Refused};
///
/// let lease = Leases::open(&arena)?.lease("nightly", Duration::from_secs(30))?;
/// let cancel = Cancel::new();
/// let from_anywhere = cancel.clone();
/// std::thread::spawn(move || from_anywhere.cancel()).join().unwrap();
/// let outcome = lease.acquire_unless_cancelled(Duration::MAX, &cancel)?;
/// assert_eq!(outcome, Acquire::Refused(Refused::Cancelled));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Cancel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: u64,
    cancelled: AtomicBool,
    /// Whose cancellation is this one's too.
    parent: Option<Cancel>,
}

/// The words that a token rings, while this exists.
#[derive(Debug)]
pub(crate) struct Listening {
    cancel: Cancel,
    id: u64,
}

/// Which words each token rings: by token and listener. Once a process and not in the token, so that a child of
/// fork never finds its lock held.
static LISTENERS: PerProcess<BTreeMap<(u64, u64), Arc<AtomicU32>>> = PerProcess::forked_freely();

/// Numbers of tokens and listeners. Not wiped: those of a child are beyond the ones that it inherited.
static NEXT: AtomicU64 = AtomicU64::new(0);

fn next_number() -> u64 {
    // Relaxed: only that it is another one.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Default for Cancel {
    fn default() -> Self {
        Self::new()
    }
}

impl Cancel {
    /// A token that was not cancelled. One allocation.
    #[must_use]
    pub fn new() -> Self {
        Self::below(None)
    }

    /// A token that is cancelled with this one, and whose own cancellation this one does not hear of.
    #[must_use]
    pub fn child(&self) -> Self {
        Self::below(Some(self.clone()))
    }

    fn below(parent: Option<Self>) -> Self {
        let inner = Inner {
            id: next_number(),
            cancelled: AtomicBool::new(false),
            parent,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Ends every wait that was or will be given this token. May be called by any thread and as often as one
    /// likes, but not by a signal handler: takes a lock of this process, and a system call for each that waits.
    pub fn cancel(&self) {
        // EDGE cancelled, release half.
        self.inner.cancelled.store(true, Ordering::Release);
        // Under the lock that listeners register under: who registers later sees the flag. Refused (no memory for
        // the lock): nobody has registered either.
        let words: Vec<_> = LISTENERS
            .with(|listeners| {
                let mine = (self.inner.id, 0)..=(self.inner.id, u64::MAX);
                listeners
                    .range(mine)
                    .map(|(_, word)| word.clone())
                    .collect()
            })
            .unwrap_or_default();
        for word in words {
            ring(&word);
        }
    }

    /// Whether somebody cancelled. A load, and one for each token that this is a child of.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        // EDGE cancelled, acquire half: who sees the flag sees what was stored before it was set.
        let cancelled = |token: &Self| token.inner.cancelled.load(Ordering::Acquire);
        self.and_parents().any(cancelled)
    }

    fn and_parents(&self) -> impl Iterator<Item = &Self> {
        successors(Some(self), |token| token.inner.parent.as_ref())
    }

    /// Has `word` rung at the cancellation. To be called before [`is_cancelled`](Self::is_cancelled) is asked.
    pub(crate) fn listen(&self, word: &Arc<AtomicU32>) -> io::Result<Listening> {
        let id = next_number();
        LISTENERS.with(|listeners| {
            for token in self.and_parents() {
                listeners.insert((token.inner.id, id), Arc::clone(word));
            }
        })?;
        Ok(Listening {
            cancel: self.clone(),
            id,
        })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Nothing in a child of fork, whose map never had it.
        let _words = LISTENERS.with(|listeners| {
            for token in self.cancel.and_parents() {
                listeners.remove(&(token.inner.id, self.id));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rung(word: &AtomicU32) -> u32 {
        word.load(Ordering::Relaxed)
    }

    #[test]
    fn listeners_are_rung_once_each_and_those_of_other_tokens_and_former_ones_are_not() {
        let words = [(); 4].map(|()| Arc::new(AtomicU32::new(0)));
        let (cancel, other) = (Cancel::new(), Cancel::new());
        let _listening = [cancel.listen(&words[0]), cancel.clone().listen(&words[1])];
        let _elsewhere = other.listen(&words[2]);
        drop(cancel.listen(&words[3]));
        assert!(!cancel.is_cancelled());
        cancel.cancel();
        assert!(cancel.is_cancelled() && !other.is_cancelled());
        assert_eq!(words.each_ref().map(|word| rung(word)), [1, 1, 0, 0]);
    }

    #[test]
    fn a_child_is_cancelled_with_its_parent_and_not_the_other_way() {
        let words = [(); 3].map(|()| Arc::new(AtomicU32::new(0)));
        let parent = Cancel::new();
        let children = [parent.child(), parent.child().child()];
        let tokens = [&parent, &children[0], &children[1]];
        let listening: Vec<_> = tokens
            .iter()
            .zip(&words)
            .map(|(token, word)| token.listen(word))
            .collect();
        let rung = || words.each_ref().map(|word| rung(word));
        children[0].cancel();
        assert_eq!(tokens.map(Cancel::is_cancelled), [false, true, false]);
        assert_eq!(rung(), [0, 1, 0]);
        parent.cancel();
        assert_eq!(tokens.map(Cancel::is_cancelled), [true; 3]);
        assert_eq!(rung(), [1, 2, 1]);
        drop(listening);
        assert!(words.iter().all(|word| Arc::strong_count(word) == 1));
    }

    #[test]
    fn a_listener_that_is_gone_leaves_nothing_behind() {
        let (cancel, word) = (Cancel::new(), Arc::new(AtomicU32::new(0)));
        drop((cancel.listen(&word), cancel.listen(&word)));
        assert_eq!(Arc::strong_count(&word), 1);
        assert_eq!(Arc::strong_count(&cancel.inner), 1);
    }
}
