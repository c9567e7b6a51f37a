//! Who and where this process is: boot, namespaces, the kernel's identity of a process.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// This boot's id; 0 when /proc is missing.
pub(crate) fn boot_id() -> u128 {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0)
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
    fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |meta| meta.ino())
}

/// Field 22 of /proc/PID/stat: clock ticks from boot to the start; `None` when it cannot be read.
///
/// The command's name, in parentheses, may itself hold spaces and parentheses.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    // The field after the name is number 3.
    after_name
        .split_ascii_whitespace()
        .nth(22 - 3)?
        .parse()
        .ok()
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
    fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_id_survives_being_stored_as_two_words() {
        let id = boot_id();
        assert_ne!(id, 0);
        assert_eq!(whole(halves(id)), id);
    }

    #[test]
    fn start_time_of_this_process_is_known_and_of_none_is_not() {
        assert!(start_ticks(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(start_ticks(u32::MAX), None);
    }
}
