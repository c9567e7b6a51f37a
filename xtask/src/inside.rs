//! The process in which one scenario runs: a crash or a hang there is a result, and not the end of the run.

use std::{panic, sync::Mutex};

use nix::sys::prctl;

use crate::{
    leftovers,
    outcome::{Outcome, Stop, ensure},
    rng::Rng,
    scenario::{Run, Scenario},
    scenarios,
    told::Told,
};

/// Where the last panic was, for the report.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Runs the scenario that the arguments name, prints how it ended and gives the exit code.
pub(crate) fn run(mut told: Told) -> i32 {
    let name = told.arg();
    let (seed, rounds, full) = (told.number(), told.number(), told.number() == 1);
    let rounds = u32::try_from(rounds).expect("rounds are a u32 in the table");
    let Some(scenario) = scenarios::all()
        .into_iter()
        .find(|scenario| scenario.name == name)
    else {
        println!("fail no scenario has the name {name:?}");
        return 1;
    };
    // A child of a child that outlives it comes to us, to be seen and to be ended.
    _ = prctl::set_child_subreaper(true);
    panic::set_hook(Box::new(|info| {
        if let Ok(mut place) = PANIC.lock() {
            *place = info.to_string().replace('\n', " ");
        }
    }));
    let run = Run::new(
        told.directory().to_owned(),
        Rng::new(seed, &name),
        rounds,
        full,
    );
    match whole(&scenario, run) {
        Ok(()) => println!("ok"),
        Err(Stop::Failed(reason)) => println!("fail {}", reason.replace('\n', " | ")),
        Err(Stop::Skipped(reason)) => println!("skip {}", reason.replace('\n', " | ")),
    }
    0
}

fn whole(scenario: &Scenario, mut run: Run) -> Outcome {
    let before = leftovers::descriptors();
    let result = panic::catch_unwind(panic::AssertUnwindSafe(|| (scenario.run)(&mut run)));
    let outcome = result.unwrap_or_else(|_| {
        let place = PANIC.lock().map(|place| place.clone()).unwrap_or_default();
        Err(Stop::failed(format!("panicked: {place}")))
    });
    // Its own failure says more than what it left because of it.
    if outcome.is_err() {
        leftovers::clear_children();
        return outcome;
    }
    let left = leftovers::no_children();
    leftovers::clear_children();
    left?;
    let after = leftovers::descriptors();
    let leaked: Vec<_> = after.difference(&before).cloned().collect();
    ensure!(
        leaked.is_empty(),
        "descriptors are left: {}",
        leaked.join(", ")
    );
    Ok(())
}
