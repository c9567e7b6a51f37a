//! Sleeping behind a holder until it releases, dies or lapses, without looking in between.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arena_peers::core::futex::Word;
use arena_peers::core::{PidFd, clock};
use arena_peers::{Alarm, PeerId, Peers, Sleep};

use crate::cancel::{Cancel, Listening};
use crate::companion::EndOf;

/// How long after the alarm a sleeper wakes by itself, should the watcher thread have been lost.
const SLACK: Duration = Duration::from_millis(200);

/// How long to sleep where a cancellation would not be heard.
const DEAF: Duration = Duration::from_secs(1);

/// How long to sleep where an end would not be told.
pub(crate) const UNTOLD: Duration = Duration::from_secs(1);

/// How soon to look again what stands in for a dead holder; doubled from then on.
pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(1);

/// What one wait keeps from sleep to sleep: its private word, which is rung by the process's watcher thread when
/// the holder dies (should its bell not tell) and at a moment of the boot clock, which runs on while the machine
/// sleeps; and by who cancels.
#[derive(Debug, Default)]
pub(crate) struct Bedside {
    kept: RefCell<Option<Box<Kept>>>,
}

/// What a sleep is on besides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct On<'a> {
    /// A word of the arena, and what it was: changed or woken, it ends the sleep.
    pub(crate) word: Option<(Word<'a>, u32)>,
    /// Another one.
    pub(crate) also: Option<(Word<'a>, u32)>,
    /// A peer whose death ends the sleep.
    pub(crate) behind: Option<PeerId>,
}

#[derive(Debug, Default)]
struct Kept {
    word: Arc<AtomicU32>,
    /// The word's count when the last sleep ended, or when it was new: that is, before the caller's next look. What
    /// happens after that look, be it before this sleeper is registered for it, makes the ticket stale.
    ticket: u32,
    alarm: Option<(Alarm, Option<PeerId>)>,
    cancel: Option<Listening>,
    is_deaf: bool,
    /// The companion that is waited for, and of which fence it is.
    companion: Option<(u64, EndOf)>,
    /// When to look next what stands in for a holder, and of which fence it is.
    look: Option<(u64, Duration)>,
}

impl Bedside {
    /// One whose sleeps `cancel` ends. To be made before the caller looks whether it was cancelled.
    #[inline]
    pub(crate) fn heeding(cancel: Option<&Cancel>) -> Self {
        let Some(cancel) = cancel else {
            return Self::default();
        };
        let mut kept = Kept::default();
        kept.cancel = cancel.listen(&kept.word).ok();
        kept.is_deaf = kept.cancel.is_none();
        Self {
            kept: RefCell::new(Some(Box::new(kept))),
        }
    }

    /// One whose private word others know, and ring.
    pub(crate) fn on(word: &Arc<AtomicU32>) -> Self {
        let kept = Kept {
            // EDGE alarm, acquire half.
            ticket: word.load(Ordering::Acquire),
            word: Arc::clone(word),
            ..Kept::default()
        };
        Self {
            kept: RefCell::new(Some(Box::new(kept))),
        }
    }

    /// The private word, for others who ring it.
    pub(crate) fn word(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.kept.borrow_mut().get_or_insert_default().word)
    }

    /// Has the private word rung when this process, the companion under `fence`, has ended. Whether that can be done.
    pub(crate) fn hear_of(&self, fence: u64, process: PidFd) -> bool {
        let mut kept = self.kept.borrow_mut();
        let kept = kept.get_or_insert_default();
        if kept.companion.as_ref().is_none_or(|(of, _)| *of != fence) {
            let end = EndOf::told_by(process, &kept.word).ok();
            kept.companion = end.map(|end| (fence, end));
        }
        kept.companion.is_some()
    }

    /// How long to sleep before the next look at what stands in for the holder under `fence`, of whose end nothing
    /// tells: a millisecond, and twice as long each time, up to a second.
    pub(crate) fn until_look(&self, fence: u64) -> Duration {
        let mut kept = self.kept.borrow_mut();
        let look = &mut kept.get_or_insert_default().look;
        let next = match look {
            Some((of, last)) if *of == fence => UNTOLD.min(*last * 2),
            _ => FIRST_LOOK,
        };
        *look = Some((fence, next));
        next
    }

    /// Sleeps until something happens to what there is to sleep `on`, the private word is rung, the arena is
    /// destroyed, or `timeout` is over.
    ///
    /// Where no alarm is to be had (no thread, no descriptor) the sleep ends by the kernel's timeout, which does
    /// not count the time that the machine sleeps, and a death without a bell is looked for once a second.
    pub(crate) fn sleep(&self, peers: &Peers, on: On<'_>, timeout: Duration) {
        let mut kept = self.kept.borrow_mut();
        let kept = kept.get_or_insert_default();
        kept.set(peers, on.behind, timeout);
        let by_hand = Alarm::by_hand(&kept.word);
        let (alarm, slack) = match &kept.alarm {
            Some((alarm, _)) => (alarm, SLACK),
            None => (&by_hand, Duration::ZERO),
        };
        let most = match kept.is_deaf {
            true => DEAF,
            false => Duration::MAX,
        };
        // Whatever ended the sleep, the caller looks at the word, and judges the holder, anew.
        let _slept = peers.sleep(&Sleep {
            word: on.word,
            also: on.also,
            peer: on.behind,
            alarm: Some((alarm, kept.ticket)),
            until_gone: true,
            timeout: Some(timeout.saturating_add(slack).min(most)),
        });
        kept.ticket = alarm.ticket();
    }
}

impl Kept {
    /// Has the word rung about `behind`, and `timeout` from now.
    fn set(&mut self, peers: &Peers, behind: Option<PeerId>, timeout: Duration) {
        let at_ms = u64::try_from(timeout.as_nanos().div_ceil(1_000_000))
            .ok()
            .and_then(|ms| clock::boot_ms().checked_add(ms + 1));
        match &self.alarm {
            Some((alarm, of)) if *of == behind && alarm.set_deadline(at_ms).is_ok() => {}
            _ => {
                let alarm = peers.alarm(&self.word, behind, at_ms).ok();
                self.alarm = alarm.map(|alarm| (alarm, behind));
            }
        }
    }
}
