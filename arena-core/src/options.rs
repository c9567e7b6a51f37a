//! How an arena is made and what is accepted when one is opened.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Uid, geteuid};

use crate::arena::Arena;
use crate::error::OpenError;
use crate::layout::{Geometry, MAX_REGIONS, MAX_USABLE};
use crate::view::ArenaView;

/// The limits of an arena, and what is accepted of one that exists.
///
/// Sizes and counts matter to who creates; who attaches takes the arena as it is.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir_in("/dev/shm")?;
/// use arena_core::ArenaOptions;
///
/// let arena = ArenaOptions::new()
///     .usable_bytes(64 * 1024)
///     .slots(16)
///     .directory(directory.path())
///     .open("jobs")?;
/// assert!(arena.created());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct ArenaOptions {
    pub(crate) usable_bytes: u64,
    pub(crate) regions: u32,
    pub(crate) slots: u16,
    pub(crate) mode: u32,
    pub(crate) owner: Option<u32>,
    pub(crate) busy_timeout: Duration,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) floor_directory: Option<PathBuf>,
}

impl Default for ArenaOptions {
    fn default() -> ArenaOptions {
        ArenaOptions::new()
    }
}

impl ArenaOptions {
    /// The defaults: 1 MiB for at most 64 regions, 1,024 slots, mode 0600, in /dev/shm.
    #[must_use]
    pub const fn new() -> ArenaOptions {
        ArenaOptions {
            usable_bytes: 1 << 20,
            regions: 64,
            slots: 1024,
            mode: 0o600,
            owner: None,
            busy_timeout: Duration::from_secs(1),
            directory: None,
            floor_directory: None,
        }
    }

    /// How many bytes all regions together may have: 1 to 2^46. What an arena needs for itself
    /// comes on top: 384 bytes, 128 a slot and 128 a region.
    #[must_use]
    pub const fn usable_bytes(mut self, bytes: u64) -> ArenaOptions {
        self.usable_bytes = bytes;
        self
    }

    /// How many regions there may be: 1 to 65,536.
    #[must_use]
    pub const fn regions(mut self, regions: u32) -> ArenaOptions {
        self.regions = regions;
        self
    }

    /// How many processes may be attached at once: 1 to 2,046.
    #[must_use]
    pub const fn slots(mut self, slots: u16) -> ArenaOptions {
        self.slots = slots;
        self
    }

    /// The permission bits of the file, whatever the umask; and, when attaching, the most that
    /// others may be permitted to write. 0600 unless told: with 0660 a group shares the arena. Who
    /// may only read can look at it, and can also lock its bytes for reading, so that nobody new
    /// attaches: permit it to those alone whom you trust that far.
    #[must_use]
    pub const fn mode(mut self, mode: u32) -> ArenaOptions {
        self.mode = mode & 0o777;
        self
    }

    /// Accepts an arena that belongs to this user, besides those of our own and of root.
    #[must_use]
    pub const fn allow_owner(mut self, uid: u32) -> ArenaOptions {
        self.owner = Some(uid);
        self
    }

    /// How long to wait for a process that is stopped while it carves a region or destroys an
    /// arena: 1 s unless told.
    #[must_use]
    pub const fn busy_timeout(mut self, timeout: Duration) -> ArenaOptions {
        self.busy_timeout = timeout;
        self
    }

    /// Where short names are looked for: /dev/shm unless told.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> ArenaOptions {
        self.directory = Some(directory.into());
        self
    }

    /// Where the floor of fences is kept besides the arena's own directory. One on a disk keeps
    /// fences growing across a restart of the machine even when the wall clock went back. The same
    /// for all who open the name.
    #[must_use]
    pub fn floor_directory(mut self, directory: impl Into<PathBuf>) -> ArenaOptions {
        self.floor_directory = Some(directory.into());
        self
    }

    /// Attaches to the arena of this name, or creates it. [`Arena::created`] tells which.
    ///
    /// A short name is the file `arena.<euid>.<NAME>` of the directory, so two users never meet by
    /// accident; a name with a '/' is a path. About a dozen system calls; creating clears the
    /// whole memory. Never waits for another process, but for one that is destroying the arena of
    /// this very name (at most the busy timeout).
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what was found and what was expected. A file that is refused is not
    /// changed.
    pub fn open(&self, name: impl AsRef<OsStr>) -> Result<Arena, OpenError> {
        Arena::open_or_create(self, name.as_ref())
    }

    /// Attaches to the arena of this name; never creates one.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and [`OpenError::NotFound`].
    pub fn attach(&self, name: impl AsRef<OsStr>) -> Result<Arena, OpenError> {
        Arena::attach_named(self, name.as_ref())
    }

    /// Creates an arena without a name, in sealed memory (memfd, mode 0600): for children made by
    /// fork, and for whoever is passed its descriptor.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open). /proc must be mounted.
    pub fn anonymous(&self) -> Result<Arena, OpenError> {
        Arena::create_anonymous(self)
    }

    /// Attaches to the arena behind a descriptor that was inherited or received.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and [`OpenError::Unsealed`] for memory that could still shrink.
    pub fn from_fd(&self, fd: OwnedFd) -> Result<Arena, OpenError> {
        Arena::attach_fd(self, fd)
    }

    /// Opens the arena of this name for reading, without attaching: takes no slot, changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach).
    pub fn view(&self, name: impl AsRef<OsStr>) -> Result<ArenaView, OpenError> {
        ArenaView::open(self, name.as_ref())
    }

    /// Opens the arena of this name for reading and writing, without attaching: for who waits for
    /// something and holds nothing. As in a child of fork, this process takes a slot when it first
    /// needs one ([`Arena::me`]; a lock, and so carving a new name), and not before.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach).
    pub fn unattached(&self, name: impl AsRef<OsStr>) -> Result<Arena, OpenError> {
        Arena::open_unattached(self, name.as_ref())
    }

    /// The file that a name stands for: an absolute path.
    ///
    /// # Errors
    ///
    /// [`OpenError::Name`].
    pub fn path(&self, name: impl AsRef<OsStr>) -> Result<PathBuf, OpenError> {
        let name = name.as_ref();
        let bytes = name.as_bytes();
        let refused = || OpenError::Name {
            name: OsString::from(name),
        };
        if bytes.contains(&0) {
            return Err(refused());
        }
        // The working directory may change.
        let absolute = |path: &Path| std::path::absolute(path).map_err(|_| refused());
        if bytes.contains(&b'/') {
            let path = Path::new(name);
            path.file_name().ok_or_else(refused)?;
            return absolute(path);
        }
        if !(1..=63).contains(&bytes.len()) {
            return Err(refused());
        }
        let mut file = OsString::from(format!("arena.{}.", geteuid()));
        file.push(name);
        let directory = self.directory.as_deref().unwrap_or(Path::new("/dev/shm"));
        absolute(&directory.join(file))
    }

    pub(crate) fn geometry(&self) -> Result<Geometry, OpenError> {
        let check = |option, found, least, most| {
            if (least..=most).contains(&found) {
                Ok(())
            } else {
                Err(OpenError::Option {
                    option,
                    found,
                    least,
                    most,
                })
            }
        };
        check(
            "slots",
            u64::from(self.slots),
            1,
            u64::from(crate::MAX_SLOTS),
        )?;
        check("regions", u64::from(self.regions), 1, MAX_REGIONS)?;
        check("usable_bytes", self.usable_bytes, 1, MAX_USABLE)?;
        Ok(Geometry {
            slots: self.slots,
            regions: self.regions,
            usable_bytes: self.usable_bytes,
        })
    }

    /// Whether an arena of this owner is accepted. Ids that the user namespace does not map all
    /// read as the overflow id, which is therefore nobody in particular.
    pub(crate) fn accepts_owner(&self, owner: u32) -> bool {
        const OVERFLOW: u32 = 65_534;
        if owner == OVERFLOW && !crate::host::in_first_user_namespace() {
            return false;
        }
        Uid::from_raw(owner).is_root() || owner == geteuid().as_raw() || self.owner == Some(owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_name_is_kept_apart_by_user_and_a_path_is_taken_as_it_is() {
        let options = ArenaOptions::new();
        let euid = geteuid();
        assert_eq!(
            options.path("jobs").unwrap(),
            Path::new(&format!("/dev/shm/arena.{euid}.jobs"))
        );
        assert_eq!(options.path("/run/x").unwrap(), Path::new("/run/x"));
        assert_eq!(
            options.path("./x").unwrap(),
            std::env::current_dir().unwrap().join("x")
        );
        let elsewhere = ArenaOptions::new().directory("/run");
        assert_eq!(
            elsewhere.path("..").unwrap(),
            Path::new(&format!("/run/arena.{euid}..."))
        );
    }

    #[test]
    fn names_that_are_no_names_are_refused() {
        let long = "x".repeat(64);
        for name in ["", "a\0b", "/", "/run/..", long.as_str()] {
            let refused = ArenaOptions::new().path(name);
            assert!(matches!(refused, Err(OpenError::Name { .. })), "{name:?}");
        }
        assert!(ArenaOptions::new().path(&long[1..]).is_ok());
    }

    #[test]
    fn options_out_of_bounds_are_refused_by_name() {
        let options = ArenaOptions::new();
        for (bad, name) in [
            (options.clone().slots(0), "slots"),
            (options.clone().slots(2047), "slots"),
            (options.clone().regions(0), "regions"),
            (options.clone().usable_bytes(0), "usable_bytes"),
            (options.clone().usable_bytes(u64::MAX), "usable_bytes"),
        ] {
            match bad.geometry() {
                Err(OpenError::Option { option, .. }) => assert_eq!(option, name),
                other => panic!("{other:?}"),
            }
        }
    }
}
