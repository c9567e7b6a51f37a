//! Every byte of an arena that processes share and that is not a region's own.
//!
//! ```text
//! offset                        what
//! 0                             Header
//! 384                           Row, one a slot
//! 384 + 128 slots               Entry, one a region
//! heap (the next multiple of    the regions themselves, bump-allocated, each at a multiple of 128
//!   128)
//! end (a multiple of 4,096)
//! ```
//!
//! Only `u32`, `u64` and `u128` words, all of them atomics, little-endian; zero is the unborn state.

use std::sync::atomic::{AtomicU32, AtomicU64};

use bytemuck::{Pod, Zeroable};

use crate::attachment_word::AttachmentWord;
use crate::lock::LockWord;
use crate::wake::WakeWord;

/// A type that may be laid over bytes which other processes write at the same time.
///
/// Make one with [`layout!`](crate::layout!), which checks all that can be checked.
///
/// # Safety
///
/// The type is `repr(C)` or `repr(transparent)`, consists of atomics alone, has no padding, and is
/// valid for every bit pattern.
#[expect(
    unsafe_code,
    reason = "an implementation promises what no compiler checks"
)]
pub unsafe trait SharedLayout: Sync + 'static {
    /// A number that differs between two types whose layouts differ.
    const FINGERPRINT: u64;
    /// The fields in order; empty for a word.
    const FIELDS: &'static [Field];
}

/// One field of a shared structure, as the printed layout table shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The field's name.
    pub name: &'static str,
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// The fingerprint of its type.
    pub fingerprint: u64,
}

impl Field {
    /// Describes the field that `_of` projects to; the closure is never called.
    #[doc(hidden)]
    #[must_use]
    pub const fn new<T, F: SharedLayout>(
        name: &'static str,
        offset: usize,
        _of: fn(&T) -> &F,
    ) -> Field {
        Field {
            name,
            offset,
            size: size_of::<F>(),
            fingerprint: F::FINGERPRINT,
        }
    }
}

/// Continues the FNV-1a hash `hash` over `bytes`.
pub(crate) const fn fnv(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    hash
}

/// The fingerprint of a structure: its name, its size, and every field's name, place and type.
#[doc(hidden)]
#[must_use]
pub const fn fingerprint(name: &str, size: usize, fields: &[Field]) -> u64 {
    let mut hash = fnv(0xcbf2_9ce4_8422_2325, name.as_bytes());
    hash = fnv(hash, &(size as u64).to_le_bytes());
    let mut i = 0;
    while i < fields.len() {
        hash = fnv(hash, fields[i].name.as_bytes());
        hash = fnv(hash, &(fields[i].offset as u64).to_le_bytes());
        hash = fnv(hash, &fields[i].fingerprint.to_le_bytes());
        i += 1;
    }
    hash
}

/// Whether the fields follow one another without a gap and fill `size`.
#[doc(hidden)]
#[must_use]
pub const fn is_dense(size: usize, fields: &[Field]) -> bool {
    let mut at = 0;
    let mut i = 0;
    while i < fields.len() {
        if fields[i].offset != at {
            return false;
        }
        at += fields[i].size;
        i += 1;
    }
    at == size
}

/// Declares that a structure may be shared, and checks it at compile time: its size, the offset of
/// every field, that no field is forgotten, that there is no padding, and that each field is
/// itself a [`SharedLayout`].
///
/// ```
/// use std::sync::atomic::AtomicU64;
///
/// #[repr(C)]
/// pub struct Counter {
///     hits: AtomicU64,
///     misses: AtomicU64,
/// }
/// arena_core::layout!(Counter is 16 { hits @ 0, misses @ 8 });
/// ```
///
/// A field that is forgotten, or that moved, does not compile:
///
/// ```compile_fail
/// # use std::sync::atomic::AtomicU64;
/// #[repr(C)]
/// pub struct Counter { hits: AtomicU64, misses: AtomicU64 }
/// arena_core::layout!(Counter is 16 { hits @ 0 });
/// ```
///
/// The structure must be `repr(C)`: that is the one thing the macro cannot see.
#[macro_export]
macro_rules! layout {
    ($name:ident is $size:literal { $($field:ident @ $offset:literal),+ $(,)? }) => {
        const _: () = {
            $crate::static_assertions::const_assert_eq!(size_of::<$name>(), $size);
            $($crate::static_assertions::const_assert_eq!(
                ::core::mem::offset_of!($name, $field), $offset
            );)+
            $crate::static_assertions::const_assert!($crate::layout::is_dense(
                $size, <$name as $crate::layout::SharedLayout>::FIELDS
            ));
            const _NONE_FORGOTTEN: fn($name) = |whole| { let $name { $($field: _),+ } = whole; };
        };

        #[expect(unsafe_code, reason = "the checks above discharge the trait's obligations")]
        // SAFETY: every field is a SharedLayout (`Field::new` demands it), and `is_dense` found
        // no padding. `repr(C)` is the declaring crate's word, kept beside the structure.
        unsafe impl $crate::layout::SharedLayout for $name {
            const FIELDS: &'static [$crate::layout::Field] = &[$(
                $crate::layout::Field::new(
                    stringify!($field), $offset, |whole: &$name| &whole.$field
                )
            ),+];
            const FINGERPRINT: u64 =
                $crate::layout::fingerprint(stringify!($name), $size, Self::FIELDS);
        }

        #[expect(unsafe_code, reason = "atomics alone, so zero bytes are a value")]
        // SAFETY: a SharedLayout is valid for every bit pattern, zero among them.
        unsafe impl $crate::bytemuck::Zeroable for $name {}
    };
}

/// Words are shared as they are; the last three are `repr(transparent)` or two such words.
macro_rules! word {
    ($($type:ty = $fingerprint:literal),+ $(,)?) => { $(
        #[expect(unsafe_code, reason = "a word has no layout of its own to get wrong")]
        // SAFETY: an atomic integer has the size of its integer and any bit pattern is a value.
        unsafe impl SharedLayout for $type {
            const FINGERPRINT: u64 = $fingerprint;
            const FIELDS: &'static [Field] = &[];
        }
    )+ };
}
word!(
    AtomicU32 = 4,
    AtomicU64 = 8,
    portable_atomic::AtomicU128 = 16,
    LockWord = 0x4c08,
    WakeWord = 0x5708,
    AttachmentWord = 0x4108,
);

#[expect(unsafe_code, reason = "an array adds nothing between its elements")]
// SAFETY: an array of SharedLayout elements is those elements one after the other.
unsafe impl<T: SharedLayout, const N: usize> SharedLayout for [T; N] {
    const FINGERPRINT: u64 = fnv(T::FINGERPRINT, &(N as u64).to_le_bytes());
    const FIELDS: &'static [Field] = &[];
}

/// What an arena begins with.
///
/// ```text
/// offset  size  field           written by                    read by
///      0     8  magic           creator, before the name      every opener, first
///      8     8  format          creator                       every opener
///     16     8  fingerprint     creator                       every opener
///     24     8  len_bytes       creator                       every opener, against the file's
///     32     8  usable_bytes    creator                       every opener
///     40     8  slots           creator                       every opener
///     48     8  regions         creator                       every opener
///     56    16  boot_id         creator                       every opener
///     72     8  time_namespace  creator                       every opener
///     80     8  created_us      creator                       viewers
///     88     8  check           creator                       every opener: garbled words above
///     96    32  reserved        creator, as 0                 every opener, must be 0
///    128     8  gone            who destroys, once, to 1      everybody, on each verb
///    136     8  fence_minimum   openers, raised to the floor  who makes a fence
///    144     8  fences_below    who makes a fence, raised     who makes a fence; who destroys
///    152     8  settled         the first opener, to not 0    openers
///    152   104  padding         nobody                        nobody
///    256     8  lock            carvers of a new region       carvers of a new region
///    264     8  reaped          who empties a dead one's row   viewers; may trail
///    272   112  padding_lock    nobody                        nobody
/// ```
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) format: AtomicU64,
    pub(crate) fingerprint: AtomicU64,
    pub(crate) len_bytes: AtomicU64,
    pub(crate) usable_bytes: AtomicU64,
    pub(crate) slots: AtomicU64,
    pub(crate) regions: AtomicU64,
    pub(crate) boot_id: [AtomicU64; 2],
    pub(crate) time_namespace: AtomicU64,
    pub(crate) created_us: AtomicU64,
    pub(crate) check: AtomicU64,
    pub(crate) reserved: [AtomicU64; 4],
    pub(crate) gone: AtomicU64,
    pub(crate) fence_minimum: AtomicU64,
    pub(crate) fences_below: AtomicU64,
    pub(crate) settled: AtomicU64,
    pub(crate) padding: [AtomicU64; 12],
    pub(crate) lock: LockWord,
    pub(crate) reaped: AtomicU64,
    pub(crate) padding_lock: [AtomicU64; 14],
}
layout!(Header is 384 {
    magic @ 0, format @ 8, fingerprint @ 16, len_bytes @ 24, usable_bytes @ 32, slots @ 40,
    regions @ 48, boot_id @ 56, time_namespace @ 72, created_us @ 80, check @ 88, reserved @ 96,
    gone @ 128, fence_minimum @ 136, fences_below @ 144, settled @ 152,
    padding @ 160,
    lock @ 256, reaped @ 264, padding_lock @ 272,
});

/// The header's bytes at one moment: what a creator writes and what an opener checks.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct HeaderSnapshot {
    pub(crate) magic: u64,
    pub(crate) format: u64,
    pub(crate) fingerprint: u64,
    pub(crate) len_bytes: u64,
    pub(crate) usable_bytes: u64,
    pub(crate) slots: u64,
    pub(crate) regions: u64,
    pub(crate) boot_id: [u64; 2],
    pub(crate) time_namespace: u64,
    pub(crate) created_us: u64,
    pub(crate) check: u64,
    pub(crate) reserved: [u64; 4],
    pub(crate) gone: u64,
    pub(crate) fence_minimum: u64,
    pub(crate) fences_below: u64,
    pub(crate) settled: u64,
    pub(crate) padding: [u64; 12],
    pub(crate) lock: u64,
    pub(crate) reaped: u64,
    pub(crate) padding_lock: [u64; 14],
}
static_assertions::assert_eq_size!(Header, HeaderSnapshot);

impl HeaderSnapshot {
    /// What [`check`](Self::check) must be: a number that garbled words before it do not have.
    pub(crate) fn expected_check(&self) -> u64 {
        let before = &bytemuck::bytes_of(self)[..std::mem::offset_of!(HeaderSnapshot, check)];
        fnv(0xcbf2_9ce4_8422_2325, before)
    }
}

/// One attachment: a row, and the byte of the file that its slot numbers.
///
/// ```text
/// offset  size  field          written by                        read by
///      0     8  state          the byte's owner; a reaper        everybody
///      8     8  pid            the byte's owner while JOINING    everybody who saw READY
///     16     8  pid_inode      likewise                          likewise
///     24     8  start_ticks    likewise                          likewise
///     32     8  pid_namespace  likewise                          likewise
///     40    16  boot_id        likewise                          likewise
///     56     8  joined_ms      likewise                          likewise
///     64     8  beat_ms        the row's owner                   likewise
///     72    40  name           the row's owner                   likewise
///    112     8  check          as pid: makes garbled ones known   likewise
///    120     4  bell           see `bell.rs`                      sleepers, and the kernel for them
///    124     4  reserved       nobody                            nobody
/// ```
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Row {
    pub(crate) state: AttachmentWord,
    pub(crate) pid: AtomicU64,
    pub(crate) pid_inode: AtomicU64,
    pub(crate) start_ticks: AtomicU64,
    pub(crate) pid_namespace: AtomicU64,
    pub(crate) boot_id: [AtomicU64; 2],
    pub(crate) joined_ms: AtomicU64,
    pub(crate) beat_ms: AtomicU64,
    pub(crate) name: [AtomicU64; 5],
    pub(crate) check: AtomicU64,
    pub(crate) bell: AtomicU32,
    pub(crate) reserved: AtomicU32,
}
layout!(Row is 128 {
    state @ 0, pid @ 8, pid_inode @ 16, start_ticks @ 24, pid_namespace @ 32, boot_id @ 40,
    joined_ms @ 56, beat_ms @ 64, name @ 72, check @ 112, bell @ 120, reserved @ 124,
});

/// One region's place in the arena.
///
/// ```text
/// offset  size  field      written by                    read by
///      0     8  state      carver, last: 0 unborn, 1     everybody, first
///      8     8  kind       carver, under the lock        everybody who saw 1
///     16     8  offset     likewise                      likewise
///     24     8  len_bytes  likewise                      likewise
///     32    64  name       likewise, NUL-padded          likewise
///     96    32  reserved   nobody                        nobody
/// ```
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Entry {
    pub(crate) state: AtomicU64,
    pub(crate) kind: AtomicU64,
    pub(crate) offset: AtomicU64,
    pub(crate) len_bytes: AtomicU64,
    pub(crate) name: [AtomicU64; 8],
    pub(crate) reserved: [AtomicU64; 4],
}
layout!(Entry is 128 {
    state @ 0, kind @ 8, offset @ 16, len_bytes @ 24, name @ 32, reserved @ 96,
});

/// `"ARENA\0\0\1"`, little-endian.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"ARENA\0\0\x01");
/// The format's version: what the bytes mean, as far as the fingerprint does not say it.
pub(crate) const FORMAT: u64 = 1;
/// The fingerprint of all of core's structures together, word size and byte order included.
pub(crate) const CORE_FINGERPRINT: u64 = {
    let hash = fnv(Header::FINGERPRINT, &Row::FINGERPRINT.to_le_bytes());
    let hash = fnv(hash, &Entry::FINGERPRINT.to_le_bytes());
    fnv(hash, &(usize::BITS as u64).to_ne_bytes())
};
/// Regions start at multiples of this: a pair of cache lines, so that no two share one.
pub(crate) const ALIGN: u64 = 128;
/// An arena's length is a multiple of this.
pub(crate) const PAGE: u64 = 4096;
/// The most regions an arena can have.
pub(crate) const MAX_REGIONS: u64 = 65_536;
/// The most usable bytes an arena can have: 2^46, so that no sum of offsets overflows.
pub(crate) const MAX_USABLE: u64 = 1 << 46;

/// Where things are in an arena: derived from three counts that the header states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) slots: u16,
    pub(crate) regions: u32,
    pub(crate) usable_bytes: u64,
}

impl Geometry {
    /// `None` when a count is outside its bounds; they are input wherever they come from.
    pub(crate) fn new(slots: u64, regions: u64, usable_bytes: u64) -> Option<Geometry> {
        let slots = u16::try_from(slots).ok()?;
        let regions = u32::try_from(regions).ok()?;
        let in_bounds = (1..=crate::MAX_SLOTS).contains(&slots)
            && (1..=MAX_REGIONS).contains(&u64::from(regions))
            && (1..=MAX_USABLE).contains(&usable_bytes);
        in_bounds.then_some(Geometry {
            slots,
            regions,
            usable_bytes,
        })
    }

    pub(crate) fn rows_at(self) -> u64 {
        size_of::<Header>() as u64
    }

    pub(crate) fn entries_at(self) -> u64 {
        self.rows_at() + u64::from(self.slots) * size_of::<Row>() as u64
    }

    pub(crate) fn heap_at(self) -> u64 {
        let end = self.entries_at() + u64::from(self.regions) * size_of::<Entry>() as u64;
        end.next_multiple_of(ALIGN)
    }

    pub(crate) fn len_bytes(self) -> u64 {
        (self.heap_at() + self.usable_bytes).next_multiple_of(PAGE)
    }
}

/// Prints the layout of `T` as a table: the snapshot that shows a change of layout in review.
#[must_use]
pub fn table<T: SharedLayout>(name: &str) -> String {
    use std::fmt::Write as _;
    let mut out = format!(
        "{name}: {} bytes, fingerprint {:016x}\n",
        size_of::<T>(),
        T::FINGERPRINT
    );
    for field in T::FIELDS {
        writeln!(out, "{:>6} {:>5}  {}", field.offset, field.size, field.name)
            .expect("writing to a String does not fail");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_tables_are_those_that_were_reviewed() {
        insta::assert_snapshot!(
            [
                table::<Header>("Header"),
                table::<Row>("Row"),
                table::<Entry>("Entry"),
                format!("core fingerprint {CORE_FINGERPRINT:016x}, format {FORMAT}\n"),
            ]
            .join("\n")
        );
    }

    #[test]
    fn geometry_refuses_counts_outside_their_bounds() {
        for (slots, regions, usable) in [
            (0, 1, 1),
            (1, 0, 1),
            (1, 1, 0),
            (2047, 1, 1),
            (u64::MAX, 1, 1),
            (1, MAX_REGIONS + 1, 1),
            (1, 1, MAX_USABLE + 1),
            (1, u64::MAX, u64::MAX),
        ] {
            assert_eq!(
                Geometry::new(slots, regions, usable),
                None,
                "{slots} {regions} {usable}"
            );
        }
    }

    #[test]
    fn parts_of_the_largest_geometry_do_not_overlap() {
        let whole = Geometry::new(2046, MAX_REGIONS, MAX_USABLE).expect("the bounds themselves");
        assert!(whole.rows_at() < whole.entries_at());
        assert!(whole.entries_at() < whole.heap_at());
        assert_eq!(whole.heap_at() % ALIGN, 0);
        assert!(whole.heap_at() + MAX_USABLE <= whole.len_bytes());
    }
}
