//! Waiting for a change of a family: a place that is taken or given up, or the end of somebody who has one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use arena_peers::core::futex::Word;
use arena_peers::{Alarm, PeerId};

use crate::companion::{EndOf, Keeps};
use crate::error::LeaseError;
use crate::family::{Family, Obstacle};
use crate::limit::LimitError;
use crate::wait::{Bedside, On, UNTOLD};
use crate::word::NS_PER_MS;

/// One caller's wait for a change of the family.
pub(crate) struct Vigil<'a> {
    family: &'a Family,
    bedside: Bedside,
    /// Who is watched, besides the one who is slept behind.
    alarms: BTreeMap<PeerId, Alarm>,
    seen: u32,
}

impl<'a> Vigil<'a> {
    /// To be made before the caller looks whether he was cancelled.
    pub(crate) fn new(family: &'a Family) -> Self {
        Self {
            bedside: Bedside::heeding(family.rules.cancel.as_ref()),
            family,
            alarms: BTreeMap::new(),
            seen: 0,
        }
    }

    /// To be called before each look at the places after which the caller may sleep.
    pub(crate) fn listen(&mut self) {
        let row = self.family.row();
        // EDGE changed, waiter's half: the registration, then the fence, then the looks.
        row.waited.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // EDGE changed, acquire half.
        self.seen = row.changes.load(Ordering::Acquire);
    }

    /// Sleeps until a place is taken or given up, one of those in the way dies or lapses, the rules' token is
    /// cancelled, the arena is destroyed, or `until_ns` of the lease's clock.
    pub(crate) fn sleep(
        &mut self,
        in_the_way: Vec<Obstacle>,
        until_ns: u64,
    ) -> Result<Awake, LimitError> {
        let family = self.family;
        let lease = family.lease(0);
        let now_ns = lease.now_ns();
        if now_ns >= until_ns {
            return Ok(Awake::TimeIsUp);
        }
        if family.is_cancelled() {
            return Ok(Awake::Cancelled);
        }
        let gone_ms = in_the_way.iter().map(|obstacle| obstacle.until_ms).min();
        let gone_ns = gone_ms.map_or(u64::MAX, |ms| ms.saturating_mul(NS_PER_MS));
        let mut until_ns = until_ns.min(gone_ns);
        let living = |obstacle: &&Obstacle| obstacle.beyond.is_none();
        let peers = in_the_way.iter().filter(living);
        let mut peers = peers.filter_map(|obstacle| obstacle.peer);
        let behind = peers.next();
        let watched = self.watch(&peers.collect());
        let (_told, look) = self.companions(in_the_way);
        let look = if watched { look } else { look.min(UNTOLD) };
        until_ns = until_ns.min(lease.in_ns(look));
        let word = Word::of(&family.row().changes);
        let left = Duration::from_nanos(until_ns.saturating_sub(now_ns));
        let on = On {
            word: Some((word, self.seen)),
            behind,
            ..On::default()
        };
        self.bedside.sleep(lease.peers(), on, left);
        match lease.is_removed() {
            true => Err(LeaseError::Removed.into()),
            false => Ok(Awake::Look),
        }
    }

    /// Has the ends of those told who work for the dead that are in the way, as long as what is returned is kept; and how
    /// soon to look because of those of whose end nothing tells.
    fn companions(&self, in_the_way: Vec<Obstacle>) -> (Vec<EndOf>, Duration) {
        let (mut told, mut look, mut stand_in) = (Vec::new(), Duration::MAX, None);
        for keeps in in_the_way
            .into_iter()
            .filter_map(|obstacle| obstacle.beyond)
        {
            match keeps {
                (Keeps::Yes(process), _) => match EndOf::told_by(process, &self.bedside.word()) {
                    Ok(end) => told.push(end),
                    Err(_) => look = UNTOLD,
                },
                (Keeps::StandIn, fence) => stand_in = stand_in.or(Some(fence)),
                // Until the deadline.
                (Keeps::Perhaps | Keeps::No, _) => {}
            }
        }
        if let Some(fence) = stand_in {
            look = look.min(self.bedside.until_look(fence));
        }
        (told, look)
    }

    /// Whether the deaths of all of these will be told.
    fn watch(&mut self, others: &BTreeSet<PeerId>) -> bool {
        let word = self.bedside.word();
        let peers = self.family.lease(0).peers();
        self.alarms.retain(|peer, _| others.contains(peer));
        for &peer in others {
            if !self.alarms.contains_key(&peer)
                && let Ok(alarm) = peers.alarm(&word, Some(peer), None)
            {
                self.alarms.insert(peer, alarm);
            }
        }
        self.alarms.len() == others.len()
    }
}

/// Why a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awake {
    /// Something may have changed.
    Look,
    TimeIsUp,
    Cancelled,
}
