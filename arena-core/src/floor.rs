//! The floor of fences: a number that only grows, kept where a name's arenas come and go.
//!
//! Every fence of an arena is above the floor that its openers read; destroying an arena raises
//! the floor above every fence that the arena gave out, before the name becomes free. So fences
//! grow for the life of a name, and not of a file. One floor serves all names of a user in a
//! directory: a floor higher than needed does no harm.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::{OFlag, open, posix_fallocate};
use nix::sys::stat::Mode;

use crate::clock;
use crate::error::OpenError;
use crate::layout::PAGE;
use crate::map::Mapping;

/// The largest fence: 53 bits, safe in JSON and in a signed SQL integer.
pub const MAX_FENCE: u64 = (1 << 53) - 1;

/// `"ARENAFLO"`, little-endian: word 0 of the file. Word 1 is the floor.
const MAGIC: u64 = u64::from_le_bytes(*b"ARENAFLO");

/// How far fences can run ahead of the wall clock's microseconds: 35 years. A number beyond is a
/// damaged word, and must not become every later arena's.
const AHEAD: u64 = 1 << 50;

#[derive(Debug, Clone)]
pub(crate) struct Floor {
    path: PathBuf,
    owner: u32,
}

impl Floor {
    /// The floor of the arenas of `owner` in `directory`.
    pub(crate) fn new(directory: &Path, owner: u32) -> Floor {
        Floor {
            path: directory.join(format!("arena-floor.{owner}")),
            owner,
        }
    }

    /// The floor; 0 when there is none yet.
    pub(crate) fn read(&self) -> Result<u64, OpenError> {
        let file = match self.open(OFlag::O_RDONLY) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(self.failed("open", error)),
        };
        let mut words = [0u64; 2];
        let bytes = bytemuck::bytes_of_mut(&mut words);
        match std::os::unix::fs::FileExt::read_exact_at(&file, bytes, 0) {
            Ok(()) => {}
            // A file whose maker was killed before it had a length.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
            Err(error) => return Err(self.failed("read", error)),
        }
        self.check(&file, words[0], words[1])?;
        Ok(words[1])
    }

    /// Makes sure that there is a file, so that raising it later needs no space.
    pub(crate) fn ensure(&self) -> Result<(), OpenError> {
        self.map().map(drop)
    }

    /// Raises the floor to `to`; never lowers it. Whoever sees the arena's name free afterwards
    /// reads at least `to`.
    pub(crate) fn raise(&self, to: u64) -> Result<(), OpenError> {
        let (file, words) = self.map()?;
        let to = to
            .min(clock::unix_us().saturating_add(AHEAD))
            .min(MAX_FENCE);
        let floor: &AtomicU64 = words.at(8).expect("the file has a page");
        // EDGE floor, release half: raised before the name is free.
        floor.fetch_max(to, Ordering::AcqRel);
        file.sync_data()
            .map_err(|error| self.failed("write", error))
    }

    fn map(&self) -> Result<(File, Mapping), OpenError> {
        let file = self
            .open(OFlag::O_RDWR)
            .or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => self.open(OFlag::O_RDWR | OFlag::O_CREAT),
                _ => Err(error),
            })
            .map_err(|error| self.failed("open", error))?;
        let meta = file
            .metadata()
            .map_err(|error| self.failed("look at", error))?;
        if meta.len() < PAGE {
            posix_fallocate(&file, 0, i64::try_from(PAGE).expect("a page is small"))
                .map_err(|error| self.failed("allocate a page for", error.into()))?;
        }
        if meta.uid() != self.owner && nix::unistd::geteuid().is_root() {
            std::os::unix::fs::fchown(&file, Some(self.owner), None)
                .map_err(|error| self.failed("give away", error))?;
        }
        if meta.mode() & 0o777 != 0o644 {
            // Whatever the umask: who shares an arena must be able to read its floor.
            let mode = std::fs::Permissions::from_mode(0o644);
            file.set_permissions(mode)
                .map_err(|error| self.failed("set the mode of", error))?;
        }
        let words = Mapping::writable(std::os::fd::AsFd::as_fd(&file), PAGE)
            .map_err(|error| self.failed("map", error))?;
        let magic: &AtomicU64 = words.at(0).expect("the file has a page");
        // Relaxed: 0 or MAGIC, whoever stores it; the file's one other word stands for itself.
        let (Ok(found) | Err(found)) =
            magic.compare_exchange(0, MAGIC, Ordering::Relaxed, Ordering::Relaxed);
        let floor: &AtomicU64 = words.at(8).expect("the file has a page");
        // EDGE floor, acquire half.
        self.check(&file, found, floor.load(Ordering::Acquire))?;
        Ok((file, words))
    }

    fn open(&self, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        Ok(open(&self.path, flags, Mode::from_bits_truncate(0o644)).map(File::from)?)
    }

    fn check(&self, file: &File, magic: u64, floor: u64) -> Result<(), OpenError> {
        let path = || self.path.clone();
        let meta = file
            .metadata()
            .map_err(|error| self.failed("look at", error))?;
        if !meta.is_file() {
            return Err(OpenError::NotRegular {
                path: path(),
                found: "not a regular file",
            });
        }
        if meta.uid() != self.owner && meta.uid() != 0 {
            let (found, expected) = (meta.uid(), self.owner);
            return Err(OpenError::Owner {
                path: path(),
                found,
                expected,
            });
        }
        if meta.mode() & 0o022 != 0 {
            let found = meta.mode() & 0o777;
            return Err(OpenError::WritableByOthers {
                path: path(),
                found,
                allowed: 0,
            });
        }
        if magic != MAGIC && magic != 0 {
            return Err(OpenError::Floor {
                path: path(),
                found: magic,
            });
        }
        if floor > MAX_FENCE {
            return Err(OpenError::Floor {
                path: path(),
                found: floor,
            });
        }
        Ok(())
    }

    fn failed(&self, action: &'static str, source: io::Error) -> OpenError {
        OpenError::Io {
            path: self.path.clone(),
            action,
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floor() -> (tempfile::TempDir, Floor) {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let floor = Floor::new(directory.path(), nix::unistd::geteuid().as_raw());
        (directory, floor)
    }

    #[test]
    fn floor_is_zero_at_first_and_then_never_falls() {
        let (_directory, floor) = floor();
        assert_eq!(floor.read().unwrap(), 0);
        floor.ensure().unwrap();
        assert_eq!(floor.read().unwrap(), 0);
        floor.raise(7_000).unwrap();
        floor.raise(6_000).unwrap();
        assert_eq!(floor.read().unwrap(), 7_000);
    }

    #[test]
    fn damaged_fence_does_not_become_the_floor_of_all_later_arenas() {
        let (_directory, floor) = floor();
        floor.raise(u64::MAX).unwrap();
        assert!(floor.read().unwrap() <= clock::unix_us() + AHEAD);
    }

    #[test]
    fn file_that_is_not_a_floor_is_refused_and_half_made_ones_are_zero() {
        let (_directory, floor) = floor();
        std::fs::write(&floor.path, b"").unwrap();
        assert_eq!(floor.read().unwrap(), 0);
        std::fs::write(&floor.path, [7; 4096]).unwrap();
        assert!(matches!(floor.read(), Err(OpenError::Floor { .. })));
        assert!(matches!(floor.raise(1), Err(OpenError::Floor { .. })));
        let mut words = [0u64; 512];
        (words[0], words[1]) = (MAGIC, u64::MAX);
        std::fs::write(&floor.path, bytemuck::bytes_of(&words)).unwrap();
        assert!(matches!(
            floor.read(),
            Err(OpenError::Floor {
                found: u64::MAX,
                ..
            })
        ));
    }
}
