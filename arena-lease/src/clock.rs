//! The clock that deadlines are counted on.

use std::fmt;

/// A clock of deadlines: `CLOCK_BOOTTIME`, unless a test brings its own.
///
/// What decides who holds a lease is that *all* its processes read one clock that never goes backwards. So
/// another one than the default is for tests of what a program does when time jumps, and must then be given to
/// everybody who opens the table.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some moment that is the same for all processes. Never goes backwards.
    fn now_ns(&self) -> u64;
}

/// `CLOCK_BOOTTIME`: runs on while the machine sleeps, is the same in all processes of a machine (but for other
/// time namespaces, which cannot attach), and is never set.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now_ns(&self) -> u64 {
        arena_peers::core::clock::boot_ns()
    }
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
