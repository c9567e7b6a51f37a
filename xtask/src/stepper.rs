//! Kills a process, or leaves it stopped, after every single instruction of a section.
//!
//! A zygote, which is this program again, forks a child for each point, so that a point costs a fork and not an
//! exec. The child prepares, runs into its begin mark, and is from there on driven by ptrace. A first child is
//! stepped through the whole section and its instruction addresses are noted; the later ones run to their point
//! by a breakpoint at its address (skipping earlier passes) and the last few steps, so that a sweep over all
//! points does not cost the square of the section's length.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use nix::{errno::Errno, unistd::Pid};

use crate::{
    child::{Child, Plan},
    outcome::{Outcome, Stop, ensure},
    scenario::Run,
    symbols::Symbols,
    tracee::{self, Event, Kind, Tracee},
};

/// What becomes of the child at its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is killed, and stays a zombie while the state is judged.
    Killed,
    /// It stands still while the state is judged, then goes on to its end.
    Stopped,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Killed => "killed",
            Self::Stopped => "stopped",
        })
    }
}

/// Where a child is when it is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    /// What became of it.
    pub(crate) fate: Fate,
    /// Its pid: a zombie's, or that of a process that stands still.
    pub(crate) child: Pid,
}

impl Point {
    /// Whether the child stands still, and will go on.
    pub(crate) fn stands(&self) -> bool {
        self.fate == Fate::Stopped
    }
}

/// An operation whose every instruction is a point.
pub(crate) trait Section {
    /// The section that the child runs, a name of `roles::step`.
    fn name(&self) -> &'static str;

    /// Makes the state that the child finds; gives what the child is told. `slow`: it will be stepped through the
    /// whole section.
    fn prepare(&mut self, run: &mut Run, slow: bool) -> Outcome<String>;

    /// Whether the child's other threads are held while the section runs: one that is woken by it would run into the
    /// stepper's breakpoints. Not for a section that waits for one.
    fn holds_other_threads(&self) -> bool {
        false
    }

    /// The file whose first bytes the section changes for others to see, where there is one.
    fn shared_file(&self) -> Option<&Path> {
        None
    }

    /// The child is dead (a zombie), or stands still. Before or after, never between; others go on.
    fn judge(&mut self, point: &Point) -> Outcome;

    /// The child that stood still goes on, and has or has not begun a look at the clock since.
    fn went_on(&mut self, _looked_at_clock: bool) {}

    /// It came to its end, and said so with `result`.
    fn finished(&mut self, result: &str) -> Outcome;

    /// The child is gone, dead and reaped. Nothing may be left of it.
    fn over(&mut self) -> Outcome {
        Ok(())
    }
}

/// What a sweep counted.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sweep {
    /// Instructions of the section.
    pub(crate) instructions: usize,
    /// Points at which a child was killed, and stopped.
    pub(crate) points: usize,
}

/// How many points at least a sample has.
const SAMPLE: usize = 50;
/// How many points next to an atomic instruction or a system call a sample has besides.
const SHARP: usize = 40;
/// How many points next to a store that others can see a sample has besides.
const STORES: usize = 80;
/// Longer sections are not sections: something spins.
const LONGEST: usize = 3_000_000;

/// Tries each point (or a sample) with both fates. `args` are for the zygote's own preparation.
pub(crate) fn sweep(run: &mut Run, section: &mut dyn Section, args: &[PathBuf]) -> Outcome<Sweep> {
    with_stepper(run, section, args, |stepper, run, section| {
        stepper.sweep(run, section)
    })
}

fn with_stepper(
    run: &mut Run,
    section: &mut dyn Section,
    args: &[PathBuf],
    body: impl FnOnce(&mut Stepper, &mut Run, &mut dyn Section) -> Outcome<Sweep>,
) -> Outcome<Sweep> {
    let plan = Plan::new("zygote").arg(section.name());
    let mut zygote = run.start(args.iter().fold(plan, Plan::arg))?;
    zygote.expect("zygote")?;
    let mut stepper = Stepper {
        zygote,
        child: None,
    };
    let swept = body(&mut stepper, run, section);
    let Stepper { zygote, child } = stepper;
    if swept.is_ok() {
        zygote.finish()?;
    } else {
        drop(zygote);
        // The child of the point that failed was the zygote's, and is ours now.
        child.map_or(Ok(()), tracee::end)?;
    }
    swept
}

/// Lets each system call of the section fail with each of `errors`, and the child go on; its result is judged.
pub(crate) fn refuse_calls(
    run: &mut Run,
    section: &mut dyn Section,
    errors: &[Errno],
) -> Outcome<Sweep> {
    with_stepper(run, section, &[], |stepper, run, section| {
        stepper.refuse_calls(run, section, errors)
    })
}

/// The zygote, and its child of the moment.
struct Stepper {
    zygote: Child,
    child: Option<Pid>,
}

/// The addresses of a section's instructions in the order of their execution, and which of them others can see.
struct Trace {
    /// Of the instruction that is executed next at each point.
    at: Vec<u64>,
    /// How often the same address was executed before.
    earlier: Vec<u32>,
    /// Points right before and right after an atomic instruction or a system call.
    sharp: Vec<usize>,
    /// Points right before and right after a change of the shared file.
    stores: Vec<usize>,
    /// Points whose next instruction is a system call.
    calls: Vec<usize>,
    /// Where looks at the clock begin, if there is one.
    look: Option<u64>,
    /// The names of the addresses.
    symbols: Symbols,
}

impl Stepper {
    fn sweep(&mut self, run: &mut Run, section: &mut dyn Section) -> Outcome<Sweep> {
        let place = format!("{}: the undisturbed run", section.name());
        let trace = self
            .trace(run, section)
            .map_err(|stop| stop.within(place))?;
        let points = choose(run, &trace);
        let mut done = 0;
        for &point in &points {
            for fate in [Fate::Killed, Fate::Stopped] {
                run.note(&format!(
                    "{} {fate} after {point} of {} instructions",
                    section.name(),
                    trace.at.len()
                ));
                self.try_point(run, section, &trace, point, fate)
                    .map_err(|stop| {
                        let wherever = trace.symbols.name(trace.at[point]);
                        stop.within(format!(
                            "{} {fate} after {point} instructions, in {wherever}",
                            section.name()
                        ))
                    })?;
                done += 1;
            }
        }
        Ok(Sweep {
            instructions: trace.at.len(),
            points: done,
        })
    }

    fn refuse_calls(
        &mut self,
        run: &mut Run,
        section: &mut dyn Section,
        errors: &[Errno],
    ) -> Outcome<Sweep> {
        let trace = self.trace(run, section)?;
        let mut refused = 0;
        for &point in &trace.calls {
            for &error in errors {
                let wherever = trace.symbols.name(trace.at[point]);
                let place = format!("{} refused {error} in {wherever}", section.name());
                run.note(&place);
                let done = self.refuse_call(run, section, &trace, point, error);
                refused += usize::from(done.map_err(|stop| stop.within(place))?);
            }
        }
        Ok(Sweep {
            instructions: trace.at.len(),
            points: refused,
        })
    }

    fn refuse_call(
        &mut self,
        run: &mut Run,
        section: &mut dyn Section,
        trace: &Trace,
        point: usize,
        error: Errno,
    ) -> Outcome<bool> {
        let mut tracee = self.born(run, section, false)?;
        let mut refused = false;
        if reach(&mut tracee, trace, point)? {
            refused = tracee.refuse_call(error)?;
            tracee.run_to_mark()?;
        }
        tracee.detach()?;
        self.finish(section)?;
        self.bury(section)?;
        Ok(refused)
    }

    fn trace(&mut self, run: &mut Run, section: &mut dyn Section) -> Outcome<Trace> {
        // The first process of all finds what none finds afterwards; it is no measure.
        let mut first = self.born(run, section, false)?;
        first.run_to_mark()?;
        first.detach()?;
        self.finish(section)?;
        self.bury(section)?;
        let mut tracee = self.born(run, section, true)?;
        let (mut at, mut earlier, mut sharp) = (Vec::new(), Vec::new(), Vec::new());
        let mut calls = Vec::new();
        let mut seen_by_others = SeenByOthers::new(section.shared_file())?;
        let mut stores = Vec::new();
        let mut seen: HashMap<u64, u32> = HashMap::new();
        loop {
            let here = tracee.position()?;
            let passes = seen.entry(here).or_insert(0);
            at.push(here);
            earlier.push(*passes);
            *passes += 1;
            let kind = tracee.kind(here)?;
            if kind != Kind::Other {
                sharp.extend([at.len() - 1, at.len()]);
            }
            if kind == Kind::Call {
                calls.push(at.len() - 1);
            }
            ensure!(at.len() < LONGEST, "{} instructions and no end", at.len());
            match tracee.step()? {
                Event::Stepped => {}
                Event::Mark => break,
                Event::Ended(how) => return Err(Stop::failed(format!("{how} inside the section"))),
            }
            if seen_by_others.changed()? {
                stores.extend([at.len() - 1, at.len()]);
            }
        }
        sharp.dedup();
        // The last instruction is the mark itself: executed, the section is over.
        at.pop();
        earlier.pop();
        sharp.retain(|point| *point < at.len());
        stores.retain(|point| *point < at.len());
        ensure!(!at.is_empty(), "the section has no instruction");
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", tracee.pid()))?;
        let symbols = Symbols::of_maps(&maps);
        let is_look = |at: u64| symbols.file(at) == Some(Path::new("[vdso]"));
        let look = (1..at.len()).find(|&k| is_look(at[k]) && !is_look(at[k - 1]));
        tracee.detach()?;
        self.finish(section)?;
        self.bury(section)?;
        Ok(Trace {
            earlier,
            sharp,
            stores,
            calls,
            look: look.map(|k| at[k]),
            at,
            symbols,
        })
    }

    fn try_point(
        &mut self,
        run: &mut Run,
        section: &mut dyn Section,
        trace: &Trace,
        point: usize,
        fate: Fate,
    ) -> Outcome {
        let mut tracee = self.born(run, section, false)?;
        let inside = reach(&mut tracee, trace, point)?;
        let at = Point {
            fate,
            child: tracee.pid(),
        };
        match fate {
            Fate::Killed => {
                tracee.kill()?;
                section.judge(&at)?;
            }
            Fate::Stopped => {
                section.judge(&at)?;
                // The section may be shorter than the first time: then the child is behind its end mark already.
                let mut looked = false;
                if inside && let Some(look) = trace.look {
                    looked = tracee.run_to(look, 0)?;
                }
                if inside && (looked || trace.look.is_none()) {
                    tracee.run_to_mark()?;
                }
                section.went_on(looked);
                tracee.detach()?;
                self.finish(section)?;
            }
        }
        self.bury(section)
    }

    /// A child that stands on its begin mark.
    fn born(&mut self, run: &mut Run, section: &mut dyn Section, slow: bool) -> Outcome<Tracee> {
        let told = section.prepare(run, slow)?;
        let pid = self.zygote.ask(&format!("fork {told}"), "born")?;
        let pid = Pid::from_raw(
            pid.parse()
                .map_err(|_| Stop::failed(format!("no pid: {pid}")))?,
        );
        self.child = Some(pid);
        let mut tracee = Tracee::seize(pid)?;
        self.zygote.tell("prepare")?;
        tracee.await_mark()?;
        if section.holds_other_threads() {
            tracee.hold_others()?;
        }
        Ok(tracee)
    }

    /// The child tells its result, and ends.
    fn finish(&mut self, section: &mut dyn Section) -> Outcome {
        let result = self.zygote.expect("done")?;
        section.finished(&result)?;
        self.zygote.tell("end")
    }

    /// The zygote has seen the child's end, and reaps it.
    fn bury(&mut self, section: &mut dyn Section) -> Outcome {
        self.zygote.expect("ended")?;
        self.zygote.ask("reap", "reaped")?;
        self.child = None;
        section.over()
    }
}

/// The first bytes of a file, as they were when they were last looked at.
struct SeenByOthers {
    file: Option<File>,
    before: Vec<u8>,
    now: Vec<u8>,
}

impl SeenByOthers {
    /// Header and tables of the scenarios' arenas, lease table included, are shorter than this.
    const BYTES: usize = 32 << 10;

    fn new(path: Option<&Path>) -> Outcome<Self> {
        let file = path.map(File::open).transpose()?;
        let mut this = Self {
            file,
            before: vec![0; Self::BYTES],
            now: vec![0; Self::BYTES],
        };
        this.changed()?;
        Ok(this)
    }

    /// Whether a byte is another than at the last look.
    fn changed(&mut self) -> Outcome<bool> {
        let Some(file) = &self.file else {
            return Ok(false);
        };
        _ = file.read_at(&mut self.now, 0)?;
        let changed = self.now != self.before;
        std::mem::swap(&mut self.now, &mut self.before);
        Ok(changed)
    }
}

/// All points, or a seeded sample: evenly from the whole section, and besides from around what others can see.
fn choose(run: &mut Run, trace: &Trace) -> Vec<usize> {
    let count = trace.at.len();
    if run.full || count <= SAMPLE {
        return (0..count).collect();
    }
    let mut points: Vec<usize> = (0..SAMPLE)
        .map(|part| {
            let (from, to) = (part * count / SAMPLE, (part + 1) * count / SAMPLE);
            from + run.rng.index(to - from)
        })
        .collect();
    for (of_note, most) in [(&trace.stores, STORES), (&trace.sharp, SHARP)] {
        let mut of_note = of_note.clone();
        of_note.dedup();
        while of_note.len() > most {
            of_note.swap_remove(run.rng.index(of_note.len()));
        }
        points.extend(of_note);
    }
    points.sort_unstable();
    points.dedup();
    points
}

/// Brings the child to its point; false when the section ended before.
fn reach(tracee: &mut Tracee, trace: &Trace, point: usize) -> Outcome<bool> {
    // A pass through a breakpoint costs a few times what a step costs, and its first use some more.
    let cost = |near: usize| 6 * trace.earlier[near] as usize + (point - near) + 8;
    let near = (point.saturating_sub(400)..=point)
        .min_by_key(|near| cost(*near))
        .unwrap_or(0);
    let mut steps = point;
    if cost(near) < point {
        // The begin mark is just behind; the very first instruction has been passed 0 times.
        let passes = trace.earlier[near];
        if !tracee.run_to(trace.at[near], passes)? {
            return Ok(false);
        }
        steps = point - near;
    }
    for _ in 0..steps {
        match tracee.step()? {
            Event::Stepped => {}
            Event::Mark => return Ok(false),
            Event::Ended(how) => return Err(Stop::failed(format!("{how} inside the section"))),
        }
    }
    Ok(true)
}
