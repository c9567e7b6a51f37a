//! A look at what /proc says about a dying process's memory: a hint when to ask, never a proof.

use std::fs;

use arena_core::proc_is_ours;

/// Whether every thread that /proc shows has no memory, or /proc shows none.
///
/// A scan sees threads one after the other, so it is wrong for a process that keeps starting and
/// ending them. Three system calls a thread.
pub(crate) fn may_have_no_memory(pid: u32) -> bool {
    if !proc_is_ours() {
        return true;
    }
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    tasks.flatten().all(|task| {
        // One that cannot be read has ended meanwhile.
        fs::read(task.path().join("statm")).map_or(true, |statm| is_zero(&statm))
    })
}

/// Whether the first number, the size in pages, is 0.
fn is_zero(statm: &[u8]) -> bool {
    statm.split(|byte| *byte == b' ').next() == Some(b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_runs_has_memory_and_one_that_is_not_has_none() {
        assert!(!may_have_no_memory(std::process::id()));
        assert!(may_have_no_memory(u32::MAX));
        assert!(is_zero(b"0 0 0 0 0 0 0\n"));
        assert!(!is_zero(b"10 0 0 0 0 0 0\n"));
        assert!(!is_zero(b"0x"));
    }
}
