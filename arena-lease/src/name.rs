//! The names of leases.

use std::fmt;
use std::sync::atomic::Ordering;

use crate::layout::NAME_WORDS;
use crate::protocol::Mark;

/// The longest name of a lease, in bytes.
pub const MAX_NAME_BYTES: usize = NAME_WORDS * 8;

/// The name of a lease: 1 to 96 bytes, any but NUL. Compared byte for byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    len: u64,
    /// How many of the words it needs; the others are zero.
    used: usize,
    words: [u64; NAME_WORDS],
}

impl Name {
    /// `None`: empty, too long, or a NUL in it.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        if !(1..=MAX_NAME_BYTES).contains(&bytes.len()) || bytes.contains(&0) {
            return None;
        }
        let mut words = [0; NAME_WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(padded);
        }
        let len = u64::try_from(bytes.len()).ok()?;
        let used = bytes.len().div_ceil(8);
        Some(Self { len, used, words })
    }

    /// The name in words that were read from a table; `None` when they hold none.
    pub(crate) fn from_words(len: u64, words: [u64; NAME_WORDS]) -> Option<Self> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (name, padding) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
        let clean = padding.iter().all(|&byte| byte == 0);
        Self::new(name).filter(|_| clean)
    }

    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self
            .words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        bytes.truncate(usize::try_from(self.len).expect("at most 96"));
        bytes
    }

    /// Whether the words in shared memory are this name.
    pub(crate) fn is<M: Mark>(&self, len: &M, words: &[M]) -> bool {
        // Relaxed (both): ordered by the load of the lease word before (EDGE named), and what is read while it
        // is written is caught by the exchange.
        len.load(Ordering::Relaxed) == self.len
            && self.words[..self.used]
                .iter()
                .zip(words)
                .all(|(own, word)| word.load(Ordering::Relaxed) == *own)
    }

    /// Writes the name; the row's word must be retired, so that nobody believes it half-written.
    pub(crate) fn store<M: Mark>(&self, len: &M, words: &[M]) {
        for (own, word) in self.words.iter().zip(words) {
            // Relaxed (both): published by the exchange of the lease word that follows (EDGE named).
            word.store(*own, Ordering::Relaxed);
        }
        len.store(self.len, Ordering::Relaxed);
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.to_vec().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_be_any_bytes_but_nul_and_up_to_the_limit() {
        assert!(Name::new(b"nightly/\xff\n").is_some());
        assert!(Name::new(&[b'x'; MAX_NAME_BYTES]).is_some());
        assert!(Name::new(&[b'x'; MAX_NAME_BYTES + 1]).is_none());
        assert!(Name::new(b"").is_none());
        assert!(Name::new(b"a\0b").is_none());
    }

    #[test]
    fn a_name_and_the_same_name_with_more_bytes_are_two() {
        assert_ne!(Name::new(b"abcdefgh"), Name::new(b"abcdefghi"));
        assert_ne!(Name::new(b"abc"), Name::new(b"abcd"));
    }

    #[test]
    fn words_that_hold_no_name_are_refused() {
        let name = Name::new(b"nightly").unwrap();
        assert_eq!(Name::from_words(7, name.words), Some(name));
        assert_eq!(Name::from_words(0, name.words), None);
        assert_eq!(Name::from_words(6, name.words), None, "bytes after the end");
        assert_eq!(Name::from_words(8, name.words), None, "a NUL inside");
        assert_eq!(Name::from_words(u64::MAX, name.words), None);
    }

    #[test]
    fn to_vec_returns_the_bytes_that_were_given() {
        for bytes in [&b"x"[..], b"nightly", &[0xff; MAX_NAME_BYTES]] {
            assert_eq!(Name::new(bytes).unwrap().to_vec(), bytes);
        }
    }
}
