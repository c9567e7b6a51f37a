//! The arena and the ring that a verb was given.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use arena_ring::peers::core::command::shown;
use arena_ring::{Arena, OpenError, RingOpenError};
use clap::Args;

use crate::{Failure, exit};

/// Where records are.
#[derive(Args, Debug)]
pub(crate) struct Place {
    /// The ring: 1 to 58 bytes, any but '/'
    pub(crate) ring: OsString,

    /// The arena: a name (each user has his own), or a path with a '/'
    #[arg(long, env = "ARENA_NAME", default_value = "default", value_name = "A")]
    pub(crate) arena: OsString,
}

impl Place {
    /// For people.
    pub(crate) fn shown(&self) -> String {
        format!("{} in arena {}", shown(&self.ring), shown(&self.arena))
    }

    pub(crate) fn no_arena(&self, error: &OpenError) -> Failure {
        let what = format!("cannot open arena {}", shown(&self.arena));
        Failure::new(exit::ARENA, &what, error)
    }

    pub(crate) fn no_ring(&self, error: &RingOpenError) -> Failure {
        match error {
            RingOpenError::Name { .. } => Failure::new(exit::USAGE, "wrong RING", error),
            RingOpenError::Shape { .. } => Failure::new(exit::USAGE, "wrong shape", error),
            error => self.cannot("open", error),
        }
    }

    /// What `find` found, of which there must be one.
    pub(crate) fn found<T>(&self, found: Result<Option<T>, RingOpenError>) -> Result<T, Failure> {
        let found = found.map_err(|error| self.no_ring(&error))?;
        found.ok_or_else(|| {
            let why = format!(
                "there is no ring {}: `arena-ring pub` makes one",
                self.shown()
            );
            Failure {
                code: exit::ARENA,
                why,
            }
        })
    }

    pub(crate) fn cannot(&self, verb: &str, error: &dyn std::error::Error) -> Failure {
        let what = format!("cannot {verb} ring {}", self.shown());
        Failure::new(exit::ARENA, &what, error)
    }

    /// Fails when others who name the arena do not get this one any more. A few system calls.
    pub(crate) fn is_still(&self, arena: &Arena) -> Result<(), Failure> {
        if !arena.is_gone() && !arena.is_unlinked() {
            return Ok(());
        }
        let name = shown(&self.arena);
        Err(Failure {
            code: exit::ARENA,
            why: format!("arena {name} was destroyed, or its file removed"),
        })
    }

    pub(crate) fn ring_bytes(&self) -> &[u8] {
        self.ring.as_bytes()
    }
}
