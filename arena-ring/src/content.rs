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

/// Stores a record whose slots the caller has claimed, at word `at` of their contents.
pub(crate) fn store(view: &View<'_>, pos: u64, at: u64, topic: &[u8], payload: &[u8]) {
    let lengths = Lengths::new(topic.len(), payload.len()).expect("its size was looked at");
    store_head(view, pos, at, lengths, topic);
    store_bytes(view, pos, at + lengths.payload_at(), payload);
}

/// Stores all of a record but its payload.
pub(crate) fn store_head(view: &View<'_>, pos: u64, at: u64, lengths: Lengths, topic: &[u8]) {
    for run in view.runs(pos, at, 1) {
        // Relaxed: published by the head's word (EDGE written).
        run[0].store(lengths.encode(), Ordering::Relaxed);
    }
    store_bytes(view, pos, at + 1, topic);
}

/// Stores bytes from the beginning of a word on; what is left of the last word is zero.
fn store_bytes(view: &View<'_>, pos: u64, at: u64, mut bytes: &[u8]) {
    let count = u64::try_from(bytes.len().div_ceil(8)).expect("a length fits 64 bits");
    for run in view.runs(pos, at, count) {
        let (here, rest) = bytes.split_at(bytes.len().min(8 * run.len()));
        let (whole, last) = here.as_chunks::<8>();
        for (cell, chunk) in run.iter().zip(whole) {
            // Relaxed (both): as above.
            cell.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        if !last.is_empty() {
            let mut padded = [0; 8];
            padded[..last.len()].copy_from_slice(last);
            run[whole.len()].store(u64::from_le_bytes(padded), Ordering::Relaxed);
        }
        bytes = rest;
    }
}

/// Stores zeros in whole words.
pub(crate) fn store_zeros(view: &View<'_>, pos: u64, at: u64, count: u64) {
    for cell in view.runs(pos, at, count).flatten() {
        // Relaxed: as above.
        cell.store(0, Ordering::Relaxed);
    }
}

/// Stores bytes at any byte of the words from `at` on, and leaves the others as they are. The caller alone stores there.
pub(crate) fn patch(view: &View<'_>, pos: u64, at: u64, offset: u64, mut bytes: &[u8]) {
    let within = index(offset % 8);
    let first = at + offset / 8;
    let (start, rest) = match within {
        0 => bytes.split_at(0),
        _ => bytes.split_at(bytes.len().min(8 - within)),
    };
    patch_word(view, pos, first, within, start);
    bytes = rest;
    let next = first + u64::from(within != 0);
    let whole = bytes.len() / 8 * 8;
    store_bytes(view, pos, next, &bytes[..whole]);
    let last = next + u64::try_from(whole / 8).expect("a length fits 64 bits");
    patch_word(view, pos, last, 0, &bytes[whole..]);
}

fn patch_word(view: &View<'_>, pos: u64, at: u64, within: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    for run in view.runs(pos, at, 1) {
        // Relaxed (both): the word is this process's own until its claim ends.
        let mut word = run[0].load(Ordering::Relaxed).to_le_bytes();
        word[within..within + bytes.len()].copy_from_slice(bytes);
        run[0].store(u64::from_le_bytes(word), Ordering::Relaxed);
    }
}

/// Copies `count` words from the first of the contents at `pos` on to the start of `into`, which has room for them.
///
/// The copy is worth nothing unless the head is still the same afterwards.
pub(crate) fn copy(view: &View<'_>, pos: u64, from: u64, count: u64, mut into: &mut [u8]) {
    for run in view.runs(pos, from, count) {
        let (here, rest) = into.split_at_mut(8 * run.len());
        copy_run(run, here);
        into = rest;
    }
}

fn copy_run(run: &[AtomicU64], into: &mut [u8]) {
    let (chunks, _) = into.as_chunks_mut::<8>();
    for (cell, chunk) in run.iter().zip(chunks) {
        // Relaxed: ordered by the load of the head before (EDGE written) and the look at it after (EDGE overtaken).
        *chunk = cell.load(Ordering::Relaxed).to_le_bytes();
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
