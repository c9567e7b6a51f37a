//! Opens and uses an arena whose bytes nobody can vouch for.

use std::{path::Path, time::Duration};

use arena_core::{Arena, ArenaOptions, Attachment, AttachmentId, LockWord, Probe};
use arena_lease::LeasesOptions;
use arena_peers::{Peers, Verdict};

use super::Role;
use crate::{text, told::Told};

pub(super) const ROLES: &[Role] = &[("survivor", survivor)];

/// The options of these arenas: few rows and regions, so that every byte of the tables can be tried.
pub(crate) fn options() -> ArenaOptions {
    ArenaOptions::new()
        .usable_bytes(8 << 10)
        .slots(4)
        .regions(4)
        .busy_timeout(Duration::from_millis(5))
}

/// Makes a good one in use: a lease that is held, a region with something in it, a lock.
pub(crate) fn furnish(arena: &Arena) {
    let leases = LeasesOptions::new()
        .rows(4)
        .open(arena)
        .expect("there is room");
    for name in ["job", "other"] {
        let lease = leases
            .lease(name, Duration::from_secs(60))
            .expect("there is room");
        assert!(
            lease.acquire().is_ok_and(|answer| answer.held().is_some()),
            "a new lease is free"
        );
    }
    let region = arena.carve(b"things", 7, 1000).expect("there is room");
    region.write(0, b"payload").expect("inside the region");
    let _found = arena.carve(b"locks", 8, 64).expect("there is room");
}

/// Told a path, uses what is there and says how it went; until the end of input.
fn survivor(told: Told) {
    told.say("survivor");
    loop {
        let path = told.hear();
        let said = use_it(Path::new(&path));
        told.say(&format!("survived {said}"));
    }
}

/// Everything that an arena offers; what comes of it is a matter of luck, that it comes back is not.
fn use_it(path: &Path) -> String {
    let viewed = look(path);
    let arena = match options().open(path) {
        Ok(arena) => arena,
        Err(e) => return format!("refused {viewed} {}", text::error(&e)),
    };
    let mut told = Vec::new();
    for info in arena.regions() {
        let mut bytes = vec![0; usize::try_from(info.len_bytes.min(4096)).unwrap_or(0)];
        if let Some(region) = arena.find(&info.name) {
            told.push(region.read(0, &mut bytes).is_ok());
            told.push(
                region
                    .write(region.len_bytes().saturating_sub(7), b"the end")
                    .is_ok(),
            );
            told.push(region.read(region.len_bytes(), &mut [0]).is_ok());
        }
    }
    let mut payload = [0; 7];
    let found = arena
        .find(b"things")
        .is_some_and(|region| region.read(0, &mut payload).is_ok());
    told.push(arena.carve(b"new", 9, 100).is_ok());
    told.push(arena.carve(b"things", 7, 1000).is_ok());
    told.push(arena.carve(b"huge", 9, u64::MAX).is_ok());
    if let Ok(region) = arena.carve(b"locks", 8, 64)
        && let Ok(word) = region.at::<LockWord>(0)
    {
        told.push(arena.lock(word, Duration::from_millis(5)).is_ok());
    }
    let peers = Peers::new(&arena);
    for slot in 0..8 {
        told.push(arena.attachment(slot).is_some());
        told.extend(
            AttachmentId::new(slot, 1).map(|id| matches!(peers.verdict(id), Verdict::Alive)),
        );
    }
    told.push(peers.list().len() > peers.counts().used.into());
    told.push(peers.reap() > 0);
    told.push(arena.set_name(b"survivor").is_ok());
    told.push(arena.beat().is_ok());
    told.push(arena.reserve_fence(arena.fence_minimum()));
    told.push(arena.is_gone() || arena.is_unlinked());
    told.extend(lead(&arena));
    let refused = arena.refused();
    std::hint::black_box(told);
    let payload = if found {
        String::from_utf8_lossy(&payload).into_owned()
    } else {
        "-".to_owned()
    };
    let payload: String = payload.chars().filter(char::is_ascii_graphic).collect();
    format!("opened {viewed} {payload} refused {refused}")
}

/// Every verb of two leases, one that is there and one that may not be.
fn lead(arena: &Arena) -> Vec<bool> {
    let options = LeasesOptions::new()
        .rows(4)
        .busy_timeout(Duration::from_millis(5));
    let Ok(leases) = options.open(arena) else {
        return Vec::new();
    };
    let mut told = vec![leases.list().len() > 4];
    for name in ["job", "another"] {
        let Ok(lease) = leases.lease(name, Duration::from_millis(100)) else {
            continue;
        };
        told.push(lease.acquire().is_ok());
        told.push(lease.acquire_timeout(Duration::from_millis(2)).is_ok());
        told.push(lease.renew().is_ok());
        told.push(lease.mine());
        told.push(lease.holder().is_some());
        told.push(lease.stats().is_ok_and(|stats| stats.held));
        told.push(lease.fence() > 0);
        told.push(lease.release().is_ok());
    }
    told
}

/// The same without attaching.
fn look(path: &Path) -> &'static str {
    let Ok(view) = options().view(path) else {
        return "unseen";
    };
    for info in view.regions() {
        if let Some(region) = view.find(&info.name) {
            let mut bytes = [0; 16];
            _ = (region.read(0, &mut bytes), region.word(8), region.wide(0));
        }
    }
    let held = |row: Attachment| matches!(view.probe(row.id), Probe::Held);
    std::hint::black_box(view.attachments().into_iter().map(held).collect::<Vec<_>>());
    std::hint::black_box((view.refused(), view.is_gone(), view.len_bytes()));
    "seen"
}
