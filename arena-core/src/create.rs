//! A new arena's file: built whole without a name, then given one.

use std::fs::{self, File};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{
    AT_FDCWD, AtFlags, FcntlArg, OFlag, RenameFlags, SealFlag, fcntl, open, posix_fallocate,
    renameat2,
};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{Mode, fstat};
use nix::sys::statfs::fstatfs;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{linkat, unlink};

use crate::clock;
use crate::error::OpenError;
use crate::file::LockByte;
use crate::floor::{FENCES, Floors};
use crate::host;
use crate::inspect::{SEALS, refuse_unfit};
use crate::layout::{CORE_FINGERPRINT, FORMAT, Geometry, HeaderSnapshot, MAGIC};
use crate::options::ArenaOptions;

/// How the file gets its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// `O_TMPFILE` and a link: killed at any instruction, nothing is left.
    Unnamed,
    /// A temporary name and a rename, where the file system or a missing /proc asks for it: what
    /// a killed creator leaves is swept by the next one.
    TemporaryName,
}

/// What came of creating.
#[derive(Debug)]
pub(crate) enum Created {
    /// The name is ours.
    Ours(OwnedFd),
    /// Somebody else was first.
    Lost,
}

/// Builds an arena and links it at `path`, unless there is a file by then.
pub(crate) fn create_named(
    path: &Path,
    options: &ArenaOptions,
    geometry: Geometry,
) -> Result<Created, OpenError> {
    match create_by(Way::Unnamed, path, options, geometry)? {
        Some(created) => Ok(created),
        None => Ok(create_by(Way::TemporaryName, path, options, geometry)?
            .expect("a temporary name needs nothing that can be missing")),
    }
}

/// `None`: this way does not exist here.
pub(crate) fn create_by(
    way: Way,
    path: &Path,
    options: &ArenaOptions,
    geometry: Geometry,
) -> Result<Option<Created>, OpenError> {
    let directory = directory_of(path);
    let io = |action| failed(path, action);
    let access = OFlag::O_RDWR | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let (fd, temporary) = match way {
        Way::Unnamed => match open(directory, access | OFlag::O_TMPFILE, mode) {
            Ok(fd) => (fd, None),
            Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::EINVAL) => return Ok(None),
            Err(error) => return Err(io("create a file beside")(error)),
        },
        Way::TemporaryName => {
            sweep(directory);
            let temporary = temporary_name(directory);
            let flags = access | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
            let fd = open(&temporary, flags, mode).map_err(io("create a file beside"))?;
            // Held until the file has its name: a sweeper sees that somebody is at work.
            let temporary = Temporary(temporary);
            let locked = LockByte::DESTROY
                .try_lock(&fd)
                .map_err(|source| OpenError::Io {
                    path: path.into(),
                    action: "lock a byte of a file beside",
                    source,
                })?;
            if !locked {
                // A sweeper came between; its unlink took the name.
                return Ok(Some(Created::Lost));
            }
            (fd, Some(temporary))
        }
    };
    let owner = fstat(&fd).map_err(io("look at"))?.st_uid;
    let floors = Floors::new(path, options, owner);
    build(&fd, path, options, geometry, Some(&floors))?;
    let linked = match &temporary {
        None => link(fd.as_fd(), path),
        Some(Temporary(from)) => renameat2(
            AT_FDCWD,
            from,
            AT_FDCWD,
            path,
            RenameFlags::RENAME_NOREPLACE,
        ),
    };
    match linked {
        Ok(()) => {
            if let Some(temporary) = temporary {
                std::mem::forget(temporary);
                LockByte::DESTROY
                    .unlock(&fd)
                    .map_err(|source| OpenError::Io {
                        path: path.into(),
                        action: "unlock",
                        source,
                    })?;
            }
            Ok(Some(Created::Ours(fd)))
        }
        Err(Errno::EEXIST) => Ok(Some(Created::Lost)),
        // /proc is missing, and the descriptor alone may not be linked.
        Err(Errno::ENOENT | Errno::EPERM | Errno::EINVAL) if way == Way::Unnamed => Ok(None),
        Err(error) => Err(io("give a name to")(error)),
    }
}

/// Builds an arena in sealed memory.
pub(crate) fn create_anonymous(
    options: &ArenaOptions,
    geometry: Geometry,
) -> Result<OwnedFd, OpenError> {
    let path = Path::new("anonymous arena");
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let fd = memfd_create("arena", flags).map_err(failed(path, "create"))?;
    build(&fd, path, &options.clone().mode(0o600), geometry, None)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    debug_assert_eq!(seals, SEALS);
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).map_err(failed(path, "seal"))?;
    Ok(fd)
}

/// Gives the file its length, its space, its mode and its header.
fn build(
    fd: &OwnedFd,
    path: &Path,
    options: &ArenaOptions,
    geometry: Geometry,
    floors: Option<&Floors>,
) -> Result<(), OpenError> {
    let needed = geometry.len_bytes();
    let kind = fstatfs(fd).map_err(failed(path, "look at the file system of"))?;
    refuse_unfit(path, kind.filesystem_type().0)?;
    refuse_beyond_limit(path, needed)?;
    let len = i64::try_from(needed).expect("a geometry is at most 2^46 and a little");
    match retry(|| posix_fallocate(fd, 0, len)) {
        Ok(()) => {}
        Err(Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG | Errno::ENOMEM) => {
            let space = fstatvfs(fd).map_err(failed(path, "measure the file system of"))?;
            let available = space
                .blocks_available()
                .saturating_mul(space.fragment_size());
            return Err(OpenError::NoSpace {
                path: directory_of(path).into(),
                needed,
                available,
            });
        }
        Err(error) => return Err(failed(path, "allocate")(error)),
    }
    let file = File::from(fd.try_clone().map_err(|source| OpenError::Io {
        path: path.into(),
        action: "duplicate the descriptor of",
        source,
    })?);
    // Whatever the umask.
    file.set_permissions(fs::Permissions::from_mode(options.mode))
        .map_err(|source| OpenError::Io {
            path: path.into(),
            action: "set the mode of",
            source,
        })?;
    let created_us = clock::unix_us();
    let fence = match floors {
        None => created_us + 1,
        Some(floors) => floors.claim(created_us, FENCES)?,
    };
    let mut header = HeaderSnapshot {
        magic: MAGIC,
        format: FORMAT,
        fingerprint: CORE_FINGERPRINT,
        len_bytes: needed,
        usable_bytes: geometry.usable_bytes,
        slots: geometry.slots.into(),
        regions: geometry.regions.into(),
        boot_id: host::halves(host::boot_id().map_err(OpenError::NoBootId)?),
        time_namespace: host::namespace("time"),
        created_us,
        fence_minimum: fence,
        fences_below: fence + (FENCES - 1),
        ..bytemuck::Zeroable::zeroed()
    };
    header.check = header.expected_check();
    file.write_all_at(bytemuck::bytes_of(&header), 0)
        .map_err(|source| OpenError::Io {
            path: path.into(),
            action: "write the header of",
            source,
        })
}

/// Compares with `RLIMIT_FSIZE`, beyond which the system sends a signal instead of an error.
pub(crate) fn refuse_beyond_limit(path: &Path, needed: u64) -> Result<(), OpenError> {
    let (limit, _) =
        getrlimit(Resource::RLIMIT_FSIZE).map_err(failed(path, "ask the limit for"))?;
    if needed > limit {
        return Err(OpenError::FileSizeLimit { needed, limit });
    }
    Ok(())
}

pub(crate) fn link(fd: BorrowedFd<'_>, path: &Path) -> nix::Result<()> {
    let by_number = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
    let follow = AtFlags::AT_SYMLINK_FOLLOW;
    match linkat(AT_FDCWD, by_number.as_str(), AT_FDCWD, path, follow) {
        Err(Errno::ENOENT) => linkat(fd, "", AT_FDCWD, path, AtFlags::AT_EMPTY_PATH),
        other => other,
    }
}

fn retry<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

const TEMPORARY: &str = ".arena-new.";

/// A temporary name, removed unless it was given away.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = unlink(&self.0);
    }
}

fn temporary_name(directory: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: a number of its own is all that is asked for.
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = clock::boot_ns();
    directory.join(format!("{TEMPORARY}{}.{count}.{now}", std::process::id()))
}

/// Removes what killed creators left under temporary names: files whose byte nobody holds. Best
/// effort; what cannot be looked at is left alone.
fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
            continue;
        }
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let Ok(fd) = open(&entry.path(), flags, Mode::empty()) else {
            continue;
        };
        if LockByte::DESTROY.try_lock(&fd).is_ok_and(|free| free) {
            let _ = unlink(&entry.path());
        }
    }
}

pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn failed(path: &Path, action: &'static str) -> impl Fn(Errno) -> OpenError {
    let path = path.to_owned();
    move |error| OpenError::Io {
        path: path.clone(),
        action,
        source: error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with("arena-floor."))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn second_creator_loses_either_way_and_leaves_nothing() {
        for way in [Way::Unnamed, Way::TemporaryName] {
            let directory = tempfile::tempdir_in("/dev/shm").unwrap();
            let path = directory.path().join("a");
            let options = ArenaOptions::new();
            let geometry = options.geometry().unwrap();
            let first = create_by(way, &path, &options, geometry).unwrap();
            assert!(matches!(first, Some(Created::Ours(_))), "{way:?}");
            let second = create_by(way, &path, &options, geometry).unwrap();
            assert!(matches!(second, Some(Created::Lost)), "{way:?}");
            assert_eq!(names(directory.path()), ["a"], "{way:?}");
            options.attach(&path).unwrap();
        }
    }

    #[test]
    fn temporary_name_of_a_dead_creator_is_swept_and_that_of_a_live_one_is_not() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::write(
            directory.path().join(".arena-new.1.0.0"),
            b"left by a dead creator",
        )
        .unwrap();
        let live = File::create(directory.path().join(".arena-new.1.0.1")).unwrap();
        assert!(LockByte::DESTROY.try_lock(&live).unwrap());
        let options = ArenaOptions::new();
        let geometry = options.geometry().unwrap();
        let path = directory.path().join("a");
        create_by(Way::TemporaryName, &path, &options, geometry).unwrap();
        assert_eq!(names(directory.path()), [".arena-new.1.0.1", "a"]);
    }
}
