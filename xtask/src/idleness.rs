//! How much a process was on a processor, all its threads together.

use nix::unistd::Pid;

use crate::outcome::{Outcome, Stop};

/// A tick of the processor, as the kernel shows it to people.
pub(crate) const TICK_NS: u64 = 10_000_000;

/// Two readings of one process tell what it did between them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Activity {
    /// How often it went to sleep.
    pub(crate) sleeps: u32,
    /// How long it was on a processor, in nanoseconds.
    pub(crate) ran_ns: u64,
}

impl Activity {
    /// All that the threads did that there are now.
    pub(crate) fn of(pid: Pid) -> Outcome<Self> {
        let mut all = Self::default();
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?.path();
            let status = std::fs::read_to_string(task.join("status"))?;
            let count = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            all.sleeps += count.map_or(Ok(0), |count| count.trim().parse::<u32>())?;
            let times = std::fs::read_to_string(task.join("schedstat"))?;
            let ran = times.split(' ').next().unwrap_or_default();
            let none = |_| Stop::failed(format!("no time is in {times:?}"));
            all.ran_ns += ran.parse::<u64>().map_err(none)?;
        }
        Ok(all)
    }

    /// What was done since an earlier reading.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            sleeps: self.sleeps - earlier.sleeps,
            ran_ns: self.ran_ns - earlier.ran_ns,
        }
    }
}
