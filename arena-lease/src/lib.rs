//! Leases between Linux processes: one holder, a successor when it dies, a fencing token.

mod clock;
mod error;
mod layout;
mod lease;
mod leases;
mod name;
mod naming;
mod outcome;
mod protocol;
mod snapshot;
mod stats;
mod step;
mod table;
mod ttl;
mod view;
mod word;

/// The crate that knows who is attached to an arena, for what is not named here.
pub use arena_peers as peers;
pub use arena_peers::{Arena, ArenaOptions, ArenaView, JoinError, OpenError, PeerId, Verdict};
pub use clock::{BootClock, Clock};
pub use error::{LeaseError, TableError};
pub use lease::Lease;
pub use leases::{Leases, LeasesOptions};
pub use name::MAX_NAME_BYTES;
pub use outcome::{Acquire, Hold, Lost, Refused, Renewed, TookOver};
pub use stats::{Holder, Stats};
pub use table::MAX_ROWS;
pub use ttl::{InvalidTtl, Ttl};
pub use view::LeasesView;
