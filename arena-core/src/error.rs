//! What can be refused, one variant for each different thing to do about it.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Why an arena was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The name cannot be a name. Choose one of 1 to 63 bytes without NUL, or a path.
    #[error("{name:?} is no arena name: 1 to 63 bytes without NUL, or a path with a '/'")]
    Name {
        /// What was asked for.
        name: OsString,
    },
    /// There is no arena of that name. Create it with [`Arena::open`](crate::Arena::open).
    #[error("no arena at {}", path.display())]
    NotFound {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The file may not be opened. Ask its owner, who chose its mode.
    #[error("{}: permission denied (mode {mode:04o}, owner {owner})", path.display())]
    Permission {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Its owner.
        owner: u32,
        /// What the system said.
        source: io::Error,
    },
    /// The name is taken by something that is not a regular file. Remove it, or use another name.
    #[error("{}: found {found}, expected a regular file", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
        /// What kind of file it is.
        found: &'static str,
    },
    /// The file belongs to somebody else. If that is wanted: `ArenaOptions::allow_owner`.
    #[error("{}: found owner {found}, expected {expected} or root", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        found: u32,
        /// The effective user id of this process.
        expected: u32,
    },
    /// Others may write to the file. If that is wanted: `ArenaOptions::mode`.
    #[error("{}: found mode {found:04o}, expected no write permission beyond {allowed:04o}",
        path.display())]
    WritableByOthers {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        found: u32,
        /// What the options allow.
        allowed: u32,
    },
    /// The file is on a network, user-space or stacked file system, where shared memory and locks are
    /// not what they are here. Choose a local directory, such as one on a tmpfs.
    #[error("{}: found a file system of type {found:#x} (network, user space or overlay), expected \
        a local one, such as a tmpfs", path.display())]
    FileSystem {
        /// The file or directory.
        path: PathBuf,
        /// The file system's magic number.
        found: i64,
    },
    /// The file does not begin as an arena does. Remove it, or use another name.
    #[error("{}: found {found:#018x}, expected an arena's magic number {expected:#018x}",
        path.display())]
    NotAnArena {
        /// The file.
        path: PathBuf,
        /// Its first eight bytes.
        found: u64,
        /// What an arena begins with.
        expected: u64,
    },
    /// The arena was made by an incompatible version of this crate. End the processes that use it,
    /// then destroy it.
    #[error("{}: incompatible: found {what} {found:#x}, expected {expected:#x}", path.display())]
    Incompatible {
        /// The file.
        path: PathBuf,
        /// Which value differs: the format or the fingerprint of the layout.
        what: &'static str,
        /// The file's.
        found: u64,
        /// This crate's.
        expected: u64,
    },
    /// The file is damaged. Destroy it.
    #[error("{}: damaged: found {what} {found}, expected {expected}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which value is wrong.
        what: &'static str,
        /// The file's.
        found: u64,
        /// What it should be.
        expected: u64,
    },
    /// The arena was made in another boot. [`Arena::open`](crate::Arena::open) replaces it, unless
    /// a process is attached to it: then two views of one machine disagree about the boot's id.
    #[error("{}: found boot {found:032x}, expected {expected:032x}: the arena is from before the \
        last start, or from a container that shows another boot id", path.display())]
    OtherBoot {
        /// The file.
        path: PathBuf,
        /// The arena's boot.
        found: u128,
        /// This boot.
        expected: u128,
    },
    /// The id of this boot cannot be read (/proc/sys/kernel/random/boot_id). Mount /proc.
    #[error("the id of this boot cannot be read from /proc/sys/kernel/random/boot_id")]
    NoBootId(#[source] io::Error),
    /// The arena's clock is another one: its deadlines mean nothing here. Run both in one time
    /// namespace.
    #[error("{}: found time namespace {found}, expected {expected}: deadlines of one mean nothing \
        in the other", path.display())]
    TimeNamespace {
        /// The file.
        path: PathBuf,
        /// The arena's time namespace.
        found: u64,
        /// This process's.
        expected: u64,
    },
    /// This processor has no lock-free 128-bit atomics. There is nothing to do but to use another.
    #[error("this processor has no lock-free 128-bit atomic")]
    NoWideAtomics,
    /// The file system is too full. Free some, or ask for less.
    #[error("{}: {needed} bytes needed, {available} available", path.display())]
    NoSpace {
        /// The directory.
        path: PathBuf,
        /// The arena's length.
        needed: u64,
        /// What the file system has left.
        available: u64,
    },
    /// The process may not make a file that large (`RLIMIT_FSIZE`). Raise the limit, or ask for
    /// less.
    #[error("{needed} bytes needed, the limit for a file is {limit}")]
    FileSizeLimit {
        /// The arena's length.
        needed: u64,
        /// The soft limit.
        limit: u64,
    },
    /// An option is out of its bounds.
    #[error("option {option}: found {found}, expected {least} to {most}")]
    Option {
        /// Which one.
        option: &'static str,
        /// What was asked for.
        found: u64,
        /// The least it may be.
        least: u64,
        /// The most it may be.
        most: u64,
    },
    /// A descriptor of memory whose length can still change. Pass one of
    /// [`Arena::as_fd`](crate::Arena).
    #[error("found seals {found:#x}, expected at least {expected:#x}: the memory could shrink")]
    Unsealed {
        /// The descriptor's seals.
        found: u32,
        /// The seals that are needed.
        expected: u32,
    },
    /// The name kept being created and destroyed by others. Try again.
    #[error("{}: created and destroyed by others again and again", path.display())]
    Contended {
        /// The file.
        path: PathBuf,
    },
    /// A process that destroys the arena of this name is stopped. Continue or kill it.
    #[error("{}: being destroyed by a process that does not go on", path.display())]
    Destroying {
        /// The file.
        path: PathBuf,
    },
    /// The arena was destroyed and its name left behind, which only the file's owner, or root, can
    /// remove. Let that user open or destroy it.
    #[error("{}: the arena was destroyed, and its name is left: only its owner (user {owner}) or \
        root can remove it", path.display())]
    Destroyed {
        /// The file.
        path: PathBuf,
        /// The file's owner.
        owner: u32,
    },
    /// The file of the fences' floor is not one. Remove it when no lease of this user matters.
    #[error("{}: found {found:#x}, expected the floor of fences", path.display())]
    Floor {
        /// The file.
        path: PathBuf,
        /// The word that is wrong.
        found: u64,
    },
    /// The arena was opened, but this process could not be attached.
    #[error("cannot attach to the arena")]
    Join(#[from] JoinError),
    /// The system refused something.
    #[error("{}: cannot {action}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Why this process has no attachment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Every slot belongs to a process that is not proven dead. End some, or create the arena with
    /// more slots.
    #[error("all {slots} slots are taken by live processes")]
    TableFull {
        /// How many there are.
        slots: u16,
    },
    /// The file system gives up a lock with its descriptor though a mapping keeps the file, as
    /// stacked ones do. Choose another directory: a tmpfs.
    #[error("the file system does not keep a lock for a mapping; use another, such as a tmpfs")]
    LockNotKept,
    /// The descriptor of the arena was closed and its file cannot be opened again.
    #[error("the arena's file cannot be opened again")]
    NoDescriptor,
    /// This process was forked into another time namespace than its parent's.
    #[error("found time namespace {found}, expected {expected}")]
    TimeNamespace {
        /// This process's.
        found: u64,
        /// The arena's.
        expected: u64,
    },
    /// The system refused something.
    #[error("cannot {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a region was neither found nor carved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CarveError {
    /// The name cannot be a region's.
    #[error("{name:?} is no region name: 1 to 63 bytes without NUL and '/'")]
    Name {
        /// What was asked for, shown as text.
        name: String,
    },
    /// A region of that name has another shape. Agree on one, or use another name.
    #[error(
        "region {name:?}: found kind {found_kind:#x} of {found_bytes} bytes, expected kind \
        {expected_kind:#x} of {expected_bytes} bytes"
    )]
    OtherShape {
        /// The region.
        name: String,
        /// The kind of what is there.
        found_kind: u64,
        /// The length of what is there.
        found_bytes: u64,
        /// The kind that was asked for.
        expected_kind: u64,
        /// The length that was asked for.
        expected_bytes: u64,
    },
    /// The arena has too little room left. Nothing was taken.
    #[error("{needed} bytes needed, {available} available in the arena")]
    Full {
        /// What was asked for, rounded up.
        needed: u64,
        /// What is left.
        available: u64,
    },
    /// The arena has no entry left for another region.
    #[error("all {regions} regions are taken")]
    TooMany {
        /// How many there are.
        regions: u32,
    },
    /// An entry of the table says what cannot be, so it is not known what is free. Destroy the arena.
    #[error("{refused} damaged entries: it is not known what is free")]
    Damaged {
        /// How many.
        refused: u64,
    },
    /// The lock for carving could not be had.
    #[error("cannot lock the table of regions")]
    Lock(#[from] crate::lock::LockError),
}

/// Why an arena was not destroyed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestroyError {
    /// The arena has no name: it ends with its last process.
    #[error("an arena without a name ends with its last process")]
    Unnamed,
    /// Only its owner, or root, may remove the name.
    #[error(
        "found owner {found}, expected {expected}: only its owner, or root, can destroy an arena"
    )]
    Owner {
        /// The file's owner.
        found: u32,
        /// The effective user id of this process.
        expected: u32,
    },
    /// Another process is destroying the arena and does not go on.
    #[error("being destroyed by a process that does not go on")]
    Busy,
    /// The floor of fences cannot be raised. Nothing was changed.
    #[error("cannot raise the floor of fences")]
    Floor(#[source] Box<OpenError>),
    /// The directory does not let its entries be removed. Nothing was changed.
    #[error("cannot remove names from the directory")]
    Directory(#[source] io::Error),
    /// The system refused something.
    #[error("cannot {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// An access that would lie outside, or not at a multiple of the type's alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset} does not fit, aligned, into {len_bytes} bytes")]
pub struct OutOfBounds {
    /// Where the access would start.
    pub offset: u64,
    /// The length of what is accessed.
    pub len_bytes: u64,
}
