//! Regions: named parts of an arena, bump-allocated and never freed.

use std::sync::atomic::Ordering;

use crate::arena::Arena;
use crate::error::{CarveError, OutOfBounds};
use crate::layout::{ALIGN, Entry, Geometry, SharedLayout};
use crate::lock::Acquired;
use crate::map::Mapping;

const READY: u64 = 1;
const NAME_BYTES: usize = 64;

/// A region as its entry describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionInfo {
    /// Its name: 1 to 63 bytes.
    pub name: Vec<u8>,
    /// The fingerprint of what it holds.
    pub kind: u64,
    /// Bytes from the start of the arena.
    pub offset: u64,
    /// Its length.
    pub len_bytes: u64,
}

/// A named part of an arena. Keeps the arena mapped.
///
/// Its bytes may change at any time: other processes have them mapped too.
#[derive(Debug, Clone)]
pub struct Region {
    arena: Arena,
    kind: u64,
    offset: u64,
    len_bytes: u64,
}

impl Region {
    pub(crate) fn new(arena: Arena, info: &RegionInfo) -> Region {
        let &RegionInfo {
            kind,
            offset,
            len_bytes,
            ..
        } = info;
        Region {
            arena,
            kind,
            offset,
            len_bytes,
        }
    }

    /// The arena it lies in.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The fingerprint of what it holds.
    #[must_use]
    pub fn kind(&self) -> u64 {
        self.kind
    }

    /// Bytes from the start of the arena.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its length.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Copies bytes out. In 64-bit words: what another process writes meanwhile may be seen in
    /// part, never a word by halves.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`]; nothing was copied.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), OutOfBounds> {
        let at = self.locate(offset, into.len() as u64)?;
        self.arena.mapping().read(at, into)
    }

    /// Copies bytes in; other bytes are not disturbed. As for [`read`](Self::read), others may see
    /// it in part.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`]; nothing was copied.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), OutOfBounds> {
        let at = self.locate(offset, from.len() as u64)?;
        self.arena.mapping().write(at, from)
    }

    /// The shared structure at `offset`: a cast, no copy.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`], also for an offset that is not a multiple of the type's alignment.
    pub fn at<T: SharedLayout>(&self, offset: u64) -> Result<&T, OutOfBounds> {
        self.arena
            .mapping()
            .at(self.locate(offset, size_of::<T>() as u64)?)
    }

    /// `count` shared structures from `offset` on: a cast, no copy.
    ///
    /// # Errors
    ///
    /// As [`at`](Self::at).
    pub fn array<T: SharedLayout>(&self, offset: u64, count: usize) -> Result<&[T], OutOfBounds> {
        let wanted = (size_of::<T>() as u64).saturating_mul(count as u64);
        self.arena
            .mapping()
            .array(self.locate(offset, wanted)?, count)
    }

    #[inline]
    fn locate(&self, offset: u64, wanted: u64) -> Result<u64, OutOfBounds> {
        locate(self.offset, self.len_bytes, offset, wanted)
    }
}

/// An offset in a region as one in the arena.
#[inline]
pub(crate) fn locate(start: u64, len: u64, offset: u64, wanted: u64) -> Result<u64, OutOfBounds> {
    if offset.checked_add(wanted).is_some_and(|end| end <= len) {
        Ok(start + offset)
    } else {
        Err(OutOfBounds {
            offset,
            len_bytes: len,
        })
    }
}

/// What a look at the whole table says.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) regions: Vec<RegionInfo>,
    /// Entries that say what cannot be.
    pub(crate) refused: u64,
    /// The first unborn entry.
    unborn: Option<usize>,
    /// Where the next region would start.
    end: u64,
}

fn entries(mapping: &Mapping, geometry: Geometry) -> &[Entry] {
    let count = usize::try_from(geometry.regions).expect("at most 65,536");
    mapping
        .array(geometry.entries_at(), count)
        .expect("the length was compared with the geometry")
}

pub(crate) fn list(mapping: &Mapping, geometry: Geometry) -> Table {
    let mut table = Table {
        end: geometry.heap_at(),
        ..Table::default()
    };
    for (i, entry) in entries(mapping, geometry).iter().enumerate() {
        // EDGE region, acquire half: kind, place and name were stored before.
        if entry.state.load(Ordering::Acquire) == 0 {
            table.unborn = table.unborn.or(Some(i));
            continue;
        }
        match read(entry, geometry) {
            Some(info) => {
                table.end = table
                    .end
                    .max((info.offset + info.len_bytes).next_multiple_of(ALIGN));
                table.regions.push(info);
            }
            None => table.refused += 1,
        }
    }
    table
}

/// An entry that was carved; `None` for one that cannot be.
fn read(entry: &Entry, geometry: Geometry) -> Option<RegionInfo> {
    // Relaxed (all of them): stored before the state, which was loaded with Acquire; and input.
    let get = |word: &std::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
    let (offset, len_bytes) = (get(&entry.offset), get(&entry.len_bytes));
    let name: Vec<u8> = entry
        .name
        .iter()
        .flat_map(|word| get(word).to_le_bytes())
        .collect();
    let end = name.iter().position(|&byte| byte == 0)?;
    let inside = offset.is_multiple_of(ALIGN)
        && offset >= geometry.heap_at()
        && offset
            .checked_add(len_bytes)
            .is_some_and(|end| end <= geometry.len_bytes());
    let known = get(&entry.state) == READY && name[end..].iter().all(|&byte| byte == 0);
    (inside && known && valid_name(&name[..end])).then(|| RegionInfo {
        name: name[..end].to_vec(),
        kind: get(&entry.kind),
        offset,
        len_bytes,
    })
}

fn valid_name(name: &[u8]) -> bool {
    (1..NAME_BYTES).contains(&name.len()) && !name.contains(&0) && !name.contains(&b'/')
}

pub(crate) fn find(mapping: &Mapping, geometry: Geometry, name: &[u8]) -> Option<RegionInfo> {
    entries(mapping, geometry).iter().find_map(|entry| {
        // EDGE region, acquire half.
        let born = entry.state.load(Ordering::Acquire) != 0;
        born.then(|| read(entry, geometry))
            .flatten()
            .filter(|info| info.name == name)
    })
}

pub(crate) fn carve(
    arena: &Arena,
    name: &[u8],
    kind: u64,
    len_bytes: u64,
) -> Result<Region, CarveError> {
    let shown = || String::from_utf8_lossy(name).into_owned();
    if !valid_name(name) {
        return Err(CarveError::Name { name: shown() });
    }
    let (mapping, geometry) = (arena.mapping(), arena.geometry());
    let fits = |info: RegionInfo| {
        if info.kind == kind && info.len_bytes >= len_bytes {
            return Ok(Region::new(arena.clone(), &info));
        }
        Err(CarveError::OtherShape {
            name: shown(),
            found_kind: info.kind,
            found_bytes: info.len_bytes,
            expected_kind: kind,
            expected_bytes: len_bytes,
        })
    };
    if let Some(info) = find(mapping, geometry, name) {
        return fits(info);
    }
    let acquired = arena.lock(&arena.header().lock, arena.busy_timeout())?;
    // A carver that died here left an entry whose state is still 0, or a whole one: there is
    // nothing to repair.
    let (Acquired::Clean(_held) | Acquired::Inherited(_held)) = acquired;
    if let Some(info) = find(mapping, geometry, name) {
        return fits(info);
    }
    let table = list(mapping, geometry);
    if table.refused > 0 {
        return Err(CarveError::Damaged {
            refused: table.refused,
        });
    }
    let index = table.unborn.ok_or(CarveError::TooMany {
        regions: geometry.regions,
    })?;
    let available = geometry.len_bytes().saturating_sub(table.end);
    if len_bytes > available {
        return Err(CarveError::Full {
            needed: len_bytes,
            available,
        });
    }
    let entry = &entries(mapping, geometry)[index];
    let mut padded = [0u8; NAME_BYTES];
    padded[..name.len()].copy_from_slice(name);
    let words: [u64; 8] = bytemuck::cast(padded);
    for (word, value) in entry.name.iter().zip(words) {
        // Relaxed (this and the next three): published by the state.
        word.store(u64::from_le(value), Ordering::Relaxed);
    }
    entry.kind.store(kind, Ordering::Relaxed);
    entry.offset.store(table.end, Ordering::Relaxed);
    entry.len_bytes.store(len_bytes, Ordering::Relaxed);
    // EDGE region, release half: the entry is whole.
    entry.state.store(READY, Ordering::Release);
    let info = RegionInfo {
        name: name.to_vec(),
        kind,
        offset: table.end,
        len_bytes,
    };
    Ok(Region::new(arena.clone(), &info))
}
