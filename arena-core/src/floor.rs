//! The floor of fences: a number that only grows, kept where a name's arenas come and go.
//!
//! An arena gives out fences below a bound that it noted here *before*: a creator claims the first
//! of them, whoever needs more raises the floor again, and destroying raises it once more before
//! the name becomes free. So fences grow for the life of a name and its owner, and not of a file,
//! also when the file is removed by other means. (A name to which an arena is *moved* goes on with
//! that arena's fences.) Each of these is a strict increase: a floor that is still what
//! an arena's creator claimed says that nobody else did any of it since. One floor serves all names
//! of a user in a directory: one that is higher than needed does no harm.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, posix_fallocate};
use nix::sys::stat::Mode;
use nix::unistd::geteuid;

use crate::clock;
use crate::create::{directory_of, link, refuse_beyond_limit};
use crate::error::OpenError;
use crate::layout::PAGE;
use crate::map::Mapping;
use crate::options::ArenaOptions;

/// The largest fence: 53 bits, safe in JSON and in a signed SQL integer.
pub const MAX_FENCE: u64 = (1 << 53) - 1;

/// `"ARENAFLO"`, little-endian: word 0 of the file. Word 1 is the floor.
const MAGIC: u64 = u64::from_le_bytes(*b"ARENAFLO");

/// No arena's first fence is above this for its clock's sake: one that was set beyond the year 2112 must not use up the
/// fences of all later arenas.
const LATEST: u64 = MAX_FENCE / 2;

/// How many fences are claimed at a time.
pub(crate) const FENCES: u64 = 1 << 18;

/// How far fences can run ahead of the wall clock's microseconds: 35 years. A number beyond is a
/// damaged word, and must not become every later arena's.
const AHEAD: u64 = 1 << 50;

/// The least fence of an arena that was made at this microsecond of the wall clock, whatever its words say.
pub(crate) fn least_fence(created_us: u64) -> u64 {
    created_us.saturating_add(1).min(LATEST)
}

/// The floors that an arena keeps to: in its directory, and where the options say besides; its
/// owner's, and root's, who may have destroyed an arena of this name whoever owned it. (Owners are
/// as the user namespace shows them: two that show one user differently keep two floors.)
#[derive(Debug)]
pub(crate) struct Floors {
    read: Vec<Floor>,
    raised: Vec<Floor>,
}

impl Floors {
    pub(crate) fn new(path: &Path, options: &ArenaOptions, owner: u32) -> Floors {
        let own = directory_of(path);
        let directories = std::iter::once(own).chain(options.floor_directory.as_deref());
        let (mut read, mut raised) = (Vec::new(), Vec::new());
        let euid = geteuid().as_raw();
        for directory in directories {
            read.push(Floor::new(directory, owner));
            if owner != 0 {
                read.push(Floor {
                    is_optional: true,
                    ..Floor::new(directory, 0)
                });
            }
            raised.push(Floor::new(directory, owner));
            if euid != owner {
                raised.push(Floor::new(directory, euid));
            }
        }
        Floors { read, raised }
    }

    /// The highest of the floors; 0 when there is none yet.
    pub(crate) fn read(&self) -> Result<u64, OpenError> {
        self.read
            .iter()
            .try_fold(0, |highest, floor| Ok(highest.max(floor.read()?)))
    }

    /// Claims `count` fences for a new arena: above the floors, and above `least`. The first of them;
    /// the floor of the arena's own directory is then the last.
    pub(crate) fn claim(&self, least: u64, count: u64) -> Result<u64, OpenError> {
        let least = least.min(LATEST).max(self.read()?);
        let (own, others) = self.raised.split_first().expect("there is always one");
        let mut first = 0;
        let last = own.change(|floor| {
            first = floor.max(least) + 1;
            floor.max(least) + count
        })?;
        for floor in others {
            floor.change(|floor| last.max(floor + 1))?;
        }
        Ok(first.min(MAX_FENCE))
    }

    /// Makes sure that there are files, so that raising them later needs no space, and that they are
    /// what they should be.
    pub(crate) fn ensure(&self) -> Result<(), OpenError> {
        self.raised
            .iter()
            .try_for_each(|floor| floor.map().map(drop))
    }

    /// Raises each of the floors, to `to` at least. The highest of them.
    ///
    /// Whoever sees the arena's name free afterwards reads at least `to`.
    pub(crate) fn raise(&self, to: u64) -> Result<u64, OpenError> {
        self.raised
            .iter()
            .try_fold(0, |highest, floor| Ok(highest.max(floor.raise(to)?)))
    }
}

#[derive(Debug)]
struct Floor {
    path: PathBuf,
    owner: u32,
    /// Not believed, and no reason to refuse anything, when somebody else put it there.
    is_optional: bool,
}

impl Floor {
    /// The floor of the arenas of `owner` in `directory`.
    fn new(directory: &Path, owner: u32) -> Floor {
        let path = directory.join(format!("arena-floor.{owner}"));
        Floor {
            path,
            owner,
            is_optional: false,
        }
    }

    fn read(&self) -> Result<u64, OpenError> {
        let file = match self.open(OFlag::O_RDONLY) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(self.failed("open", error)),
        };
        match self.check_file(&file) {
            Err(_) if self.is_optional => return Ok(0),
            other => other?,
        }
        let mut words = [0u64; 2];
        let bytes = bytemuck::bytes_of_mut(&mut words);
        match std::os::unix::fs::FileExt::read_exact_at(&file, bytes, 0) {
            Ok(()) => self.check_words(words[0], words[1]),
            // A file whose maker was killed before it had a length.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            Err(error) => Err(self.failed("read", error)),
        }
    }

    /// `to` was read from an arena, which may be damaged.
    fn raise(&self, to: u64) -> Result<u64, OpenError> {
        let now_us = clock::unix_us();
        // Ahead of the floor too: the clock may be at its beginning.
        self.change(|floor| {
            to.min(floor.max(now_us).saturating_add(AHEAD))
                .max(floor + 1)
        })
    }

    /// Gives the floor the value that `above` makes of it, which is larger, and returns it.
    fn change(&self, mut above: impl FnMut(u64) -> u64) -> Result<u64, OpenError> {
        let (file, words) = self.map()?;
        let floor: &AtomicU64 = words.at(8).expect("the file has a page");
        // A word that was damaged since it was looked at must not overflow.
        let mut changed = |seen: u64| above(seen.min(MAX_FENCE)).min(MAX_FENCE);
        // EDGE floor, both halves: raised before the name is free, or before the fence is given out.
        let mut seen = floor.load(Ordering::Acquire);
        let value = loop {
            let value = changed(seen);
            match floor.compare_exchange(seen, value, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break value,
                Err(found) => seen = found,
            }
        };
        file.sync_data()
            .map_err(|error| self.failed("write", error))?;
        Ok(value)
    }

    fn map(&self) -> Result<(File, Mapping), OpenError> {
        let file = match self.open(OFlag::O_RDWR) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make()?;
                self.open(OFlag::O_RDWR)
            }
            other => other,
        };
        let file = file.map_err(|error| self.failed("open", error))?;
        // Nothing of the file is changed, and its owner and mode never, before it is known to be one
        // of ours: who may write to the directory can put anything there.
        self.check_file(&file)?;
        let meta = file
            .metadata()
            .map_err(|error| self.failed("look at", error))?;
        match meta.len() {
            // Its maker was killed before it had anything.
            0 if meta.uid() == geteuid().as_raw() => self.dress(&file)?,
            len if len < PAGE => self.allocate(&file)?,
            _ => {}
        }
        let words =
            Mapping::writable(file.as_fd(), PAGE).map_err(|error| self.failed("map", error))?;
        let magic: &AtomicU64 = words.at(0).expect("the file has a page");
        // Relaxed: 0 or MAGIC, whoever stores it; the file's one other word stands for itself.
        let (Ok(found) | Err(found)) =
            magic.compare_exchange(0, MAGIC, Ordering::Relaxed, Ordering::Relaxed);
        let floor: &AtomicU64 = words.at(8).expect("the file has a page");
        // EDGE floor, acquire half.
        self.check_words(found, floor.load(Ordering::Acquire))?;
        Ok((file, words))
    }

    /// Makes the file, whole before it has its name where that can be had.
    fn make(&self) -> Result<(), OpenError> {
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let unnamed = open(directory_of(&self.path), flags | OFlag::O_TMPFILE, mode);
        if let Ok(fd) = unnamed {
            let file = File::from(fd);
            self.dress(&file)?;
            if matches!(link(file.as_fd(), &self.path), Ok(()) | Err(Errno::EEXIST)) {
                return Ok(());
            }
        }
        let exclusive = flags | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        match open(&self.path, exclusive, mode) {
            Ok(fd) => self.dress(&File::from(fd)),
            Err(Errno::EEXIST) => Ok(()),
            Err(error) => Err(self.failed("create", error.into())),
        }
    }

    /// Gives a file that this call made its owner, its mode and its space.
    fn dress(&self, file: &File) -> Result<(), OpenError> {
        if geteuid().as_raw() != self.owner && geteuid().is_root() {
            fchown(file, Some(self.owner), None)
                .map_err(|error| self.failed("give away", error))?;
        }
        // Whatever the umask: who shares an arena must be able to read its floor.
        file.set_permissions(Permissions::from_mode(0o644))
            .map_err(|error| self.failed("set the mode of", error))?;
        self.allocate(file)
    }

    fn allocate(&self, file: &File) -> Result<(), OpenError> {
        refuse_beyond_limit(&self.path, PAGE)?;
        posix_fallocate(file, 0, i64::try_from(PAGE).expect("a page is small"))
            .map_err(|error| self.failed("allocate a page for", error.into()))
    }

    fn open(&self, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        Ok(open(&self.path, flags, Mode::empty()).map(File::from)?)
    }

    fn check_file(&self, file: &File) -> Result<(), OpenError> {
        let path = || self.path.clone();
        let meta = file
            .metadata()
            .map_err(|error| self.failed("look at", error))?;
        if !meta.is_file() || meta.nlink() != 1 {
            let found = "something else, or a file with other names";
            return Err(OpenError::NotRegular {
                path: path(),
                found,
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
        Ok(())
    }

    fn check_words(&self, magic: u64, floor: u64) -> Result<u64, OpenError> {
        let wrong = if magic != MAGIC && magic != 0 {
            magic
        } else if floor > MAX_FENCE {
            floor
        } else {
            return Ok(floor);
        };
        Err(OpenError::Floor {
            path: self.path.clone(),
            found: wrong,
        })
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
        let floor = Floor::new(directory.path(), geteuid().as_raw());
        (directory, floor)
    }

    #[test]
    fn floor_is_zero_at_first_and_then_never_falls() {
        let (_directory, floor) = floor();
        assert_eq!(floor.read().unwrap(), 0);
        floor.map().unwrap();
        assert_eq!(floor.read().unwrap(), 0);
        floor.raise(7_000).unwrap();
        floor.raise(6_000).unwrap();
        assert_eq!(floor.read().unwrap(), 7_001, "each is a strict increase");
    }

    #[test]
    fn claims_are_disjoint_and_above_the_floor_and_the_least() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = ArenaOptions::new();
        let owner = geteuid().as_raw();
        let floors = Floors::new(&directory.path().join("a"), &options, owner);
        assert_eq!(floors.claim(1_000, 50).unwrap(), 1_001);
        assert_eq!(floors.read().unwrap(), 1_050);
        assert_eq!(floors.claim(1_000, 50).unwrap(), 1_051);
        assert_eq!(floors.claim(9_000, 50).unwrap(), 9_001);
        let many = || -> Vec<u64> { (0..200).map(|_| floors.claim(0, 10).unwrap()).collect() };
        let mut claims = std::thread::scope(|scope| {
            let other = scope.spawn(many);
            let mut claims = many();
            claims.extend(other.join().unwrap());
            claims
        });
        claims.sort_unstable();
        assert_eq!(claims.len(), 400);
        // A raise is bounded, but never below the floor, whatever the clock says.
        floors.raise(clock::unix_us() + AHEAD).unwrap();
        let high = floors.read().unwrap();
        floors.raise(high + 5_000_000).unwrap();
        assert_eq!(floors.read().unwrap(), high + 5_000_000);
        assert!(claims.windows(2).all(|pair| pair[0] + 10 <= pair[1]));
        let far = floors.claim(MAX_FENCE, 50).unwrap();
        assert!(
            far < LATEST + 100,
            "a clock in the far future leaves half of them"
        );
        assert_eq!(floors.claim(0, MAX_FENCE).unwrap(), far + 50);
        assert_eq!(floors.claim(0, 50).unwrap(), MAX_FENCE);
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

    #[test]
    fn squatted_floor_is_refused_and_neither_given_away_nor_changed() {
        let (directory, floor) = floor();
        let other = directory.path().join("other");
        std::fs::write(&other, b"a secret").unwrap();
        std::fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
        std::fs::hard_link(&other, &floor.path).unwrap();
        for refused in [floor.raise(9), floor.read()] {
            assert!(
                matches!(refused, Err(OpenError::NotRegular { .. })),
                "{refused:?}"
            );
        }
        assert_eq!(std::fs::read(&other).unwrap(), b"a secret");
        assert_eq!(std::fs::metadata(&other).unwrap().mode() & 0o777, 0o600);
        std::fs::remove_file(&floor.path).unwrap();
        nix::unistd::mkfifo(&floor.path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        assert!(matches!(floor.raise(9), Err(OpenError::NotRegular { .. })));
    }

    #[test]
    fn floor_of_root_that_somebody_else_put_there_is_not_believed_and_refuses_nothing() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let owner = geteuid().as_raw();
        let floor = Floor {
            is_optional: true,
            ..Floor::new(directory.path(), owner + 7)
        };
        let other = Floor::new(directory.path(), owner);
        other.raise(7_000).unwrap();
        std::fs::rename(&other.path, &floor.path).unwrap();
        if owner != 0 {
            assert_eq!(floor.read().unwrap(), 0);
        }
        std::fs::set_permissions(&floor.path, Permissions::from_mode(0o666)).unwrap();
        assert_eq!(floor.read().unwrap(), 0);
        let needed = Floor {
            is_optional: false,
            ..floor
        };
        assert!(needed.read().is_err());
    }
}
