//! The file of an arena as this process knows it, and locks on single bytes of it.
//!
//! A byte's lock belongs to an open file description (`F_OFD_SETLK`), so it is visible from every
//! namespace and needs no pid. Byte 0 is held by whoever destroys the arena, byte `1 + slot` by
//! the process that is attached in that slot, and a byte beyond the end of every file by whoever
//! stands in for one attachment.
#![expect(
    unsafe_code,
    reason = "a descriptor that others may close is kept as a number, and the \
    page that keeps a lock alive is mapped here"
)]

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::libc;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};
use nix::sys::stat::{Mode, fstat, lstat};
use nix::unistd::{Whence, lseek};

use crate::id::AttachmentId;

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
        let meta = lstat(path)?;
        Ok(FileKey {
            device: meta.st_dev,
            inode: meta.st_ino,
        })
    }
}

/// The arena's file: a descriptor whose number others may close and give to another file (a daemon
/// that closes all it finds), and how to open the file again.
///
/// The description behind it is this handle's own (and its children's), and is known by its file
/// offset, a number that no other description of the file has. The number itself is never
/// believed: every use duplicates it and looks at the duplicate.
#[derive(Debug)]
pub(crate) struct ArenaFile {
    number: i32,
    mark: i64,
    key: FileKey,
    path: Option<PathBuf>,
    /// The directory that the path starts from, should this process change it.
    root: Option<FileKey>,
    access: OFlag,
}

impl ArenaFile {
    /// Takes `fd`, whose description must be nobody else's; `path`, absolute, is the name it can be
    /// opened again by.
    pub(crate) fn new(fd: OwnedFd, path: Option<PathBuf>, access: OFlag) -> io::Result<ArenaFile> {
        /// Within what every file system takes for an offset.
        const MARKS: u64 = 1 << 40;
        let key = FileKey::of(&fd)?;
        let random = RandomState::new().hash_one(key.inode);
        let mark = i64::try_from(1 + random % MARKS).expect("it is small");
        lseek(&fd, mark, Whence::SeekSet)?;
        Ok(ArenaFile {
            number: fd.into_raw_fd(),
            mark,
            key,
            path,
            root: root(),
            access,
        })
    }

    pub(crate) fn key(&self) -> FileKey {
        self.key
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether its name no longer leads to it; `false` when it never had one.
    pub(crate) fn is_unlinked(&self) -> bool {
        let Some(path) = &self.path else {
            return false;
        };
        match FileKey::at(path) {
            Ok(found) if found == self.key => return false,
            Ok(_) if self.root == root() => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.root == root() => {
                return true;
            }
            // The directory cannot be searched, or the path starts elsewhere since this process changed its
            // root: the file itself knows whether it has a name.
            Ok(_) | Err(_) => {}
        }
        self.descriptor()
            .and_then(|fd| Ok(fstat(fd)?))
            .is_ok_and(|meta| meta.st_nlink == 0)
    }

    /// Whether a path leads where it led when the arena was opened: this process did not change its root.
    pub(crate) fn sees_its_path(&self) -> bool {
        self.root == root()
    }

    /// A duplicate of the descriptor; opened anew by name where the number no longer leads to it.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        match self.duplicate() {
            Some(fd) => Ok(fd),
            None => self.open_named(self.access),
        }
    }

    fn duplicate(&self) -> Option<OwnedFd> {
        // SAFETY: a number that is open or not. If not, duplicating fails; if another file's, the
        // look at the duplicate says so.
        let fd = unsafe { BorrowedFd::borrow_raw(self.number) }
            .try_clone_to_owned()
            .ok()?;
        self.is_ours(&fd).then_some(fd)
    }

    /// Whether a descriptor leads to this file.
    pub(crate) fn is(&self, fd: impl AsFd) -> bool {
        FileKey::of(fd).is_ok_and(|key| key == self.key)
    }

    fn is_ours(&self, fd: impl AsFd) -> bool {
        self.is(&fd) && lseek(fd, 0, Whence::SeekCur).is_ok_and(|at| at == self.mark)
    }

    /// A descriptor with a description of its own.
    pub(crate) fn open_again(&self) -> io::Result<OwnedFd> {
        self.open_for(self.access)
    }

    /// The same, for reading.
    pub(crate) fn open_for_reading(&self) -> io::Result<OwnedFd> {
        self.open_for(OFlag::O_RDONLY)
    }

    fn open_for(&self, access: OFlag) -> io::Result<OwnedFd> {
        match self.duplicate() {
            Some(fd) => reopen(&fd, access).or_else(|_| self.open_named(access)),
            None => self.open_named(access),
        }
    }

    fn open_named(&self, access: OFlag) -> io::Result<OwnedFd> {
        let path = self.path.as_ref().ok_or_else(not_found)?;
        let flags = access | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let fresh = open(path, flags, Mode::empty())?;
        if FileKey::of(&fresh)? == self.key {
            Ok(fresh)
        } else {
            Err(not_found())
        }
    }
}

fn root() -> Option<FileKey> {
    FileKey::at(Path::new("/")).ok()
}

/// Opens the file behind a descriptor anew, whatever its name.
pub(crate) fn reopen(fd: &OwnedFd, access: OFlag) -> io::Result<OwnedFd> {
    let link = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
    let fresh = open(link.as_str(), access | OFlag::O_CLOEXEC, Mode::empty())?;
    if FileKey::of(&fresh)? == FileKey::of(fd)? {
        Ok(fresh)
    } else {
        Err(not_found())
    }
}

fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Drop for ArenaFile {
    fn drop(&mut self) {
        // SAFETY: as in `duplicate`: the look comes before anything is done.
        let fd = unsafe { BorrowedFd::borrow_raw(self.number) };
        if self.is_ours(fd) {
            // SAFETY: the number leads to the description that `new` took, so it is that
            // descriptor, which nobody else was given.
            drop(unsafe { OwnedFd::from_raw_fd(self.number) });
        }
    }
}

/// Beyond the end of every arena.
const STAND_INS: i64 = 1 << 48;
const _: () = assert!(crate::layout::MAX_USABLE < STAND_INS as u64 / 2);

/// One byte of the file, as a place for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockByte(i64);

impl LockByte {
    /// Held while an arena is destroyed, and while one is built under a temporary name.
    pub(crate) const DESTROY: LockByte = LockByte(0);

    pub(crate) fn of_slot(slot: u16) -> LockByte {
        LockByte(1 + i64::from(slot))
    }

    /// Locked, for reading, by whoever stands in for this attachment.
    pub(crate) fn of_stand_in(id: AttachmentId) -> LockByte {
        LockByte(STAND_INS + i64::try_from(id.to_bits()).expect("it has 35 bits"))
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

    /// Whether another description than `fd`'s holds any byte of a slot or a stand-in, as seen by a
    /// writer: takes them all if not.
    pub(crate) fn try_lock_all(fd: impl AsFd) -> io::Result<bool> {
        let first = LockByte::of_slot(0);
        // No length is as far as numbers go.
        let all = libc::flock {
            l_len: 0,
            ..first.flock(libc::F_WRLCK)
        };
        try_lock(fd, &all)
    }

    /// Takes the byte for `fd`'s description beside others that do the same. Never waits.
    pub(crate) fn try_share(self, fd: impl AsFd) -> io::Result<bool> {
        try_lock(fd, &self.flock(libc::F_RDLCK))
    }

    /// Takes the byte for `fd`'s description, if it is free. Never waits.
    pub(crate) fn try_lock(self, fd: impl AsFd) -> io::Result<bool> {
        try_lock(fd, &self.flock(libc::F_WRLCK))
    }

    pub(crate) fn unlock(self, fd: impl AsFd) -> io::Result<()> {
        fcntl(fd, FcntlArg::F_OFD_SETLK(&self.flock(libc::F_UNLCK)))?;
        Ok(())
    }

    /// Whether another description than `fd`'s holds the byte.
    pub(crate) fn is_locked(self, fd: impl AsFd) -> io::Result<bool> {
        self.is_in_the_way_of(libc::F_RDLCK, fd)
    }

    /// The same, or shares it.
    pub(crate) fn is_shared(self, fd: impl AsFd) -> io::Result<bool> {
        self.is_in_the_way_of(libc::F_WRLCK, fd)
    }

    fn is_in_the_way_of(self, kind: i32, fd: impl AsFd) -> io::Result<bool> {
        let mut found = self.flock(kind);
        fcntl(fd, FcntlArg::F_OFD_GETLK(&mut found))?;
        Ok(i32::from(found.l_type) != libc::F_UNLCK)
    }
}

fn try_lock(fd: impl AsFd, lock: &libc::flock) -> io::Result<bool> {
    match fcntl(fd, FcntlArg::F_OFD_SETLK(lock)) {
        Ok(_) => Ok(true),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
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
    fn stand_ins_share_a_byte_of_their_own_until_the_last_copy_is_closed() {
        let (_named, file) = file();
        let id = |slot, generation| AttachmentId::new(slot, generation).unwrap();
        let byte = LockByte::of_stand_in(id(3, 7));
        let is_shared = |byte: LockByte| byte.is_shared(file.descriptor().unwrap()).unwrap();
        assert!(!is_shared(byte));
        let [one, other] = [(); 2].map(|()| file.open_for_reading().unwrap());
        assert!(byte.try_share(&one).unwrap() && byte.try_share(&other).unwrap());
        assert!(nix::unistd::write(&one, b"x").is_err(), "for reading");
        for another in [id(3, 8), id(4, 7), id(3, 6)] {
            assert!(!is_shared(LockByte::of_stand_in(another)));
        }
        // A slot's byte is another thing, and an arena that is worked for is not replaced.
        assert!(
            !LockByte::of_slot(3)
                .is_locked(file.descriptor().unwrap())
                .unwrap()
        );
        assert!(!LockByte::try_lock_all(file.open_again().unwrap()).unwrap());
        let copy = one.try_clone().unwrap();
        drop((one, other));
        assert!(is_shared(byte));
        drop(copy);
        assert!(!is_shared(byte));
        assert!(LockByte::try_lock_all(file.open_again().unwrap()).unwrap());
    }

    #[test]
    fn number_that_was_closed_and_reused_is_not_taken_for_the_arenas() {
        let (named, file) = file();
        let other = named.reopen().unwrap();
        // SAFETY: replaces a descriptor that only `file` uses, by another one of the same file.
        let replaced = unsafe { libc::dup2(other.as_raw_fd(), file.number) };
        assert_eq!(replaced, file.number);
        let number = file.number;
        assert!(file.duplicate().is_none());
        assert_eq!(FileKey::of(file.descriptor().unwrap()).unwrap(), file.key());
        assert_eq!(FileKey::of(file.open_again().unwrap()).unwrap(), file.key());
        drop(file);
        // SAFETY: only asks about the number.
        let kept = unsafe { libc::fcntl(number, libc::F_GETFD) };
        assert_ne!(kept, -1, "a descriptor of somebody else's was closed");
        // SAFETY: closes the duplicate made above.
        unsafe { libc::close(number) };
    }
}
