//! The end of a name: mark, floor, unlink, all under the old file's destroy byte.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::sys::stat::fstat;
use nix::unistd::{AccessFlags, faccessat, geteuid, unlink};

use crate::arena::Arena;
use crate::attachment::undisturbed_by_fork;
use crate::create::directory_of;
use crate::error::{DestroyError, OpenError};
use crate::file::{AnchorPage, FileKey, LockByte, reopen};
use crate::floor::Floors;
use crate::futex::Word;
use crate::host;
use crate::inspect::{open_file, read_header};
use crate::layout::{Header, MAGIC, PAGE};
use crate::map::Mapping;
use crate::options::ArenaOptions;

pub(crate) fn destroy(arena: &Arena) -> Result<(), DestroyError> {
    let (Some(path), Some(floors)) = (arena.path(), arena.floors()) else {
        return Err(DestroyError::Unnamed);
    };
    let found = arena.owner();
    if !may_destroy(found) {
        return Err(DestroyError::Owner {
            found,
            expected: geteuid().as_raw(),
        });
    }
    let io = |action| move |source| DestroyError::Io { action, source };
    let byte = take_byte(|| arena.file().open_again(), arena.busy_timeout())
        .map_err(io("lock a byte of the arena"))?;
    if byte.is_none() {
        return Err(DestroyError::Busy);
    }
    // What can be refused is refused before anything is changed: a name that is marked as gone and
    // cannot be removed is of no use to anybody.
    floors
        .ensure()
        .map_err(|error| DestroyError::Floor(Box::new(error)))?;
    let may = AccessFlags::W_OK | AccessFlags::X_OK;
    faccessat(AT_FDCWD, directory_of(path), may, AtFlags::AT_EACCESS)
        .map_err(|error| DestroyError::Directory(error.into()))?;
    let header = arena.header();
    mark_and_raise(floors, header).map_err(|error| DestroyError::Floor(Box::new(error)))?;
    remove(path, arena.file().key()).map_err(io("remove the arena's name"))
}

/// Whether this user may raise the floor of `owner`'s fences, without which no name becomes free.
fn may_destroy(owner: u32) -> bool {
    let euid = geteuid();
    euid.is_root() || euid.as_raw() == owner
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
    let again = || reopen(&fd, OFlag::O_RDWR);
    let byte = take_byte(again, options.busy_timeout).map_err(io("lock a byte of"))?;
    if byte.is_none() {
        return Err(OpenError::Destroying { path: path.into() });
    }
    // Looked at again under the byte: nothing is removed that may be in use.
    let header = read_header(&fd, path)?;
    let meta = fstat(&fd).map_err(|error| io("look at")(error.into()))?;
    let long_enough = u64::try_from(meta.st_size).is_ok_and(|len| len >= PAGE);
    if header.magic != MAGIC || !long_enough {
        return Ok(());
    }
    let owner = meta.st_uid;
    if header.gone != 0 && !may_destroy(owner) {
        let path = path.into();
        return Err(OpenError::Destroyed { path, owner });
    }
    if header.gone == 0 {
        let expected = host::boot_id().map_err(OpenError::NoBootId)?;
        let found = host::whole(header.boot_id);
        if found == expected {
            return Ok(());
        }
        // Two views of one machine may disagree about the boot's id, so the kernel is asked: no
        // byte of a slot or a stand-in is held, and none can be taken from here on.
        if !may_destroy(owner) || !LockByte::try_lock_all(&fd).map_err(io("lock the bytes of"))? {
            return Err(OpenError::OtherBoot {
                path: path.into(),
                found,
                expected,
            });
        }
    }
    let mapping = Mapping::writable(fd.as_fd(), PAGE).map_err(io("map"))?;
    let header: &Header = mapping.at(0).expect("a page holds the header");
    let floors = Floors::new(path, options, owner);
    mark_and_raise(&floors, header)?;
    let key = FileKey::of(&fd).map_err(io("look at"))?;
    remove(path, key).map_err(io("remove"))
}

/// The first two of three steps, each of which may be repeated by whoever holds the destroy byte.
fn mark_and_raise(floors: &Floors, header: &Header) -> Result<(), OpenError> {
    // EDGE gone, release half: SeqCst, because either a fence that is being given out was noted
    // before the load below, or its maker sees this mark.
    header.gone.store(1, Ordering::SeqCst);
    // Killed before this, sleepers sleep until their time is up, or until whoever finishes the work is here.
    let _ = Word::low_half_of(&header.gone).wake_all();
    let below = header.fences_below.load(Ordering::SeqCst);
    floors.raise(below).map(drop)
}

/// The third: removes the name if it still leads to the file.
fn remove(path: &Path, key: FileKey) -> io::Result<()> {
    if !FileKey::at(path).is_ok_and(|found| found == key) {
        return Ok(());
    }
    match unlink(path) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Takes the destroy byte, waiting for at most `timeout` in growing steps: who holds it is between
/// two steps of the above, or stopped there. Held as a slot's byte is, so that no child keeps it.
fn take_byte(
    open: impl Fn() -> io::Result<OwnedFd>,
    timeout: Duration,
) -> io::Result<Option<AnchorPage>> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(100);
    loop {
        let held = undisturbed_by_fork(|| {
            let fd = open()?;
            let free = LockByte::DESTROY.try_lock(&fd)?;
            free.then(|| AnchorPage::keep(fd)).transpose()
        })?;
        let left = timeout.saturating_sub(start.elapsed());
        if held.is_some() || left.is_zero() {
            return Ok(held);
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
