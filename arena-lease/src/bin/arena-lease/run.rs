//! `arena-lease run`.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use arena_lease::peers::core::command::shown;
use arena_lease::peers::core::thread::start_quiet;
use arena_lease::peers::{Peers, Sleep};
use arena_lease::{
    Acquire, Arena, BootClock, Clock as _, Hold, Lease, LeaseError, Leases, Lost, Place, Refused,
    Renewed, TookOver,
};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::Signal;

use crate::args::Run;
use crate::child::{Event, Running};
use crate::out::say;
use crate::places::{Asked, Wanted};
use crate::{Failure, arena, exit};

/// How long before the deadline CMD is killed at the latest, if the ttl leaves so much.
const MARGIN: Duration = Duration::from_secs(1);

/// Acquires, runs CMD, keeps the lease alive, releases. The exit code.
pub(crate) fn run(args: &Run) -> Result<u8, Failure> {
    let name = shown(&args.name);
    let arena = arena::open(&args.arena)?;
    let leases = Leases::open(&arena).map_err(|error| cannot_use(args, &error))?;
    let wait = match (args.no_wait, args.wait) {
        (true, _) => Duration::ZERO,
        (false, wait) => wait.unwrap_or(Duration::MAX),
    };
    let tell = |what: String| {
        if args.verbose {
            say(&format!("{name}: {what}"));
        }
    };
    let asked = match Wanted::of(args) {
        Some(wanted) => {
            let asked = wanted.ask(args, &leases, wait)?;
            asked.map(|place| (place.lease().clone(), hold_of(&place), Some(place)))
        }
        None => {
            let asked = plain(args, &leases, wait, &tell)?;
            asked.map(|(lease, hold)| (lease, hold, None))
        }
    };
    let (lease, hold, place) = match asked {
        Asked::Held(held) => held,
        Asked::Not(code, why) => {
            tell(format!("not acquired: {why}"));
            return Ok(code);
        }
    };
    let at = place
        .as_ref()
        .map_or(String::new(), |place| format!("place {} ", place.id()));
    tell(format!(
        "{at}held under fence {}{}",
        hold.fence,
        took_over(&hold)
    ));
    let held = Held {
        lease,
        hold,
        place: place.into(),
        name,
        grace: args.grace,
        min_hold: args.min_hold,
        is_verbose: args.verbose,
    };
    let code = start(args, &arena, &held)?;
    if code.is_none() {
        // Nothing ran, or nothing runs any more.
        held.release(Duration::ZERO);
    }
    Ok(code.unwrap_or(exit::LOST))
}

fn cannot_use(args: &Run, error: &dyn std::error::Error) -> Failure {
    let what = format!("cannot use lease {}", shown(&args.name));
    Failure::new(exit::ARENA, &what, error)
}

/// Asks for the lease NAME itself.
fn plain(
    args: &Run,
    leases: &Leases,
    wait: Duration,
    tell: &impl Fn(String),
) -> Result<Asked<(Lease, Hold)>, Failure> {
    let lease = match leases.lease(args.name.as_bytes(), args.ttl) {
        Err(error @ LeaseError::Name { .. }) => {
            return Err(Failure::new(exit::USAGE, "wrong NAME", &error));
        }
        other => other.map_err(|error| cannot_use(args, &error))?,
    };
    if args.verbose && !wait.is_zero() {
        tell(who_holds(&lease).map_or("free".into(), |holder| format!("waiting: {holder}")));
    }
    let acquired = lease.acquire_timeout(wait);
    Ok(match acquired.map_err(|error| cannot_use(args, &error))? {
        Acquire::Refused(why) => Asked::Not(args.conflict, refusal(&lease, why)),
        Acquire::Held(hold) => Asked::Held((lease, hold)),
    })
}

/// How a place is held.
fn hold_of(place: &Place) -> Hold {
    let holder = place.lease().holder();
    Hold {
        fence: place.fence(),
        took_over: place.took_over(),
        until_ms: holder.as_ref().map_or(0, |holder| holder.until_ms),
        left: holder.map_or(Duration::ZERO, |holder| holder.lapses_in),
    }
}

/// A lease that is held while CMD runs.
struct Held {
    lease: Lease,
    hold: Hold,
    /// Whose lease it is, if it is one of a limit: its end is told to who waits for a place.
    place: RefCell<Option<Place>>,
    name: String,
    grace: Option<Duration>,
    min_hold: Duration,
    is_verbose: bool,
}

/// Runs CMD. The exit code; `None` when the lease was lost.
fn start(args: &Run, arena: &Arena, held: &Held) -> Result<Option<u8>, Failure> {
    let failed = |code, what: &str, error: &io::Error| {
        held.release(Duration::ZERO);
        Err(Failure::new(code, what, error))
    };
    let gone = match tell_of_the_end(arena) {
        Ok(gone) => gone,
        Err(error) => return failed(exit::ARENA, "cannot watch the arena", &error),
    };
    let mut lost = None;
    let command = command(args, arena, held);
    let companion = held.lease.companion(held.hold.fence);
    let companion = companion.and_then(|mut companion| Ok((companion.stand_in()?, companion)));
    let (stand_in, companion) = match companion {
        Ok(companion) => companion,
        Err(error) => {
            return failed(
                exit::ARENA,
                "cannot use the lease",
                &io::Error::other(error),
            );
        }
    };
    let started = Running::start(
        command,
        args.wait_children,
        stand_in,
        Some(companion),
        || {
            // As late as can be: CMD is not started under a lease that was lost meanwhile.
            match held.lease.renew_at(held.hold.fence) {
                Ok(Renewed::Held { .. }) => Ok(()),
                Ok(Renewed::Lost(why)) => {
                    lost = Some(why);
                    Err(io::Error::from(io::ErrorKind::Other))
                }
                Err(error) => Err(io::Error::other(error)),
            }
        },
    );
    let running = match (started, lost) {
        (Ok(Ok(running)), _) => running,
        (Err(_), Some(lost)) => {
            let (name, why) = (&held.name, loss(&held.lease, lost));
            say(&format!("{name}: lost before CMD was started: {why}"));
            return Ok(None);
        }
        (Ok(Err(error)), _) => {
            let what = format!("cannot execute {}", shown(&args.command[0]));
            return failed(not_executed(&error), &what, &error);
        }
        (Err(error), None) => return failed(exit::ARENA, "cannot watch CMD", &error),
    };
    if args.verbose {
        say(&format!("{}: CMD has pid {}", held.name, running.pid()));
    }
    Ok(held.keep(running, &gone).unwrap_or_else(|error| {
        say(&format!("{}: cannot wait for CMD: {error}", held.name));
        Some(exit::ARENA)
    }))
}

/// A descriptor that is readable once the arena was destroyed.
fn tell_of_the_end(arena: &Arena) -> io::Result<Arc<EventFd>> {
    const STACK_BYTES: usize = 128 * 1024;
    let gone = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?);
    let (peers, told) = (Peers::new(arena), Arc::clone(&gone));
    start_quiet("arena-end", STACK_BYTES, move || {
        let until_gone = Sleep {
            until_gone: true,
            ..Sleep::default()
        };
        while !peers.arena().is_gone() {
            let _woken = peers.sleep(&until_gone);
        }
        // A counter that nobody else adds to is never full.
        let _ = told.write(1);
    })?;
    Ok(gone)
}

/// What it means that CMD could not be started.
pub(crate) fn not_executed(error: &io::Error) -> u8 {
    let errno = error.raw_os_error().map(Errno::from_raw);
    match errno {
        Some(Errno::ENOENT) => exit::NOT_FOUND,
        // The machine's doing, and not CMD's.
        Some(Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE | Errno::EOWNERDEAD) => {
            exit::ARENA
        }
        _ => exit::NOT_EXECUTABLE,
    }
}

fn command(args: &Run, arena: &Arena, held: &Held) -> Command {
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    command.env("ARENA_NAME", arena::name_for_cmd(&args.arena, arena));
    command.env("ARENA_LEASE", OsStr::from_bytes(&held.lease.name()));
    command.env("ARENA_FENCE", held.hold.fence.to_string());
    command
}

impl Held {
    /// Renews until CMD has ended, or ends CMD when the lease is lost; `None` then.
    fn keep(&self, mut running: Running, gone: &EventFd) -> io::Result<Option<u8>> {
        let interval = self.lease.ttl() / 3;
        let margin = margin(self.lease.ttl());
        let mut until_ms = self.hold.until_ms;
        // At once: starting CMD may have taken any time.
        let mut next = Duration::ZERO;
        loop {
            let event = running.wait(next, Some(gone.as_fd()))?;
            if let Event::Ended(code) = event {
                let interrupt = running.interrupted();
                // First: it gives the terminal back.
                drop(running);
                // Another process may have held meanwhile, in another arena of this name.
                let removed = self.lease.leases().arena().is_unlinked();
                if !self.release(self.min_hold) || removed {
                    say(&format!("{}: was lost before CMD ended", self.name));
                    return Ok(Some(exit::LOST));
                }
                if let Some(interrupt) = interrupt {
                    interrupt.pass_to_the_caller();
                }
                return Ok(Some(code));
            }
            let why = match self.lease.renew_at(self.hold.fence) {
                Ok(Renewed::Held {
                    until_ms: until, ..
                }) => {
                    until_ms = until;
                    next = interval;
                    if running.lost_stand_in() && self.is_verbose {
                        let what = "CMD closed its descriptor: other PID namespaces cannot see it";
                        say(&format!("{}: {what}", self.name));
                    }
                    if let Event::Continued = event {
                        running.go_on();
                    }
                    continue;
                }
                Ok(Renewed::Lost(lost)) => {
                    if matches!(lost, Lost::Removed | Lost::Corrupt { .. }) {
                        // Another process may hold already, in another arena of this name.
                        until_ms = 0;
                    }
                    loss(&self.lease, lost)
                }
                // The lease is what it was; try again while there is time.
                Err(_) if left(until_ms) > margin * 2 => {
                    next = margin;
                    continue;
                }
                Err(error) => error.to_string(),
            };
            self.lease.forfeit_at(self.hold.fence);
            let left = left(until_ms).saturating_sub(margin);
            let grace = self.grace.unwrap_or(left);
            self.end(running, &why, grace)?;
            return Ok(None);
        }
    }

    /// Ends CMD: TERM, and KILL after `grace`.
    fn end(&self, mut running: Running, why: &str, grace: Duration) -> io::Result<()> {
        /// How long what was killed has to be gone, before what it started meanwhile is killed too.
        const AGAIN: Duration = Duration::from_millis(10);
        let pid = running.pid();
        running.end_with(Signal::SIGTERM);
        let until_ns = BootClock.now_ns().saturating_add(nanoseconds(grace));
        let mut killed = false;
        loop {
            let left_ns = until_ns.saturating_sub(BootClock.now_ns());
            if left_ns == 0 {
                running.end_with(Signal::SIGKILL);
                killed = true;
            }
            let time = if killed {
                AGAIN
            } else {
                Duration::from_nanos(left_ns)
            };
            if let Event::Ended(_) = running.wait(time, None)? {
                break;
            }
        }
        let how = match killed {
            false => "TERM and ended",
            true => "TERM, and KILL when the time was up",
        };
        say(&format!(
            "{}: lost: {why}; CMD (pid {pid}) got {how}",
            self.name
        ));
        Ok(())
    }

    /// Whether nobody else held until now: also when it had lapsed, as long as nobody took it.
    fn release(&self, min_hold: Duration) -> bool {
        let fence = self.hold.fence;
        let released = self.lease.release_held_for(fence, min_hold);
        drop(self.place.take());
        match released {
            Ok(released) => released,
            Err(error) => {
                say(&format!(
                    "{}: cannot release, it lapses by itself: {error}",
                    self.name
                ));
                self.lease.mine_at(fence)
            }
        }
    }
}

fn left(until_ms: u64) -> Duration {
    let until = Duration::from_millis(until_ms);
    until.saturating_sub(Duration::from_nanos(BootClock.now_ns()))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn margin(ttl: Duration) -> Duration {
    MARGIN.min(ttl / 10)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_lacks_is_not_called_cmds_fault() {
        let code = |errno: Errno| not_executed(&io::Error::from(errno));
        assert_eq!(code(Errno::ENOENT), exit::NOT_FOUND);
        for errno in [Errno::EACCES, Errno::ENOEXEC, Errno::E2BIG] {
            assert_eq!(code(errno), exit::NOT_EXECUTABLE);
        }
        for errno in [Errno::EAGAIN, Errno::ENOMEM, Errno::EMFILE, Errno::ENFILE] {
            assert_eq!(code(errno), exit::ARENA);
        }
    }
}
