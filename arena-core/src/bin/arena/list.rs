//! `arena ls`.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use arena_core::{ArenaOptions, OpenError};
use nix::unistd::geteuid;

use crate::look::{Look, look};
use crate::{Failure, exit};

/// Prints the arenas of this user in the directory.
pub(crate) fn ls(options: &ArenaOptions, directory: &Path) -> Result<u8, Failure> {
    let entries = std::fs::read_dir(directory).map_err(|error| Failure {
        code: exit::ARENA,
        why: format!("cannot read {}: {error}", directory.display()),
    })?;
    let prefix = format!("arena.{}.", geteuid());
    let mut names: Vec<Vec<u8>> = entries
        .flatten()
        .filter_map(|entry| {
            let file = entry.file_name();
            let name = file.as_bytes().strip_prefix(prefix.as_bytes())?;
            Some(name.to_vec())
        })
        .collect();
    names.sort();
    let mut out = String::new();
    for name in names {
        let shown = name.escape_ascii();
        let said = match look(options, OsStr::from_bytes(&name)) {
            Ok(look) => line(&look),
            // Removed since the directory was read.
            Err(OpenError::NotFound { .. }) => continue,
            Err(error) => format!("refused: {}", crate::with_causes(&error)),
        };
        writeln!(out, "{shown}\t{said}").expect("a String takes everything");
    }
    crate::print(&out)?;
    Ok(0)
}

fn line(look: &Look) -> String {
    let number = |number: Option<u64>| number.map_or("unknown".into(), |n| n.to_string());
    let attached = number(look.attached.map(u64::from));
    let len = number(look.len_bytes);
    let state = match &look.refused {
        Some(error) => format!("refused: {}", crate::with_causes(error)),
        None if look.destroyed => "destroyed".into(),
        None => format!("{} regions", look.regions.len()),
    };
    format!("{attached} attached\t{len} bytes\t{state}")
}
