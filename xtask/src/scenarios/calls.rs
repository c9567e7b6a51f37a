//! How many system calls the verbs of a lease, and publishing and reading, make.

use std::collections::BTreeMap;

use super::{cast::same, lease};
use crate::{
    child::{Child, PATIENCE, Plan, until, waits},
    outcome::{Outcome, Stop, ensure},
    roles::verbs::now_ms,
    scenario::{Need, Run, Scenario},
    tracee::Tracee,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "lease",
        "calls",
        "no_verb_of_a_lease_makes_a_system_call_while_the_holders_bell_is_believed",
        none,
    )
    .needs(&[Need::Ptrace]),
    Scenario::new(
        "ring",
        "calls",
        "publishing_makes_no_system_call_while_nobody_sleeps_and_one_for_a_burst_when_somebody_does",
        burst,
    )
    .needs(&[Need::Ptrace]),
];

/// The verbs that must make none.
const VERBS: &[&str] = &["mine", "renew", "cycle", "acquire", "holder"];
/// How often a verb is called in a row.
const TIMES: u32 = 100;
/// How long a verdict on a process whose bell hangs is believed, and a file to be where it was, in milliseconds.
const BELIEVED_MS: u64 = 100;
/// How often a row of calls may take longer than that before it is given up.
const ATTEMPTS: u32 = 100;

/// Goal: the hot paths of a lease ask the system nothing. Method: a process asks once, then does one verb a hundred times
/// between two marks, where its system calls are counted. A row that took longer than the answer is believed shows
/// nothing, and is done again. Controls: calls are counted where each verb is one; they are counted in real verdicts,
/// and in a look at a holder of which nothing is known yet.
fn none(run: &mut Run) -> Outcome {
    let mut rival = lease::of(run, "theirs", 600_000)?;
    lease::takes(&mut rival, "new")?;
    let mut caller = Caller::start(run, Plan::new("caller").arg(run.path("arena")))?;
    caller.control()?;
    let verdicts = made(&caller.row("verdict", TIMES)?);
    ensure!(
        verdicts >= TIMES,
        "{TIMES} real verdicts made {verdicts} system calls"
    );
    if !caller.row("clock", TIMES)?.is_empty() {
        return Err(Stop::Skipped(
            "this machine's clock cannot be read without a system call".to_owned(),
        ));
    }
    for verb in VERBS {
        let row = caller.believed_row(verb)?;
        ensure!(
            row.is_empty(),
            "{TIMES} times {verb:?} made these system calls (number: times): {row:?}"
        );
    }
    // Not believed any longer: the same verb asks.
    let asked = caller.unbelieved_row("holder")?;
    ensure!(asked > 0, "a verdict is believed for ever");
    run.detail(&format!(
        "{} times none in {TIMES}; {verdicts} in {TIMES} verdicts, {asked} in a look later",
        VERBS.len()
    ));
    Ok(())
}

/// Goal: publishing costs a system call only when somebody sleeps, and then one for all. Method: as above, in a ring alone; then a reader
/// of another process, which sleeps and is stopped, so that it sleeps on, is there for two rows.
fn burst(run: &mut Run) -> Outcome {
    let (path, ring) = (run.path("arena"), "calls 64 64");
    let mut caller = Caller::start(run, Plan::new("ring-caller").arg(&path).arg(ring))?;
    caller.control()?;
    // The first claim of a process hangs its bell.
    caller.row("publish", 1)?;
    let verbs = [
        "publish", "read", "span", "many", "read", "reserve", "drop", "read",
    ];
    for verb in verbs {
        caller.makes(verb, TIMES, &[])?;
    }
    let plan = Plan::new("sleeper").arg(&path).arg(ring);
    let mut sleeper = run.start(plan)?;
    sleeper.expect("sleeps")?;
    for _ in 0..3 {
        until(PATIENCE, || waits(sleeper.pid()))?;
        sleeper.stop()?;
        caller.makes("publish", TIMES, &[(nix::libc::SYS_futex, 1)])?;
        caller.makes("publish", TIMES, &[])?;
        sleeper.cont()?;
        sleeper.expect("woken")?;
        sleeper.go()?;
    }
    run.detail(&format!("{} times none in {TIMES}", verbs.len()));
    sleeper.kill()
}

/// The system calls of a row of calls of one verb: how often each was made, by its number.
type Row = BTreeMap<i64, u32>;

fn made(row: &Row) -> u32 {
    row.values().sum()
}

struct Caller {
    child: Child,
    tracee: Tracee,
}

impl Caller {
    fn start(run: &Run, plan: Plan) -> Outcome<Self> {
        let mut child = run.start(plan)?;
        child.expect("caller")?;
        let tracee = Tracee::seize(child.pid())?;
        Ok(Self { child, tracee })
    }

    /// Calls are counted where each verb is one.
    fn control(&mut self) -> Outcome {
        self.makes("getppid", TIMES, &[(nix::libc::SYS_getppid, TIMES)])
    }

    /// Fails unless a row makes these calls.
    fn makes(&mut self, verb: &str, times: u32, right: &[(i64, u32)]) -> Outcome {
        let (row, right) = (
            self.row(verb, times)?,
            right.iter().copied().collect::<Row>(),
        );
        let what = format!("system calls (number: times) of {times} times {verb:?}");
        same(&what, &format!("{row:?}"), &format!("{right:?}"))
    }

    fn row(&mut self, verb: &str, times: u32) -> Outcome<Row> {
        self.child.tell(&format!("{verb} {times}"))?;
        self.tracee.await_mark()?;
        let mut row = Row::new();
        for number in self.tracee.calls_to_mark()? {
            *row.entry(number).or_insert(0) += 1;
        }
        self.tracee.go_on()?;
        self.child.expect("called")?;
        Ok(row)
    }

    /// A row that began right after the system was asked, and was over before it had to be asked again.
    fn believed_row(&mut self, verb: &str) -> Outcome<Row> {
        for _ in 0..ATTEMPTS {
            let began = now_ms();
            self.child.ask("ask", "asked")?;
            let row = self.row(verb, TIMES)?;
            if now_ms() - began < BELIEVED_MS {
                return Ok(row);
            }
        }
        Err(Stop::failed(format!(
            "{TIMES} times {verb:?} never took less than {BELIEVED_MS} ms"
        )))
    }

    /// How many calls one look makes when the last answer is too old to be believed.
    fn unbelieved_row(&mut self, verb: &str) -> Outcome<u32> {
        self.child.ask("ask", "asked")?;
        let end = now_ms() + BELIEVED_MS;
        until(PATIENCE, || now_ms() > end)?;
        Ok(made(&self.row(verb, 1)?))
    }
}
