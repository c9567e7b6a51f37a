//! The arena that a command was given, and how CMD is told of it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use arena_lease::peers::core::command::shown;
use arena_lease::{Arena, OpenError};

use crate::{Failure, exit};

/// The arena of this name, which is made when there is none.
pub(crate) fn open(name: &OsStr) -> Result<Arena, Failure> {
    Arena::open(name).map_err(|error| cannot_open(name, &error))
}

pub(crate) fn cannot_open(name: &OsStr, error: &OpenError) -> Failure {
    let what = format!("cannot open arena {}", shown(name));
    Failure::new(exit::ARENA, &what, error)
}

/// The arena's name as CMD may use it, wherever CMD changes its directory to.
pub(crate) fn name_for_cmd<'a>(given: &'a OsStr, arena: &'a Arena) -> &'a OsStr {
    let is_path = given.as_bytes().contains(&b'/');
    match arena.path().filter(|_| is_path) {
        Some(path) => path.as_os_str(),
        None => given,
    }
}
