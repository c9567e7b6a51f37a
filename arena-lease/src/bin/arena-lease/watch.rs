//! `arena-lease watch`.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

use arena_lease::peers::core::command::shown;
use arena_lease::{Arena, ArenaOptions, LeaseError, Leases, MAX_NAME_BYTES, Stats};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::args::Watch;
use crate::{Failure, arena, exit, out, status};

/// How often an arena is looked at in which there are no leases yet: nobody tells of the first.
const NO_LEASES_MS: u16 = 1_000;

/// Prints who holds, and again whenever that changes, until nobody reads it any more. Joins nothing.
pub(crate) fn watch(args: &Watch) -> Result<u8, Failure> {
    let opened = ArenaOptions::new().unattached(&args.arena);
    let arena = opened.map_err(|error| arena::cannot_open(&args.arena, &error))?;
    if !(1..=MAX_NAME_BYTES).contains(&args.name.len()) {
        let name = args.name.to_string_lossy().into_owned();
        let error = LeaseError::Name { name };
        return Err(Failure::new(exit::USAGE, "wrong NAME", &error));
    }
    let mut told = String::new();
    let Some(leases) = leases_of(&arena, args, &mut told)? else {
        return Ok(0);
    };
    let cannot = |error: LeaseError| cannot_watch(args, &error);
    let mut watch = leases.watch(args.name.as_bytes()).map_err(cannot)?;
    loop {
        match watch.try_next() {
            Ok(None) => {}
            Ok(Some(stats)) => {
                tell(args, Some(&stats), &mut told)?;
                continue;
            }
            // It changes hands all the time: the descriptor says when to look again.
            Err(LeaseError::Contended) => continue,
            Err(error) => return Err(cannot(error)),
        }
        if !is_read(args, Some(watch.as_fd()), PollTimeout::NONE)? {
            return Ok(0);
        }
    }
}

/// The arena's leases, once there are some; `None` when nobody reads the output any more.
fn leases_of(arena: &Arena, args: &Watch, told: &mut String) -> Result<Option<Leases>, Failure> {
    let find = || Leases::find(arena).map_err(|error| cannot_watch(args, &error));
    let mut found = find()?;
    if found.is_none() {
        tell(args, None, told)?;
    }
    while found.is_none() {
        if arena.is_gone() || arena.is_unlinked() {
            return Err(cannot_watch(args, &LeaseError::Removed));
        }
        if !is_read(args, None, NO_LEASES_MS.into())? {
            return Ok(None);
        }
        found = find()?;
    }
    Ok(found)
}

fn cannot_watch(args: &Watch, error: &dyn std::error::Error) -> Failure {
    let what = format!("cannot watch lease {}", shown(&args.name));
    Failure::new(exit::ARENA, &what, error)
}

fn tell(args: &Watch, stats: Option<&Stats>, told: &mut String) -> Result<(), Failure> {
    // That somebody gave it a row, and has not acquired it yet, is nothing to tell.
    let stats = stats.filter(|stats| stats.held || stats.acquires > 0);
    let line = match args.json {
        true => status::json(&args.arena, args.name.as_bytes(), stats),
        false => status::text(&args.arena, &args.name, stats),
    };
    if line == *told {
        return Ok(());
    }
    *told = line;
    out::print(&format!("{told}\n"))
}

/// Waits until `more` is readable, for `timeout`, or until nobody reads stdout any more. Whether somebody does.
fn is_read(
    args: &Watch,
    more: Option<BorrowedFd<'_>>,
    timeout: PollTimeout,
) -> Result<bool, Failure> {
    let stdout = io::stdout();
    // Asked for nothing, it tells that it was closed at the other end.
    let mut fds = vec![PollFd::new(stdout.as_fd(), PollFlags::empty())];
    fds.extend(more.map(|more| PollFd::new(more, PollFlags::POLLIN)));
    match poll(&mut fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(!fds[0].any().unwrap_or(false)),
        Err(errno) => Err(cannot_watch(args, &errno)),
    }
}
