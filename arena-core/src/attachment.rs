//! Attaching: this process's row and byte in an arena, kept once a process, found again by every
//! handle, and made anew in a child.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::attachment_word::{ClaimError, HeldByte, Reaped, RowState};
use crate::bell::{self, BellError, BellRope};
use crate::clock;
use crate::error::JoinError;
use crate::file::{AnchorPage, ArenaFile, FileKey, LockByte};
use crate::host;
use crate::id::AttachmentId;
use crate::layout::{Geometry, Header, Row, fnv};
use crate::map::Mapping;
use crate::pidfd::PidFd;
use crate::probe::ask;
use crate::wiped::PerProcess;

/// The kernel's identity of a process, as its row records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The pid in the process's own PID namespace.
    pub pid: u32,
    /// The inode of its pidfd, unique while the machine runs; 0 where the kernel has none.
    pub pid_inode: u64,
    /// When it started, in clock ticks since boot; 0 where /proc is missing. Two processes can
    /// share pid and start time.
    pub start_ticks: u64,
    /// The inode of its PID namespace; 0 where /proc is missing.
    pub pid_namespace: u64,
    /// The boot it runs in; 0 where /proc is missing.
    pub boot_id: u128,
}

impl Identity {
    /// The identity of this process. Four system calls.
    #[must_use]
    pub fn own() -> Identity {
        let pid = std::process::id();
        let inode = PidFd::open(pid).and_then(|fd| fd.inode());
        Identity {
            pid,
            pid_inode: inode.ok().flatten().unwrap_or(0),
            start_ticks: host::own_start_ticks().unwrap_or(0),
            pid_namespace: host::namespace("pid"),
            boot_id: host::boot_id().unwrap_or(0),
        }
    }
}

impl Identity {
    /// A number that a garbled identity, or one of another generation, does not have.
    fn check(&self, id: AttachmentId) -> u64 {
        let [low, high] = host::halves(self.boot_id);
        let pid = u64::from(self.pid);
        [
            id.to_bits(),
            pid,
            self.pid_inode,
            self.start_ticks,
            self.pid_namespace,
            low,
            high,
        ]
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, word| {
            fnv(hash, &word.to_le_bytes())
        })
    }
}

/// A row, as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Slot and generation.
    pub id: AttachmentId,
    /// How far its owner has come.
    pub state: RowState,
    /// Who its owner is; `None` while it joins, and when the row is damaged.
    pub identity: Option<Identity>,
    /// The name it goes by: at most 40 bytes, its command's name unless it chose another.
    pub name: Vec<u8>,
    /// When it joined, in milliseconds of the boot clock.
    pub joined_ms: u64,
    /// When it last gave a sign of life of its own accord, in milliseconds of the boot clock.
    pub beat_ms: u64,
}

/// Copies a row out; `None` for one that is empty or changed while it was read.
pub(crate) fn snapshot(slot: u16, row: &Row) -> Option<Attachment> {
    /// A row changes hands at most once a join, which takes longer than a copy.
    const TRIES: u32 = 8;
    let (seen, (identity, check, name, joined_ms, beat_ms)) =
        (0..TRIES).find_map(|_| row.state.snapshot(|| copy(row)))?;
    if seen.state() == RowState::Empty {
        return None;
    }
    let id = AttachmentId::new(slot, seen.generation())?;
    let whole = seen.state() != RowState::Joining && check == identity.check(id);
    let identity = whole.then_some(identity);
    Some(Attachment {
        id,
        state: seen.state(),
        identity,
        name,
        joined_ms,
        beat_ms,
    })
}

fn copy(row: &Row) -> (Identity, u64, Vec<u8>, u64, u64) {
    // Relaxed (all of them): the caller's two looks at the state are ordered around them.
    let get = |word: &std::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
    let name: Vec<u8> = row
        .name
        .iter()
        .flat_map(|word| get(word).to_le_bytes())
        .collect();
    let identity = Identity {
        pid: u32::try_from(get(&row.pid)).unwrap_or(0),
        pid_inode: get(&row.pid_inode),
        start_ticks: get(&row.start_ticks),
        pid_namespace: get(&row.pid_namespace),
        boot_id: host::whole([get(&row.boot_id[0]), get(&row.boot_id[1])]),
    };
    let name = name.into_iter().take_while(|&byte| byte != 0).collect();
    (
        identity,
        get(&row.check),
        name,
        get(&row.joined_ms),
        get(&row.beat_ms),
    )
}

/// Stores a name of at most 40 bytes, padded with NUL.
pub(crate) fn store_name(row: &Row, name: &[u8]) {
    for (i, word) in row.name.iter().enumerate() {
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(name.iter().skip(8 * i)) {
            *to = *from;
        }
        // Relaxed: shown, and nothing is decided by it.
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
}

/// This process's attachment to one file. Dropped with the last handle: the process leaves.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) id: AttachmentId,
    mapping: Arc<Mapping>,
    geometry: Geometry,
    bell: Mutex<BellRope>,
    _byte: AnchorPage,
}

impl Joined {
    /// Hangs the bell of this process's row, unless it hangs.
    pub(crate) fn hang_bell(&self) -> Result<(), BellError> {
        let mut rope = self.bell.lock().unwrap_or_else(PoisonError::into_inner);
        let row = u64::from(self.id.slot()) * size_of::<Row>() as u64;
        let bell = std::mem::offset_of!(Row, bell) as u64;
        rope.hang(&self.mapping, self.geometry.rows_at() + row + bell)
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        // Before the row is left: a bell that rang later could be the next occupant's. And before the
        // arena can be unmapped: the kernel would follow the list to a place that is something else.
        let rope = self.bell.get_mut();
        rope.unwrap_or_else(PoisonError::into_inner).take_down();
        // The generation moves on first, so that every word which names it is stale from then on;
        // the byte is freed by the drop of its page afterwards.
        let row = &rows(&self.mapping, self.geometry)[usize::from(self.id.slot())];
        // `false` would mean that somebody wrote over the row, which is not ours to mend.
        let _was_ours = row.state.leaving(self.id) && row.state.leave(self.id);
        bell::silence(&row.bell);
    }
}

pub(crate) fn rows(mapping: &Mapping, geometry: Geometry) -> &[Row] {
    mapping
        .array(geometry.rows_at(), usize::from(geometry.slots))
        .expect("the length was compared with the geometry when the file was mapped")
}

/// The attachments of this process, one a file.
static PROCESS: PerProcess<Vec<(FileKey, Weak<Joined>)>> = PerProcess::that_fork_waits_for();

/// Gives a handle's share back. The last one leaves, alone in this process, so that who opens the
/// arena meanwhile finds the slot taken or free, and not in between.
pub(crate) fn give_back(joined: Arc<Joined>) {
    let mut joined = Some(joined);
    // Without a page for the lock, which there was when the share was taken, it is dropped all the
    // same.
    let _ = PROCESS.with(|_| drop(joined.take()));
}

/// Runs what opens a descriptor and closes it again while no fork of this process can inherit it.
pub(crate) fn undisturbed_by_fork<T>(
    body: impl FnOnce() -> std::io::Result<T>,
) -> std::io::Result<T> {
    PROCESS.with(|_| body())?
}

/// A descriptor, not inherited by exec unless that is asked for, that stands in for `id`.
pub(crate) fn stand_in(file: &ArenaFile, id: AttachmentId) -> Result<OwnedFd, JoinError> {
    let io = |action| move |source| JoinError::Io { action, source };
    let fd = file.open_for_reading();
    let fd = fd.map_err(io("open the arena's file again"))?;
    match LockByte::of_stand_in(id).try_share(&fd) {
        Ok(true) => Ok(fd),
        Ok(false) => Err(io("share the lock on a byte of the arena")(
            std::io::ErrorKind::WouldBlock.into(),
        )),
        Err(source) => Err(io("share the lock on a byte of the arena")(source)),
    }
}

/// What joining needs to know of an arena.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) file: &'a ArenaFile,
    pub(crate) mapping: &'a Arc<Mapping>,
    pub(crate) geometry: Geometry,
    pub(crate) time_namespace: u64,
}

/// This process's attachment to the file: the one it has, or a new one.
pub(crate) fn join(place: &Place<'_>) -> Result<Arc<Joined>, JoinError> {
    let key = place.file.key();
    let joined = PROCESS.with(|all| {
        all.retain(|(_, joined)| joined.strong_count() > 0);
        let present = all.iter().find(|(of, _)| *of == key);
        if let Some(joined) = present.and_then(|(_, joined)| joined.upgrade()) {
            return Ok(joined);
        }
        let fresh = Arc::new(take_slot(place)?);
        all.push((key, Arc::downgrade(&fresh)));
        Ok(fresh)
    });
    joined.map_err(|source| JoinError::Io {
        action: "map a page",
        source,
    })?
}

fn take_slot(place: &Place<'_>) -> Result<Joined, JoinError> {
    /// How often the table is looked at anew while others come and go.
    const LOOKS: u32 = 64;
    let found = host::namespace("time");
    if found != place.time_namespace {
        return Err(JoinError::TimeNamespace {
            found,
            expected: place.time_namespace,
        });
    }
    let rows = rows(place.mapping, place.geometry);
    let fd = place
        .file
        .open_again()
        .map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => JoinError::NoDescriptor,
            _ => JoinError::Io {
                action: "open the arena's file again",
                source,
            },
        })?;
    for look in 0..LOOKS {
        match take_free_slot(place, rows, &fd)? {
            Scan::Taken(slot, id) => return settle(place, fd, &rows[usize::from(slot)], id),
            Scan::Full if look > 0 => break,
            // Not yet cleared away, or between two steps of leaving or joining.
            Scan::Full => drop(reap(place, rows, None)),
            Scan::Moving => {
                reap(place, rows, None);
                std::thread::yield_now();
            }
        }
    }
    Err(JoinError::TableFull {
        slots: place.geometry.slots,
    })
}

/// What a look at every row came to.
enum Scan {
    Taken(u16, AttachmentId),
    /// Every row has an occupant.
    Full,
    /// Some row has none, and its byte is held: somebody is leaving or joining.
    Moving,
}

fn take_free_slot(place: &Place<'_>, rows: &[Row], fd: &OwnedFd) -> Result<Scan, JoinError> {
    let mut scan = Scan::Full;
    for (slot, row) in (0u16..).zip(rows) {
        let seen = row.state.load();
        if !seen.is_ok_and(|row| row.state() == RowState::Empty && !row.is_retired()) {
            continue;
        }
        let lock = |error| JoinError::Io {
            action: "lock a byte of the arena",
            source: error,
        };
        if !LockByte::of_slot(slot).try_lock(fd).map_err(lock)? {
            scan = Scan::Moving;
            continue;
        }
        // The byte is ours, and nobody else claims the row. First its generation moves on: every
        // word that names an earlier owner is stale before there is a new one.
        match row.state.claim(&ByteInHand(slot)) {
            Ok(id) => return Ok(Scan::Taken(slot, id)),
            Err(ClaimError::Retired | ClaimError::Corrupt { .. }) => {
                LockByte::of_slot(slot).unlock(fd).map_err(lock)?;
            }
        }
    }
    debug_assert_eq!(rows.len(), usize::from(place.geometry.slots));
    Ok(scan)
}

/// Makes the claimed row this process's for as long as its memory exists.
fn settle(
    place: &Place<'_>,
    fd: OwnedFd,
    row: &Row,
    id: AttachmentId,
) -> Result<Joined, JoinError> {
    bell::silence(&row.bell);
    let leave = |error| {
        let _was_ours = row.state.leave(id);
        error
    };
    let byte = AnchorPage::keep(fd).map_err(|source| {
        leave(JoinError::Io {
            action: "map a page of the arena",
            source,
        })
    })?;
    // A file system that is stacked on another may map the other's file: then the lock ended with
    // the descriptor, and everybody would take this process for dead.
    let held = place
        .file
        .descriptor()
        .and_then(|fd| LockByte::of_slot(id.slot()).is_locked(fd));
    match held {
        Ok(true) => {}
        Ok(false) => return Err(leave(JoinError::LockNotKept)),
        Err(source) => {
            return Err(leave(JoinError::Io {
                action: "look at a lock",
                source,
            }));
        }
    }
    introduce(row, id);
    let _was_ours = row.state.ready(id);
    let (mapping, geometry) = (Arc::clone(place.mapping), place.geometry);
    Ok(Joined {
        id,
        mapping,
        geometry,
        bell: Mutex::default(),
        _byte: byte,
    })
}

/// The byte of this slot is locked on a description that this process has in hand.
struct ByteInHand(u16);

impl HeldByte for ByteInHand {
    fn slot(&self) -> u16 {
        self.0
    }
}

/// Writes who we are into a row that is ours and not yet ready.
fn introduce(row: &Row, id: AttachmentId) {
    let identity = Identity::own();
    let now = clock::boot_ms();
    let [boot_low, boot_high] = host::halves(identity.boot_id);
    for (word, value) in [
        (&row.pid, u64::from(identity.pid)),
        (&row.pid_inode, identity.pid_inode),
        (&row.start_ticks, identity.start_ticks),
        (&row.pid_namespace, identity.pid_namespace),
        (&row.boot_id[0], boot_low),
        (&row.boot_id[1], boot_high),
        (&row.check, identity.check(id)),
        (&row.joined_ms, now),
        (&row.beat_ms, now),
    ] {
        // Relaxed: published by READY.
        word.store(value, Ordering::Relaxed);
    }
    store_name(row, &host::command_name());
}

/// Empties the rows whose owner is gone. Needs no byte and no lock: whoever finds a row's byte
/// free may move its generation on, and it happens once.
pub(crate) fn reap(place: &Place<'_>, rows: &[Row], own: Option<AttachmentId>) -> usize {
    let emptied = |(slot, row): &(u16, &Row)| {
        let reaped = row.state.reap(|| ask(*slot, own, place.file));
        let emptied = matches!(reaped, Reaped::Emptied { .. });
        if emptied {
            // Those who slept on a bell that nobody had hung need not wait for their next look.
            bell::wake_rest(&row.bell);
        }
        emptied
    };
    let count = (0u16..).zip(rows).filter(emptied).count();
    let header: &Header = place
        .mapping
        .at(0)
        .expect("the length was compared with the geometry");
    // Relaxed: a count for people; one that is killed before this line leaves it behind.
    header.reaped.fetch_add(count as u64, Ordering::Relaxed);
    count
}
