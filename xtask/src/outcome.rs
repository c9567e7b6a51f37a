//! How a scenario ends: well, or with a reason why not.

/// Why a scenario did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Something that must hold did not.
    Failed(String),
    /// This machine cannot show it, and why.
    Skipped(String),
}

/// What scenarios and their helpers return.
pub(crate) type Outcome<T = ()> = Result<T, Stop>;

impl Stop {
    /// A failure with `reason`.
    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self::Failed(reason.into())
    }

    /// The same, said to have happened in `place`.
    pub(crate) fn within(self, place: impl std::fmt::Display) -> Self {
        match self {
            Self::Failed(reason) => Self::Failed(format!("{place}: {reason}")),
            Self::Skipped(reason) => Self::Skipped(reason),
        }
    }
}

impl<E: std::error::Error> From<E> for Stop {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            text.push_str(": ");
            text.push_str(&next.to_string());
            cause = next.source();
        }
        Self::Failed(text)
    }
}

/// Fails the scenario with the formatted reason unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            return Err($crate::outcome::Stop::Failed(format!($($reason)+)));
        }
    };
}
pub(crate) use ensure;
