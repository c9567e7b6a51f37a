//! Runs scenarios one at a time, each in a process of its own, and says how each ended.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use nix::{sys::prctl, unistd::geteuid};

use crate::{
    capability,
    child::{DIRECTORY, PARENT},
    leftovers,
    namespaces::Rooms,
    outcome::Stop,
    scenario::Scenario,
    scenarios,
    scratch::Scratch,
};

/// Scenarios that may be skipped even by a root that may do everything, and why.
const MAY_SKIP: &[(&str, &str)] = &[(
    "a_holder_that_dumps_core_is_succeeded_at_its_ttl_at_the_latest",
    "where core files go is the machine's setting, and not this program's to change",
)];

/// What to run, and how.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Names of scenarios or parts of them, suites, or rows of the list of cases; none: all
    names: Vec<String>,
    /// The seed of all samples (default: a new one, which is printed)
    #[arg(long)]
    seed: Option<u64>,
    /// Shows the scenarios, and runs none
    #[arg(long)]
    list: bool,
    /// All points instead of a sample, and many more rounds
    #[arg(long)]
    full: bool,
}

impl Options {
    /// All scenarios, as in ci.
    pub(crate) fn list_or_run(&self) -> bool {
        let chosen: Vec<Scenario> = scenarios::all()
            .into_iter()
            .filter(|scenario| self.wants(scenario))
            .collect();
        if chosen.is_empty() {
            eprintln!(
                "no scenario is called, or is about, {}",
                self.names.join(", ")
            );
            return false;
        }
        if self.list {
            chosen.iter().for_each(show);
            return true;
        }
        let seed = self.seed.unwrap_or_else(new_seed);
        println!("seed {seed}{}", if self.full { ", full" } else { "" });
        run(&chosen, seed, self.full)
    }

    fn wants(&self, scenario: &Scenario) -> bool {
        let wants = |name: &String| {
            scenario.name.contains(name.as_str())
                || scenario.suite == name
                || scenario.rows.split(' ').any(|row| row == name)
        };
        self.names.is_empty() || self.names.iter().any(wants)
    }
}

#[derive(Debug, Default)]
struct Tally {
    passed: u32,
    failed: u32,
    skipped: u32,
}

fn run(chosen: &[Scenario], seed: u64, full: bool) -> bool {
    _ = prctl::set_child_subreaper(true);
    let width = chosen
        .iter()
        .map(|scenario| scenario.name.len())
        .max()
        .unwrap_or(0);
    let mut tally = Tally::default();
    for scenario in chosen {
        let began = Instant::now();
        let (outcome, detail) = match capability::missing(scenario.needs) {
            Some(reason) => (Err(Stop::Skipped(reason)), String::new()),
            None => one(scenario, seed, full),
        };
        let took = began.elapsed().as_millis();
        let line = format!(
            "{:<7} {:<width$} {took:>6} ms",
            scenario.rows, scenario.name
        );
        match strict(scenario, outcome) {
            Ok(()) => {
                tally.passed += 1;
                println!("ok   {}", format!("{line}   {detail}").trim_end());
            }
            Err(Stop::Skipped(reason)) => {
                tally.skipped += 1;
                println!("skip {line} : {reason}");
            }
            Err(Stop::Failed(reason)) => {
                tally.failed += 1;
                println!("FAIL {line} : {reason}");
                let full = if full { " --full" } else { "" };
                println!(
                    "     repeat: cargo xtask test-multiproc {} --seed {seed}{full}",
                    scenario.name
                );
            }
        }
    }
    println!(
        "{} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    );
    tally.failed == 0
}

/// Where nothing is missing, a skip is a failure.
fn strict(scenario: &Scenario, outcome: Result<(), Stop>) -> Result<(), Stop> {
    match outcome {
        Err(Stop::Skipped(reason))
            if geteuid().is_root()
                && capability::is_whole()
                && !MAY_SKIP.iter().any(|(name, _)| *name == scenario.name) =>
        {
            Err(Stop::failed(format!(
                "skipped, where root may do everything: {reason}"
            )))
        }
        other => other,
    }
}

/// Runs one scenario; gives its result and what it counted.
fn one(scenario: &Scenario, seed: u64, full: bool) -> (Result<(), Stop>, String) {
    let mark = Scratch::mark();
    let directory = match Scratch::new(scenario.name) {
        Ok(directory) => directory,
        Err(e) => {
            return (
                Err(Stop::failed(format!("a directory for it: {e}"))),
                String::new(),
            );
        }
    };
    let mut story = Story::default();
    let outcome = supervise(scenario, seed, full, directory.path(), &mut story);
    leftovers::clear_children();
    drop(directory);
    let files = leftovers::marked_files(&mark);
    for name in &files {
        _ = std::fs::remove_file(Path::new("/dev/shm").join(name));
    }
    let outcome = outcome.and_then(|()| match files.as_slice() {
        [] => Ok(()),
        names => Err(Stop::failed(format!(
            "left in /dev/shm: {}",
            names.join(", ")
        ))),
    });
    (outcome, story.detail)
}

/// What the scenario's process said.
#[derive(Debug, Default)]
struct Story {
    note: String,
    detail: String,
    end: Option<Result<(), Stop>>,
}

impl Story {
    fn hear(&mut self, line: &str) {
        let (word, text) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "note" => text.clone_into(&mut self.note),
            "detail" => text.clone_into(&mut self.detail),
            "ok" => self.end = Some(Ok(())),
            "fail" => self.end = Some(Err(Stop::failed(text))),
            "skip" => self.end = Some(Err(Stop::Skipped(text.to_owned()))),
            _ => {}
        }
    }
}

fn supervise(
    scenario: &Scenario,
    seed: u64,
    full: bool,
    directory: &Path,
    story: &mut Story,
) -> Result<(), Stop> {
    let (rounds, limit) = match full {
        true => (scenario.rounds.1, scenario.limit * 30),
        false => (scenario.rounds.0, scenario.limit),
    };
    let mut command = Command::new("/proc/self/exe");
    command.arg("child");
    if scenario.own_pids {
        let rooms = Rooms {
            pid: true,
            fresh_proc: true,
            ..Rooms::default()
        };
        command.arg("--in").arg(rooms.to_string());
    }
    command.args([
        "scenario",
        scenario.name,
        &seed.to_string(),
        &rounds.to_string(),
        if full { "1" } else { "0" },
    ]);
    command
        .env(DIRECTORY, directory)
        .env(PARENT, std::process::id().to_string());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut process = command.spawn()?;
    let (told, lines) = channel();
    let stdout = process.stdout.take().expect("stdout was piped above");
    let stderr = process.stderr.take().expect("stderr was piped above");
    let listener = std::thread::spawn(move || {
        BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .all(|line| told.send(line).is_ok())
    });
    let complaints = std::thread::spawn(move || {
        let mut text = Vec::new();
        _ = BufReader::new(stderr).read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let deadline = Instant::now() + limit;
    let hangs = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => story.hear(&line),
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if hangs {
        _ = process.kill();
    }
    let status = process.wait();
    // The children of the scenario die with it; what they held open must be closed before the threads can end.
    leftovers::clear_children();
    _ = listener.join();
    let complaints = complaints.join().unwrap_or_default();
    let outcome = match (hangs, story.end.take(), status) {
        (true, _, _) => Err(Stop::failed(format!(
            "hangs: not over after {} s (last: {})",
            limit.as_secs(),
            story.note
        ))),
        (false, Some(end), Ok(status)) if status.success() => end,
        (false, _, status) => {
            let status = status.map_or_else(|e| e.to_string(), |status| status.to_string());
            Err(Stop::failed(format!(
                "its process ended ({status}) without a result (last: {})",
                story.note
            )))
        }
    };
    outcome.map_err(|stop| match (stop, complaints.trim()) {
        (Stop::Failed(reason), complaints) if !complaints.is_empty() => Stop::failed(format!(
            "{reason}\n     said: {}",
            complaints.replace('\n', "\n     said: ")
        )),
        (stop, _) => stop,
    })
}

fn show(scenario: &Scenario) {
    let needs = format!("{:?}", scenario.needs);
    let (ci, full) = scenario.rounds;
    println!(
        "{:<6} {:<7} {:<70} rounds {ci}, full {full}   needs {needs}",
        scenario.suite, scenario.rows, scenario.name
    );
}

fn new_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.unwrap_or(Duration::ZERO);
    (since.as_secs() << 20) ^ u64::from(since.subsec_nanos())
}
