//! The file of an arena as this process knows it, and locks on single bytes of it.
//!
//! A byte's lock belongs to an open file description (`F_OFD_SETLK`), so it is visible from every
//! namespace and needs no pid. Byte 0 is held by whoever destroys the arena, byte `1 + slot` by
//! the process that is attached in that slot.
#![expect(
    unsafe_code,
    reason = "a descriptor that others may close is kept as a number, and the \
    page that keeps a lock alive is mapped here"
)]

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::libc;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};
use nix::sys::stat::{Mode, fstat, stat};

/// Which file it is, whatever its name: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileKey {
    device: u64,
    inode: u64,
}

impl FileKey {
    pub(crate) fn of(fd: impl AsFd) -> io::Result<FileKey> {
        let meta = fstat(fd)?;
        Ok(FileKey {
            device: meta.st_dev,
            inode: meta.st_ino,
        })
    }

    pub(crate) fn at(path: &Path) -> io::Result<FileKey> {
        let meta = stat(path)?;
        Ok(FileKey {
            device: meta.st_dev,
            inode: meta.st_ino,
        })
    }
}

/// The arena's file: a descriptor that somebody else may close (a daemon that closes them all),
/// and how to open it again.
#[derive(Debug)]
pub(crate) struct ArenaFile {
    fd: AtomicI32,
    key: FileKey,
    path: Option<PathBuf>,
    access: OFlag,
}

impl ArenaFile {
    /// Takes `fd`; `path` is the name it can be opened again by.
    pub(crate) fn new(fd: OwnedFd, path: Option<PathBuf>, access: OFlag) -> io::Result<ArenaFile> {
        let key = FileKey::of(&fd)?;
        // The name may be relative, and the working directory may change.
        let path = path.map(std::path::absolute).transpose()?;
        Ok(ArenaFile {
            fd: AtomicI32::new(fd.into_raw_fd()),
            key,
            path,
            access,
        })
    }

    pub(crate) fn key(&self) -> FileKey {
        self.key
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The descriptor, after a look that the number still leads to the file; opened again by name
    /// where it does not.
    pub(crate) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        // Relaxed: a number, checked below.
        if let Some(fd) = self.checked(self.fd.load(Ordering::Relaxed)) {
            return Ok(fd);
        }
        let fresh = self.open_named()?;
        let number = fresh.into_raw_fd();
        // Relaxed: as above. The old number is somebody else's by now, and is not closed; what
        // another thread opened meanwhile is left to the process's end.
        self.fd.store(number, Ordering::Relaxed);
        self.checked(number).ok_or_else(not_found)
    }

    fn checked(&self, number: i32) -> Option<BorrowedFd<'_>> {
        if number < 0 {
            return None;
        }
        // SAFETY: a number that is open or not: if not, the look below says so and it goes no
        // further; if another file's, likewise.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        FileKey::of(fd)
            .is_ok_and(|key| key == self.key)
            .then_some(fd)
    }

    /// A descriptor with a description of its own.
    pub(crate) fn open_again(&self) -> io::Result<OwnedFd> {
        if let Ok(fd) = self.descriptor() {
            let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
            let flags = self.access | OFlag::O_CLOEXEC;
            if let Ok(fresh) = open(link.as_str(), flags, Mode::empty())
                && FileKey::of(&fresh)? == self.key
            {
                return Ok(fresh);
            }
        }
        self.open_named()
    }

    fn open_named(&self) -> io::Result<OwnedFd> {
        let path = self.path.as_ref().ok_or_else(not_found)?;
        let flags = self.access | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let fresh = open(path, flags, Mode::empty())?;
        if FileKey::of(&fresh)? == self.key {
            Ok(fresh)
        } else {
            Err(not_found())
        }
    }
}

fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Drop for ArenaFile {
    fn drop(&mut self) {
        let number = *self.fd.get_mut();
        if self.checked(number).is_some() {
            // SAFETY: the number still leads to the arena's file, so it is the descriptor that
            // `new` or `descriptor` took.
            drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) });
        }
    }
}

/// One byte of the file, as a place for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockByte(i64);

impl LockByte {
    /// Held while an arena is destroyed, and while one is built under a temporary name.
    pub(crate) const DESTROY: LockByte = LockByte(0);

    pub(crate) fn of_slot(slot: u16) -> LockByte {
        LockByte(1 + i64::from(slot))
    }

    fn flock(self, kind: i32) -> libc::flock {
        libc::flock {
            l_type: i16::try_from(kind).expect("lock kinds are 0, 1 and 2"),
            l_whence: i16::try_from(libc::SEEK_SET).expect("SEEK_SET is 0"),
            l_start: self.0,
            l_len: 1,
            l_pid: 0,
        }
    }

    /// Takes the byte for `fd`'s description, if it is free. Never waits.
    pub(crate) fn try_lock(self, fd: impl AsFd) -> io::Result<bool> {
        match fcntl(fd, FcntlArg::F_OFD_SETLK(&self.flock(libc::F_WRLCK))) {
            Ok(_) => Ok(true),
            Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn unlock(self, fd: impl AsFd) -> io::Result<()> {
        fcntl(fd, FcntlArg::F_OFD_SETLK(&self.flock(libc::F_UNLCK)))?;
        Ok(())
    }

    /// Whether another description than `fd`'s holds the byte.
    pub(crate) fn is_locked(self, fd: impl AsFd) -> io::Result<bool> {
        let mut found = self.flock(libc::F_RDLCK);
        fcntl(fd, FcntlArg::F_OFD_GETLK(&mut found))?;
        Ok(i32::from(found.l_type) != libc::F_UNLCK)
    }
}

/// Keeps a description, and so its locks, for exactly as long as this address space: one page,
/// mapped without access and not inherited by children, after which the descriptor is closed.
#[derive(Debug)]
pub(crate) struct AnchorPage {
    start: NonNull<libc::c_void>,
}

const PAGE: NonZeroUsize = NonZeroUsize::new(4096).expect("a page is not empty");

// SAFETY: the page is never accessed, only unmapped, by its owner's drop.
unsafe impl Send for AnchorPage {}
// SAFETY: likewise.
unsafe impl Sync for AnchorPage {}

impl AnchorPage {
    /// Maps a page of `fd`'s description, and closes `fd`.
    pub(crate) fn keep(fd: OwnedFd) -> io::Result<AnchorPage> {
        // SAFETY: no address is asked for, so no mapping of anybody's is replaced; without access
        // nothing can be read or written through it.
        let start = unsafe {
            mmap(
                None,
                PAGE,
                ProtFlags::PROT_NONE,
                MapFlags::MAP_SHARED,
                &fd,
                0,
            )
        }?;
        let page = AnchorPage { start };
        // SAFETY: the advice concerns the page mapped above, which nothing else knows yet.
        unsafe { madvise(start, PAGE.get(), MmapAdvise::MADV_DONTFORK) }?;
        drop(fd);
        Ok(page)
    }
}

impl Drop for AnchorPage {
    fn drop(&mut self) {
        // SAFETY: the page is ours and nothing refers to it. This value never reaches a child,
        // where the address is not mapped: only memory that is wiped on fork leads to it.
        let unmapped = unsafe { munmap(self.start, PAGE.get()) };
        debug_assert!(unmapped.is_ok(), "the page was mapped by `keep`");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (tempfile::NamedTempFile, ArenaFile) {
        let named = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        named.as_file().set_len(4096).unwrap();
        let fd = OwnedFd::from(named.reopen().unwrap());
        let file = ArenaFile::new(fd, Some(named.path().into()), OFlag::O_RDWR).unwrap();
        (named, file)
    }

    #[test]
    fn byte_stays_locked_after_its_descriptor_is_closed_and_is_free_when_the_page_goes() {
        let (_named, file) = file();
        let byte = LockByte::of_slot(3);
        let fd = file.open_again().unwrap();
        assert!(byte.try_lock(&fd).unwrap());
        let page = AnchorPage::keep(fd).unwrap();
        assert!(byte.is_locked(file.descriptor().unwrap()).unwrap());
        assert!(
            !LockByte::of_slot(4)
                .is_locked(file.descriptor().unwrap())
                .unwrap()
        );
        assert!(!byte.try_lock(file.open_again().unwrap()).unwrap());
        drop(page);
        assert!(!byte.is_locked(file.descriptor().unwrap()).unwrap());
    }

    #[test]
    fn descriptor_that_was_closed_and_reused_is_not_taken_for_the_arenas() {
        let (_named, file) = file();
        let number = file.descriptor().unwrap().as_raw_fd();
        let other = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: replaces a descriptor that only `file` uses.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        let again = file.descriptor().unwrap().as_raw_fd();
        assert_ne!(again, number);
        drop(file);
        // SAFETY: only asks about the number.
        let kept = unsafe { libc::fcntl(number, libc::F_GETFD) };
        assert_ne!(kept, -1, "the descriptor of another file was closed");
        // SAFETY: closes the duplicate made above.
        unsafe { libc::close(number) };
    }
}
