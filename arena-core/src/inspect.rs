//! A look at a file before anything in it is believed.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl, open};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, lstat};
use nix::sys::statfs::fstatfs;
use nix::unistd::geteuid;

use crate::error::OpenError;
use crate::host;
use crate::layout::{CORE_FINGERPRINT, FORMAT, Geometry, HeaderSnapshot, MAGIC};
use crate::options::ArenaOptions;

/// File systems that are shared between machines, served by a process or stacked on another:
/// neither memory nor locks are there what they are on this machine's own.
const UNFIT: [i64; 15] = [
    0x6969,      // NFS
    0x517b,      // SMB
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x0102_1997, // 9P
    0x6573_5546, // FUSE
    0x00c3_6400, // Ceph
    0x5346_414f, // AFS
    0x6b41_4653, // kAFS
    0x7375_7245, // Coda
    0x7461_636f, // OCFS2
    0x0116_1970, // GFS2
    0x0bd0_0bd0, // Lustre
    0x786f_4256, // VirtualBox shared folder
    0x794c_7630, // overlayfs: a mapping does not keep a lock
];

pub(crate) fn refuse_unfit(path: &Path, kind: i64) -> Result<(), OpenError> {
    if UNFIT.contains(&kind) {
        return Err(OpenError::FileSystem {
            path: path.into(),
            found: kind,
        });
    }
    Ok(())
}

/// Seals that memory without a name must have, so that it cannot shrink under a reader.
pub(crate) const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_SEAL);

/// A file that passed every check.
#[derive(Debug)]
pub(crate) struct Inspected {
    pub(crate) geometry: Geometry,
    pub(crate) header: HeaderSnapshot,
    pub(crate) owner: u32,
}

/// Opens the file of a name, or says what is in the way. Follows no link, waits for nothing.
pub(crate) fn open_file(path: &Path, access: OFlag) -> Result<OwnedFd, OpenError> {
    // A look first: opening a device can have effects.
    let failed = |error: nix::Error, meta: Option<&FileStat>| match (error, meta) {
        (nix::Error::ENOENT, _) => OpenError::NotFound { path: path.into() },
        (nix::Error::EACCES | nix::Error::EPERM, Some(meta)) => OpenError::Permission {
            path: path.into(),
            mode: meta.st_mode & 0o7777,
            owner: meta.st_uid,
            source: error.into(),
        },
        _ => OpenError::Io {
            path: path.into(),
            action: "open",
            source: error.into(),
        },
    };
    let meta = lstat(path).map_err(|error| failed(error, None))?;
    regular(path, &meta)?;
    let flags = access | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    open(path, flags, Mode::empty()).map_err(|error| failed(error, Some(&meta)))
}

fn regular(path: &Path, meta: &FileStat) -> Result<(), OpenError> {
    let found = match SFlag::from_bits_truncate(meta.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => return Ok(()),
        SFlag::S_IFLNK => "a symbolic link",
        SFlag::S_IFDIR => "a directory",
        SFlag::S_IFIFO => "a FIFO",
        SFlag::S_IFSOCK => "a socket",
        _ => "a device",
    };
    Err(OpenError::NotRegular {
        path: path.into(),
        found,
    })
}

/// Checks the file in the order in which a mistake is best explained, without mapping it.
pub(crate) fn inspect(
    fd: &OwnedFd,
    name: Option<&Path>,
    options: &ArenaOptions,
) -> Result<Inspected, OpenError> {
    let path = name.unwrap_or(Path::new("descriptor"));
    let io = |action| {
        let path = PathBuf::from(path);
        move |error: nix::Error| OpenError::Io {
            path,
            action,
            source: error.into(),
        }
    };
    let meta = fstat(fd).map_err(io("look at"))?;
    regular(path, &meta)?;
    if !options.accepts_owner(meta.st_uid) {
        let expected = geteuid().as_raw();
        return Err(OpenError::Owner {
            path: path.into(),
            found: meta.st_uid,
            expected,
        });
    }
    let (found, allowed) = (meta.st_mode & 0o777, options.mode & 0o022);
    if found & 0o022 & !allowed != 0 {
        return Err(OpenError::WritableByOthers {
            path: path.into(),
            found,
            allowed,
        });
    }
    let kind = fstatfs(fd)
        .map_err(io("look at the file system of"))?
        .filesystem_type()
        .0;
    refuse_unfit(path, kind)?;
    if meta.st_nlink == 0 && name.is_some() {
        // Removed since it was opened.
        return Err(OpenError::NotFound { path: path.into() });
    }
    if meta.st_nlink == 0 {
        let seals = fcntl(fd, FcntlArg::F_GET_SEALS).map_err(io("read the seals of"))?;
        let seals = SealFlag::from_bits_truncate(seals);
        if !seals.contains(SEALS) {
            return Err(OpenError::Unsealed {
                found: seals.bits().cast_unsigned(),
                expected: SEALS.bits().cast_unsigned(),
            });
        }
    }
    let header = read_header(fd, path)?;
    let len = u64::try_from(meta.st_size).unwrap_or(0);
    let geometry = check(&header, len, path)?;
    damaged(path, "length in bytes", len, geometry.len_bytes())?;
    // A hole that the file system cannot fill is a SIGBUS later. (Elsewhere than on tmpfs blocks
    // may be compressed or inlined.)
    if kind == nix::sys::statfs::TMPFS_MAGIC.0 {
        let held = u64::try_from(meta.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512);
        if held < len {
            damaged(path, "allocated bytes", held, len)?;
        }
    }
    let words = portable_atomic::AtomicU128::is_lock_free();
    words.then_some(()).ok_or(OpenError::NoWideAtomics)?;
    Ok(Inspected {
        geometry,
        header,
        owner: meta.st_uid,
    })
}

/// Reads the header through the descriptor: a short file is an error here, and no signal.
pub(crate) fn read_header(fd: &OwnedFd, path: &Path) -> Result<HeaderSnapshot, OpenError> {
    let mut header: HeaderSnapshot = bytemuck::Zeroable::zeroed();
    let read = |fd: &OwnedFd, bytes: &mut [u8]| -> io::Result<()> {
        let file = File::from(fd.as_fd().try_clone_to_owned()?);
        let mut at = 0;
        while at < bytes.len() {
            match file.read_at(&mut bytes[at..], at as u64) {
                Ok(0) => break,
                Ok(count) => at += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    read(fd, bytemuck::bytes_of_mut(&mut header)).map_err(|source| OpenError::Io {
        path: path.into(),
        action: "read",
        source,
    })?;
    Ok(header)
}

/// What the header itself must say, whatever the file.
fn check(header: &HeaderSnapshot, len: u64, path: &Path) -> Result<Geometry, OpenError> {
    if header.magic != MAGIC {
        return Err(OpenError::NotAnArena {
            path: path.into(),
            found: header.magic,
            expected: MAGIC,
        });
    }
    let least = size_of::<HeaderSnapshot>() as u64;
    if len < least {
        damaged(path, "length in bytes", len, least)?;
    }
    for (what, found, expected) in [
        ("format", header.format, FORMAT),
        ("layout fingerprint", header.fingerprint, CORE_FINGERPRINT),
    ] {
        if found != expected {
            return Err(OpenError::Incompatible {
                path: path.into(),
                what,
                found,
                expected,
            });
        }
    }
    damaged(
        path,
        "check of the header",
        header.check,
        header.expected_check(),
    )?;
    let geometry = Geometry::new(header.slots, header.regions, header.usable_bytes);
    let len = geometry.map_or(0, Geometry::len_bytes);
    damaged(path, "stated length in bytes", header.len_bytes, len)?;
    damaged(
        path,
        "reserved words",
        header.reserved.iter().fold(0, |sum, word| sum | word),
        0,
    )?;
    let expected = host::boot_id().map_err(OpenError::NoBootId)?;
    let found = host::whole(header.boot_id);
    if found != expected {
        return Err(OpenError::OtherBoot {
            path: path.into(),
            found,
            expected,
        });
    }
    let (found, expected) = (header.time_namespace, host::namespace("time"));
    if found != expected {
        return Err(OpenError::TimeNamespace {
            path: path.into(),
            found,
            expected,
        });
    }
    geometry.ok_or(OpenError::Damaged {
        path: path.into(),
        what: "stated length in bytes",
        found: header.len_bytes,
        expected: 0,
    })
}

fn damaged(path: &Path, what: &'static str, found: u64, expected: u64) -> Result<(), OpenError> {
    if found == expected {
        return Ok(());
    }
    Err(OpenError::Damaged {
        path: path.into(),
        what,
        found,
        expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_and_stacked_file_systems_are_refused_and_local_ones_are_not() {
        let path = Path::new("/x");
        for kind in [0x6969, 0x6573_5546, 0xff53_4d42, 0x0102_1997, 0x794c_7630] {
            let refused = refuse_unfit(path, kind);
            assert!(matches!(refused, Err(OpenError::FileSystem { found, .. }) if found == kind));
        }
        for local in [0x0102_1994, 0xef53, 0x5846_5342, 0x9123_683e] {
            assert!(refuse_unfit(path, local).is_ok(), "{local:#x}");
        }
    }
}
