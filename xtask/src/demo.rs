//! A pool of real processes elects one leader over an arena, and loses it in three ways; then a rolling restart.

mod rolling;

use std::time::{Duration, Instant};

use arena_core::clock;

use crate::{
    child::{Child, Plan, until},
    outcome::{Outcome, Stop, ensure},
    scratch::Scratch,
    text,
};

/// How long a leader that stands still is waited for.
const TTL: Duration = Duration::from_secs(1);
/// How long each leader leads undisturbed.
const REIGN: Duration = Duration::from_millis(600);
/// A takeover that takes longer than this hangs.
const GUARD: Duration = Duration::from_secs(15);
const WORKERS: usize = 4;

/// Shows it, with a timeline and a summary; false when a leader had no successor.
pub(crate) fn run() -> bool {
    match show().and_then(|()| rolling::show()) {
        Ok(()) => true,
        Err(Stop::Failed(reason) | Stop::Skipped(reason)) => {
            println!("the demo failed: {reason}");
            false
        }
    }
}

fn show() -> Outcome {
    let scratch = Scratch::new("demo")?;
    let mut pool = Pool {
        scratch: &scratch,
        began_ns: clock::boot_ns(),
        workers: Vec::new(),
        fence: 0,
        done: Vec::new(),
    };
    println!(
        "{WORKERS} worker processes, one lease, a ttl of {} ms; each line is timed from the start",
        TTL.as_millis()
    );
    for _ in 0..WORKERS {
        pool.hire()?;
    }
    let mut leader = pool.first()?;
    leader = pool.killed(leader)?;
    leader = pool.stopped(leader)?;
    leader = pool.stepped_down(leader)?;
    leader = pool.killed(leader)?;
    pool.stepped_down(leader)?;
    let took_ms = (clock::boot_ns() - pool.began_ns) / 1_000_000;
    let Pool { workers, done, .. } = pool;
    drop(workers);
    drop(scratch);
    println!();
    println!(
        "{:<16} {:<22} {:>14}",
        "leader", "successor's fence", "without leader"
    );
    for (how, fence, gap_ns) in &done {
        println!("{how:<16} {fence:<22} {:>11} ms", millis(*gap_ns));
    }
    println!(
        "{} takeovers, each with a larger fence than the last; a stopped leader costs its ttl at most; {} s in all",
        done.len(),
        millis(took_ms * 1_000)
    );
    Ok(())
}

/// Nanoseconds, as milliseconds with a decimal.
fn millis(ns: u64) -> String {
    format!("{}.{}", ns / 1_000_000, ns / 100_000 % 10)
}

/// One line of the timeline, `ns` after its start.
fn line(ns: u64, number: usize, child: &Child, what: &str) {
    let (ms, pid) = (ns / 1_000_000, child.pid());
    println!("{ms:>7} ms  worker {number} (pid {pid}) {what}");
}

/// The workers, and what they said so far.
struct Pool<'a> {
    scratch: &'a Scratch,
    began_ns: u64,
    workers: Vec<Worker>,
    /// The newest fence that anybody led under.
    fence: u64,
    /// How each leader ended, the fence of the next, and how long there was none.
    done: Vec<(&'static str, u64, u64)>,
}

struct Worker {
    number: usize,
    child: Child,
    dead: bool,
}

/// What a worker said: which one (its place in the pool), what, when, and the rest.
struct Heard {
    from: usize,
    what: String,
    at_ns: u64,
    rest: String,
}

impl Pool<'_> {
    /// Starts a worker, which contends as soon as it is let go.
    fn hire(&mut self) -> Outcome {
        let number = self.workers.last().map_or(1, |last| last.number + 1);
        let plan = Plan::new("demo-worker").arg(self.scratch.path().join("arena"));
        let mut child = plan
            .arg(TTL.as_millis().to_string())
            .start(self.scratch.path())?;
        child.expect("ready")?;
        self.workers.push(Worker {
            number,
            child,
            dead: false,
        });
        let now = clock::boot_ns();
        self.line(now, self.workers.len() - 1, "waits to lead");
        Ok(())
    }

    fn line(&self, at_ns: u64, who: usize, what: &str) {
        let worker = &self.workers[who];
        let ns = at_ns.saturating_sub(self.began_ns);
        line(ns, worker.number, &worker.child, what);
    }

    fn hear(&mut self) -> Outcome<Heard> {
        let mut from = None;
        until(GUARD, || {
            from = self
                .workers
                .iter()
                .position(|worker| !worker.dead && worker.child.speaks());
            from.is_some()
        })
        .map_err(|_| Stop::failed("nobody leads, and nobody says why"))?;
        let from = from.expect("until returned Ok, so somebody speaks");
        let (what, text) = self.workers[from].child.hear(GUARD)?;
        let (at, rest) = text.split_once(' ').unwrap_or((&text, ""));
        Ok(Heard {
            from,
            what,
            at_ns: text::number(at)?,
            rest: rest.to_owned(),
        })
    }

    /// The next one that leads; its place in the pool and when it began.
    fn next_leader(&mut self) -> Outcome<(usize, u64)> {
        loop {
            let heard = self.hear()?;
            match heard.what.as_str() {
                "leads" => {
                    let (fence, how) = heard.rest.split_once(' ').unwrap_or((&heard.rest, ""));
                    let fence = text::number(fence)?;
                    ensure!(
                        fence > self.fence,
                        "fence {fence} does not exceed {}",
                        self.fence
                    );
                    self.fence = fence;
                    let from = match how {
                        "dead" => "took over from a dead leader",
                        "lapsed" => "took over from a leader that let it lapse",
                        _ => "found the lease free",
                    };
                    self.line(
                        heard.at_ns,
                        heard.from,
                        &format!("LEADS under fence {fence}: {from}"),
                    );
                    return Ok((heard.from, heard.at_ns));
                }
                "lost" => {
                    let (fence, to) = heard.rest.split_once(' ').unwrap_or((&heard.rest, ""));
                    self.line(
                        heard.at_ns,
                        heard.from,
                        &format!("learns that its fence {fence} is lost to {to}"),
                    );
                }
                "stepped-down" => {}
                _ => {
                    return Err(Stop::failed(format!(
                        "a worker said {} {}",
                        heard.what, heard.rest
                    )));
                }
            }
        }
    }

    fn first(&mut self) -> Outcome<usize> {
        self.workers
            .iter_mut()
            .try_for_each(|worker| worker.child.go())?;
        let (leader, _) = self.next_leader()?;
        reign();
        Ok(leader)
    }

    /// Waits for the successor of a leader that ended at `since_ns`.
    fn succeeded(&mut self, how: &'static str, since_ns: u64) -> Outcome<usize> {
        let (leader, at_ns) = self.next_leader()?;
        let gap_ns = at_ns.saturating_sub(since_ns);
        println!(
            "{:>7}     {} ms without a leader ({how})",
            "",
            millis(gap_ns)
        );
        self.done.push((how, self.fence, gap_ns));
        Ok(leader)
    }

    fn killed(&mut self, leader: usize) -> Outcome<usize> {
        let since_ns = clock::boot_ns();
        self.workers[leader].child.kill_unreaped()?;
        self.workers[leader].dead = true;
        self.line(since_ns, leader, "is killed (SIGKILL), and not reaped");
        let next = self.succeeded("killed", since_ns)?;
        let number = self.workers[next].number;
        self.workers.remove(leader);
        self.hire()?;
        self.workers
            .last_mut()
            .map_or(Ok(()), |worker| worker.child.go())?;
        reign();
        self.place(number)
    }

    fn stopped(&mut self, leader: usize) -> Outcome<usize> {
        let since_ns = clock::boot_ns();
        self.workers[leader].child.stop()?;
        self.line(since_ns, leader, "is stopped (SIGSTOP)");
        let next = self.succeeded("stopped", since_ns)?;
        reign();
        let now_ns = clock::boot_ns();
        self.workers[leader].child.cont()?;
        self.line(now_ns, leader, "goes on (SIGCONT)");
        let heard = self.hear()?;
        ensure!(
            heard.from == leader && heard.what == "lost",
            "it said {} {}",
            heard.what,
            heard.rest
        );
        let (fence, to) = heard.rest.split_once(' ').unwrap_or((&heard.rest, ""));
        self.line(
            heard.at_ns,
            leader,
            &format!("learns that its fence {fence} is lost to {to}"),
        );
        reign();
        Ok(next)
    }

    fn stepped_down(&mut self, leader: usize) -> Outcome<usize> {
        self.workers[leader].child.tell("step down")?;
        let (what, text) = self.workers[leader].child.hear(GUARD)?;
        ensure!(
            what == "stepped-down" && text.ends_with("true"),
            "it said {what} {text}"
        );
        let (at, _) = text.split_once(' ').unwrap_or((&text, ""));
        let since_ns = text::number(at)?;
        self.line(since_ns, leader, "steps down");
        let next = self.succeeded("stepped down", since_ns)?;
        reign();
        Ok(next)
    }

    fn place(&self, number: usize) -> Outcome<usize> {
        let place = self
            .workers
            .iter()
            .position(|worker| worker.number == number);
        place.ok_or_else(|| Stop::failed("the leader is not in the pool"))
    }
}

/// Lets the leader lead for a while. Nothing is waited for: this is for who watches.
fn reign() {
    let end = Instant::now() + REIGN;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::sleep(left);
    }
}
