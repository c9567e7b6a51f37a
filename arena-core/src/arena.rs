//! The arena: a mapping that this process is attached to.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::fcntl::OFlag;

use crate::attachment::{self, Attachment, Joined, Place};
use crate::attachment_word::Life;
use crate::bell::{Bell, BellError, SeenBell};
use crate::create::{self, Created};
use crate::destroy;
use crate::error::{CarveError, DestroyError, JoinError, OpenError};
use crate::file::{ArenaFile, reopen};
use crate::floor::{FENCES, Floors, MAX_FENCE, least_fence};
use crate::futex::Word;
use crate::id::AttachmentId;
use crate::inspect::{Inspected, inspect, open_file};
use crate::layout::{Geometry, Header, Row, fnv};
use crate::lock::{Acquired, Environment, LockError, LockWord};
use crate::map::Mapping;
use crate::options::ArenaOptions;
use crate::probe::{Gone, Probe, may_have_stand_in, outlived, probe};
use crate::region::{self, Region, RegionInfo};
use crate::wiped::WipedPage;

/// Memory that several processes have mapped, with this process attached to it
/// ([unless that was to wait](ArenaOptions::unattached)).
///
/// A handle: clones share the mapping, opening the same arena again makes another mapping of it,
/// and all handles of a process share one attachment, which ends when the last of them is
/// dropped. A child made by fork may use the handles it inherits: it gets an attachment of its own
/// when it first needs one, and holds nothing of its parent's.
#[derive(Debug, Clone)]
pub struct Arena {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: ArenaFile,
    mapping: Arc<Mapping>,
    geometry: Geometry,
    /// Word 0: this process's id, 0 before it joined; word 1: its `Joined`, as a raw Arc; word 2: 1
    /// once its bell hangs. All are 0 again in a child.
    own: WipedPage,
    floors: Option<Floors>,
    owner: u32,
    time_namespace: u64,
    least_fence: u64,
    busy_timeout: Duration,
    created: bool,
}

impl Arena {
    /// Attaches to the arena of this name, or creates it with the default options: see
    /// [`ArenaOptions::open`].
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what was found and what was expected.
    pub fn open(name: impl AsRef<OsStr>) -> Result<Arena, OpenError> {
        ArenaOptions::new().open(name)
    }

    /// Attaches to the arena of this name with the default options; never creates one: see
    /// [`ArenaOptions::attach`].
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and [`OpenError::NotFound`].
    pub fn attach(name: impl AsRef<OsStr>) -> Result<Arena, OpenError> {
        ArenaOptions::new().attach(name)
    }

    /// Attaches to the arena behind a descriptor: see [`ArenaOptions::from_fd`].
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn from_fd(fd: OwnedFd) -> Result<Arena, OpenError> {
        ArenaOptions::new().from_fd(fd)
    }

    pub(crate) fn open_or_create(options: &ArenaOptions, name: &OsStr) -> Result<Arena, OpenError> {
        /// Each turn means that somebody else created or destroyed the name meanwhile.
        const TURNS: u32 = 100;
        let path = options.path(name)?;
        let geometry = options.geometry()?;
        for _ in 0..TURNS {
            match Arena::attach_path(options, &path) {
                Err(OpenError::NotFound { .. }) => {}
                // Whoever used it ended with that boot; unless somebody holds a byte.
                Err(OpenError::OtherBoot { .. }) => {
                    destroy::finish(options, &path)?;
                    continue;
                }
                other => return other,
            }
            if let Created::Ours(fd) = create::create_named(&path, options, geometry)? {
                match Arena::map(options, fd, Some(&path), true) {
                    // Destroyed by others already.
                    Err(OpenError::NotFound { .. }) => {}
                    other => return other,
                }
            }
        }
        Err(OpenError::Contended { path })
    }

    pub(crate) fn attach_named(options: &ArenaOptions, name: &OsStr) -> Result<Arena, OpenError> {
        Arena::attach_path(options, &options.path(name)?)
    }

    pub(crate) fn open_unattached(
        options: &ArenaOptions,
        name: &OsStr,
    ) -> Result<Arena, OpenError> {
        Arena::map_path(options, &options.path(name)?)
    }

    fn attach_path(options: &ArenaOptions, path: &Path) -> Result<Arena, OpenError> {
        Arena::map_path(options, path)?.attached()
    }

    fn map_path(options: &ArenaOptions, path: &Path) -> Result<Arena, OpenError> {
        let fd = open_file(path, OFlag::O_RDWR)?;
        let inspected = inspect(&fd, Some(path), options)?;
        if inspected.header.gone != 0 {
            drop(fd);
            destroy::finish(options, path)?;
            return Err(OpenError::NotFound { path: path.into() });
        }
        Arena::map_inspected(options, fd, Some(path), false, &inspected)
    }

    pub(crate) fn create_anonymous(options: &ArenaOptions) -> Result<Arena, OpenError> {
        let fd = create::create_anonymous(options, options.geometry()?)?;
        Arena::map(options, fd, None, true)
    }

    pub(crate) fn attach_fd(options: &ArenaOptions, fd: OwnedFd) -> Result<Arena, OpenError> {
        let shown = Path::new(UNNAMED);
        inspect(&fd, None, options)?;
        let own = reopen(&fd, OFlag::O_RDWR).map_err(|source| OpenError::Io {
            path: shown.into(),
            action: "open again through /proc",
            source,
        })?;
        Arena::map(options, own, None, false)
    }

    fn map(
        options: &ArenaOptions,
        fd: OwnedFd,
        path: Option<&Path>,
        created: bool,
    ) -> Result<Arena, OpenError> {
        let inspected = inspect(&fd, path, options)?;
        Arena::map_inspected(options, fd, path, created, &inspected)?.attached()
    }

    fn map_inspected(
        options: &ArenaOptions,
        fd: OwnedFd,
        path: Option<&Path>,
        created: bool,
        inspected: &Inspected,
    ) -> Result<Arena, OpenError> {
        let shown = path.unwrap_or(Path::new(UNNAMED));
        let io = |action| {
            move |source| OpenError::Io {
                path: shown.into(),
                action,
                source,
            }
        };
        let geometry = inspected.geometry;
        let mapping = Mapping::writable(fd.as_fd(), geometry.len_bytes()).map_err(io("map"))?;
        let floors = path.map(|path| Floors::new(path, options, inspected.owner));
        let arena = Arena {
            inner: Arc::new(Inner {
                file: ArenaFile::new(fd, path.map(PathBuf::from), OFlag::O_RDWR)
                    .map_err(io("look at"))?,
                mapping: Arc::new(mapping),
                geometry,
                own: WipedPage::new().map_err(io("map a page for"))?,
                owner: inspected.owner,
                time_namespace: inspected.header.time_namespace,
                least_fence: least_fence(inspected.header.created_us),
                busy_timeout: options.busy_timeout,
                created,
                floors,
            }),
        };
        if let Some(floors) = &arena.inner.floors {
            arena.settle(floors, options)?;
        }
        Ok(arena)
    }

    /// Takes a slot in it, unless it was destroyed before.
    fn attached(self) -> Result<Arena, OpenError> {
        self.me()?;
        match self.path().filter(|_| self.is_gone()) {
            Some(path) => Err(OpenError::NotFound { path: path.into() }),
            None => Ok(self),
        }
    }

    /// Raises the least fence above all that were ever given out under the name.
    ///
    /// An earlier arena of this name may have given out more after this one's creator made its claim. It
    /// raised the floor before it gave the name up, and the name led here after that: the first opener
    /// sees it, and nobody who makes fences here has not opened. Later the floor rises because of other
    /// names, and looking again would only make fences jump; so it is looked at again for the
    /// sake of a second directory alone, which who settled it did not know.
    fn settle(&self, floors: &Floors, options: &ArenaOptions) -> Result<(), OpenError> {
        let header = self.header();
        // Which second directory it was settled with; 1: with none.
        let with = options.floor_directory.as_deref().map_or(1, |directory| {
            fnv(1, directory.as_os_str().as_encoded_bytes()) | 2
        });
        // EDGE fence minimum, acquire half: whoever settled it has raised it.
        match header.settled.load(Ordering::Acquire) {
            0 => {}
            settled if with == 1 || settled == with => return Ok(()),
            _ => {}
        }
        // Before the floor: what is claimed for this arena meanwhile makes a jump and no harm.
        let claimed = header.fences_below.load(Ordering::SeqCst);
        let floor = floors.read()?;
        if floor > claimed {
            // EDGE fence minimum, release half: raised before this process makes a fence.
            let least = (floor + 1).min(MAX_FENCE);
            header.fence_minimum.fetch_max(least, Ordering::AcqRel);
        }
        // EDGE fence minimum, release half.
        header.settled.store(with, Ordering::Release);
        Ok(())
    }

    /// Whether this handle's opening created the arena.
    #[must_use]
    pub fn created(&self) -> bool {
        self.inner.created
    }

    /// The file's name; `None` for an arena without one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.inner.file.path()
    }

    /// The length of the whole arena.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.mapping().len_bytes()
    }

    /// Where this handle's mapping starts: another address in every process and for every opening.
    #[must_use]
    pub fn base_address(&self) -> usize {
        self.mapping().base_address()
    }

    /// A descriptor of the arena, to be passed to another process for
    /// [`from_fd`](Self::from_fd). A few system calls. Not for reading or moving in it: the arena
    /// knows its own description by its offset, and one that was moved is no longer used.
    ///
    /// # Errors
    ///
    /// When the descriptor was closed behind the arena's back and the file has no name.
    pub fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.inner.file.descriptor()
    }

    /// Finds the region of this name, or carves it out of what is left.
    ///
    /// `kind` is the fingerprint of what the region holds ([`FINGERPRINT`] of
    /// its type, or any number that the users of the name agree
    /// on). A region found must be of this kind and at least this long. A new one reads as
    /// zeros and is never freed. Finding takes no lock; carving a *new* name takes the arena's.
    ///
    /// # Errors
    ///
    /// [`CarveError::OtherShape`]; [`CarveError::Full`] and [`CarveError::TooMany`] take nothing;
    /// [`CarveError::Lock`] after the busy timeout, when a process is stopped while it carves.
    ///
    /// [`FINGERPRINT`]: crate::SharedLayout::FINGERPRINT
    pub fn carve(&self, name: &[u8], kind: u64, len_bytes: u64) -> Result<Region, CarveError> {
        region::carve(self, name, kind, len_bytes)
    }

    /// Finds the region of this name. No lock, no system call.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<Region> {
        region::find(self.mapping(), self.inner.geometry, name)
            .map(|info| Region::new(self.clone(), &info))
    }

    /// The regions, in the order in which they were carved.
    #[must_use]
    pub fn regions(&self) -> Vec<RegionInfo> {
        region::list(self.mapping(), self.inner.geometry).regions
    }

    /// How many entries of the table of regions are refused because what they say cannot be: 0
    /// unless the arena is damaged. Looks at the whole table.
    #[must_use]
    pub fn refused(&self) -> u64 {
        region::list(self.mapping(), self.inner.geometry).refused
    }

    /// Whether the arena was destroyed: nothing in it is held any more. One load.
    #[must_use]
    #[inline]
    pub fn is_gone(&self) -> bool {
        // EDGE gone, acquire half: SeqCst, for the agreement with `reserve_fence`.
        self.header().gone.load(Ordering::SeqCst) != 0
    }

    /// What it takes to sleep until the arena is destroyed: a word that is 0 until then, and whose
    /// sleepers are woken by the destruction, or by whoever finishes it.
    #[must_use]
    pub fn gone_word(&self) -> Word<'_> {
        Word::low_half_of(&self.header().gone)
    }

    /// Whether the arena's name no longer leads to it, because somebody removed, moved or replaced
    /// the file: others who open the name get another arena. Always `false` without a name. One to
    /// four system calls. A process that changed its root directory learns of a removal alone.
    #[must_use]
    pub fn is_unlinked(&self) -> bool {
        self.inner.file.is_unlinked()
    }

    /// Ends the arena: marks it as gone, raises the floor of fences, removes the name.
    ///
    /// From the mark on no lease in it is held. Mappings live on. Killed anywhere, whoever next
    /// opens the name finishes it. A few system calls.
    ///
    /// # Errors
    ///
    /// [`DestroyError::Owner`] for whoever may not remove the file, [`DestroyError::Busy`] when
    /// another process does the same and is stopped.
    pub fn destroy(&self) -> Result<(), DestroyError> {
        destroy::destroy(self)
    }

    /// This process's attachment. Two loads; in a child of fork, or where it was opened
    /// [unattached](ArenaOptions::unattached), as costly as attaching the first time.
    ///
    /// # Errors
    ///
    /// Only there: [`JoinError`].
    #[inline]
    pub fn me(&self) -> Result<AttachmentId, JoinError> {
        match self.me_if_joined() {
            Some(id) => Ok(id),
            None => self.join(),
        }
    }

    /// This process's attachment; `None` where it has none yet. One load.
    #[must_use]
    #[inline]
    pub fn me_if_joined(&self) -> Option<AttachmentId> {
        self.inner.me_now()
    }

    #[cold]
    fn join(&self) -> Result<AttachmentId, JoinError> {
        let joined = attachment::join(&self.place())?;
        let id = joined.id;
        let raw = Arc::into_raw(joined);
        // EDGE joined, release half. Two threads may come here at once, with the same `Joined`.
        let first = self.inner.own.word::<1>().compare_exchange(
            0,
            raw.expose_provenance() as u64,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if first.is_err() {
            joined_from(raw.expose_provenance() as u64);
        }
        // EDGE joined, release half.
        self.inner
            .own
            .word::<0>()
            .store(id.to_bits(), Ordering::Release);
        Ok(id)
    }

    fn place(&self) -> Place<'_> {
        Place {
            file: &self.inner.file,
            mapping: &self.inner.mapping,
            geometry: self.inner.geometry,
            time_namespace: self.inner.time_namespace,
        }
    }

    /// How many processes can be attached at once.
    #[must_use]
    pub fn slots(&self) -> u16 {
        self.inner.geometry.slots
    }

    /// A row as it is now; `None` for an empty one, and for a slot that there is not.
    #[must_use]
    pub fn attachment(&self, slot: u16) -> Option<Attachment> {
        attachment::snapshot(slot, self.rows().get(usize::from(slot))?)
    }

    /// All rows that are not empty, those of processes that died without leaving included.
    #[must_use]
    pub fn attachments(&self) -> Vec<Attachment> {
        (0u16..)
            .zip(self.rows())
            .filter_map(|(slot, row)| attachment::snapshot(slot, row))
            .collect()
    }

    /// Asks whether the process that was attached as `id` is gone: by its generation (no system
    /// call), then by its byte (three). Right from every namespace.
    pub fn probe(&self, id: AttachmentId) -> Probe {
        let own = self.me_if_joined();
        probe(id, self.rows(), own, &self.inner.file)
    }

    /// A descriptor that stands in for this process, for a child to inherit that works on its behalf:
    /// as long as this one or a copy of it is open anywhere, also after this process's death,
    /// [`may_have_stand_in`](Self::may_have_stand_in) is `true` of it.
    ///
    /// It closes on exec until that is changed, leads to the arena for reading, and has a shared lock on a
    /// byte beyond its end. Children that are forked meanwhile have it too, and pass it on. A few system calls.
    ///
    /// # Errors
    ///
    /// [`JoinError`].
    pub fn stand_in(&self) -> Result<OwnedFd, JoinError> {
        attachment::stand_in(&self.inner.file, self.me()?)
    }

    /// Whether a [`stand_in`](Self::stand_in) of `id` may be open somewhere; `false` when the kernel says that
    /// none is. Three system calls, right from every namespace.
    ///
    /// Whoever may read the file can lock the byte as well.
    #[must_use]
    pub fn may_have_stand_in(&self, id: AttachmentId) -> bool {
        may_have_stand_in(id, self.me_if_joined(), &self.inner.file)
    }

    /// The proof that `id` is gone, if its row is a later occupant's or nobody's: what
    /// [`probe`](Self::probe) says without a system call. One load.
    #[must_use]
    pub fn outlived(&self, id: AttachmentId) -> Option<Gone> {
        outlived(id, self.rows())
    }

    /// Hangs this process's bell, so that others notice at once when it begins to die.
    ///
    /// The first call starts a thread that sleeps until this process leaves the arena; later ones are
    /// two loads. A process without a bell is judged correctly, but later if it is large.
    ///
    /// # Errors
    ///
    /// [`BellError`]: the process goes on without. The system is asked again once a second at most.
    #[inline]
    pub fn hang_bell(&self) -> Result<(), BellError> {
        // Relaxed: whether there is something to do; the bell itself is looked at by others alone. A child finds 0.
        if self.inner.own.word::<2>().load(Ordering::Relaxed) == 0 {
            let _me = self.me()?;
            attachment::join(&self.place())?.hang_bell()?;
            // Relaxed: as above.
            self.inner.own.word::<2>().store(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The bell of whoever sits in this slot; `None` for a slot that there is not. One load.
    ///
    /// Whose it is the row says, when it is looked at *after* the bell.
    #[must_use]
    pub fn bell(&self, slot: u16) -> Option<Bell> {
        Some(self.seen_bell(slot)?.state())
    }

    /// As [`bell`](Self::bell), with what it takes to sleep on it.
    #[must_use]
    pub fn seen_bell(&self, slot: u16) -> Option<SeenBell<'_>> {
        let row = self.rows().get(usize::from(slot))?;
        Some(SeenBell::look(&row.bell))
    }

    /// Empties the rows of processes that are gone, and says how many. A system call a row that is
    /// taken. Also done by whoever finds no free slot.
    pub fn reap(&self) -> usize {
        attachment::reap(&self.place(), self.rows(), self.me_if_joined())
    }

    /// How many rows were emptied because their process died without leaving, since the arena was
    /// made. May trail.
    #[must_use]
    pub fn reaped(&self) -> u64 {
        // Relaxed: a count for people.
        self.header().reaped.load(Ordering::Relaxed)
    }

    /// Renames this process's row: at most 40 bytes are kept, up to the first NUL.
    ///
    /// # Errors
    ///
    /// Only in a child of fork: [`JoinError`].
    pub fn set_name(&self, name: &[u8]) -> Result<(), JoinError> {
        attachment::store_name(self.own_row()?, name);
        Ok(())
    }

    /// Notes the boot clock in this process's row: a sign of life for people who look, which
    /// decides nothing.
    ///
    /// # Errors
    ///
    /// Only in a child of fork: [`JoinError`].
    pub fn beat(&self) -> Result<(), JoinError> {
        // Relaxed: shown, and nothing is decided by it.
        self.own_row()?
            .beat_ms
            .store(crate::clock::boot_ms(), Ordering::Relaxed);
        Ok(())
    }

    /// Takes a robust lock that lies in this arena, waiting for at most `timeout`.
    ///
    /// One exchange when it is free. A holder that is stopped is waited for; one that is proven gone
    /// is inherited from, and [`Acquired::Inherited`] says that what the lock guards may be half
    /// changed. `timeout` is measured on `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    ///
    /// [`LockError::Busy`] names the holder at the deadline; [`LockError::Corrupt`] comes at once.
    ///
    /// # Panics
    ///
    /// When the word does not lie in this handle's mapping: elsewhere this process's id is
    /// somebody else's.
    pub fn lock<'a>(
        &'a self,
        word: &'a LockWord,
        timeout: Duration,
    ) -> Result<Acquired<'a>, LockError> {
        let at = std::ptr::from_ref(word).addr();
        let inside = self.base_address()..self.base_address() + self.mapping().len();
        assert!(
            inside.contains(&at),
            "a lock is taken through the handle of its own arena"
        );
        word.acquire(self.me()?, &*self.inner, timeout)
    }

    /// Takes a robust lock if it is free or its holder is proven gone. Never sleeps.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    pub fn try_lock<'a>(&'a self, word: &'a LockWord) -> Result<Acquired<'a>, LockError> {
        self.lock(word, Duration::ZERO)
    }

    fn own_row(&self) -> Result<&Row, JoinError> {
        Ok(&self.rows()[usize::from(self.me()?.slot())])
    }

    /// Every fence that is made from now on must be at least this. One load.
    #[must_use]
    #[inline]
    pub fn fence_minimum(&self) -> u64 {
        // EDGE fence minimum, acquire half.
        let noted = self.header().fence_minimum.load(Ordering::Acquire);
        // A damaged word must not make them fall.
        noted.max(self.inner.least_fence)
    }

    /// Notes that `fence` is about to be given out, so that no later arena of this name gives it
    /// out again. Call it before the exchange that gives the fence out, and look at
    /// [`is_gone`](Self::is_gone) after. One load; once in a quarter of a million fences, when a claim is
    /// used up, about ten system calls.
    ///
    /// A process that cannot write the floor (it is the arena's owner's; an arena by descriptor has none)
    /// makes its note in the arena alone: destroying honours it, and rm(1) does not.
    ///
    /// `false`: there is no such fence, 53 bits are exhausted.
    #[must_use]
    #[inline]
    pub fn reserve_fence(&self, fence: u64) -> bool {
        if fence >= MAX_FENCE {
            return false;
        }
        // EDGE fences, acquire half: a note that is high enough was made before.
        if fence >= self.header().fences_below.load(Ordering::SeqCst) {
            self.claim_more(fence);
        }
        true
    }

    #[cold]
    fn claim_more(&self, fence: u64) {
        let least = fence.saturating_add(FENCES).min(MAX_FENCE);
        // A floor below another root is another floor.
        let floors = self.floors().filter(|_| self.inner.file.sees_its_path());
        let below = match floors.and_then(|floors| floors.raise(least).ok()) {
            Some(floor) => floor.max(least),
            // Of this one alone, so that whoever can raise the floor does so next.
            None => fence + 1,
        };
        // EDGE fences, release half: SeqCst, because either who destroys sees this note, or we see its
        // mark.
        self.header()
            .fences_below
            .fetch_max(below, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        self.mapping()
            .at(0)
            .expect("the length was compared with the geometry")
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.inner.mapping
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.inner.geometry
    }

    pub(crate) fn rows(&self) -> &[Row] {
        attachment::rows(self.mapping(), self.inner.geometry)
    }

    pub(crate) fn file(&self) -> &ArenaFile {
        &self.inner.file
    }

    pub(crate) fn floors(&self) -> Option<&Floors> {
        self.inner.floors.as_ref()
    }

    pub(crate) fn owner(&self) -> u32 {
        self.inner.owner
    }

    pub(crate) fn busy_timeout(&self) -> Duration {
        self.inner.busy_timeout
    }
}

/// What the robust lock asks.
impl Environment for Inner {
    fn life(&self, id: AttachmentId) -> Life {
        let rows = attachment::rows(&self.mapping, self.geometry);
        match probe(id, rows, self.me_now(), &self.file) {
            Probe::Gone(_) => Life::Gone,
            Probe::Held => Life::Held,
            Probe::Unknown => Life::Unknown,
        }
    }

    fn pid_of(&self, id: AttachmentId) -> u32 {
        attachment::rows(&self.mapping, self.geometry)
            .get(usize::from(id.slot()))
            .and_then(|row| attachment::snapshot(id.slot(), row))
            .filter(|found| found.id == id)
            .and_then(|found| found.identity)
            .map_or(0, |identity| identity.pid)
    }

    #[inline]
    fn me_now(&self) -> Option<AttachmentId> {
        // EDGE joined, acquire half: this process's own row is ready.
        AttachmentId::from_bits(self.own.word::<0>().load(Ordering::Acquire))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Relaxed: the last handle is gone, so nobody else looks.
        let raw = self.own.word::<1>().load(Ordering::Relaxed);
        if raw != 0 {
            joined_from(raw);
        }
    }
}

/// How an arena without a name is called in messages.
const UNNAMED: &str = "descriptor";

/// Gives back the share of a `Joined` that `join` turned into a number.
#[expect(
    unsafe_code,
    reason = "the share is kept as a number in memory that fork wipes"
)]
fn joined_from(raw: u64) {
    let address = usize::try_from(raw).expect("an address was stored");
    // SAFETY: the number came from Arc::into_raw in this process (a child reads 0), and each
    // caller gives its share back once: `join` when it did not store it, `drop` when it was.
    let joined = unsafe { Arc::from_raw(std::ptr::with_exposed_provenance::<Joined>(address)) };
    attachment::give_back(joined);
}
