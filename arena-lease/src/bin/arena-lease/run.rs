//! `arena-lease run`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use arena_lease::{
    Acquire, Arena, BootClock, Clock as _, Hold, Lease, LeaseError, Leases, Lost, Refused, Renewed,
    TookOver,
};
use nix::sys::signal::Signal;

use crate::args::Run;
use crate::child::{Event, Running, exit_code};
use crate::out::{say, shown};
use crate::{Failure, exit};

/// How long before the deadline CMD is killed at the latest, if the ttl leaves so much.
const MARGIN: Duration = Duration::from_secs(1);

/// Acquires, runs CMD, keeps the lease alive, releases. The exit code.
pub(crate) fn run(args: &Run) -> Result<u8, Failure> {
    let name = shown(&args.name);
    let arena = Arena::open(&args.arena).map_err(|error| {
        let what = format!("cannot open arena {}", shown(&args.arena));
        Failure::new(exit::ARENA, &what, &error)
    })?;
    let cannot_use = |error: &dyn std::error::Error| {
        Failure::new(exit::ARENA, &format!("cannot use lease {name}"), error)
    };
    let leases = Leases::open(&arena).map_err(|error| cannot_use(&error))?;
    let lease = match leases.lease(args.name.as_bytes(), args.ttl) {
        Err(error @ LeaseError::Name { .. }) => {
            return Err(Failure::new(exit::USAGE, "wrong NAME", &error));
        }
        other => other.map_err(|error| cannot_use(&error))?,
    };
    let wait = match (args.no_wait, args.wait) {
        (true, _) => Duration::ZERO,
        (false, wait) => wait.unwrap_or(Duration::MAX),
    };
    let tell = |what: String| {
        if args.verbose {
            say(&format!("{name}: {what}"));
        }
    };
    if args.verbose && !wait.is_zero() {
        tell(who_holds(&lease).map_or("free".into(), |holder| format!("waiting: {holder}")));
    }
    let acquired = lease.acquire_timeout(wait);
    let hold = match acquired.map_err(|error| cannot_use(&error))? {
        Acquire::Held(hold) => hold,
        Acquire::Refused(why) => {
            tell(format!("not acquired: {}", refusal(&lease, why)));
            return Ok(args.conflict);
        }
    };
    tell(format!(
        "held under fence {}{}",
        hold.fence,
        took_over(&hold)
    ));

    let started = Running::start(command(args, &arena, &hold));
    let running = match started {
        Ok(Ok(running)) => running,
        Ok(Err(error)) => {
            release(&lease, &hold, &name, Duration::ZERO);
            let program = shown(&args.command[0]);
            let code = match error.kind() {
                io::ErrorKind::NotFound => exit::NOT_FOUND,
                _ => exit::NOT_EXECUTABLE,
            };
            let what = format!("cannot execute {program}");
            return Err(Failure::new(code, &what, &error));
        }
        Err(error) => {
            release(&lease, &hold, &name, Duration::ZERO);
            return Err(Failure::new(exit::ARENA, "cannot watch CMD", &error));
        }
    };
    tell(format!("CMD has pid {}", running.pid()));
    let code = keep(running, &lease, &hold, &name, args.min_hold);
    Ok(code.unwrap_or_else(|error| {
        say(&format!("{name}: cannot wait for CMD: {error}"));
        exit::ARENA
    }))
}

fn command(args: &Run, arena: &Arena, hold: &Hold) -> Command {
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    command.env("ARENA_NAME", arena_name(&args.arena, arena.path()));
    command.env("ARENA_LEASE", &args.name);
    command.env("ARENA_FENCE", hold.fence.to_string());
    command
}

/// The arena's name as CMD may use it, wherever CMD changes its directory to.
fn arena_name(given: &OsStr, path: Option<&Path>) -> OsString {
    let absolute = path
        .filter(|_| given.as_bytes().contains(&b'/'))
        .and_then(|path| std::path::absolute(path).ok());
    absolute.map_or(given.into(), Into::into)
}

/// Renews until CMD has ended, or ends CMD when the lease is lost.
fn keep(
    mut running: Running,
    lease: &Lease,
    hold: &Hold,
    name: &str,
    min_hold: Duration,
) -> io::Result<u8> {
    let interval = lease.ttl() / 3;
    let mut until_ms = hold.until_ms;
    // At once: starting CMD may have taken any time.
    let mut next = Duration::ZERO;
    loop {
        match running.wait(next)? {
            Event::Ended(status) => {
                if release(lease, hold, name, min_hold) {
                    return Ok(exit_code(status));
                }
                say(&format!("{name}: was lost before CMD ended"));
                return Ok(exit::LOST);
            }
            Event::Due => {}
        }
        let why = match lease.renew_at(hold.fence) {
            Ok(Renewed::Held {
                until_ms: until, ..
            }) => {
                until_ms = until;
                next = interval;
                continue;
            }
            Ok(Renewed::Lost(lost)) => {
                if matches!(lost, Lost::Removed | Lost::Corrupt { .. }) {
                    // Another process may hold already, in another arena of this name.
                    until_ms = 0;
                }
                loss(lease, lost)
            }
            // The lease is what it was; try again while there is time.
            Err(_) if left(until_ms) > margin(lease) * 2 => {
                next = margin(lease);
                continue;
            }
            Err(error) => error.to_string(),
        };
        lease.forfeit_at(hold.fence);
        end(
            running,
            name,
            &why,
            left(until_ms).saturating_sub(margin(lease)),
        )?;
        release(lease, hold, name, Duration::ZERO);
        return Ok(exit::LOST);
    }
}

/// Ends CMD: TERM, and KILL after `grace`.
fn end(mut running: Running, name: &str, why: &str, grace: Duration) -> io::Result<()> {
    let pid = running.pid();
    running.send(Signal::SIGTERM);
    if let Event::Ended(_) = running.wait(grace)? {
        say(&format!(
            "{name}: lost: {why}; CMD (pid {pid}) got TERM and ended"
        ));
        return Ok(());
    }
    running.send(Signal::SIGKILL);
    say(&format!(
        "{name}: lost: {why}; CMD (pid {pid}) got TERM, and KILL when the time was up"
    ));
    while let Event::Due = running.wait(Duration::from_secs(60))? {}
    Ok(())
}

/// Whether nobody else held until now: also when it had lapsed, as long as nobody took it.
fn release(lease: &Lease, hold: &Hold, name: &str, min_hold: Duration) -> bool {
    match lease.release_held_for(hold.fence, min_hold) {
        Ok(released) => released,
        Err(error) => {
            say(&format!(
                "{name}: cannot release, it lapses by itself: {error}"
            ));
            lease.mine_at(hold.fence)
        }
    }
}

fn left(until_ms: u64) -> Duration {
    let until = Duration::from_millis(until_ms);
    until.saturating_sub(Duration::from_nanos(BootClock.now_ns()))
}

fn margin(lease: &Lease) -> Duration {
    MARGIN.min(lease.ttl() / 10)
}

fn took_over(hold: &Hold) -> String {
    match hold.took_over {
        None => String::new(),
        Some(TookOver::Lapsed { from, fence }) => {
            format!(", taken over from {from} (fence {fence}), which lapsed")
        }
        Some(TookOver::Dead { from, fence }) => {
            format!(", taken over from {from} (fence {fence}), which is dead")
        }
    }
}

fn who_holds(lease: &Lease) -> Option<String> {
    let holder = lease.holder()?;
    let pid = holder.pid.map_or("unknown".into(), |pid| pid.to_string());
    let name = holder.name.unwrap_or_default();
    let name = shown(OsStr::from_bytes(&name));
    let (fence, left) = (holder.fence, holder.lapses_in);
    Some(format!(
        "held by pid {pid} ({name}) under fence {fence}, lapses in {left:.1?}"
    ))
}

fn refusal(lease: &Lease, why: Refused) -> String {
    match why {
        Refused::Held { by, .. } => {
            who_holds(lease).unwrap_or_else(|| format!("was held by {by}, and is no longer"))
        }
        Refused::NotBefore { opens_in, .. } => {
            format!("kept by its last holder for {opens_in:.1?}")
        }
        Refused::TooLate => "the ttl is too short for this machine".into(),
        _ => "others are quicker".into(),
    }
}

fn loss(lease: &Lease, lost: Lost) -> String {
    match lost {
        Lost::Taken { by, fence } => {
            let now = who_holds(lease).unwrap_or_else(|| "free by now".into());
            format!("{by} took it under fence {fence} ({now})")
        }
        Lost::Released => "somebody else took and released it".into(),
        Lost::Removed => "the arena was destroyed or its file removed".into(),
        Lost::TooLate => "the ttl is too short for this machine".into(),
        Lost::Corrupt { found } => format!("its word is damaged ({found:#034x})"),
        _ => "it was given up".into(),
    }
}
