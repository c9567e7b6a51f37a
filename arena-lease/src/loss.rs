//! How a leadership ended.

use crate::PeerId;

/// Why this process no longer leads: the one reason that a [`Term`](crate::Term) tells, and never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// The deadline came within the margin, because nothing renewed in time: the process or its machine was
    /// stopped, or the renewals were held up. Nobody else may lead before the deadline itself; if it has passed,
    /// somebody may.
    #[error("the lease was not renewed in time")]
    Lapsed,
    /// Another process leads, or this one under a newer fence: the deadline had passed unnoticed.
    #[error("{by} took the lease over, under fence {fence}")]
    TakenOver {
        /// Who holds now, or held when it was looked.
        by: PeerId,
        /// Under which fence.
        fence: u64,
    },
    /// This process gave the lease up: the guard was dropped or released, or another handle of the process
    /// released it.
    #[error("the lease was released")]
    Released,
    /// The [`Cancel`](crate::Cancel) of the options was cancelled.
    #[error("the leadership was cancelled")]
    Cancelled,
    /// The body did not report its health within the limit.
    #[error("the work did not report its health in time")]
    Unhealthy,
    /// This is a child of the process that leads. The parent leads on.
    #[error("a child of fork leads nothing")]
    Forked,
    /// The arena was destroyed, or its file removed: another process may lead already, in another one.
    #[error("the arena was destroyed or its file removed")]
    Removed,
    /// The lease's word is none that this library writes: the arena is damaged.
    #[error("the lease is damaged")]
    Damaged,
}

impl Loss {
    /// Whether it makes sense to contend for the same lease again.
    pub(crate) const fn may_lead_again(self) -> bool {
        matches!(
            self,
            Self::Lapsed | Self::TakenOver { .. } | Self::Unhealthy
        )
    }
}
