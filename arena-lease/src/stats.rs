//! What is known of a lease.

use std::time::Duration;

use arena_peers::{Attachment, PeerId, Verdict};

use crate::companion::{Keeps, keeps, own_namespace};
use crate::snapshot::Snapshot;
use crate::word::{Owner, Word};

/// Who holds a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its slot and epoch.
    pub peer: PeerId,
    /// The fence it holds under.
    pub fence: u64,
    /// Its deadline, in milliseconds of `CLOCK_BOOTTIME`.
    pub until_ms: u64,
    /// From the call's look at the clock to that deadline, unless it renews.
    pub lapses_in: Duration,
    /// When it acquired, in milliseconds of `CLOCK_BOOTTIME`; `None` when it was killed before it noted that, or
    /// has not come to it yet.
    pub since_ms: Option<u64>,
    /// Its pid in its own PID namespace; `None` when its row of the peer table is damaged.
    pub pid: Option<u32>,
    /// Its name in the peer table; `None` likewise.
    pub name: Option<Vec<u8>>,
    /// Whether it is alive; never [`Verdict::Dead`].
    pub verdict: Verdict,
}

/// A lease, as it was at some moment during the call. Each number is right at some moment; not all at the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Its name.
    pub name: Vec<u8>,
    /// Whether somebody holds it: not free, not lapsed, not by a process that is proven dead.
    pub held: bool,
    /// Who does.
    pub holder: Option<Holder>,
    /// The newest fence that was issued, whoever holds it or held it; right at once. A number larger than any
    /// issued, while nobody has acquired it under this name.
    pub fence: u64,
    /// How often it changed hands, the first time included. May trail: counted after the exchange, and not for
    /// a process that is killed in between; one that was stopped there for longer than its ttl may count it to
    /// the name that the row has by then. Starts again at 0 when the row was another lease's meanwhile.
    pub acquires: u64,
    /// How many of those took it from a holder that had lapsed or was dead. May trail likewise.
    pub steals: u64,
    /// Until the holder's deadline, if it does not renew.
    pub lapses_in: Option<Duration>,
    /// For how long the last holder keeps a lease that nobody holds (a minimum hold); `None` when it does not.
    pub opens_in: Option<Duration>,
}

/// What `row` says at `now_ns`; `None` when its word is none of this library's.
pub(crate) fn stats_of(
    row: Snapshot,
    now_ns: u64,
    attachment: impl FnOnce(u16) -> Option<Attachment>,
    verdict: impl FnOnce(PeerId) -> Verdict,
    stand_in: impl FnOnce(PeerId) -> bool,
) -> Option<Stats> {
    let word = Word::decode(row.word)?;
    let holder = holder_of(row, word, now_ns, attachment, verdict, stand_in);
    Some(Stats {
        name: row.name.to_vec(),
        held: holder.is_some(),
        lapses_in: holder.as_ref().map(|holder| holder.lapses_in),
        opens_in: Some(word.left(now_ns))
            .filter(|left| word.owner == Owner::Nobody && !left.is_zero()),
        holder,
        fence: word.fence,
        acquires: row.acquires,
        steals: row.steals,
    })
}

fn holder_of(
    row: Snapshot,
    word: Word,
    now_ns: u64,
    attachment: impl FnOnce(u16) -> Option<Attachment>,
    verdict: impl FnOnce(PeerId) -> Verdict,
    stand_in: impl FnOnce(PeerId) -> bool,
) -> Option<Holder> {
    let Owner::Peer(peer) = word.owner else {
        return None;
    };
    if word.is_over(now_ns) {
        return None;
    }
    // The row before the verdict: were it another's by then, the verdict is dead.
    let attachment = attachment(peer.slot()).filter(|found| found.id == peer);
    let verdict = match verdict(peer) {
        Verdict::Dead(_) => {
            match keeps(row.companion, word.fence, own_namespace, || stand_in(peer)) {
                Keeps::No => return None,
                // Who works on its behalf lives on.
                Keeps::Yes(_) | Keeps::Perhaps | Keeps::StandIn => Verdict::Unknown,
            }
        }
        verdict => verdict,
    };
    let identity = attachment.as_ref().and_then(|found| found.identity);
    Some(Holder {
        peer,
        fence: word.fence,
        until_ms: word.until_ms,
        lapses_in: word.left(now_ns),
        since_ms: row.since_ms(word.fence),
        pid: identity.map(|known| known.pid),
        name: attachment.map(|found| found.name),
        verdict,
    })
}
