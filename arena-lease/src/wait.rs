//! Sleeping behind a holder until it releases, dies or lapses, without looking in between.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use arena_peers::core::clock;
use arena_peers::core::futex::Word;
use arena_peers::{Alarm, PeerId, Peers, Sleep};

/// How long after the alarm a sleeper wakes by itself, should the watcher thread have been lost.
const SLACK: Duration = Duration::from_millis(200);

/// What one wait keeps from sleep to sleep: the alarm that the process's watcher thread rings when the holder dies
/// (should its bell not tell), and at a moment of the boot clock, which runs on while the machine sleeps.
#[derive(Debug, Default)]
pub(crate) struct Bedside {
    alarm: RefCell<Option<Set>>,
}

#[derive(Debug)]
struct Set {
    alarm: Alarm,
    behind: Option<PeerId>,
    /// Taken when the last sleep ended, that is, before the caller's next look at the word.
    ticket: u32,
}

impl Bedside {
    /// Sleeps until `word` is not `seen` or is woken, `behind` is proven dead, the arena is destroyed, or `timeout` is
    /// over.
    ///
    /// Where no alarm is to be had (no thread, no descriptor) the sleep ends by the kernel's timeout, which does
    /// not count the time that the machine sleeps, and a death without a bell is looked for once a second.
    pub(crate) fn sleep(
        &self,
        peers: &Peers,
        (word, seen): (Word<'_>, u32),
        behind: Option<PeerId>,
        timeout: Duration,
    ) {
        let mut kept = self.alarm.borrow_mut();
        set(&mut kept, peers, behind, timeout);
        let alarm = kept.as_ref().map(|set| (&set.alarm, set.ticket));
        let slack = if alarm.is_some() {
            SLACK
        } else {
            Duration::ZERO
        };
        // Whatever ended the sleep, the caller looks at the word, and judges the holder, anew.
        let _slept = peers.sleep(&Sleep {
            word: Some((word, seen)),
            peer: behind,
            alarm,
            until_gone: true,
            timeout: Some(timeout.saturating_add(slack)),
        });
        if let Some(set) = kept.as_mut() {
            set.ticket = set.alarm.ticket();
        }
    }
}

/// Makes `kept` an alarm about `behind` that rings `timeout` from now.
fn set(kept: &mut Option<Set>, peers: &Peers, behind: Option<PeerId>, timeout: Duration) {
    let at_ms = u64::try_from(timeout.as_nanos().div_ceil(1_000_000))
        .ok()
        .and_then(|ms| clock::boot_ms().checked_add(ms + 1));
    match kept {
        Some(set) if set.behind == behind && set.alarm.set_deadline(at_ms).is_ok() => return,
        _ => *kept = None,
    }
    // The count of a fresh word, before anybody can ring it: what happened between the caller's look and the
    // registration is told by a ring, and then the ticket is out of date.
    let ticket = 0;
    let word = Arc::new(AtomicU32::new(ticket));
    let alarm = peers.alarm(&word, behind, at_ms).ok();
    *kept = alarm.map(|alarm| Set {
        alarm,
        behind,
        ticket,
    });
}
