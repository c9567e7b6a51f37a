//! What is told through `tracing`. Alone in its binary, because a subscriber is the whole process's.
#![cfg(feature = "tracing")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use arena_lease::{
    Acquire, Arena, ConcurrencyLimit, LatestStandby, Lead, Leases, Patience, Succession,
};
use common::{Actor, at, place, role};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const TTL: Duration = Duration::from_secs(3600);

/// A test only in name: what a copy of this binary does that was started with a role.
#[test]
fn a_role_is_played_when_it_is_asked_for() {
    let Some((_, path)) = role() else {
        return;
    };
    let leases = Leases::open(&Arena::open(&path).unwrap()).unwrap();
    assert!(matches!(
        leases.lease("job", TTL).unwrap().acquire(),
        Ok(Acquire::Held(_))
    ));
    at("holds");
}

static HEARD: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

struct Ear;

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() != "fence" {
            self.0.push_str(&format!(" {field}={value:?}"));
        }
    }
}

impl Subscriber for Ear {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.target() == "arena_lease"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        unreachable!("there are no spans")
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let heard = (*event.metadata().level(), line.0);
        HEARD
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(heard);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// What was told since the last time.
fn heard() -> Vec<(Level, String)> {
    std::mem::take(&mut HEARD.lock().unwrap())
}

#[test]
fn acquisitions_refusals_takeovers_losses_and_moves_are_told_once_each() {
    tracing::subscriber::set_global_default(Ear).unwrap();
    let (_directory, path) = place();
    let leases = Leases::open(&Arena::open(&path).unwrap()).unwrap();
    let rules = Lead::default();
    let mut holder = Actor::start("holder", &path);
    assert_eq!(holder.at(), "holds");
    let refused = leases.lease("job", TTL).unwrap().acquire().unwrap();
    assert!(matches!(refused, Acquire::Refused(_)));
    let told = heard();
    assert_eq!(told.len(), 1, "{told:?}");
    let (level, text) = &told[0];
    assert_eq!(*level, Level::DEBUG);
    assert!(
        text.starts_with(" message=refused lease=job why=Held"),
        "{text}"
    );

    holder.kill_unreaped();
    let lease = leases.lease("job", TTL).unwrap();
    let hold = lease.acquire().unwrap().held().unwrap();
    // Extended: nothing is new.
    assert_eq!(lease.acquire().unwrap().held().unwrap().fence, hold.fence);
    let told = heard();
    assert_eq!(told.len(), 1, "{told:?}");
    let (level, text) = &told[0];
    assert_eq!(*level, Level::WARN);
    assert!(
        text.starts_with(" message=taken over lease=job from=Dead"),
        "{text}"
    );

    let guard = rules.contend(&leases, "other").unwrap().won().unwrap();
    leases.lease("other", TTL).unwrap().release().unwrap();
    assert!(guard.loss().is_some() && guard.loss().is_some());
    drop(guard);
    let line = |level, text: &str| (level, text.to_owned());
    assert_eq!(
        heard(),
        [
            line(Level::INFO, " message=acquired lease=other"),
            line(Level::INFO, " message=released lease=other"),
        ]
    );

    let limit = ConcurrencyLimit::open(&leases, "n\n", 1.try_into().unwrap(), &rules).unwrap();
    drop(limit.try_acquire().unwrap());
    assert_eq!(
        heard()[0],
        line(Level::INFO, " message=acquired lease=n\\n#1")
    );

    let latest = LatestStandby::open(&leases, "line", &rules).unwrap();
    let how = latest.acquire(&Patience::new()).unwrap();
    assert!(matches!(how, Succession::Primary(_)));
    let moves: Vec<String> = heard()
        .into_iter()
        .filter_map(|(_, text)| {
            Some(
                text.strip_prefix(" message=standing limit=line state=")?
                    .to_owned(),
            )
        })
        .collect();
    let right = ["acquire", "standby3", "standby2", "standby1", "primary"];
    assert_eq!(moves, right.map(|state| format!("{state:?}")));
}
