//! Limits and successions, and the deaths of those who have a place: L13, S1.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::cast::Peer;
use crate::{
    child::{PATIENCE, Plan, until},
    outcome::{Outcome, Stop, ensure},
    scenario::{Run, Scenario},
    text,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "lease",
        "L13",
        "a_limit_of_three_has_three_free_places_after_any_number_of_dead_holders",
        freed,
    )
    .rounds(10, 334)
    .limit_secs(120),
    Scenario::new(
        "lease",
        "S1",
        "of_standbys_that_come_one_after_the_other_the_newest_waits_and_succeeds_a_dead_master",
        in_turn,
    )
    .rounds(2, 50),
    Scenario::new(
        "lease",
        "S1",
        "at_most_four_stand_in_line_though_one_stands_still_and_the_newest_succeeds",
        four,
    )
    .rounds(2, 50),
    Scenario::new(
        "lease",
        "S1",
        "of_eight_standbys_that_come_at_once_one_waits_that_was_never_replaced_and_succeeds",
        at_once,
    )
    .rounds(3, 100)
    .limit_secs(120),
];

pub(super) fn placed(run: &Run) -> Outcome<Peer> {
    Peer::started(run, Plan::new("placed").arg(run.path("arena")))
}

/// Goal: no place leaks. Method: three holders, a fourth is refused; the three die, one left as a zombie, one reaped, one
/// stopped before; three others have the three places. With 3 kills a round.
fn freed(run: &mut Run) -> Outcome {
    let mut judge = placed(run)?;
    let mut kills = 0;
    run.each_round(|run, _| {
        let mut holders = Vec::new();
        let mut taken = BTreeSet::new();
        for _ in 0..3 {
            let mut holder = placed(run)?;
            taken.insert(holder.ask("take 3")?);
            holder.must("beat", "Ok(())")?;
            holders.push(holder);
        }
        let all: BTreeSet<String> = ["1", "2", "3"].map(str::to_owned).into();
        ensure!(taken == all, "three had the places {taken:?}");
        judge.must("used 3", "3")?;
        judge.must("take 3", "none")?;
        for (index, holder) in holders.iter_mut().enumerate() {
            match index {
                0 => holder.child.kill_unreaped()?,
                1 => holder.child.kill()?,
                _ => {
                    holder.child.stop()?;
                    holder.child.kill_unreaped()?;
                }
            }
            kills += 1;
            judge.must("used 3", &(2 - index).to_string())?;
        }
        Ok(())
    })?;
    run.detail(&format!("{kills} killed"));
    judge.must("take 3", "1")
}

/// Who works, and who stands at the three places behind.
fn standing(judge: &mut Peer) -> Outcome<Vec<String>> {
    Ok(judge
        .ask("standing")?
        .split(' ')
        .map(str::to_owned)
        .collect())
}

/// Waits until the line is as said: who works, then the standbys.
pub(super) fn stands(judge: &mut Peer, right: [Option<&Peer>; 4]) -> Outcome {
    let right: Vec<String> = right
        .map(|peer| peer.map_or("-".to_owned(), |peer| peer.id.clone()))
        .into();
    let mut found = Ok(Vec::new());
    let waited = until(PATIENCE, || {
        found = standing(judge);
        found.as_ref().is_ok_and(|found| *found == right) || found.is_err()
    });
    let found = found?;
    waited.map_err(|stop| stop.within(format!("the line is {found:?}, right is {right:?}")))
}

pub(super) fn master(run: &Run) -> Outcome<Peer> {
    let mut master = placed(run)?;
    master.must("succeed", "primary")?;
    Ok(master)
}

/// A worker that has begun to stand in line.
pub(super) fn entering(run: &Run) -> Outcome<Peer> {
    let mut worker = placed(run)?;
    worker.child.tell("succeed")?;
    Ok(worker)
}

/// What a worker that stood in line says at the end.
pub(super) fn ends(worker: &mut Peer, right: &str) -> Outcome {
    let end = worker.child.expect("succeed")?;
    ensure!(
        end == right,
        "{} ended as {end:?}, not {right:?}",
        worker.id
    );
    Ok(())
}

/// The master is killed, and the one that waits, and nobody else, works.
pub(super) fn succeeds(judge: &mut Peer, master: &mut Peer, newest: &mut Peer) -> Outcome {
    ensure!(!newest.child.speaks(), "{} does not wait", newest.id);
    master.child.kill_unreaped()?;
    ends(newest, "primary")?;
    newest.must("beat", "Ok(())")?;
    stands(judge, [Some(newest), None, None, None])
}

/// Goal: the newest waits, older ones bow out. Method: a master, then five standbys, each when the one before stands next
/// to the master; the master is killed.
fn in_turn(run: &mut Run) -> Outcome {
    let mut judge = placed(run)?;
    run.each_round(|run, _| {
        let mut master = master(run)?;
        let mut newest: Option<Peer> = None;
        for _ in 0..5 {
            let worker = entering(run)?;
            if let Some(mut older) = newest.take() {
                ends(&mut older, &format!("replaced {}", worker.id))?;
                older.leave()?;
            }
            stands(&mut judge, [Some(&master), Some(&worker), None, None])?;
            newest = Some(worker);
        }
        let mut newest = newest.expect("five came");
        succeeds(&mut judge, &mut master, &mut newest)
    })
}

/// Goal: four at most, whatever one of them does. Method: the next in line is stopped, so that two more fill the places
/// behind it, and another is told at once that the entry is taken; continued, it bows out, and the line closes up.
fn four(run: &mut Run) -> Outcome {
    let mut judge = placed(run)?;
    run.each_round(|run, _| {
        let mut master = master(run)?;
        let mut first = entering(run)?;
        stands(&mut judge, [Some(&master), Some(&first), None, None])?;
        first.child.stop()?;
        let mut second = entering(run)?;
        stands(
            &mut judge,
            [Some(&master), Some(&first), Some(&second), None],
        )?;
        let mut third = entering(run)?;
        let full = [Some(&master), Some(&first), Some(&second), Some(&third)];
        stands(&mut judge, full)?;
        for _ in 0..2 {
            let mut refused = placed(run)?;
            refused.must("succeed", "entry-taken")?;
            refused.leave()?;
        }
        stands(&mut judge, full)?;
        first.child.cont()?;
        ends(&mut first, &format!("replaced {}", second.id))?;
        ends(&mut second, &format!("replaced {}", third.id))?;
        stands(&mut judge, [Some(&master), Some(&third), None, None])?;
        succeeds(&mut judge, &mut master, &mut third)
    })
}

/// What became of those that came, so far.
#[derive(Default)]
pub(super) struct Came {
    pub(super) replaced: usize,
    pub(super) refused: usize,
}

/// Goal: the same for a burst. Method: eight are told at once.
fn at_once(run: &mut Run) -> Outcome {
    let mut judge = placed(run)?;
    let mut came = Came::default();
    run.each_round(|run, _| come(run, &mut judge, 8, Duration::ZERO, &mut came))?;
    run.detail(&format!(
        "{} replaced, {} refused at the entry",
        came.replaced, came.refused
    ));
    Ok(())
}

/// A master, and so many that come one after the other. All but one end: refused at the entry, or replaced by one that
/// entered; whoever goes from each that was replaced to the one that replaced it comes to the one that waits, so that this
/// is the newest. As many entered as were replaced, and it. The master is killed.
pub(super) fn come(
    run: &mut Run,
    judge: &mut Peer,
    count: usize,
    spacing: Duration,
    came: &mut Came,
) -> Outcome {
    let mut master = master(run)?;
    let before = text::number(&judge.ask("entries")?)?;
    let mut burst: Vec<Peer> = (0..count).map(|_| placed(run)).collect::<Outcome<_>>()?;
    for worker in &mut burst {
        worker.child.tell("succeed")?;
        // The distance is the case; nothing is waited for.
        std::thread::sleep(spacing);
    }
    let mut by = BTreeMap::new();
    while burst.len() > 1 {
        let mut ended = None;
        until(PATIENCE, || {
            ended = burst.iter().position(|worker| worker.child.speaks());
            ended.is_some()
        })
        .map_err(|stop| stop.within(format!("{} of {count} stand in line", burst.len())))?;
        let mut worker = burst.remove(ended.expect("until returned Ok"));
        let end = worker.child.expect("succeed")?;
        match end.strip_prefix("replaced ") {
            Some(newer) => {
                by.insert(worker.id.clone(), newer.to_owned());
            }
            None => {
                ensure!(end == "entry-taken", "{} ended as {end:?}", worker.id);
                came.refused += 1;
            }
        }
        worker.leave()?;
    }
    let mut newest = burst.pop().ok_or_else(|| Stop::failed("nobody waits"))?;
    stands(judge, [Some(&master), Some(&newest), None, None])?;
    for id in by.keys() {
        let mut at = id;
        for _ in 0..by.len() {
            at = by.get(at).unwrap_or(at);
        }
        ensure!(
            *at == newest.id,
            "{by:?} lead from {id} to {at}, {} waits",
            newest.id
        );
    }
    let entered = text::number(&judge.ask("entries")?)? - before;
    ensure!(
        entered == u64::try_from(by.len() + 1)?,
        "{entered} entered, {} were replaced and one waits",
        by.len()
    );
    came.replaced += by.len();
    succeeds(judge, &mut master, &mut newest)
}
