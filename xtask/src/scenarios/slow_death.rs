//! Holders whose end takes the kernel a while: P13.

use std::{
    os::unix::{fs::MetadataExt, process::ExitStatusExt},
    time::Duration,
};

use arena_core::PidFd;
use nix::sys::{
    resource::{Resource, getrlimit},
    signal::Signal,
};

use super::lease::{held, takes, worker};
use crate::{
    outcome::{Outcome, Stop, ensure},
    roles::verbs::now_ms,
    scenario::{Run, Scenario},
    text,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "lease",
        "P13",
        "the_death_of_a_large_holder_is_known_before_its_memory_is_freed",
        large,
    )
    .rounds(6, 40),
    Scenario::new(
        "lease",
        "P13",
        "a_holder_that_dumps_core_is_succeeded_at_its_ttl_at_the_latest",
        dumps,
    ),
];

/// Goal: a waiter does not wait for the kernel to free the dead one's memory. Method: the holder has 256 MiB (with --full
/// 1 GiB) and is killed while a rival waits; when the rival holds, the holder's pidfd, which tells of the end only after the memory,
/// is not yet readable. A rival that is kept off the processor for long enough shows nothing, so one round is enough;
/// without proof by the bell and the missing address space, there is none.
fn large(run: &mut Run) -> Outcome {
    let (mut early, mut rounds) = (0, 0);
    let mib = if run.full { 1_024 } else { 256 };
    run.each_round(|run, _| {
        let (mut one, mut rival) = (worker(run, 600_000)?, worker(run, 600_000)?);
        one.must(&format!("fill {mib}"), "filled")?;
        takes(&mut one, "new")?;
        let process = PidFd::open(u32::try_from(one.child.pid().as_raw())?)?;
        rival.child.tell("wait 20000")?;
        one.child.signal(Signal::SIGKILL)?;
        held(&rival.child.expect("wait")?, "dead")?;
        early += u32::from(!process.has_ended()?);
        rounds += 1;
        rival.must("release", "true")?;
        one.child.kill().or(Ok(()))
    })?;
    run.detail(&format!(
        "{mib} MiB, {early} of {rounds} before its pidfd told"
    ));
    ensure!(early > 0, "no death was known before the memory was freed");
    Ok(())
}

/// Goal: a crash that dumps core delays every notice, and no longer than the ttl. Method: the holder aborts while a
/// rival waits; its core is found on disk. What the rival holds from is read off its own deadline, and compared with the
/// deadline that the dead one's word had: by death, not after it; by lapse, not before it. And not after a plain sleeper
/// that set out to wake a second later.
fn dumps(run: &mut Run) -> Outcome {
    const LATER_MS: u64 = 1_000;
    const TTL_MS: u64 = 600_000;
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let pattern = pattern.trim();
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE)?;
    if pattern.starts_with(['|', '/']) || pattern.is_empty() || hard == 0 {
        return Err(Stop::Skipped(format!(
            "core files of this machine go to {pattern:?} (limit {hard}), and not into the scenario's directory"
        )));
    }
    let cores = run.path("cores");
    std::fs::create_dir(&cores)?;
    let (mut one, mut rival) = (worker(run, 2_000)?, worker(run, TTL_MS)?);
    one.must("fill 256", "filled")?;
    let fence = takes(&mut one, "new")?;
    let deadline = text::number(&rival.ask("deadline")?)?;
    let sleeper = std::thread::spawn(move || {
        let wake = deadline + LATER_MS;
        std::thread::sleep(Duration::from_millis(wake.saturating_sub(now_ms())));
        now_ms()
    });
    rival.child.tell("wait 60000")?;
    one.child.tell(&format!("dump {}", cores.display()))?;
    let answer = rival.child.expect_within("wait", Duration::from_secs(60))?;
    let how = answer.rsplit(' ').next().unwrap_or_default();
    let next = held(&answer, how)?;
    ensure!(next == fence + 1, "after fence {fence} came {next}");
    let held_ms = text::number(&rival.ask("deadline")?)? - TTL_MS;
    let slept_ms = sleeper.join().expect("it only sleeps");
    let in_order = match how {
        "dead" => held_ms <= deadline,
        "lapsed" => (deadline..=slept_ms).contains(&held_ms),
        _ => false,
    };
    ensure!(
        in_order,
        "{answer:?} at {held_ms}; the deadline was {deadline}, a sleeper to {LATER_MS} ms after it woke at {slept_ms}"
    );
    let status = one.child.reap()?;
    ensure!(status.core_dumped(), "{status} without a core");
    let written: u64 = std::fs::read_dir(&cores)?
        .map(|core| Ok(core?.metadata()?.blocks() * 512))
        .sum::<std::io::Result<u64>>()?;
    ensure!(
        written >= 256 << 20,
        "the core has {written} bytes, its process had 256 MiB"
    );
    run.detail(&format!("{how}, a core of {} MiB", written >> 20));
    std::fs::remove_dir_all(&cores)?;
    rival.must("release", "true")
}
