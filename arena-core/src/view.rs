//! An arena for reading: no attachment, no store, not even by a load.

use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::OFlag;

use crate::attachment::{self, Attachment};
use crate::bell::{Bell, SeenBell};
use crate::error::{OpenError, OutOfBounds};
use crate::file::ArenaFile;
use crate::id::AttachmentId;
use crate::inspect::{inspect, open_file};
use crate::layout::{Geometry, Header};
use crate::map::Mapping;
use crate::options::ArenaOptions;
use crate::probe::{Probe, may_have_stand_in, probe};
use crate::region::{self, RegionInfo, locate};

/// An arena opened for reading: takes no slot and changes nothing. What it returns was so at some
/// moment during the call.
#[derive(Debug, Clone)]
pub struct ArenaView {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: ArenaFile,
    mapping: Mapping,
    geometry: Geometry,
}

impl ArenaView {
    pub(crate) fn open(options: &ArenaOptions, name: &OsStr) -> Result<ArenaView, OpenError> {
        let path = options.path(name)?;
        let fd = open_file(&path, OFlag::O_RDONLY)?;
        let inspected = inspect(&fd, Some(&path), options)?;
        let io = |action| {
            let path = path.clone();
            move |source| OpenError::Io {
                path,
                action,
                source,
            }
        };
        let geometry = inspected.geometry;
        let mapping = Mapping::read_only(fd.as_fd(), geometry.len_bytes()).map_err(io("map"))?;
        let file =
            ArenaFile::new(fd, Some(path.clone()), OFlag::O_RDONLY).map_err(io("look at"))?;
        Ok(ArenaView {
            inner: Arc::new(Inner {
                file,
                mapping,
                geometry,
            }),
        })
    }

    /// The file's name.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.inner.file.path().expect("a view is opened by name")
    }

    /// The length of the whole arena.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.inner.mapping.len_bytes()
    }

    /// Whether the arena was destroyed.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let header: &Header = self.inner.mapping.at(0).expect("the length was compared");
        // EDGE gone, acquire half.
        header.gone.load(Ordering::Acquire) != 0
    }

    /// Finds the region of this name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<RegionView> {
        region::find(&self.inner.mapping, self.inner.geometry, name).map(|info| RegionView {
            view: self.clone(),
            info,
        })
    }

    /// The regions, in the order in which they were carved.
    #[must_use]
    pub fn regions(&self) -> Vec<RegionInfo> {
        region::list(&self.inner.mapping, self.inner.geometry).regions
    }

    /// As [`Arena::refused`](crate::Arena::refused).
    #[must_use]
    pub fn refused(&self) -> u64 {
        region::list(&self.inner.mapping, self.inner.geometry).refused
    }

    /// How many processes can be attached at once.
    #[must_use]
    pub fn slots(&self) -> u16 {
        self.inner.geometry.slots
    }

    /// As [`Arena::attachment`](crate::Arena::attachment).
    #[must_use]
    pub fn attachment(&self, slot: u16) -> Option<Attachment> {
        let rows = attachment::rows(&self.inner.mapping, self.inner.geometry);
        attachment::snapshot(slot, rows.get(usize::from(slot))?)
    }

    /// As [`Arena::attachments`](crate::Arena::attachments).
    #[must_use]
    pub fn attachments(&self) -> Vec<Attachment> {
        (0..self.slots())
            .filter_map(|slot| self.attachment(slot))
            .collect()
    }

    /// As [`Arena::bell`](crate::Arena::bell).
    #[must_use]
    pub fn bell(&self, slot: u16) -> Option<Bell> {
        let rows = attachment::rows(&self.inner.mapping, self.inner.geometry);
        Some(SeenBell::look(&rows.get(usize::from(slot))?.bell).state())
    }

    /// As [`Arena::probe`](crate::Arena::probe).
    pub fn probe(&self, id: AttachmentId) -> Probe {
        let rows = attachment::rows(&self.inner.mapping, self.inner.geometry);
        probe(id, rows, None, &self.inner.file)
    }

    /// As [`Arena::may_have_stand_in`](crate::Arena::may_have_stand_in).
    #[must_use]
    pub fn may_have_stand_in(&self, id: AttachmentId) -> bool {
        may_have_stand_in(id, None, &self.inner.file)
    }
}

/// A region for reading. Structures are read a word at a time.
#[derive(Debug, Clone)]
pub struct RegionView {
    view: ArenaView,
    info: RegionInfo,
}

impl RegionView {
    /// Name, kind and place.
    #[must_use]
    pub fn info(&self) -> &RegionInfo {
        &self.info
    }

    /// The view it lies in.
    #[must_use]
    pub fn view(&self) -> &ArenaView {
        &self.view
    }

    /// As [`Region::read`](crate::Region::read).
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`].
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), OutOfBounds> {
        self.mapping()
            .read(self.locate(offset, into.len() as u64)?, into)
    }

    /// The 64-bit word at `offset`, a multiple of 8, loaded with Acquire.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`].
    pub fn word(&self, offset: u64) -> Result<u64, OutOfBounds> {
        let word: &AtomicU64 = self.mapping().at(self.locate(offset, 8)?)?;
        // Acquire: a viewer of any structure sees what was stored before the word.
        Ok(word.load(Ordering::Acquire))
    }

    /// The 128-bit word at `offset`, a multiple of 16, as it was at one moment, provided that its
    /// high half never returns to an old value.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`].
    pub fn wide(&self, offset: u64) -> Result<u128, OutOfBounds> {
        self.mapping().wide(self.locate(offset, 16)?)
    }

    fn mapping(&self) -> &Mapping {
        &self.view.inner.mapping
    }

    fn locate(&self, offset: u64, wanted: u64) -> Result<u64, OutOfBounds> {
        locate(self.info.offset, self.info.len_bytes, offset, wanted)
    }
}
