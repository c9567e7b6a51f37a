//! Who and where this process is: boot, namespaces, the kernel's identity of a process.
//!
//! Asked of the calling thread (/proc/thread-self) where it can be: /proc/self is the main thread, which
//! may have ended while others go on.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// This boot's id, never 0.
pub(crate) fn boot_id() -> io::Result<u128> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    match u128::from_str_radix(&digits, 16) {
        Ok(id) if id != 0 => Ok(id),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

/// A boot id as the two words that are stored.
pub(crate) fn halves(id: u128) -> [u64; 2] {
    bytemuck::cast(id.to_le_bytes())
}

/// The inverse of [`halves`].
pub(crate) fn whole(halves: [u64; 2]) -> u128 {
    u128::from_le_bytes(bytemuck::cast(halves))
}

/// The inode of a namespace of this process; 0 when it cannot be told.
pub(crate) fn namespace(kind: &str) -> u64 {
    fs::metadata(format!("/proc/thread-self/ns/{kind}")).map_or(0, |meta| meta.ino())
}

/// When a process of this PID namespace started, in clock ticks since boot; `None` when it cannot
/// be read, or /proc shows another PID namespace.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    if !proc_is_ours() {
        return None;
    }
    start_in(&format!("/proc/{pid}/stat"))
}

/// When this process started; `None` without /proc.
pub(crate) fn own_start_ticks() -> Option<u64> {
    start_in("/proc/self/stat")
}

/// Field 22. The command's name, in parentheses, may itself hold spaces and parentheses.
fn start_in(path: &str) -> Option<u64> {
    let stat = fs::read_to_string(path).ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    // The field after the name is number 3.
    after_name
        .split_ascii_whitespace()
        .nth(22 - 3)?
        .parse()
        .ok()
}

/// Whether the numbers in /proc are pids of this process's own PID namespace. Two system calls.
#[must_use]
pub fn proc_is_ours() -> bool {
    let own = fs::read_link("/proc/self");
    own.is_ok_and(|own| own.as_os_str() == std::process::id().to_string().as_str())
}

/// The name the kernel shows for this process; empty when /proc is missing.
pub(crate) fn command_name() -> Vec<u8> {
    let mut name = fs::read("/proc/self/comm").unwrap_or_default();
    while name.last() == Some(&b'\n') {
        name.pop();
    }
    name
}

/// Whether user ids mean here what they mean to the machine.
pub(crate) fn in_first_user_namespace() -> bool {
    fs::read_to_string("/proc/thread-self/uid_map")
        .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_id_survives_being_stored_as_two_words() {
        let id = boot_id().unwrap();
        assert_eq!(whole(halves(id)), id);
    }

    #[test]
    fn start_time_of_this_process_is_known_and_of_none_is_not() {
        assert!(start_ticks(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(start_ticks(std::process::id()), own_start_ticks());
        assert_eq!(start_ticks(u32::MAX), None);
    }
}
