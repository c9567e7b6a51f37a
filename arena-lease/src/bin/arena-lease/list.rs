//! `arena-lease list`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use arena_lease::Stats;

use crate::args::List;
use crate::{Failure, out, status};

/// Prints all leases, by name. What is damaged is told afterwards.
pub(crate) fn list(args: &List) -> Result<u8, Failure> {
    let cannot_tell = |error| status::cannot_tell(&args.arena, &error);
    let leases = status::leases(&args.arena)?;
    let all = leases.map_or(Ok(Vec::new()), |leases| leases.list());
    let (mut good, mut bad): (Vec<Stats>, _) = (Vec::new(), None);
    for row in all.map_err(cannot_tell)? {
        match row {
            Ok(stats) => good.push(stats),
            Err(error) => bad = bad.or(Some(error)),
        }
    }
    good.sort_by(|one, other| one.name.cmp(&other.name));
    let mut text = String::new();
    for stats in &good {
        let line = match args.json {
            true => status::json(&args.arena, &stats.name, Some(stats)),
            false => status::text(&args.arena, OsStr::from_bytes(&stats.name), Some(stats)),
        };
        text.push_str(&line);
        text.push('\n');
    }
    out::print(&text)?;
    bad.map_or(Ok(0), |error| Err(cannot_tell(error)))
}
