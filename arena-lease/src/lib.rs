//! Leases between Linux processes: one holder, a successor when it dies, a fencing token.
//!
//! Processes on one machine agree on who does a job. One of them acquires the lease of that name, keeps it by
//! renewing, and gives it up by releasing. If it is killed, another may take it at once, on the kernel's proof of
//! its death; if it hangs or is stopped, another may take it when its time is over. Each holder has a *fence*, a
//! number larger than that of every holder before, by which whatever it writes to can refuse the one that does not
//! know yet that it lost.
//!
//! # A tour
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir_in("/dev/shm")?;
//! # let path = directory.path().join("demo");
//! use std::time::Duration;
//! use arena_lease::{Acquire, Arena, Leases, Refused, Renewed};
//!
//! // Every process opens the same arena (a name, or a path with a '/'), and the same lease in it.
//! let leases = Leases::open(&Arena::open(&path)?)?;
//! let lease = leases.lease("nightly", Duration::from_secs(30))?;
//!
//! match lease.acquire()? {
//!     Acquire::Held(hold) => {
//!         println!("we lead, under fence {}", hold.fence);
//!         if let Some(took_over) = hold.took_over {
//!             println!("and have to clean up after {took_over:?}");
//!         }
//!     }
//!     Acquire::Refused(Refused::Held { by, lapses_in, .. }) => {
//!         println!("{by} leads, for {lapses_in:?} unless it renews");
//!     }
//!     Acquire::Refused(other) => println!("not now: {other:?}"),
//! }
//!
//! // While the work goes on, well before the ttl is over, again and again:
//! if let Renewed::Lost(lost) = lease.renew()? {
//!     println!("stop working: {lost:?}");
//! }
//! // Cheap, for the inner loop; whatever must not happen twice checks the fence where it happens.
//! assert!(lease.mine());
//!
//! assert!(lease.release()?);
//! assert_eq!(lease.holder(), None);
//! # Ok(()) }
//! ```
//!
//! # Leading
//!
//! Above these verbs, [`lead`] runs a body while this process leads, and a thread renews meanwhile:
//!
//! ```no_run
//! # use std::time::Duration;
//! # fn tick(_fence: u64) {}
//! let led = arena_lease::lead("nightly", |term| {
//!     while term.rest(Duration::from_secs(60)) {
//!         tick(term.fence());
//!     }
//! })?;
//! # Ok::<(), arena_lease::LeadError>(())
//! ```
//!
//! The [`Term`] says whether this process still leads, from a margin before the deadline on that it does not, and in the
//! end, once, why not ([`Loss`]). [`LeadOptions`] has the ttl, the margin, a minimum hold, a limit for work that hangs, and
//! more; [`Lead::lead_again`] contends again after a loss, and [`Lead::contend`] gives a [`LeaseGuard`] for work that is no
//! closure.
//!
//! # More
//!
//! [`Lease::acquire_timeout`] waits for its turn, and a [`Cancel`] ends the wait. [`Leases::watch`]
//! tells whenever another process leads, also by a descriptor. [`Leases::list`] and [`LeasesView`] show who holds what, the
//! latter without taking part. The command `arena-lease` (feature `cli`) does all this around any program:
//! `arena-lease run nightly -n -- backup --full`.
//!
//! # Who holds
//!
//! The process, and not the handle. Two handles of a process on one name both hold. A child of fork holds nothing
//! of its parent's, and neither does a process that happens to get a dead one's pid or slot, or the program that a
//! holder replaces itself with by exec.
//!
//! # Time
//!
//! Deadlines are counted in milliseconds on `CLOCK_BOOTTIME`, which runs on while the machine sleeps, goes at the same
//! rate for every process, and is set by nobody: steps of the wall clock move nothing. A ttl is rounded up to the
//! next millisecond. A process that was stopped, or a machine that slept, for longer than the ttl finds its lease
//! over; a process that finds it over and untaken may renew it. A virtual machine or container that is *moved to
//! another machine* must not take its leases along: they are in that machine's memory and on that machine's clock,
//! and an arena does not attach under another boot id or time namespace.
//!
//! # Fences
//!
//! Strictly increasing for the life of the *name*, also when the arena is destroyed and made anew, because they
//! start at the larger of the microseconds since 1970 and a floor that outlives the arena. The floor is in the
//! memory of the machine, so across a reboot only the wall clock carries them: if it was set back meanwhile by more
//! than the machine was down, fences can repeat. Keep the floor on a disk where that matters
//! (`ArenaOptions::floor_directory`). They fit in 53 bits: safe in JSON, and in a signed SQL integer.
//!
//! What checks them is a [`Gate`] in front of anything that is written in steps, [`Fenced`] for a number in the
//! arena, and for a database the recipe of `examples/sqlite.rs`.
//!
//! # Limits and standbys
//!
//! [`ConcurrencyLimit`] lets at most N processes be at something at once; [`WithStandby`] lets M more wait for it;
//! [`LatestStandby`] lets one work and the newest of the others take over, while older ones bow out. Each place is a
//! lease: `jobs#1`, `jobs#standby1` and so on. They are what the `IPC::ConcurrencyLimit` family is in Perl:
//! [`migration`] has each of its options and methods, and what it is here.
//!
//! # Features
//!
//! - `cli`: the command `arena-lease`.
//! - `tokio`: `Lead::acquire` and `Term::lost` as futures that may be dropped anywhere. They run on any executor; of
//!   tokio they need its channels alone, and one thread of this crate's waits for each `acquire`.
//! - `tracing`: events, under the target `arena_lease`: acquisitions (info), takeovers and losses (warn), releases and
//!   the moves of who waits for a place (info), refusals (debug). Some come from the thread that renews, which a slow
//!   subscriber holds up; a subscriber must not use leases itself.
//!
//! # What it does not do
//!
//! It does not stop a holder that lost and does not look: between two looks of its own, a process that is stopped
//! for longer than its ttl goes on as if it held. Only a check of the fence by whatever is written to helps, and
//! it is the caller's to make.
//!
//! It does not queue: which of several waiters comes next is not defined, and a process that calls
//! [`acquire`](Lease::acquire) at the right moment comes before all of them.
//!
//! It does not reach beyond a machine, nor beyond a container unless /dev/shm is shared; each has its own leases
//! then.
//!
//! It does not notice at once when somebody removes the arena's file with rm(1): until the next renewal, and up to
//! 100 ms longer, two processes can hold, one in the file that is gone and one in a new one. Destroying the arena
//! through the library has no such gap.
//!
//! It does not hear of a death before the kernel says so: at once as a rule, whatever the holder's size; where the
//! kernel is older than 5.15 or the holder in another PID namespace, when its memory has been freed (0.15 s a GiB);
//! and after the dump when it dumps core. The ttl is the limit.
//!
//! It does not defend against a process that writes anything it likes into the arena: whoever may open it for
//! writing can take every lease. What it promises then is errors and wrong answers, and no more than that.

mod cancel;
mod clock;
mod companion;
mod error;
mod family;
mod fenced;
#[cfg(feature = "tokio")]
mod future;
mod gate;
mod gate_protocol;
mod gate_word;
mod guard;
mod keeper;
mod latest;
mod layout;
mod lead;
mod lead_options;
mod leader_watch;
mod lease;
mod leases;
mod limit;
mod limit_view;
mod live;
mod loss;
mod name;
mod named_words;
mod naming;
mod outcome;
mod patience;
mod protocol;
mod shape;
mod shown;
mod snapshot;
mod standby;
mod stats;
mod step;
mod table;
mod term;
mod trace;
mod ttl;
mod view;
mod vigil;
mod wait;
mod word;

#[doc = include_str!("migration.md")]
pub mod migration {}

/// The crate that knows who is attached to an arena, for what is not named here.
pub use arena_peers as peers;
pub use arena_peers::core::MAX_FENCE;
pub use arena_peers::{Arena, ArenaOptions, ArenaView, JoinError, OpenError, PeerId, Verdict};
pub use cancel::Cancel;
pub use clock::{BootClock, Clock};
pub use companion::Companion;
pub use error::{LeaseError, TableError, ViewError};
pub use fenced::{Fenced, StoreError};
pub use gate::{Enter, EnterError, Gate, GateGuard, GateState};
pub use guard::{Contest, LeaseGuard};
pub use latest::{LatestStandby, Succession};
pub use lead::{LeadError, Led, lead};
pub use lead_options::{InvalidLead, Lead, LeadOptions};
pub use leader_watch::LeaderWatch;
pub use lease::Lease;
pub use leases::{Leases, LeasesOptions};
pub use limit::{ConcurrencyLimit, LimitError, Place, PlaceState};
pub use limit_view::LimitState;
pub use loss::Loss;
pub use name::MAX_NAME_BYTES;
pub use named_words::GateOpenError;
pub use outcome::{Acquire, Hold, Lost, Refused, Renewed, TookOver};
pub use patience::{Patience, Waited};
pub use shape::Kind as LimitKind;
pub use standby::{Standby, WithStandby};
pub use stats::{Holder, Stats};
pub use table::MAX_ROWS;
pub use term::Term;
pub use ttl::{InvalidTtl, Ttl};
pub use view::LeasesView;
