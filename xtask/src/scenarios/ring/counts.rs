//! What is counted, and that nothing is mixed: readers that are overtaken, sizes, many at once, and chaos.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::cast::{Reader, Scene, publishes};
use crate::{
    child::{Child, PATIENCE, until, waits},
    outcome::{Outcome, Stop, ensure},
    scenario::{Run, Scenario},
    scenarios::cast::Peer,
    streams::Judged,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "ring",
        "R5",
        "a_reader_that_slept_through_ten_rings_counts_exactly_what_it_missed_and_goes_on_without_a_gap",
        overtaken,
    )
    .rounds(5, 200),
    Scenario::new(
        "ring",
        "R5",
        "an_overtaken_reader_that_goes_on_is_not_overtaken_again_by_the_next_records",
        lands,
    )
    .rounds(5, 200),
    Scenario::new(
        "ring",
        "R7",
        "records_of_every_size_arrive_and_one_that_is_too_large_moves_nothing",
        sizes,
    )
    .rounds(1, 20),
    Scenario::new(
        "ring",
        "R6",
        "no_record_is_mixed_and_none_uncounted_while_four_publish_and_four_read",
        mixed,
    )
    .rounds(3, 60)
    .limit_secs(120),
    Scenario::new(
        "ring",
        "R11",
        "publishers_go_on_when_readers_are_killed_asleep_or_reading",
        readers_killed,
    )
    .rounds(10, 300),
    Scenario::new(
        "ring",
        "chaos",
        "streams_agree_and_counts_add_up_though_publishers_and_readers_are_killed_and_stopped",
        chaos,
    )
    .rounds(3, 200)
    .limit_secs(120),
];

/// Goal: `lapped` is exact. Method: a reader sleeps, is stopped, and goes on after ten times the capacity was published, with
/// nobody else there: what it still finds is then known but for the slots that it leaves to be overwritten next.
fn overtaken(run: &mut Run) -> Outcome {
    run.each_round(|run, round| {
        let slots = 8 + u32::try_from(run.rng.below(120))?;
        let mut scene = Scene::new(run, &format!("r{round}"), slots, 64);
        let (mut reader, mut publisher) = (scene.reader(run, "now")?, scene.publisher(run)?);
        reader.peer.child.tell("await 1")?;
        until(PATIENCE, || waits(reader.peer.child.pid()))?;
        reader.peer.child.stop()?;
        let (all, slots) = (10 * u64::from(slots), u64::from(slots));
        publisher.must(&format!("burst {all} 8"), "true")?;
        reader.peer.child.cont()?;
        let first = reader.stats_of("await")?;
        let lapped = first.counts.lapped;
        ensure!(
            lapped == all - slots + slots / 8 && first.next == lapped + 2,
            "of {all} records in {slots} slots: {first:?}"
        );
        let drained = reader.drain()?;
        ensure!(
            lapped + 1 + drained == all,
            "{lapped} lapped, then 1 and {drained} of {all} were given"
        );
        let judged = scene.judge([reader])?;
        ensure!(judged.lapped == lapped, "{judged:?}");
        publisher.leave()
    })
}

/// Goal: after a loss there is room to go on in. Method: a reader is overtaken; then it takes a record for each that is published, once
/// around the ring.
fn lands(run: &mut Run) -> Outcome {
    run.each_round(|run, round| {
        let slots = 16 + run.rng.below(100);
        let mut scene = Scene::new(run, &format!("r{round}"), u32::try_from(slots)?, 64);
        let (mut reader, mut publisher) = (scene.reader(run, "now")?, scene.publisher(run)?);
        publisher.must(
            &format!("burst {} 8", 3 * slots + run.rng.below(slots)),
            "true",
        )?;
        ensure!(reader.peer.ask("one")? != "none", "nothing is in the ring");
        let lapped = reader.stats()?.counts.lapped;
        for _ in 0..slots {
            publishes(&mut publisher, 8)?;
            ensure!(reader.peer.ask("one")? != "none", "nothing is in the ring");
        }
        let stats = reader.stats()?;
        ensure!(
            lapped > 0 && stats.counts.lapped == lapped,
            "it was overtaken by {lapped}, and then again: {stats:?}"
        );
        scene.judge([reader])?;
        publisher.leave()
    })
}

/// Goal: every size up to the limit, and none above it. Method: lengths at the edges of slots and of the ring, those too large
/// reserved, so that no memory is needed for them; a reader of another process looks at each byte.
fn sizes(run: &mut Run) -> Outcome {
    run.each_round(|run, round| {
        let slots = 4 + u32::try_from(run.rng.below(30))?;
        let mut scene = Scene::new(run, &format!("r{round}"), slots, 40);
        let (mut reader, mut publisher) = (scene.reader(run, "now")?, scene.publisher(run)?);
        let max = scene.max_payload();
        let mut lens = vec![0, 1, 7, 8, 9, max - 1, max];
        for span in 1..=u64::from(slots) / 2 {
            let len = scene.payload_of(span);
            lens.extend([len.saturating_sub(1), len, (len + 1).min(max)]);
        }
        for (count, len) in (1..).zip(&lens) {
            let seq = publishes(&mut publisher, *len)?;
            let given = reader.peer.ask("one")?;
            ensure!(
                seq == count && given == count.to_string(),
                "of {len} bytes, number {seq}, {given} was given"
            );
        }
        let before = scene.ring.stats();
        let capacity = 2 * scene.ring.max_record();
        let limit = u64::from(u32::MAX);
        let large = [
            max + 1,
            capacity,
            limit - 1,
            limit,
            limit + 1,
            usize::MAX as u64,
        ];
        for len in large {
            let answer = publisher.ask(&format!("reserve {len}"))?;
            ensure!(answer.starts_with("TooLarge"), "{len} bytes: {answer}");
        }
        let after = scene.ring.stats();
        ensure!(
            (after.position, after.published) == (before.position, before.published)
                && after.oversize == before.oversize + 6,
            "{before:?} became {after:?}"
        );
        let judged = scene.judge([reader])?;
        ensure!(judged.given == lens.len(), "{judged:?}");
        publisher.leave()
    })
}

/// Goal: whatever is given is whole, in order, and what is not is counted. Method: four publish without pause and four read, half of whom
/// are overtaken again and again, a second in each of several small rings.
fn mixed(run: &mut Run) -> Outcome {
    let mut all = Judged::default();
    run.each_round(|run, round| {
        let slots = [8, 31, 64, 500, 1024][run.rng.index(5)];
        let mut scene = Scene::new(run, &format!("r{round}"), slots, 64);
        let mut crew = Crew::new(run, &mut scene, 4, 4)?;
        crew.start(0, 300)?;
        let end = Instant::now() + Duration::from_secs(1);
        until(PATIENCE, || Instant::now() > end)?;
        all += crew.end(scene)?;
        Ok(())
    })?;
    run.detail(&format!(
        "{} committed, {} given, {} lapped",
        all.committed, all.given, all.lapped
    ));
    ensure!(
        all.committed > 1_000 && all.given > 1_000 && all.lapped > 100,
        "too little happened: {all:?}"
    );
    Ok(())
}

/// Publishers and readers that go on by themselves.
struct Crew {
    publishers: Vec<Peer>,
    readers: Vec<Reader>,
    /// How they are told to go on.
    publish: String,
    read: String,
}

impl Crew {
    fn new(run: &mut Run, scene: &mut Scene, publishers: usize, readers: usize) -> Outcome<Self> {
        let publishers = (0..publishers).map(|_| scene.publisher(run));
        let publishers = publishers.collect::<Outcome<_>>()?;
        let readers = (0..readers).map(|_| scene.reader(run, "now"));
        Ok(Self {
            publishers,
            readers: readers.collect::<Outcome<_>>()?,
            publish: String::new(),
            read: String::new(),
        })
    }

    /// Starts all: publishers rest up to `pace_us` after each record, every other reader dawdles for up to `dawdle_us`.
    fn start(&mut self, pace_us: u64, dawdle_us: u64) -> Outcome {
        self.publish = format!("free {pace_us}");
        self.read = format!("free {dawdle_us}");
        for publisher in &mut self.publishers {
            publisher.child.tell(&self.publish)?;
        }
        for (at, reader) in self.readers.iter_mut().enumerate() {
            let line = if at % 2 == 0 { "free 0" } else { &self.read };
            reader.peer.child.tell(line)?;
        }
        Ok(())
    }

    fn end(mut self, scene: Scene) -> Outcome<Judged> {
        for publisher in &mut self.publishers {
            silent(&mut publisher.child)?;
            publisher.child.ask("stop", "free")?;
        }
        for reader in &mut self.readers {
            silent(&mut reader.peer.child)?;
            reader.peer.child.tell("stop")?;
            reader.stats_of("free")?;
        }
        let judged = scene.judge(self.readers)?;
        self.publishers.into_iter().try_for_each(Peer::leave)?;
        Ok(judged)
    }
}

/// Fails when one that goes on by itself has said something, or ended.
fn silent(child: &mut Child) -> Outcome {
    if !child.speaks() {
        return Ok(());
    }
    let said = child.hear(PATIENCE)?;
    Err(Stop::failed(format!("it says {said:?}, and was not asked")))
}

/// Goal: a reader is nobody's concern. Method: readers are killed while they sleep and while they read; a publisher publishes
/// several rings full after each, and another reader is given what it must be.
fn readers_killed(run: &mut Run) -> Outcome {
    let mut scene = Scene::new(run, "readers", 32, 64);
    let (mut publisher, mut stays) = (scene.publisher(run)?, scene.reader(run, "now")?);
    run.each_round(|run, round| {
        let mut doomed = scene.reader(run, "now")?;
        let is_asleep = round % 2 == 0;
        if is_asleep {
            doomed.peer.child.tell("await 1")?;
            until(PATIENCE, || waits(doomed.peer.child.pid()))?;
        } else {
            doomed.peer.child.tell("free 0")?;
            publisher.child.tell("free 0")?;
            std::thread::sleep(Duration::from_micros(run.rng.below(3_000)));
        }
        doomed.peer.child.kill()?;
        if !is_asleep {
            publisher.child.ask("stop", "free")?;
        }
        publisher.must(&format!("burst {} 8", 3 * scene.slots()), "true")?;
        stays.drain()?;
        Ok(())
    })?;
    let judged = scene.judge([stays])?;
    run.detail(&format!("{} given, {} lapped", judged.given, judged.lapped));
    publisher.leave()
}

/// How many events an episode of chaos has.
const EVENTS: u32 = 60;

/// Goal: all of it at once. Method: four publish everything that can be published and five read, of whom one has no patience; they
/// are killed (and replaced), stopped and continued at random; then the checker judges what all noted.
fn chaos(run: &mut Run) -> Outcome {
    let (mut kills, mut stops) = ([0; 2], [0; 2]);
    let mut all = Judged::default();
    run.each_round(|run, round| {
        let slots = [24, 64, 128, 301][run.rng.index(4)];
        let mut scene = Scene::new(run, &format!("r{round}"), slots, 64);
        let mut crew = Crew::new(run, &mut scene, 4, 5)?;
        crew.readers[4].peer.ask("patience 3")?;
        crew.start(200, 5_000)?;
        for _ in 0..EVENTS {
            std::thread::sleep(Duration::from_millis(run.rng.below(8)));
            let at = run.rng.index(crew.publishers.len() + crew.readers.len());
            let publishers = crew.publishers.len();
            let is_reader = usize::from(at >= publishers);
            let is_killed = run.rng.below(3) == 0;
            let child = match at.checked_sub(publishers) {
                None => &mut crew.publishers[at].child,
                Some(reader) => &mut crew.readers[reader].peer.child,
            };
            silent(child)?;
            if !is_killed {
                child.stop()?;
                std::thread::sleep(Duration::from_millis(run.rng.below(30)));
                child.signal(Signal::SIGCONT)?;
                stops[is_reader] += 1;
                continue;
            }
            child.kill()?;
            kills[is_reader] += 1;
            match at.checked_sub(publishers) {
                None => {
                    crew.publishers[at] = scene.publisher(run)?;
                    crew.publishers[at].child.tell(&crew.publish)?;
                }
                Some(reader) => {
                    crew.readers[reader] = scene.reader(run, "now")?;
                    crew.readers[reader].peer.child.tell(&crew.read)?;
                }
            }
        }
        all += crew.end(scene)?;
        Ok(())
    })?;
    run.detail(&format!(
        "killed {} publishers, {} readers; stopped {}, {}; {} committed, {} not, {} given, {} lapped, {} abandoned",
        kills[0],
        kills[1],
        stops[0],
        stops[1],
        all.committed,
        all.not_committed,
        all.given,
        all.lapped,
        all.abandoned
    ));
    let counts = [all.committed, all.not_committed, all.given];
    ensure!(
        kills.iter().chain(&stops).all(|count| *count > 0)
            && counts.iter().all(|count| *count > 100)
            && all.lapped > 100
            && all.abandoned > 100,
        "too little happened"
    );
    Ok(())
}
