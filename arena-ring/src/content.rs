//! Records as words of a ring: how many they take, storing them, and taking them apart again.
//!
//! Bytes move through relaxed 64-bit words in both directions: who reads while another writes gets a wrong copy, notices,
//! and drops it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::view::{View, index};

/// The lengths of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lengths {
    pub(crate) topic: u32,
    pub(crate) payload: u32,
}

impl Lengths {
    /// `None`: more than the word of lengths can say.
    pub(crate) fn new(topic: usize, payload: usize) -> Option<Self> {
        let topic = u32::try_from(topic).ok()?;
        let payload = u32::try_from(payload).ok()?;
        Some(Self { topic, payload })
    }

    /// Any word is the lengths of something.
    pub(crate) fn decode(word: u64) -> Self {
        let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("it has 32 bits");
        Self {
            topic: half(word),
            payload: half(word >> 32),
        }
    }

    pub(crate) fn encode(self) -> u64 {
        u64::from(self.payload) << 32 | u64::from(self.topic)
    }

    /// Where the payload begins, in words from the record's first.
    pub(crate) fn payload_at(self) -> u64 {
        1 + words(self.topic)
    }

    /// How many words the record takes.
    pub(crate) fn words(self) -> u64 {
        self.payload_at() + words(self.payload)
    }
}

/// How many words so many bytes take.
pub(crate) fn words(bytes: u32) -> u64 {
    u64::from(bytes).div_ceil(8)
}

/// Where the owner of claimed slots stores next: a word of their contents.
#[derive(Debug)]
pub(crate) struct Pen<'a> {
    view: View<'a>,
    pos: u64,
    /// In the content of the slot of `pos`; at its end, the next slot is meant.
    within: usize,
}

impl<'a> Pen<'a> {
    /// At word `at` of the contents of the slots from `pos` on.
    pub(crate) fn at(view: View<'a>, pos: u64, at: u64) -> Self {
        let content = view.content_words();
        let at = index(at);
        Self {
            pos: pos + (at / content) as u64,
            within: at % content,
            view,
        }
    }

    /// At their first word.
    pub(crate) fn new(view: View<'a>, pos: u64) -> Self {
        Self {
            view,
            pos,
            within: 0,
        }
    }

    /// Stores a record.
    pub(crate) fn record(&mut self, topic: &[u8], payload: &[u8]) {
        let lengths = Lengths::new(topic.len(), payload.len()).expect("its size was looked at");
        self.head(lengths, topic);
        self.bytes(payload);
    }

    /// Stores all of a record but its payload.
    pub(crate) fn head(&mut self, lengths: Lengths, topic: &[u8]) {
        self.word(lengths.encode());
        self.bytes(topic);
    }

    /// Stores zeros in so many words.
    pub(crate) fn zeros(&mut self, count: u64) {
        for _ in 0..count {
            self.word(0);
        }
    }

    /// Stores bytes from the beginning of a word on; what is left of the last word is zero.
    pub(crate) fn bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let run = self.run();
            let (here, rest) = bytes.split_at(bytes.len().min(8 * run.len()));
            let (whole, last) = here.as_chunks::<8>();
            for (cell, chunk) in run.iter().zip(whole) {
                // Relaxed: published by the head's word (EDGE written).
                cell.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
            }
            self.within += whole.len();
            if !last.is_empty() {
                let mut padded = [0; 8];
                padded[..last.len()].copy_from_slice(last);
                self.word(u64::from_le_bytes(padded));
            }
            bytes = rest;
        }
    }

    /// Stores bytes that begin at byte `within` of a word, and leaves the others as they are.
    pub(crate) fn patch(&mut self, within: usize, bytes: &[u8]) {
        let (start, rest) = match within {
            0 => (&[][..], bytes),
            _ => bytes.split_at(bytes.len().min(8 - within)),
        };
        self.patch_word(within, start);
        let (whole, last) = rest.split_at(rest.len() / 8 * 8);
        self.bytes(whole);
        self.patch_word(0, last);
    }

    fn patch_word(&mut self, within: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        // Relaxed: the word is this process's own until its claim ends.
        let mut word = self.run()[0].load(Ordering::Relaxed).to_le_bytes();
        word[within..within + bytes.len()].copy_from_slice(bytes);
        self.word(u64::from_le_bytes(word));
    }

    #[inline]
    fn word(&mut self, word: u64) {
        // Relaxed: as above.
        self.run()[0].store(word, Ordering::Relaxed);
        self.within += 1;
    }

    /// What is left of a slot's content: a word at least.
    #[inline]
    fn run(&mut self) -> &'a [AtomicU64] {
        let mut content = self.view.content(self.pos);
        if self.within == content.len() {
            (self.pos, self.within) = (self.pos + 1, 0);
            content = self.view.content(self.pos);
        }
        &content[self.within..]
    }
}

/// The lengths of the first record of the slots from `pos` on, whatever is there now.
pub(crate) fn first_lengths(view: &View<'_>, pos: u64) -> Lengths {
    // Relaxed: as in `copy`.
    Lengths::decode(view.content(pos)[0].load(Ordering::Relaxed))
}

/// Copies as many words of the contents of the slots from `pos` on as there is room for.
///
/// The copy is worth nothing unless the head is still the same afterwards.
pub(crate) fn copy(view: &View<'_>, mut pos: u64, into: &mut [u8]) {
    let (mut words, _) = into.as_chunks_mut::<8>();
    while !words.is_empty() {
        let content = view.content(pos);
        let (here, rest) = words.split_at_mut(words.len().min(content.len()));
        for (word, cell) in here.iter_mut().zip(content) {
            // Relaxed: ordered by the load of the head before (EDGE written) and the look at it after (EDGE overtaken).
            *word = cell.load(Ordering::Relaxed).to_le_bytes();
        }
        // A position that a damaged word names may be any.
        (pos, words) = (pos.wrapping_add(1), rest);
    }
}

/// Topic and payload of the record that begins at byte `at` of a copy, and the byte after it; `None` when it has lengths that do not
/// fit.
pub(crate) fn take_apart(copy: &[u8], at: usize) -> Option<(&[u8], &[u8], usize)> {
    let record = copy.get(at..)?;
    let (word, _) = record.split_first_chunk::<8>()?;
    let lengths = Lengths::decode(u64::from_le_bytes(*word));
    let end = usize::try_from(8 * lengths.words()).ok()?;
    let payload_at = usize::try_from(8 * lengths.payload_at()).ok()?;
    let record = record.get(..end)?;
    let topic = record.get(8..8 + usize::try_from(lengths.topic).ok()?)?;
    let payload = record.get(payload_at..payload_at + usize::try_from(lengths.payload).ok()?)?;
    Some((topic, payload, at + end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_word_of_lengths_encodes_to_itself(word: u64) {
            prop_assert_eq!(Lengths::decode(word).encode(), word);
        }

        #[test]
        fn any_bytes_are_taken_apart_within_their_bounds(bytes: Vec<u8>, at in 0..64_usize) {
            if let Some((topic, payload, end)) = take_apart(&bytes, at) {
                prop_assert!(end <= bytes.len() && at + 8 + topic.len() + payload.len() <= end);
            }
        }
    }
}
