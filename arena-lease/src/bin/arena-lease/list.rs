//! `arena-lease list`.

use std::ffi::OsStr;
use std::io::{ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use arena_lease::{ArenaOptions, LeasesView, Stats};

use crate::args::List;
use crate::{Failure, exit, shown, status};

/// Prints all leases, by name.
pub(crate) fn list(args: &List) -> Result<u8, Failure> {
    let view = ArenaOptions::new().view(&args.arena).map_err(|error| {
        let what = format!("cannot read arena {}", shown(&args.arena));
        Failure::new(exit::ARENA, &what, &error)
    })?;
    let mut all: Vec<Stats> = LeasesView::open(&view).map_or(Vec::new(), |leases| leases.list());
    all.sort_by(|one, other| one.name.cmp(&other.name));
    let mut out = String::new();
    for stats in &all {
        let line = match args.json {
            true => status::json(&args.arena, &stats.name, Some(stats)),
            false => status::text(&args.arena, OsStr::from_bytes(&stats.name), Some(stats)),
        };
        out.push_str(&line);
        out.push('\n');
    }
    match std::io::stdout().write_all(out.as_bytes()) {
        // Whoever reads it may have gone away.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(exit::ARENA, "cannot write", &error))
        }
        _ => Ok(0),
    }
}
