//! The tools of the other scenarios, tried on cases whose right answer is known.

use crate::{
    child::Plan,
    namespaces::Rooms,
    outcome::{Outcome, Stop, ensure},
    scenario::{Need, Run, Scenario},
    stepper::{Point, Section, sweep},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "harness",
        "tools",
        "a_child_that_ends_early_is_a_failure_that_names_its_last_point",
        ends_early,
    ),
    Scenario::new(
        "harness",
        "tools",
        "a_role_in_a_pid_namespace_is_pid_1_there",
        first_of_its_namespace,
    )
    .needs(&[Need::Namespaces]),
    Scenario::new(
        "harness",
        "tools",
        "the_stepper_finds_the_one_instruction_that_leaves_a_file_half_done",
        finds,
    )
    .needs(&[Need::Ptrace]),
];

/// Goal: no child's silence or death passes as success. Method: expect a point of a child that ends before it.
fn ends_early(run: &mut Run) -> Outcome {
    let mut child = run.start(Plan::new("probe"))?;
    child.expect("inside")?;
    match child.expect("nowhere") {
        Err(Stop::Failed(reason)) => {
            ensure!(
                reason.contains("\"at inside\""),
                "the last point is not named: {reason}"
            );
            Ok(())
        }
        other => Err(Stop::failed(format!("the end of the child was {other:?}"))),
    }
}

/// Goal: scenarios about containers really are in them. Method: the child's NSpid, seen from here.
fn first_of_its_namespace(run: &mut Run) -> Outcome {
    let rooms = Rooms {
        pid: true,
        fresh_proc: true,
        ..Rooms::default()
    };
    let mut child = run.start(Plan::new("zygote").arg("store").in_rooms(rooms))?;
    child.expect("zygote")?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.pid()))?;
    let pids = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .unwrap_or("");
    ensure!(
        pids.split_ascii_whitespace().last() == Some("1"),
        "its pids are {pids}"
    );
    child.kill()
}

/// Goal: a state between before and after is found, and its instruction is named. Method: a section that writes
/// "first" and then "second" to a file is swept with a judge that accepts everything but "first" and an empty file.
fn finds(run: &mut Run) -> Outcome {
    let mut store = Store {
        path: run.path("words"),
        tolerant: false,
    };
    match sweep(run, &mut store, &[]) {
        Err(Stop::Failed(reason)) => {
            ensure!(
                reason.contains("instructions, in "),
                "the place is missing: {reason}"
            );
            ensure!(reason.contains("+0x"), "the symbol is missing: {reason}");
        }
        other => {
            return Err(Stop::failed(format!(
                "the half-done file was missed: {other:?}"
            )));
        }
    }
    store.tolerant = true;
    let swept = sweep(run, &mut store, &[])?;
    run.detail(&format!(
        "{} instructions, {} points",
        swept.instructions, swept.points
    ));
    ensure!(swept.points >= 100, "only {} points", swept.points);
    Ok(())
}

struct Store {
    path: std::path::PathBuf,
    tolerant: bool,
}

impl Section for Store {
    fn name(&self) -> &'static str {
        "store"
    }

    fn prepare(&mut self, _run: &mut Run, _slow: bool) -> Outcome<String> {
        std::fs::write(&self.path, "before")?;
        Ok(self.path.display().to_string())
    }

    fn judge(&mut self, _point: &Point) -> Outcome {
        let text = std::fs::read_to_string(&self.path)?;
        ensure!(
            self.tolerant || text == "before" || text == "second",
            "the file says {text:?}"
        );
        Ok(())
    }

    fn finished(&mut self, result: &str) -> Outcome {
        ensure!(result == "stored", "it said {result:?}");
        ensure!(
            std::fs::read_to_string(&self.path)? == "second",
            "the file was not written"
        );
        Ok(())
    }
}
