//! What is told through `tracing`, under the target `arena_lease`; nothing without the feature.
#![cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "there is nobody to tell")
)]

use std::fmt;

use crate::loss::Loss;
use crate::name::Name;
use crate::outcome::{Hold, Refused};

/// A name as text.
#[cfg_attr(
    not(feature = "tracing"),
    expect(dead_code, reason = "there is nobody to tell")
)]
struct Shown<'a>(&'a Name);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.to_vec().escape_ascii().fmt(f)
    }
}

/// A new fence was acquired: info; from one that died or lapsed: warn.
pub(crate) fn acquired(lease: &Name, hold: &Hold) {
    #[cfg(feature = "tracing")]
    {
        let fence = hold.fence;
        match hold.took_over {
            None => tracing::info!(target: "arena_lease", lease = %Shown(lease), fence, "acquired"),
            Some(from) => {
                tracing::warn!(target: "arena_lease", lease = %Shown(lease), fence, ?from, "taken over");
            }
        }
    }
}

/// An attempt, or a wait, ended without the lease: debug.
pub(crate) fn refused(lease: &Name, why: &Refused) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "arena_lease", lease = %Shown(lease), ?why, "refused");
}

/// A term ended: info when it was released, else warn.
pub(crate) fn ended(lease: &Name, fence: u64, loss: Loss) {
    #[cfg(feature = "tracing")]
    match loss {
        Loss::Released => {
            tracing::info!(target: "arena_lease", lease = %Shown(lease), fence, "released");
        }
        loss => {
            tracing::warn!(target: "arena_lease", lease = %Shown(lease), fence, why = %loss, "lost");
        }
    }
}

/// Somebody who waits for a place of a limit came so far: info.
pub(crate) fn standing(limit: &Name, state: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "arena_lease", limit = %Shown(limit), state, "standing");
}
