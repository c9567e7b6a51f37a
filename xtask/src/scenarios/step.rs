//! A process killed, or left stopped, after every instruction of an operation on the arena itself.

use std::{
    fs,
    path::{Path, PathBuf},
};

use arena_core::{Arena, CarveError, LockError, LockWord, OpenError};
use arena_peers::{Peers, Verdict};

use super::cast::{Peer, same};
use crate::{
    outcome::{Outcome, Stop, ensure},
    roles::peer::options,
    scenario::{Need, Run, Scenario},
    stepper::{Fate, Point, Section, sweep},
    text,
};

pub(super) const fn step(
    name: &'static str,
    rows: &'static str,
    run: fn(&mut Run) -> Outcome,
) -> Scenario {
    Scenario::new("step", rows, name, run)
        .needs(&[Need::Ptrace])
        .limit_secs(300)
}

pub(super) const SCENARIOS: &[Scenario] = &[
    step(
        "wherever_a_creator_ends_or_stands_there_is_no_arena_or_a_whole_one",
        "C1",
        |run| swept(run, &mut Create::default()),
    ),
    step(
        "wherever_an_attaching_process_ends_or_stands_others_attach_and_its_row_comes_free",
        "P9",
        |run| {
            let mut section = Rows::new(run, "attach")?;
            swept(run, &mut section)
        },
    ),
    step(
        "wherever_a_forked_child_that_joins_ends_or_stands_others_join_and_its_row_comes_free",
        "P9",
        |run| {
            let mut section = Rows::new(run, "join")?;
            swept_with(run, &mut section, &["arena"])
        },
    ),
    step(
        "wherever_a_leaving_process_ends_or_stands_others_attach_and_its_row_comes_free",
        "P9",
        |run| {
            let mut section = Rows::new(run, "leave")?;
            swept(run, &mut section)
        },
    ),
    step(
        "wherever_a_reaper_ends_or_stands_the_next_one_finishes_and_no_living_peer_is_harmed",
        "P9",
        |run| {
            let mut section = Rows::new(run, "reap")?;
            swept(run, &mut section)
        },
    ),
    step(
        "wherever_a_carver_ends_or_stands_regions_are_whole_and_finding_goes_on",
        "carve",
        |run| {
            let mut section = Carve::new(run)?;
            swept(run, &mut section)
        },
    ),
    step(
        "wherever_a_locker_ends_the_next_one_locks_and_where_it_stands_others_are_told_busy",
        "K1",
        |run| {
            let mut section = Lock::new(run, "lock")?;
            swept(run, &mut section)
        },
    ),
    step(
        "wherever_an_unlocker_ends_the_next_one_locks_and_where_it_stands_others_are_told_busy",
        "K1",
        |run| {
            let mut section = Lock::new(run, "unlock")?;
            swept(run, &mut section)
        },
    ),
    step(
        "wherever_a_destroyer_ends_the_name_is_whole_or_free_and_fences_never_fall",
        "L14",
        |run| swept(run, &mut Destroy::default()),
    ),
];

pub(super) fn swept(run: &mut Run, section: &mut dyn Section) -> Outcome {
    swept_with(run, section, &[])
}

/// Sweeps and says how much it was; `paths` in the run's directory are the zygote's arguments.
pub(super) fn swept_with(run: &mut Run, section: &mut dyn Section, paths: &[&str]) -> Outcome {
    let paths: Vec<PathBuf> = paths.iter().map(|name| run.path(name)).collect();
    let sweep = sweep(run, section, &paths)?;
    run.detail(&format!(
        "{} instructions, {} points",
        sweep.instructions, sweep.points
    ));
    Ok(())
}

/// Goal: no half arena has a name, and a later create succeeds. Method: each point has a name of its own; whoever
/// judges attaches if there is something, and creates if not.
#[derive(Debug, Default)]
struct Create {
    path: PathBuf,
    count: u32,
    made_by_judge: bool,
}

impl Section for Create {
    fn name(&self) -> &'static str {
        "create"
    }

    fn prepare(&mut self, run: &mut Run, _slow: bool) -> Outcome<String> {
        self.count += 1;
        self.made_by_judge = false;
        self.path = run.path(&format!("arena{}", self.count));
        Ok(self.path.display().to_string())
    }

    fn judge(&mut self, _point: &Point) -> Outcome {
        match options().attach(&self.path) {
            Ok(arena) => usable(&arena),
            Err(OpenError::NotFound { .. }) => {
                let arena = options().open(&self.path)?;
                ensure!(
                    arena.created(),
                    "there was nothing, and yet it was not created"
                );
                self.made_by_judge = true;
                usable(&arena)
            }
            Err(e) => Err(Stop::from(e).within("what has the name")),
        }
    }

    fn finished(&mut self, result: &str) -> Outcome {
        let right = if self.made_by_judge {
            "attached"
        } else {
            "created"
        };
        same("the creator's own result", result, right)
    }

    fn over(&mut self) -> Outcome {
        if self.path.exists() {
            fs::remove_file(&self.path)?;
        }
        let directory = self.path.parent().expect("a path in the run's directory");
        for entry in fs::read_dir(directory)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            ensure!(name.starts_with("arena-floor."), "the file {name} is left");
        }
        Ok(())
    }
}

fn usable(arena: &Arena) -> Outcome {
    ensure!(
        arena.refused() == 0,
        "{} entries are refused",
        arena.refused()
    );
    let region = arena.carve(b"judge", 3, 100)?;
    region.write(0, b"x")?;
    Ok(())
}

/// Goal: rows are taken, freed and cleared whole. Method: the judge is attached, and a live peer; besides, for the
/// reaper, a dead one. Others attach at each point; afterwards the table holds the living alone.
#[derive(Debug)]
struct Rows {
    operation: &'static str,
    arena: Arena,
    path: PathBuf,
    living: Peer,
    dead: Option<Peer>,
    /// Rows that stay: the judge's, the live peer's, and the zygote's where it is attached.
    base: usize,
}

impl Rows {
    fn new(run: &Run, operation: &'static str) -> Outcome<Self> {
        let path = run.path("arena");
        let arena = options().open(&path)?;
        let living = Peer::new(run)?;
        let base = 2 + usize::from(operation == "join");
        Ok(Self {
            operation,
            arena,
            path,
            living,
            dead: None,
            base,
        })
    }

    fn living_is_alive(&self) -> Outcome {
        let verdict = Peers::new(&self.arena).verdict(text::parse_id(&self.living.id)?);
        ensure!(
            verdict == Verdict::Alive,
            "a peer that lives is {verdict:?}"
        );
        Ok(())
    }
}

impl Section for Rows {
    fn name(&self) -> &'static str {
        self.operation
    }

    fn prepare(&mut self, run: &mut Run, _slow: bool) -> Outcome<String> {
        if self.operation == "reap" {
            let mut dead = Peer::new(run)?;
            dead.child.kill()?;
            self.dead = Some(dead);
        }
        Ok(self.path.display().to_string())
    }

    fn shared_file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn judge(&mut self, point: &Point) -> Outcome {
        // The child's row, if it has one that says so, is not dead while it stands.
        let pid = u32::try_from(point.child.as_raw())?;
        let peers = Peers::new(&self.arena);
        let stands = point.stands();
        for peer in peers.list().iter().filter(|peer| peer.pid == Some(pid)) {
            let dead = matches!(peers.verdict(peer.id), Verdict::Dead(_));
            // Leaving gives the byte up before the row says so, or after: then it is gone by its own will.
            let wrong = if stands {
                dead && self.operation != "leave"
            } else {
                !dead
            };
            ensure!(
                !wrong,
                "the child's row {} has a wrong verdict (stands: {stands})",
                text::id(peer.id)
            );
        }
        if let Some(dead) = &self.dead {
            let verdict = peers.verdict(text::parse_id(&dead.id)?);
            ensure!(
                matches!(verdict, Verdict::Dead(_)),
                "the dead peer is {verdict:?}"
            );
        }
        self.living_is_alive()?;
        // Others come and go; a second process does, for this one is attached already.
        self.living
            .ask("fork-me")
            .and_then(|id| text::parse_id(&id))
            .map(drop)?;
        self.arena.reap();
        self.living_is_alive()
    }

    fn finished(&mut self, result: &str) -> Outcome {
        match self.operation {
            "leave" => same("leaving", result, "left"),
            // The judge may have been first.
            "reap" => same("reaped", if result == "0" { "1" } else { result }, "1"),
            _ => text::parse_id(result).map(drop),
        }
    }

    fn over(&mut self) -> Outcome {
        self.arena.reap();
        let rows = self.arena.attachments();
        let ids: Vec<String> = rows.iter().map(|row| text::id(row.id)).collect();
        ensure!(
            rows.len() == self.base,
            "rows left: {}, right are {}",
            ids.join(" "),
            self.base
        );
        self.dead = None;
        self.living_is_alive()
    }
}

/// Goal: a region is there whole or not at all; what exists is found whatever a carver does. Method: each arena takes
/// a dozen new names, and is then replaced; the judge finds what is there, and carves a name of its own.
#[derive(Debug)]
struct Carve {
    arena: Arena,
    path: PathBuf,
    count: u32,
}

impl Carve {
    fn new(run: &Run) -> Outcome<Self> {
        let path = run.path("arena0");
        let arena = options().open(&path)?;
        arena.carve(b"there", 7, 1_000)?.write(0, b"intact")?;
        Ok(Self {
            arena,
            path,
            count: 0,
        })
    }

    fn name_of(&self, who: &str) -> String {
        format!("{who}{}", self.count)
    }

    fn whole(&self) -> Outcome {
        ensure!(
            self.arena.refused() == 0,
            "{} entries are refused",
            self.arena.refused()
        );
        let regions = self.arena.regions();
        for (index, one) in regions.iter().enumerate() {
            ensure!(
                one.offset + one.len_bytes <= self.arena.len_bytes(),
                "{one:?} reaches out"
            );
            for other in &regions[index + 1..] {
                let apart = one.offset + one.len_bytes <= other.offset
                    || other.offset + other.len_bytes <= one.offset;
                ensure!(apart && one.name != other.name, "{one:?} and {other:?}");
            }
        }
        let mut bytes = [0; 6];
        let there = self
            .arena
            .find(b"there")
            .ok_or_else(|| Stop::failed("a region is gone"))?;
        there.read(0, &mut bytes)?;
        same(
            "an older region",
            &String::from_utf8_lossy(&bytes),
            "intact",
        )
    }
}

impl Section for Carve {
    fn name(&self) -> &'static str {
        "carve"
    }

    fn prepare(&mut self, run: &mut Run, _slow: bool) -> Outcome<String> {
        self.count += 1;
        if self.count.is_multiple_of(12) {
            fs::remove_file(&self.path)?;
            self.path = run.path(&format!("arena{}", self.count));
            self.arena = options().open(&self.path)?;
            self.arena.carve(b"there", 7, 1_000)?.write(0, b"intact")?;
        }
        Ok(format!("{} {}", self.path.display(), self.name_of("child")))
    }

    fn shared_file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn judge(&mut self, point: &Point) -> Outcome {
        self.whole()?;
        let before = self
            .arena
            .find(self.name_of("child").as_bytes())
            .map(|region| region.offset());
        match (
            point.fate,
            self.arena.carve(self.name_of("judge").as_bytes(), 7, 500),
        ) {
            (_, Ok(_)) => {}
            // It stands with the lock: a bounded Busy for whoever carves something new.
            (Fate::Stopped, Err(CarveError::Lock(LockError::Busy { .. }))) => {}
            (_, Err(e)) => return Err(Stop::from(e).within("another carver")),
        }
        // Whoever repaired finished the name or took it back, and never moves it.
        let after = self
            .arena
            .find(self.name_of("child").as_bytes())
            .map(|region| region.offset());
        ensure!(
            before.is_none() || before == after,
            "the region was at {before:?} and is at {after:?}"
        );
        self.whole()
    }

    fn finished(&mut self, result: &str) -> Outcome {
        let found = self.arena.find(self.name_of("child").as_bytes());
        let at = found.map(|region| format!("at {}", region.offset()));
        same(
            "the carver's own result",
            result,
            at.as_deref().unwrap_or("nothing"),
        )
    }

    fn over(&mut self) -> Outcome {
        self.whole()?;
        self.arena.carve(self.name_of("later").as_bytes(), 7, 500)?;
        self.whole()
    }
}

/// Goal: the lock is never left closed. Method: the judge locks at each point.
#[derive(Debug)]
struct Lock {
    operation: &'static str,
    arena: Arena,
    path: PathBuf,
    busy: bool,
}

impl Lock {
    fn new(run: &Run, operation: &'static str) -> Outcome<Self> {
        let path = run.path("arena");
        Ok(Self {
            operation,
            arena: options().open(&path)?,
            path,
            busy: false,
        })
    }

    fn try_lock(&self) -> Outcome<Result<(), LockError>> {
        let region = self.arena.carve(b"locks", 1, 64)?;
        let word: &LockWord = region.at(0)?;
        Ok(self
            .arena
            .lock(word, std::time::Duration::from_millis(20))
            .map(drop))
    }
}

impl Section for Lock {
    fn name(&self) -> &'static str {
        self.operation
    }

    fn prepare(&mut self, _run: &mut Run, _slow: bool) -> Outcome<String> {
        Ok(self.path.display().to_string())
    }

    fn shared_file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn judge(&mut self, point: &Point) -> Outcome {
        match (point.fate, self.try_lock()?) {
            (_, Ok(())) => self.busy = false,
            (Fate::Stopped, Err(LockError::Busy { holder, pid })) => {
                ensure!(
                    i64::from(pid) == i64::from(point.child.as_raw()),
                    "busy names {holder} with pid {pid}, not the child's"
                );
                self.busy = true;
            }
            (_, Err(e)) => return Err(Stop::from(e).within("another locker")),
        }
        Ok(())
    }

    fn finished(&mut self, result: &str) -> Outcome {
        match self.operation {
            "lock" => {
                same("the locker's own result", result, "clean")?;
                let held = matches!(self.try_lock()?, Err(LockError::Busy { .. }));
                ensure!(held, "it holds the lock, and yet another one locked");
                Ok(())
            }
            _ => {
                same("the unlocker's own result", result, "unlocked")?;
                Ok(self.try_lock()??)
            }
        }
    }

    fn over(&mut self) -> Outcome {
        self.try_lock()?
            .map_err(|e| Stop::from(e).within("after its end"))?;
        self.arena.reap();
        Ok(())
    }
}

/// Goal: a name that is being destroyed is whole or free, and whoever opens it next has larger fences. Method: each
/// point has an arena of which a fence was given out; the judge opens the name.
#[derive(Debug, Default)]
struct Destroy {
    path: PathBuf,
    old: Option<Arena>,
    fence: u64,
}

impl Section for Destroy {
    fn name(&self) -> &'static str {
        "destroy"
    }

    fn prepare(&mut self, run: &mut Run, _slow: bool) -> Outcome<String> {
        self.path = run.path("arena");
        let arena = options().open(&self.path)?;
        self.fence = arena.fence_minimum() + 5_000_000;
        ensure!(
            arena.reserve_fence(self.fence),
            "a fence of {} is refused",
            self.fence
        );
        self.old = Some(arena);
        Ok(self.path.display().to_string())
    }

    fn judge(&mut self, point: &Point) -> Outcome {
        let old = self.old.as_ref().expect("prepare made it");
        match (point.fate, options().open(&self.path)) {
            (_, Ok(arena)) if arena.created() => {
                ensure!(
                    old.is_gone(),
                    "a second arena has the name of one that is not gone"
                );
                let least = arena.fence_minimum();
                ensure!(
                    least > self.fence,
                    "after fence {} the new arena begins at {least}",
                    self.fence
                );
                usable(&arena)
            }
            (_, Ok(arena)) => {
                ensure!(
                    !old.is_gone() && !arena.is_gone(),
                    "an arena that is gone was attached to"
                );
                Ok(())
            }
            // It stands with the destroy byte.
            (Fate::Stopped, Err(OpenError::Destroying { .. })) => Ok(()),
            (_, Err(e)) => Err(Stop::from(e).within("opening the name")),
        }
    }

    fn finished(&mut self, result: &str) -> Outcome {
        same("the destroyer's own result", result, "destroyed")?;
        ensure!(
            self.old.as_ref().is_some_and(Arena::is_gone),
            "destroyed, and yet not gone"
        );
        Ok(())
    }

    fn over(&mut self) -> Outcome {
        let left = options().open(&self.path)?;
        if left.created() {
            ensure!(left.fence_minimum() > self.fence, "the fences fell");
        }
        left.destroy()?;
        ensure!(!self.path.exists(), "the name is still there");
        Ok(())
    }
}
