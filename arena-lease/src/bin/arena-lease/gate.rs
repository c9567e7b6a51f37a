//! `arena-lease gate`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use std::time::Duration;

use arena_lease::peers::core::command::shown;
use arena_lease::peers::{Peers, core::Attachment};
use arena_lease::{Arena, Enter, EnterError, Gate, GateOpenError, PeerId, Verdict};

use crate::child::{Event, Running};
use crate::out::say;
use crate::run::not_executed;
use crate::{Failure, arena, args, exit};

/// Enters, runs CMD, leaves. The exit code.
pub(crate) fn gate(args: &args::Gate) -> Result<u8, Failure> {
    let name = shown(&args.name);
    let arena = arena::open(&args.arena)?;
    let gate = Gate::open(&arena, args.name.as_bytes()).map_err(|error| match error {
        GateOpenError::Name { .. } => Failure::new(exit::USAGE, "wrong NAME", &error),
        error => Failure::new(exit::ARENA, &format!("cannot use gate {name}"), &error),
    })?;
    let refused = |why: String| Failure {
        code: exit::NOT_ACQUIRED,
        why: format!("gate {name}: {why}"),
    };
    let guard = match gate.enter(args.fence, args.wait) {
        Ok(Enter::Entered(guard)) => guard,
        Ok(Enter::Stale { newest }) => {
            let fence = args.fence;
            return Err(refused(format!(
                "fence {fence} is refused: {newest} was shown"
            )));
        }
        Ok(Enter::Busy { by, .. }) => {
            return Err(refused(format!("{} is still inside", who(&arena, by))));
        }
        Err(error @ EnterError::Fence { .. }) => {
            return Err(Failure::new(exit::USAGE, "wrong fence", &error));
        }
        Err(error) => {
            let what = format!("cannot enter gate {name}");
            return Err(Failure::new(exit::ARENA, &what, &error));
        }
    };
    let stand_in = arena.stand_in().map_err(|error| {
        let what = format!("cannot enter gate {name}");
        Failure::new(exit::ARENA, &what, &error)
    })?;
    let command = command(args, &arena);
    let mut running = match Running::start(command, false, stand_in, None, || Ok(())) {
        Ok(Ok(running)) => running,
        Ok(Err(error)) => {
            let what = format!("cannot execute {}", shown(&args.command[0]));
            return Err(Failure::new(not_executed(&error), &what, &error));
        }
        Err(error) => return Err(Failure::new(exit::ARENA, "cannot watch CMD", &error)),
    };
    loop {
        match running.wait(Duration::from_secs(3_600), None) {
            Ok(Event::Ended(code)) => {
                let interrupt = running.interrupted();
                drop((running, guard));
                if let Some(interrupt) = interrupt {
                    interrupt.pass_to_the_caller();
                }
                return Ok(code);
            }
            Ok(Event::Due) => {}
            Ok(Event::Continued) => running.go_on(),
            // CMD goes on, so nobody is let in before this process, and with it CMD, is gone.
            Err(error) => {
                std::mem::forget(guard);
                say(&format!("cannot wait for CMD: {error}"));
                return Ok(exit::ARENA);
            }
        }
    }
}

fn command(args: &args::Gate, arena: &Arena) -> Command {
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    command.env("ARENA_NAME", arena::name_for_cmd(&args.arena, arena));
    command.env("ARENA_GATE", &args.name);
    command.env("ARENA_FENCE", args.fence.to_string());
    command
}

fn who(arena: &Arena, by: PeerId) -> String {
    let row = arena.attachment(by.slot());
    let row = row.filter(|row: &Attachment| row.id == by);
    let peers = Peers::new(arena);
    let verdict = match peers.verdict(by) {
        Verdict::Alive => "alive",
        Verdict::Dead(_) => "dead, and what it started goes on",
        Verdict::Unknown => "unknown",
    };
    match row.and_then(|row| Some((row.identity?.pid, row.name))) {
        Some((pid, name)) => {
            let name = shown(OsStr::from_bytes(&name));
            format!("pid {pid} ({name}; {by}; {verdict})")
        }
        None => by.to_string(),
    }
}
