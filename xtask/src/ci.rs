//! Everything that must pass before a change lands, one step after the other.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The crates that are published, in the order of their dependencies.
const CRATES: &[&str] = &["arena-core", "arena-peers", "arena-lease", "arena-ring"];

/// Runs all steps, goes on after a failure, and closes with a summary.
pub(crate) fn run() -> bool {
    let began = Instant::now();
    forget_packages();
    let mut results = Vec::new();
    for step in steps() {
        println!("== {}", step.title);
        let result = step.run();
        println!("== {}", result.line());
        results.push(result);
    }
    println!();
    for result in &results {
        println!("{}", result.line());
    }
    let failed = results.iter().filter(|result| !result.good).count();
    let took = began.elapsed().as_secs();
    println!(
        "ci: {} steps in {} min {} s",
        results.len(),
        took / 60,
        took % 60
    );
    println!(
        "{} passed, {failed} failed, 0 skipped",
        results.len() - failed
    );
    failed == 0
}

/// What an earlier run packed is kept by cargo under the same names and versions, and would be built in place of what is
/// packed now. (Registries below a path have names that begin with a dash; whatever cannot be removed is told by the step.)
fn forget_packages() {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let kept = home.map(|home| std::fs::read_dir(home.join("registry/src")));
    for registry in kept.into_iter().flatten().flatten().flatten() {
        if registry.file_name().as_encoded_bytes().starts_with(b"-") {
            for name in CRATES {
                let package = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
                let _ = std::fs::remove_dir_all(registry.path().join(package));
            }
        }
    }
}

fn steps() -> Vec<Step> {
    let mut steps = vec![
        Step::cargo("format", &["fmt", "--all", "--", "--check"]),
        Step::cargo(
            "lints",
            &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--all-features",
                "--",
                "-D",
                "warnings",
            ],
        ),
        Step::cargo(
            "docs",
            &["doc", "--workspace", "--all-features", "--no-deps"],
        )
        .env("RUSTDOCFLAGS", "-D warnings"),
        Step::cargo(
            "tests, all features",
            &["test", "--workspace", "--all-features"],
        ),
    ];
    for name in CRATES {
        steps.push(Step::cargo(
            &format!("tests, {name} alone"),
            &["test", "--package", name],
        ));
    }
    // The working tree need not be committed for that; what is packed is built as its users would build it.
    steps.push(Step::cargo(
        "packages",
        &[
            "package",
            "--workspace",
            "--exclude",
            "xtask",
            "--allow-dirty",
        ],
    ));
    steps.push(Step::own(
        "processes",
        &["test-multiproc", "--seed", &commit_seed()],
    ));
    steps.push(Step::own("demo", &["demo"]));
    steps
}

#[derive(Debug)]
struct Step {
    title: String,
    command: Command,
}

#[derive(Debug)]
struct StepResult {
    title: String,
    good: bool,
    took: Duration,
    closing: String,
}

impl StepResult {
    fn line(&self) -> String {
        let word = if self.good { "ok  " } else { "FAIL" };
        let line = format!(
            "{word} {:<24} {:>6.1} s   {}",
            self.title,
            self.took.as_secs_f64(),
            self.closing
        );
        line.trim_end().to_owned()
    }
}

impl Step {
    fn cargo(title: &str, args: &[&str]) -> Self {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Self::new(title, &cargo, args)
    }

    /// A task of this program, as it is now, whatever is built meanwhile.
    fn own(title: &str, args: &[&str]) -> Self {
        Self::new(title, OsStr::new("/proc/self/exe"), args)
    }

    fn new(title: &str, program: &OsStr, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        Self {
            title: title.to_owned(),
            command,
        }
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    fn run(mut self) -> StepResult {
        let began = Instant::now();
        let mut closing = Closing::default();
        let status = self
            .command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .and_then(|mut child| {
                let stdout = child.stdout.take().expect("stdout was piped above");
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    println!("{line}");
                    closing.hear(&line);
                }
                child.wait()
            });
        let good = match &status {
            Ok(status) => status.success(),
            Err(e) => {
                println!("{:?}: {e}", self.command.get_program());
                false
            }
        };
        StepResult {
            title: self.title,
            good,
            took: began.elapsed(),
            closing: closing.line(),
        }
    }
}

/// The closing lines of a step's suites, added up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Closing {
    suites: u32,
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Closing {
    fn hear(&mut self, line: &str) {
        let cargo = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "));
        let text = cargo.map_or(line, |(_, counts)| counts);
        let mut found = [None; 3];
        for part in text.split([',', ';']) {
            let Some((count, word)) = part.trim().split_once(' ') else {
                continue;
            };
            let place = match word {
                "passed" => 0,
                "failed" => 1,
                "skipped" | "ignored" => 2,
                _ => continue,
            };
            found[place] = count.parse::<u32>().ok();
        }
        if let [Some(passed), Some(failed), Some(skipped)] = found {
            self.suites += 1;
            self.passed += passed;
            self.failed += failed;
            self.skipped += skipped;
        }
    }

    fn line(&self) -> String {
        match self.suites {
            0 => String::new(),
            _ => format!(
                "{} passed, {} failed, {} skipped",
                self.passed, self.failed, self.skipped
            ),
        }
    }
}

/// The commit decides the sample, so that a run can be repeated and a new commit tries other points.
fn commit_seed() -> String {
    let head = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let hash = head
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let start = hash
        .get(..15)
        .and_then(|start| u64::from_str_radix(start, 16).ok());
    start.unwrap_or(1).to_string()
}

#[cfg(test)]
mod tests {
    use super::Closing;

    #[test]
    fn the_closing_lines_of_several_suites_are_added_up() {
        let mut closing = Closing::default();
        closing.hear("test result: ok. 5 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        closing.hear("7 passed, 0 failed, 1 skipped");
        closing.hear("the 7 passed, and 3 failed");
        assert_eq!(closing.line(), "12 passed, 1 failed, 3 skipped");
    }

    #[test]
    fn a_step_without_suites_closes_without_counts() {
        assert_eq!(Closing::default().line(), "");
    }
}
