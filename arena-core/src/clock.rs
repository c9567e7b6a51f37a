//! The clocks: one that runs on while the machine sleeps, and one that people read.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_BOOTTIME`: since boot, suspended time included; never goes backwards.
/// A vDSO call, about 30 ns.
#[must_use]
#[inline]
pub fn boot_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_BOOTTIME)
}

/// Milliseconds of `CLOCK_BOOTTIME`, rounded down: the unit and the clock of every deadline.
#[must_use]
pub fn boot_ms() -> u64 {
    boot_ns() / 1_000_000
}

/// Microseconds of the wall clock since 1970: where fences start, and nothing else.
#[must_use]
pub fn unix_us() -> u64 {
    nanoseconds(ClockId::CLOCK_REALTIME) / 1_000
}

fn nanoseconds(clock: ClockId) -> u64 {
    let at = clock_gettime(clock).expect("the kernel has this clock since 2.6.39");
    let seconds = u64::try_from(at.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(at.tv_nsec()).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
