//! A look at an arena that joins nothing, and at as much as can be read of a file that is refused.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use arena_core::layout::{Header, SharedLayout as _};
use arena_core::{
    ArenaOptions, ArenaView, Attachment, Bell, MAX_SLOTS, Memory, OpenError, PidFd, Probe,
    RegionInfo, futex,
};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// What is known of an arena.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) path: PathBuf,
    /// Why this version of the library does not use it.
    pub(crate) refused: Option<OpenError>,
    pub(crate) destroyed: bool,
    pub(crate) header: Option<Raw>,
    pub(crate) len_bytes: Option<u64>,
    /// How many bytes of slots are locked; `None` when the file cannot be asked.
    pub(crate) attached: Option<u16>,
    /// Whether something stands in for a process, which may be dead.
    pub(crate) has_stand_ins: bool,
    pub(crate) regions: Vec<RegionInfo>,
    pub(crate) refused_regions: u64,
    pub(crate) attachments: Vec<(Attachment, Byte)>,
    pub(crate) missing: Vec<&'static str>,
}

/// The first words of the file, if they begin as an arena's do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw {
    pub(crate) format: u64,
    pub(crate) fingerprint: u64,
    pub(crate) slots: u64,
    pub(crate) created_us: u64,
    pub(crate) gone: u64,
}

/// What the kernel says of an attachment's byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Byte {
    Held,
    Free,
    Unknown,
}

impl Byte {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Byte::Held => "held",
            Byte::Free => "free",
            Byte::Unknown => "unknown",
        }
    }
}

/// Looks. Only that the name is no name, or that nothing is there, is an error.
pub(crate) fn look(options: &ArenaOptions, name: &OsStr) -> Result<Look, OpenError> {
    let path = options.path(name)?;
    let (view, refused) = match options.view(name) {
        Ok(view) => (Some(view), None),
        Err(error @ (OpenError::NotFound { .. } | OpenError::Name { .. })) => return Err(error),
        Err(error) => (None, Some(error)),
    };
    // A device, a FIFO: opening it can have effects.
    let may_open = !matches!(refused, Some(OpenError::NotRegular { .. }));
    let file = may_open.then(|| open(&path)).flatten();
    let header = file.as_ref().and_then(raw_header);
    let slots = match (&view, header) {
        (Some(view), _) => Some(view.slots()),
        // Where another format keeps its locks is not known; so far they have been in this place.
        (None, Some(_)) => Some(MAX_SLOTS),
        (None, None) => None,
    };
    let attached = file
        .as_ref()
        .zip(slots)
        .and_then(|(file, slots)| attached(file, slots));
    let has_stand_ins = file.as_ref().is_some_and(has_stand_ins);
    let len_bytes = file.and_then(|file| Some(file.metadata().ok()?.len()));
    Ok(Look {
        destroyed: match &view {
            Some(view) => view.is_gone(),
            None => header.is_some_and(|header| header.gone != 0),
        },
        path,
        refused,
        header,
        len_bytes,
        attached,
        has_stand_ins,
        regions: view.as_ref().map(ArenaView::regions).unwrap_or_default(),
        refused_regions: view.as_ref().map_or(0, ArenaView::refused),
        attachments: view.as_ref().map(attachments).unwrap_or_default(),
        missing: missing(),
    })
}

fn attachments(view: &ArenaView) -> Vec<(Attachment, Byte)> {
    let with_byte = |row: Attachment| {
        let byte = match view.probe(row.id) {
            Probe::Held => Byte::Held,
            Probe::Gone(_) => Byte::Free,
            Probe::Unknown => Byte::Unknown,
        };
        (row, byte)
    };
    view.attachments().into_iter().map(with_byte).collect()
}

fn open(path: &Path) -> Option<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    file.ok()
        .filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()))
}

fn raw_header(file: &File) -> Option<Raw> {
    let word = |name: &str| {
        let field = Header::FIELDS.iter().find(|field| field.name == name)?;
        let mut bytes = [0; 8];
        let at = u64::try_from(field.offset).ok()?;
        file.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    // All but the last byte, which is the version of the beginning itself.
    let magic = word("magic")?.to_le_bytes();
    magic.starts_with(b"ARENA\0\0").then_some(())?;
    Some(Raw {
        format: word("format")?,
        fingerprint: word("fingerprint")?,
        slots: word("slots")?,
        created_us: word("created_us")?,
        gone: word("gone")?,
    })
}

/// How many of the bytes `1..=slots` somebody has locked. One system call each.
fn attached(file: &File, slots: u16) -> Option<u16> {
    let mut count = 0;
    for slot in 0..slots {
        count += u16::from(is_locked(file, libc::F_RDLCK, 1 + i64::from(slot), 1)?);
    }
    Some(count)
}

/// Whether a byte beyond those of the slots is locked, be it shared.
fn has_stand_ins(file: &File) -> bool {
    let to_the_end = 0;
    is_locked(file, libc::F_WRLCK, 1 + i64::from(MAX_SLOTS), to_the_end) != Some(false)
}

/// Whether somebody's lock is in the way of one of this kind.
fn is_locked(file: &File, kind: i32, start: i64, len: i64) -> Option<bool> {
    let mut found = libc::flock {
        l_type: i16::try_from(kind).ok()?,
        l_whence: i16::try_from(libc::SEEK_SET).ok()?,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut found)).ok()?;
    Some(i32::from(found.l_type) != libc::F_UNLCK)
}

/// What this system lacks of that which makes a death known early, or waiting cheap.
fn missing() -> Vec<&'static str> {
    let own = PidFd::open(std::process::id()).ok();
    let own = own.as_ref();
    let offered = [
        ("pidfd", own.is_some()),
        (
            "pidfd_identity",
            own.is_some_and(|own| matches!(own.inode(), Ok(Some(_)))),
        ),
        (
            "process_mrelease",
            own.is_some_and(|own| own.memory() == Memory::InUse),
        ),
        ("futex_waitv", futex::any_is_offered()),
        ("robust_list", Bell::is_offered()),
    ];
    let lacking = offered.into_iter().filter(|(_, offered)| !offered);
    lacking.map(|(name, _)| name).collect()
}

/// What an attached process does without.
pub(crate) fn missing_of(row: &Attachment) -> Vec<&'static str> {
    match row.identity {
        None => vec!["identity"],
        Some(identity) if identity.pid_inode == 0 => vec!["pidfd_identity"],
        Some(_) => Vec::new(),
    }
}
