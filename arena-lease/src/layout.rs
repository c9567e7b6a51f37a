//! Every byte of the lease table that processes share.
//!
//! The region `leases` is one [`Head`] and then as many [`Row`]s as its length holds. All zero is a table
//! without a name in it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use arena_peers::core::layout::SharedLayout;
use arena_peers::core::{LockWord, futex, layout};
use portable_atomic::AtomicU128;

use crate::protocol::{Cell, Mark};

/// The first line of the table.
///
/// ```text
/// offset  size  field     written by                         read by
///      0     8  lock      namers                             namers
///      8     8  high      namers, raised before a rename     namers: the fence that a named row starts at
///     16     8  named     namers, raised before the naming   who looks a name up: rows from here on are unborn
///     24     8  namings   namers, + 1 after the naming       who waits for a name to have a row, and the kernel
///     32    96  reserved  nobody                             nobody
/// ```
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) lock: LockWord,
    pub(crate) high: AtomicU64,
    pub(crate) named: AtomicU64,
    pub(crate) namings: AtomicU64,
    pub(crate) reserved: [AtomicU64; 12],
}
layout!(Head is 128 { lock @ 0, high @ 8, named @ 16, namings @ 24, reserved @ 32 });

/// One lease.
///
/// ```text
/// offset  size  field     written by                          read by
///      0    16  word      see `word.rs`                       everybody; the kernel, at 0 and 8
///     16     8  asked     waiters, raised to the fence that    whoever replaces that fence
///                         they wait behind
///     24     8  told      a holder that is told that it lost,  the same process's verbs
///                         raised to its fence
///     32     8  acquires  who acquired, after it               statistics (may trail)
///     40     8  steals    who took over, after it              statistics (may trail)
///     48     8  since     who acquired, after it: the low 24   statistics (ignored unless its fence is the
///                         bits of its fence, 40 of its clock   word's)
///     56     8  heir      who releases in favour of a peer,    who acquires (ignored unless its fence is the
///                         before it: the low 24 bits of the    word's)
///                         fence, the peer's slot and epoch
///     64    16  companion who acquired, once it started       who proved it dead: see `companion.rs` (ignored
///                         somebody to work on its behalf       unless its fence is the word's)
///     80    48  reserved  nobody                              nobody
///    128     8  name_len  a namer; 0: the row has no name      everybody, after the word
///    136    96  name      a namer, NUL-padded                  likewise
///    232    24  reserved  nobody                              nobody
/// ```
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) word: AtomicU128,
    pub(crate) asked: AtomicU64,
    pub(crate) told: AtomicU64,
    pub(crate) acquires: AtomicU64,
    pub(crate) steals: AtomicU64,
    pub(crate) since: AtomicU64,
    pub(crate) heir: AtomicU64,
    pub(crate) companion: AtomicU128,
    pub(crate) reserved: [AtomicU64; 6],
    pub(crate) name_len: AtomicU64,
    pub(crate) name: [AtomicU64; NAME_WORDS],
    pub(crate) reserved_name: [AtomicU64; 3],
}
layout!(Row is 256 {
    word @ 0, asked @ 16, told @ 24, acquires @ 32, steals @ 40, since @ 48, heir @ 56, companion @ 64,
    reserved @ 80,
    name_len @ 128, name @ 136, reserved_name @ 232,
});

pub(crate) const NAME_WORDS: usize = 12;

/// Where the fields of a row are, for a viewer, who reads words and casts nothing.
pub(crate) mod at {
    pub(crate) const WORD: u64 = 0;
    pub(crate) const ACQUIRES: u64 = 32;
    pub(crate) const STEALS: u64 = 40;
    pub(crate) const SINCE: u64 = 48;
    pub(crate) const COMPANION: u64 = 64;
    pub(crate) const NAME_LEN: u64 = 128;
    pub(crate) const NAME: u64 = 136;
    pub(crate) const NAMED: u64 = 16;
}

/// The same of a word with a name.
pub(crate) mod named_at {
    pub(crate) const WORD: u64 = 0;
    pub(crate) const NAME_LEN: u64 = 16;
    pub(crate) const NAME: u64 = 24;
}

pub(crate) const HEAD_BYTES: u64 = 128;
pub(crate) const ROW_BYTES: u64 = 256;

/// What the region's entry says that it holds.
pub(crate) const KIND: u64 = Head::FINGERPRINT ^ Row::FINGERPRINT.rotate_left(17);

/// The first line of a table of words with names: the regions `gates`, `fenced` and `limits`.
///
/// ```text
/// offset  size  field     written by  read by
///      0     8  lock      namers      namers
///      8   120  reserved  nobody      nobody
/// ```
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct NamedWords {
    pub(crate) lock: LockWord,
    pub(crate) reserved: [AtomicU64; 15],
}
layout!(NamedWords is 128 { lock @ 0, reserved @ 8 });

/// A word with a name.
///
/// ```text
/// offset  size  field     written by                              read by
///      0    16  word      gates: see `gate_word.rs`; fenced: who  everybody; of a gate the kernel too, at
///                         stores, fence above value; limits: see  offset 0
///                         `shape.rs`
///     16     8  name_len  a namer, once, last; 0: no name yet     everybody, before the name
///     24    96  name      a namer, NUL-padded                     everybody who saw a length
///    120     4  changes   limits: who took or left a place, + 1   who waits for a place, and the kernel
///    124     4  waited    limits: who waits, once, to 1           who took or left a place
/// ```
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct NamedWord {
    pub(crate) word: AtomicU128,
    pub(crate) name_len: AtomicU64,
    pub(crate) name: [AtomicU64; NAME_WORDS],
    pub(crate) changes: AtomicU32,
    pub(crate) waited: AtomicU32,
}
layout!(NamedWord is 128 {
    word @ 0, name_len @ 16, name @ 24, changes @ 120, waited @ 124,
});

const NAMED_WORDS: u64 = NamedWords::FINGERPRINT ^ NamedWord::FINGERPRINT.rotate_left(17);

/// The region of gates, and what its entry says that it holds.
pub(crate) const GATES: (&[u8], u64) =
    (b"gates", NAMED_WORDS ^ u64::from_le_bytes(*b"gates\0\0\0"));

/// The region of fenced values, likewise.
pub(crate) const FENCED: (&[u8], u64) =
    (b"fenced", NAMED_WORDS ^ u64::from_le_bytes(*b"fenced\0\0"));

/// The region of limits, likewise.
pub(crate) const LIMITS: (&[u8], u64) =
    (b"limits", NAMED_WORDS ^ u64::from_le_bytes(*b"limits\0\0"));

impl Row {
    /// The half of the word that waiters sleep on: the low half of the high one.
    pub(crate) fn half(&self) -> futex::Word<'_> {
        futex::Word::quarter_of::<2>(&self.word)
    }

    /// The quarter of the word that a renewal changes: the low half of the low one.
    pub(crate) fn deadline(&self) -> futex::Word<'_> {
        futex::Word::quarter_of::<0>(&self.word)
    }

    /// Wakes everybody who sleeps on the half.
    pub(crate) fn wake_all(&self) {
        let _ = self.half().wake_all();
    }
}

impl Cell for AtomicU128 {
    type Bits = u128;

    fn load(&self, order: Ordering) -> u128 {
        self.load(order)
    }

    fn compare_exchange(
        &self,
        seen: u128,
        to: u128,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u128, u128> {
        self.compare_exchange(seen, to, success, failure)
    }
}

impl Mark for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_max(value, order)
    }

    fn fence(&self, order: Ordering) {
        fence(order);
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn layout_tables_are_those_that_were_reviewed() {
        insta::assert_snapshot!(
            [
                layout::table::<Head>("Head"),
                layout::table::<Row>("Row"),
                format!("kind {KIND:016x}\n"),
                layout::table::<NamedWords>("NamedWords"),
                layout::table::<NamedWord>("NamedWord"),
                format!(
                    "gates {:016x}, fenced {:016x}, limits {:016x}\n",
                    GATES.1, FENCED.1, LIMITS.1
                ),
            ]
            .join("\n")
        );
    }

    #[test]
    fn a_viewer_reads_the_fields_where_they_are() {
        let at = |offset: usize| u64::try_from(offset).unwrap();
        assert_eq!(at::WORD, at(offset_of!(Row, word)));
        assert_eq!(at::ACQUIRES, at(offset_of!(Row, acquires)));
        assert_eq!(at::STEALS, at(offset_of!(Row, steals)));
        assert_eq!(at::SINCE, at(offset_of!(Row, since)));
        assert_eq!(at::NAME_LEN, at(offset_of!(Row, name_len)));
        assert_eq!(at::NAME, at(offset_of!(Row, name)));
        assert_eq!(at::NAMED, at(offset_of!(Head, named)));
        assert_eq!(named_at::WORD, at(offset_of!(NamedWord, word)));
        assert_eq!(named_at::NAME_LEN, at(offset_of!(NamedWord, name_len)));
        assert_eq!(named_at::NAME, at(offset_of!(NamedWord, name)));
        assert_eq!(HEAD_BYTES, at(size_of::<Head>()));
        assert_eq!(ROW_BYTES, at(size_of::<Row>()));
    }
}
