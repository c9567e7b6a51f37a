//! A process killed, or left stopped, after every instruction of an operation on a lease; and its system calls
//! refused.

use std::path::{Path, PathBuf};

use arena_core::{Arena, LockError};
use arena_lease::{Acquire, Hold, Lease, LeaseError, Leases, Refused};
use nix::errno::Errno;

use super::{
    cast::{Peer, same},
    lease::{takes, worker},
    step::{step, swept},
};
use crate::{
    child::{PATIENCE, until},
    outcome::{Outcome, Stop, ensure},
    roles::{
        peer::options,
        verbs::{now_ms, table},
    },
    scenario::{Run, Scenario},
    stepper::{Fate, Point, Section, refuse_calls},
    text,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    step(
        "wherever_one_that_acquires_ends_or_stands_a_rival_holds_or_is_refused_by_it",
        "L9",
        |run| {
            swept(
                run,
                &mut Contest::new(run, "acquire", Before::Free, 600_000)?,
            )
        },
    ),
    step(
        "wherever_one_that_takes_over_ends_or_stands_a_rival_holds_or_is_refused_by_it",
        "L9",
        |run| {
            swept(
                run,
                &mut Contest::new(run, "acquire", Before::Dead, 600_000)?,
            )
        },
    ),
    step(
        "one_that_stood_still_in_acquire_until_it_lapsed_never_holds_beside_its_rival",
        "L1",
        |run| {
            swept(
                run,
                &mut Contest::new(run, "acquire", Before::Free, SHORT_MS)?,
            )
        },
    ),
    step(
        "one_that_stood_still_in_renew_until_it_was_replaced_learns_it_from_that_call",
        "L1",
        |run| {
            swept(
                run,
                &mut Contest::new(run, "renew", Before::Free, SHORT_MS)?,
            )
        },
    ),
    step(
        "one_that_stood_still_in_release_until_it_was_replaced_does_its_rival_no_harm",
        "L2",
        |run| {
            swept(
                run,
                &mut Contest::new(run, "release", Before::Free, SHORT_MS)?,
            )
        },
    ),
    step(
        "wherever_one_that_releases_ends_or_stands_a_rival_holds_or_is_refused_by_it",
        "L2",
        |run| {
            swept(
                run,
                &mut Contest::new(run, "release", Before::Free, 600_000)?,
            )
        },
    ),
    step(
        "wherever_one_that_names_a_row_ends_or_stands_other_leases_go_on_and_names_stay_single",
        "name",
        |run| swept(run, &mut Naming::new(run)?),
    ),
    step(
        "one_whose_system_calls_are_refused_in_acquire_never_believes_it_holds",
        "L3",
        |run| {
            let mut contest = Contest::new(run, "acquire", Before::Dead, 600_000)?;
            let errors = [
                Errno::ENOSYS,
                Errno::EPERM,
                Errno::EMFILE,
                Errno::EBADF,
                Errno::EINTR,
                Errno::ESRCH,
            ];
            let sweep = refuse_calls(run, &mut contest, &errors)?;
            run.detail(&format!("{} refusals", sweep.points));
            ensure!(
                sweep.points > 0,
                "a takeover makes no system call: nothing is shown"
            );
            Ok(())
        },
    ),
];

/// A ttl that a stopped child outstands at each point.
const SHORT_MS: u64 = 20;

/// What the child finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A lease that nobody holds.
    Free,
    /// A lease whose holder was killed.
    Dead,
}

/// Goal: one holds, the fences grow, nobody waits longer than the ttl. Method: this process is the rival. At each
/// point it acquires: with a long ttl at once, with a short one after the child's deadline is over. When the child
/// went on to its end, what it says must agree with that.
#[derive(Debug)]
struct Contest {
    operation: &'static str,
    before: Before,
    ttl_ms: u64,
    path: PathBuf,
    arena: Arena,
    lease: Lease,
    /// What the rival holds since it judged.
    rival: Option<Hold>,
    /// Whether the child had a chance to see, by its clock, that it was replaced.
    could_know: bool,
    /// The largest fence that anybody is known to have had.
    last: u64,
}

impl Contest {
    fn new(run: &Run, operation: &'static str, before: Before, ttl_ms: u64) -> Outcome<Self> {
        let path = run.path("arena");
        let arena = options().open(&path)?;
        let lease = table(&arena)?.lease("job", std::time::Duration::from_secs(600))?;
        Ok(Self {
            operation,
            before,
            ttl_ms,
            path,
            arena,
            lease,
            rival: None,
            could_know: false,
            last: 0,
        })
    }

    fn is_short(&self) -> bool {
        self.ttl_ms == SHORT_MS
    }

    /// A fence that was given out: larger than all before.
    fn gave(&mut self, fence: u64) -> Outcome {
        ensure!(
            fence > self.last,
            "fence {fence} was given out after {}",
            self.last
        );
        self.last = fence;
        Ok(())
    }

    fn deadline(&self) -> Outcome<u64> {
        let holder = self
            .lease
            .holder()
            .ok_or_else(|| Stop::failed("the rival does not hold any more"))?;
        Ok(holder.until_ms)
    }

    fn child_says(&mut self, words: &[&str]) -> Outcome {
        match (self.operation, words) {
            ("acquire", ["held", fence, how, mine]) => {
                let fence = text::number(fence)?;
                if self.rival.is_some() {
                    // It held when it last looked at the clock; it has not looked since.
                    ensure!(
                        !self.could_know && *mine == "false",
                        "it says held {fence}, and so does its rival"
                    );
                    return Ok(());
                }
                ensure!(
                    self.before == Before::Free || *how != "new",
                    "a takeover was called {how:?}"
                );
                self.gave(fence)?;
                ensure!(self.is_short() || *mine == "true", "held, and yet not mine");
                Ok(())
            }
            ("acquire", ["refused", ..] | ["error", ..]) => {
                ensure!(words.last() == Some(&"false"), "refused, and yet mine");
                Ok(())
            }
            ("renew", ["held", mine]) => {
                let good = self.rival.is_none() || (!self.could_know && *mine == "false");
                ensure!(
                    good,
                    "it says that it renewed, and mine is {mine}; its rival holds"
                );
                Ok(())
            }
            ("renew", ["lost", "taken", by, fence, "false"]) => {
                let rival = self
                    .rival
                    .ok_or_else(|| Stop::failed("lost, and nobody took it"))?;
                same("who took it", by, &text::id(self.arena.me()?))?;
                same("under which fence", fence, &rival.fence.to_string())
            }
            ("release", [released, mine]) => {
                ensure!(*mine == "false", "released, and yet mine");
                ensure!(
                    *released == "true" || self.rival.is_some(),
                    "its release did nothing"
                );
                Ok(())
            }
            _ => Err(Stop::failed(format!("it said {words:?}"))),
        }
    }
}

impl Section for Contest {
    fn name(&self) -> &'static str {
        self.operation
    }

    fn prepare(&mut self, run: &mut Run, slow: bool) -> Outcome<String> {
        self.rival = None;
        self.could_know = false;
        if self.before == Before::Dead {
            let mut holder = worker(run, 600_000)?;
            let fence = takes(&mut holder, "new")?;
            self.gave(fence)?;
            holder.child.kill()?;
        }
        // Stepping takes longer than a short ttl.
        let ttl_ms = if slow { 600_000 } else { self.ttl_ms };
        Ok(format!("{} {ttl_ms}", self.path.display()))
    }

    fn shared_file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn judge(&mut self, point: &Point) -> Outcome {
        if self.is_short() && point.stands() {
            // Whatever deadline it wrote, it wrote before it stood still.
            let over = now_ms() + SHORT_MS + 1;
            until(PATIENCE, || now_ms() > over)?;
        }
        match self.lease.acquire()? {
            Acquire::Held(hold) => {
                self.gave(hold.fence)?;
                self.rival = Some(hold);
                ensure!(self.lease.mine(), "the rival holds, and yet not mine");
                Ok(())
            }
            Acquire::Refused(Refused::Held { by, fence, .. })
                if point.fate == Fate::Stopped && !self.is_short() =>
            {
                let row = self
                    .arena
                    .attachment(by.slot())
                    .and_then(|row| row.identity);
                let pid = row.map(|identity| i64::from(identity.pid));
                ensure!(
                    pid == Some(point.child.as_raw().into()),
                    "refused by {by}, which is not the child"
                );
                ensure!(
                    fence >= self.last,
                    "the child's fence {fence} is below {}",
                    self.last
                );
                Ok(())
            }
            other => Err(Stop::failed(format!("the rival was answered {other:?}"))),
        }
    }

    fn went_on(&mut self, looked_at_clock: bool) {
        self.could_know = looked_at_clock;
    }

    fn finished(&mut self, result: &str) -> Outcome {
        let words: Vec<&str> = result.split(' ').collect();
        self.child_says(&words)?;
        match self.rival {
            Some(hold) => {
                ensure!(
                    self.lease.mine_at(hold.fence),
                    "after the child went on ({result}) the rival holds no more"
                );
                let deadline = self.deadline()?;
                ensure!(
                    deadline == hold.until_ms,
                    "the rival's deadline {} became {deadline}",
                    hold.until_ms
                );
            }
            // With a long ttl one that says that it holds keeps others out.
            None if words[0] == "held" && !self.is_short() => {
                let refused = matches!(
                    self.lease.acquire()?,
                    Acquire::Refused(Refused::Held { .. })
                );
                ensure!(refused, "it holds, and its rival got the lease");
            }
            None => {}
        }
        Ok(())
    }

    fn over(&mut self) -> Outcome {
        // It is gone, by death or by its own will: the rival holds at once.
        let hold = match self.lease.acquire()? {
            Acquire::Held(hold) => hold,
            other => {
                return Err(Stop::failed(format!(
                    "after the child's end the rival was answered {other:?}"
                )));
            }
        };
        if self.rival.is_none() {
            self.gave(hold.fence)?;
        }
        ensure!(self.lease.release()?, "the rival could not release");
        self.arena.reap();
        Ok(())
    }
}

/// Goal: naming a row delays nobody but others who name one, and never gives a name two rows. Method: at each point
/// the judge uses a lease that exists, and names another; the table is so small that rows are renamed.
#[derive(Debug)]
struct Naming {
    path: PathBuf,
    leases: Leases,
    there: Lease,
    count: u32,
    _living: Peer,
}

impl Naming {
    fn new(run: &Run) -> Outcome<Self> {
        let path = run.path("arena");
        let leases = table(&options().open(&path)?)?;
        let there = leases.lease("there", std::time::Duration::from_secs(600))?;
        ensure!(
            matches!(there.acquire()?, Acquire::Held(_)),
            "a new lease is not to be had"
        );
        Ok(Self {
            path,
            leases,
            there,
            count: 0,
            _living: worker(run, 600_000)?,
        })
    }

    fn names_are_single(&self) -> Outcome {
        let mut names: Vec<Vec<u8>> = self
            .leases
            .list()
            .into_iter()
            .map(|stats| stats.name)
            .collect();
        names.sort();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        ensure!(
            twice.is_none(),
            "two rows have the name {:?}",
            twice.map(|pair| String::from_utf8_lossy(&pair[0]))
        );
        Ok(())
    }

    fn name_one(&self, who: &str) -> Result<Lease, LeaseError> {
        self.leases.lease(
            format!("{who}{}", self.count),
            std::time::Duration::from_secs(600),
        )
    }
}

impl Section for Naming {
    fn name(&self) -> &'static str {
        "name"
    }

    fn prepare(&mut self, _run: &mut Run, _slow: bool) -> Outcome<String> {
        self.count += 1;
        Ok(format!("{} child{}", self.path.display(), self.count))
    }

    fn shared_file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn judge(&mut self, point: &Point) -> Outcome {
        ensure!(
            self.there.mine() && self.there.renew()?.is_held(),
            "a lease that exists was disturbed"
        );
        match (point.fate, self.name_one("judge")) {
            (_, Ok(lease)) => {
                ensure!(
                    matches!(lease.acquire()?, Acquire::Held(_)) && lease.release()?,
                    "a new lease does not work"
                );
            }
            // It stands with the table's lock.
            (Fate::Stopped, Err(LeaseError::Lock(LockError::Busy { .. }))) => {}
            (_, Err(e)) => return Err(Stop::from(e).within("naming another")),
        }
        self.names_are_single()
    }

    fn finished(&mut self, result: &str) -> Outcome {
        ensure!(result.starts_with("named "), "it said {result:?}");
        self.names_are_single()
    }

    fn over(&mut self) -> Outcome {
        let lease = self.name_one("child")?;
        ensure!(
            matches!(lease.acquire()?, Acquire::Held(_)) && lease.release()?,
            "the child's lease does not work"
        );
        self.leases.arena().reap();
        self.names_are_single()
    }
}
