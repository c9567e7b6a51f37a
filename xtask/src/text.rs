//! How the ids of peers, and errors, go over a pipe.

use arena_core::AttachmentId;

use crate::outcome::{Outcome, Stop};

/// `SLOT.GENERATION`.
pub(crate) fn id(id: AttachmentId) -> String {
    format!("{}.{}", id.slot(), id.generation())
}

/// The id that `id` wrote.
pub(crate) fn parse_id(text: &str) -> Outcome<AttachmentId> {
    let parsed = text.split_once('.').and_then(|(slot, generation)| {
        AttachmentId::new(slot.parse().ok()?, generation.parse().ok()?)
    });
    parsed.ok_or_else(|| Stop::failed(format!("no id of a peer: {text:?}")))
}

/// A number that a child said.
pub(crate) fn number(text: &str) -> Outcome<u64> {
    text.parse()
        .map_err(|_| Stop::failed(format!("no number: {text:?}")))
}

/// An error with its causes, after the name of its variant, on one line.
pub(crate) fn error<E: std::error::Error>(error: &E) -> String {
    let debug = format!("{error:?}");
    let variant: String = debug.chars().take_while(|c| c.is_alphanumeric()).collect();
    let mut text = format!("{variant}: {error}");
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::{id, parse_id};

    #[test]
    fn an_id_survives_the_pipe() {
        let peer = arena_core::AttachmentId::new(3, 7).unwrap();
        assert_eq!(parse_id(&id(peer)), Ok(peer));
    }

    #[test]
    fn nonsense_is_no_id() {
        assert!(parse_id("3").is_err());
        assert!(parse_id("3.0").is_err());
    }
}
