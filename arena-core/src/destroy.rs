//! The end of a name: mark, floor, unlink, all under the old file's destroy byte.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sys::stat::fstat;
use nix::unistd::{geteuid, unlink};

use crate::arena::Arena;
use crate::create::floor_of;
use crate::error::{DestroyError, OpenError};
use crate::file::{FileKey, LockByte};
use crate::floor::Floor;
use crate::inspect::{open_file, read_header};
use crate::layout::{Header, MAGIC, PAGE};
use crate::map::Mapping;
use crate::options::ArenaOptions;

pub(crate) fn destroy(arena: &Arena) -> Result<(), DestroyError> {
    let (Some(path), Some(floor)) = (arena.path(), arena.floor()) else {
        return Err(DestroyError::Unnamed);
    };
    let (found, euid) = (arena.owner(), geteuid());
    if !euid.is_root() && euid.as_raw() != found {
        return Err(DestroyError::Owner {
            found,
            expected: euid.as_raw(),
        });
    }
    let io = |action| move |source| DestroyError::Io { action, source };
    let fd = arena
        .file()
        .open_again()
        .map_err(io("open the arena's file again"))?;
    if !take_byte(&fd, arena.busy_timeout()).map_err(io("lock a byte of the arena"))? {
        return Err(DestroyError::Busy);
    }
    let header = arena.header();
    finish_held(&fd, path, floor, &header.gone, &header.fences_below)
        .map_err(|error| DestroyError::Floor(Box::new(error)))
}

/// Finishes what a destroyer left, or removes an arena of an earlier boot, so that the name is
/// free. Does nothing when the name leads elsewhere by then.
pub(crate) fn finish(options: &ArenaOptions, path: &Path) -> Result<(), OpenError> {
    let io = |action| {
        move |source| OpenError::Io {
            path: path.into(),
            action,
            source,
        }
    };
    let fd = match open_file(path, OFlag::O_RDWR) {
        Err(OpenError::NotFound { .. }) => return Ok(()),
        other => other?,
    };
    if !take_byte(&fd, options.busy_timeout).map_err(io("lock a byte of"))? {
        return Err(OpenError::Destroying { path: path.into() });
    }
    // Looked at again under the byte: nothing is removed that may be in use.
    let header = read_header(&fd, path)?;
    let meta = fstat(&fd).map_err(|error| io("look at")(error.into()))?;
    let old_boot = crate::host::whole(header.boot_id) != crate::host::boot_id();
    let long_enough = u64::try_from(meta.st_size).is_ok_and(|len| len >= PAGE);
    if header.magic != MAGIC || !long_enough || (header.gone == 0 && !old_boot) {
        return Ok(());
    }
    let mapping = Mapping::writable(std::os::fd::AsFd::as_fd(&fd), PAGE).map_err(io("map"))?;
    let header: &Header = mapping.at(0).expect("a page holds the header");
    let floor = floor_of(path, options, meta.st_uid);
    finish_held(&fd, path, &floor, &header.gone, &header.fences_below)
}

/// The three steps, each of which may be repeated: `fd`'s description holds the destroy byte.
fn finish_held(
    fd: &OwnedFd,
    path: &Path,
    floor: &Floor,
    gone: &AtomicU64,
    fences_below: &AtomicU64,
) -> Result<(), OpenError> {
    // EDGE gone, release half: SeqCst, because either a fence that is being given out was noted
    // before the load below, or its maker sees this mark.
    gone.store(1, Ordering::SeqCst);
    floor.raise(fences_below.load(Ordering::SeqCst))?;
    let io = |action| {
        move |source| OpenError::Io {
            path: path.into(),
            action,
            source,
        }
    };
    let ours = FileKey::of(fd).map_err(io("look at"))?;
    if !FileKey::at(path).is_ok_and(|key| key == ours) {
        return Ok(());
    }
    match unlink(path) {
        Ok(()) | Err(nix::Error::ENOENT) => Ok(()),
        Err(error) => Err(io("remove")(error.into())),
    }
}

/// Takes the destroy byte, waiting for at most `timeout` in growing steps: who holds it is between
/// two steps of the above, or stopped there.
fn take_byte(fd: &OwnedFd, timeout: Duration) -> std::io::Result<bool> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(100);
    loop {
        if LockByte::DESTROY.try_lock(fd)? {
            return Ok(true);
        }
        let left = timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
