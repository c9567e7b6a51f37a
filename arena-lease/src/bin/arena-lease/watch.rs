//! `arena-lease watch`.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

use arena_lease::{Arena, LeaseError, Leases};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::args::Watch;
use crate::out::shown;
use crate::{Failure, arena, exit, out, status};

/// Prints who holds, and again whenever that changes, until nobody reads it any more.
pub(crate) fn watch(args: &Watch) -> Result<u8, Failure> {
    let arena =
        Arena::attach(&args.arena).map_err(|error| arena::cannot_open(&args.arena, &error))?;
    let name = args.name.as_bytes();
    let cannot_watch = |error: &dyn std::error::Error| {
        let what = format!("cannot watch lease {}", shown(&args.name));
        Failure::new(exit::ARENA, &what, error)
    };
    let leases = Leases::open(&arena).map_err(|error| cannot_watch(&error))?;
    let mut watch = leases.watch(name).map_err(|error| match error {
        LeaseError::Name { .. } => Failure::new(exit::USAGE, "wrong NAME", &error),
        error => cannot_watch(&error),
    })?;
    let stdout = io::stdout();
    loop {
        match watch.try_next() {
            Ok(None) => {}
            Ok(Some(stats)) => {
                let line = match args.json {
                    true => status::json(&args.arena, name, Some(&stats)),
                    false => status::text(&args.arena, &args.name, Some(&stats)),
                };
                out::print(&format!("{line}\n"))?;
                continue;
            }
            // It changes hands all the time: the descriptor says when to look again.
            Err(LeaseError::Contended) => continue,
            Err(error) => return Err(cannot_watch(&error)),
        }
        let mut ready = [
            PollFd::new(watch.as_fd(), PollFlags::POLLIN),
            // Asked for nothing, it tells that nobody reads it any more.
            PollFd::new(stdout.as_fd(), PollFlags::empty()),
        ];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(cannot_watch(&errno)),
        }
        if ready[1].any().unwrap_or(false) {
            return Ok(0);
        }
    }
}
