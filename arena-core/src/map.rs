//! A mapping of an arena's file, and the only casts from offsets to references.
#![expect(
    unsafe_code,
    reason = "offsets become references here and nowhere else"
)]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use crate::error::OutOfBounds;
use crate::layout::SharedLayout;

/// The whole file, mapped shared. Its bytes change under us at any time.
#[derive(Debug)]
pub(crate) struct Mapping {
    raw: MmapRaw,
    len_bytes: u64,
}

impl Mapping {
    /// Maps `len_bytes` of the file for reading and writing.
    pub(crate) fn writable(file: BorrowedFd<'_>, len_bytes: u64) -> std::io::Result<Mapping> {
        let raw = options(len_bytes)?.map_raw(file.as_raw_fd())?;
        Ok(Mapping { raw, len_bytes })
    }

    /// Maps `len_bytes` of the file for reading: a store through it is a fault, so its owner,
    /// [`View`](crate::ArenaView), hands out no reference.
    pub(crate) fn read_only(file: BorrowedFd<'_>, len_bytes: u64) -> std::io::Result<Mapping> {
        let raw = options(len_bytes)?.map_raw_read_only(file.as_raw_fd())?;
        Ok(Mapping { raw, len_bytes })
    }

    pub(crate) fn base_address(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    pub(crate) fn len(&self) -> usize {
        self.raw.len()
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The structure at `offset`.
    pub(crate) fn at<T: SharedLayout>(&self, offset: u64) -> Result<&T, OutOfBounds> {
        Ok(&self.array(offset, 1)?[0])
    }

    /// `count` structures from `offset` on.
    pub(crate) fn array<T: SharedLayout>(
        &self,
        offset: u64,
        count: usize,
    ) -> Result<&[T], OutOfBounds> {
        let out = OutOfBounds {
            offset,
            len_bytes: self.len_bytes,
        };
        let wanted = count.checked_mul(size_of::<T>()).ok_or(out)?;
        let start = usize::try_from(offset).map_err(|_| out)?;
        let end = start.checked_add(wanted).ok_or(out)?;
        if end > self.raw.len() || !start.is_multiple_of(align_of::<T>()) {
            return Err(out);
        }
        // SAFETY: `start <= end <= raw.len()` was checked above, so the result lies inside the
        // mapping or one past its end.
        let ptr = unsafe { self.raw.as_ptr().add(start) }.cast::<T>();
        // SAFETY: `count * size_of::<T>()` bytes from `ptr` on lie inside the mapping (checked
        // above), which lives as long as `self`. A mapping starts at a page, and no T is aligned
        // to more, so a multiple of T's alignment from there is aligned. T is a SharedLayout:
        // atomics alone, valid for every bit pattern, so other processes may store at any time.
        Ok(unsafe { std::slice::from_raw_parts(ptr, count) })
    }

    /// Copies bytes out through relaxed 64-bit loads. What another process stores meanwhile may be
    /// seen in part.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), OutOfBounds> {
        let (words, skip) = self.words(offset, into.len())?;
        let mut bytes = words.iter().flat_map(|word| {
            // Relaxed: payload; whoever needs an order makes it with a word of his own.
            word.load(Ordering::Relaxed).to_le_bytes()
        });
        if skip > 0 {
            bytes.nth(skip - 1);
        }
        into.fill_with(|| bytes.next().expect("`words` covers offset + into.len()"));
        Ok(())
    }

    /// Copies bytes in through relaxed 64-bit stores. A word that is only partly ours is changed
    /// by compare-exchange, so that a neighbour's bytes in it are never lost.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), OutOfBounds> {
        let (words, skip) = self.words(offset, from.len())?;
        let mut rest = from;
        for (i, word) in words.iter().enumerate() {
            let first = if i == 0 { skip } else { 0 };
            let (now, later) = rest.split_at(rest.len().min(8 - first));
            rest = later;
            if let Ok(whole) = <[u8; 8]>::try_from(now) {
                // Relaxed: as in `read`.
                word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
            } else {
                let patch = |old: u64| {
                    let mut bytes = old.to_le_bytes();
                    bytes[first..first + now.len()].copy_from_slice(now);
                    Some(u64::from_le_bytes(bytes))
                };
                // Relaxed: as in `read`.
                word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, patch)
                    .expect("`patch` never declines");
            }
        }
        Ok(())
    }

    /// The words that cover `len` bytes from `offset`, and how many bytes of the first to skip.
    fn words(&self, offset: u64, len: usize) -> Result<(&[AtomicU64], usize), OutOfBounds> {
        let out = OutOfBounds {
            offset,
            len_bytes: self.len_bytes,
        };
        let skip = usize::try_from(offset % 8).map_err(|_| out)?;
        let count = len.checked_add(skip).ok_or(out)?.div_ceil(8);
        Ok((
            self.array(offset - offset % 8, if len == 0 { 0 } else { count })?,
            skip,
        ))
    }

    /// The 128-bit word at `offset` of a mapping that may be read-only, where the processor's own
    /// 128-bit load must not be used (it may store). High half, low half, high half, until the
    /// high halves agree: right for words whose high half never returns to an old value.
    pub(crate) fn wide(&self, offset: u64) -> Result<u128, OutOfBounds> {
        /// A word that changes more often than this while it is read is torn on purpose.
        const TRIES: u32 = 1_000;
        let out = OutOfBounds {
            offset,
            len_bytes: self.len_bytes,
        };
        if !offset.is_multiple_of(16) {
            return Err(out);
        }
        let halves: &[AtomicU64] = self.array(offset, 2)?;
        let (low, high) = (halves[0].as_ptr(), halves[1].as_ptr());
        let mut tries = 0;
        loop {
            let before = load_half(high);
            let value = load_half(low);
            let after = load_half(high);
            tries += 1;
            if before == after || tries == TRIES {
                return Ok(u128::from(after) << 64 | u128::from(value));
            }
        }
    }
}

fn options(len_bytes: u64) -> std::io::Result<MmapOptions> {
    let len = usize::try_from(len_bytes).map_err(std::io::Error::other)?;
    let mut options = MmapOptions::new();
    options.len(len);
    Ok(options)
}

/// Loads half of a word that others store as a whole. Opaque to the compiler, because accesses of
/// mixed size are not defined in its memory model; the processor defines them.
fn load_half(at: *const u64) -> u64 {
    let value: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `at` points to 8 aligned, mapped bytes (`array` checked). Loads are not reordered
    // with loads on this processor.
    unsafe {
        std::arch::asm!("mov {v}, qword ptr [{p}]", v = out(reg) value, p = in(reg) at,
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: `at` points to 8 aligned, mapped bytes (`array` checked). `ldar` keeps the loads in
    // order.
    unsafe {
        std::arch::asm!("ldar {v}, [{p}]", v = out(reg) value, p = in(reg) at,
            options(nostack, preserves_flags, readonly));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    fn mapped(len_bytes: u64) -> Mapping {
        let file = tempfile::tempfile().unwrap();
        file.set_len(len_bytes).unwrap();
        Mapping::writable(file.as_fd(), len_bytes).unwrap()
    }

    #[test]
    fn bytes_written_at_any_offset_are_read_back_and_no_neighbour_changes() {
        let mapping = mapped(4096);
        for offset in 0..9u64 {
            for len in 0..20usize {
                mapping.write(0, &[0xee; 64]).unwrap();
                let sent: Vec<u8> = (1..=len).map(|i| u8::try_from(i).unwrap()).collect();
                mapping.write(offset, &sent).unwrap();
                let mut all = [0; 64];
                mapping.read(0, &mut all).unwrap();
                let at = usize::try_from(offset).unwrap();
                assert_eq!(&all[at..at + len], &sent[..]);
                assert!(all[..at].iter().chain(&all[at + len..]).all(|&b| b == 0xee));
            }
        }
    }

    #[test]
    fn access_beyond_the_end_is_refused_whatever_the_numbers() {
        let mapping = mapped(4096);
        let mut byte = [0];
        assert!(mapping.read(4095, &mut byte).is_ok());
        assert!(mapping.read(4096, &mut []).is_ok());
        for offset in [4096, 4097, u64::MAX - 7, u64::MAX] {
            assert!(mapping.read(offset, &mut byte).is_err(), "{offset}");
            assert!(mapping.write(offset, &byte).is_err(), "{offset}");
            assert!(mapping.at::<AtomicU64>(offset).is_err(), "{offset}");
            assert!(mapping.wide(offset).is_err(), "{offset}");
        }
        assert!(mapping.array::<AtomicU64>(0, usize::MAX).is_err());
        assert!(mapping.array::<AtomicU64>(8, 512).is_err());
        assert!(mapping.at::<AtomicU64>(4).is_err(), "misaligned");
        assert!(mapping.wide(8).is_err(), "misaligned");
    }

    #[test]
    fn wide_word_is_read_as_it_was_stored_and_on_a_read_only_mapping() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let writer = Mapping::writable(file.as_fd(), 4096).unwrap();
        let reader = Mapping::read_only(file.as_fd(), 4096).unwrap();
        let value = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210_u128;
        writer
            .at::<portable_atomic::AtomicU128>(32)
            .unwrap()
            .store(value, Ordering::Relaxed);
        assert_eq!(reader.wide(32).unwrap(), value);
    }
}
