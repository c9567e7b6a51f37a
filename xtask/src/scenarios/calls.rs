//! How many system calls the verbs of a lease make.

use std::collections::BTreeMap;

use super::{cast::same, lease};
use crate::{
    child::{Child, PATIENCE, Plan, until},
    outcome::{Outcome, Stop, ensure},
    roles::verbs::now_ms,
    scenario::{Need, Run, Scenario},
    tracee::Tracee,
};

pub(super) const SCENARIOS: &[Scenario] = &[Scenario::new(
    "lease",
    "calls",
    "no_verb_of_a_lease_makes_a_system_call_while_the_holders_bell_is_believed",
    none,
)
.needs(&[Need::Ptrace])];

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
    let mut caller = Caller::start(run)?;
    let control = caller.row("getppid", TIMES)?;
    same(
        "system calls of the control",
        &format!("{:?}", control),
        &format!("{:?}", BTreeMap::from([(nix::libc::SYS_getppid, TIMES)])),
    )?;
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
    fn start(run: &Run) -> Outcome<Self> {
        let mut child = run.start(Plan::new("caller").arg(run.path("arena")))?;
        child.expect("caller")?;
        let tracee = Tracee::seize(child.pid())?;
        Ok(Self { child, tracee })
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
