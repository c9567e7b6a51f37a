//! `arena rm`.

use std::ffi::OsStr;

use arena_core::{Arena, ArenaOptions, OpenError, Probe};

use crate::args::Rm;
use crate::look::look;
use crate::{Failure, exit};

/// Removes an arena to which nobody is attached, or, by force, any.
pub(crate) fn rm(options: &ArenaOptions, args: &Rm) -> Result<u8, Failure> {
    let look = look(options, &args.name).map_err(|error| Failure::of(&error))?;
    let path = look.path.display();
    // An attached process that cannot be counted is one that may exist.
    match look.attached {
        Some(0) if !look.has_stand_ins => {}
        _ if args.force => {}
        Some(0) => {
            return Err(Failure {
                code: exit::NO,
                why: format!(
                    "{path}: what a process started that died goes on; --force removes it all the same"
                ),
            });
        }
        attached => {
            let attached = attached.map_or("unknown".into(), |count| count.to_string());
            return Err(Failure {
                code: exit::NO,
                why: format!(
                    "{path}: attached processes: {attached}; --force removes it all the same"
                ),
            });
        }
    }
    let arena = match look.refused {
        None => options.attach(&args.name),
        // Nobody is attached: it is replaced, which keeps its fences, and the new one removed.
        Some(OpenError::OtherBoot { .. }) => options.open(&args.name),
        Some(OpenError::Incompatible { .. } | OpenError::Damaged { .. })
            if args.force && look.header.is_some() =>
        {
            std::fs::remove_file(&look.path).map_err(|error| Failure {
                code: exit::ARENA,
                why: format!("{path}: cannot remove it: {error}"),
            })?;
            return Ok(0);
        }
        Some(error) => Err(error),
    };
    if let Ok(arena) = &arena
        && !args.force
        && others(arena)
    {
        return Err(Failure {
            code: exit::NO,
            why: format!("{path}: a process has attached just now"),
        });
    }
    destroy(arena, &args.name)
}

/// Whether another process is attached, as the kernel says.
fn others(arena: &Arena) -> bool {
    let me = arena.me_if_joined();
    let mut rows = arena.attachments().into_iter();
    rows.any(|row| Some(row.id) != me && !matches!(arena.probe(row.id), Probe::Gone(_)))
}

fn destroy(arena: Result<Arena, OpenError>, name: &OsStr) -> Result<u8, Failure> {
    match arena {
        Ok(arena) => match arena.destroy() {
            Ok(()) => Ok(0),
            Err(error) => Err(Failure {
                code: exit::ARENA,
                why: format!("{}: {}", name.display(), crate::with_causes(&error)),
            }),
        },
        // It was destroyed and its name left over; looking for it finished that.
        Err(OpenError::NotFound { .. }) => Ok(0),
        Err(error) => Err(Failure {
            code: exit::ARENA,
            why: crate::with_causes(&error),
        }),
    }
}
