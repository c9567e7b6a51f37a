//! Whatever the bytes of an arena are, using it comes back: C7.

use std::{fs, path::PathBuf};

use super::cast::same;
use crate::{
    child::Child,
    outcome::{Outcome, ensure},
    roles::survivor::{furnish, options},
    scenario::{Run, Scenario},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "hostile",
        "C7",
        "no_flipped_byte_of_the_tables_crashes_or_hangs_who_opens_and_uses_them",
        each_byte,
    )
    .rounds(1, 8)
    .limit_secs(180),
    Scenario::new(
        "hostile",
        "C7",
        "no_random_block_in_an_arena_crashes_or_hangs_who_opens_and_uses_it",
        random_blocks,
    )
    .rounds(400, 20_000),
    Scenario::new(
        "hostile",
        "C7",
        "an_arena_that_is_whole_or_differs_in_payload_only_opens_and_works",
        control,
    ),
];

/// A furnished arena's bytes, and a child that uses what it is given.
struct Bench {
    whole: Vec<u8>,
    child: Child,
    path: PathBuf,
}

impl Bench {
    fn new(run: &Run) -> Outcome<Self> {
        let path = run.path("arena");
        let arena = options().open(&path)?;
        furnish(&arena);
        // As it is with a process inside.
        let whole = fs::read(&path)?;
        drop(arena);
        let mut child = run.child::<&str>("survivor", [])?;
        child.expect("survivor")?;
        Ok(Self { whole, child, path })
    }

    /// Uses a file of these bytes; a new one each time, for a process knows a file by its inode.
    fn use_it(&mut self, bytes: &[u8]) -> Outcome<String> {
        _ = fs::remove_file(&self.path);
        fs::write(&self.path, bytes)?;
        fs::set_permissions(
            &self.path,
            std::os::unix::fs::PermissionsExt::from_mode(0o600),
        )?;
        self.child.ask(&self.path.display().to_string(), "survived")
    }

    /// Where header and tables end: before the payload, which the child reads back.
    fn tables(&self) -> Outcome<usize> {
        let at = self
            .whole
            .windows(7)
            .position(|window| window == b"payload");
        at.ok_or_else(|| crate::outcome::Stop::failed("the payload is not in the file"))
    }
}

/// Goal and method: invert each byte in turn, and flip one of its bits at random; open and use.
fn each_byte(run: &mut Run) -> Outcome {
    let mut bench = Bench::new(run)?;
    let end = bench.tables()?;
    let (mut opened, mut refused) = (0, 0);
    run.each_round(|run, _| {
        for at in 0..end {
            for flip in [0xff, 1 << run.rng.below(8)] {
                let mut bytes = bench.whole.clone();
                bytes[at] ^= flip;
                let answer = bench
                    .use_it(&bytes)
                    .map_err(|stop| stop.within(format!("byte {at} ^ {flip:#04x}")))?;
                match answer.starts_with("opened") {
                    true => opened += 1,
                    false => refused += 1,
                }
            }
        }
        Ok(())
    })?;
    run.detail(&format!(
        "{end} bytes: {opened} times opened, {refused} times refused"
    ));
    ensure!(
        opened > 0 && refused > 0,
        "opened {opened} times, refused {refused} times: nothing is shown"
    );
    Ok(())
}

/// Goal and method: up to a KiB of noise anywhere, the header mostly spared; open and use.
fn random_blocks(run: &mut Run) -> Outcome {
    let mut bench = Bench::new(run)?;
    let mut opened = 0;
    run.each_round(|run, _| {
        let mut bytes = bench.whole.clone();
        let from = if run.rng.below(8) == 0 { 0 } else { 128 };
        let at = from + run.rng.index(bytes.len() - from);
        let len = (1 + run.rng.index(1024)).min(bytes.len() - at);
        // Noise of few different bytes makes plausible numbers more often.
        let mask = [0xff, 0x01, 0x81][run.rng.index(3)];
        bytes[at..at + len]
            .iter_mut()
            .for_each(|byte| *byte = run.rng.byte() & mask);
        let answer = bench
            .use_it(&bytes)
            .map_err(|stop| stop.within(format!("{len} bytes of noise at {at}")))?;
        opened += u32::from(answer.starts_with("opened"));
        Ok(())
    })?;
    run.detail(&format!("{opened} of {} opened", run.rounds));
    ensure!(opened > 0, "none opened: nothing is shown");
    Ok(())
}

/// Goal: the suites above would notice a child that refuses everything. Method: the whole file; one payload byte.
fn control(run: &mut Run) -> Outcome {
    let mut bench = Bench::new(run)?;
    let end = bench.tables()?;
    let whole = bench.whole.clone();
    same(
        "the whole arena",
        &bench.use_it(&whole)?,
        "opened seen payload refused 0",
    )?;
    let mut bytes = whole;
    bytes[end] = b'P';
    same(
        "another payload",
        &bench.use_it(&bytes)?,
        "opened seen Payload refused 0",
    )
}
