//! Memory that several Linux processes map, carve into regions and lock, with proof of death.

#[cfg(not(all(
    target_os = "linux",
    target_endian = "little",
    target_pointer_width = "64"
)))]
compile_error!("arenas need Linux on a 64-bit little-endian processor (x86-64 or aarch64)");
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("arenas need x86-64 or aarch64");

#[doc(hidden)]
pub use bytemuck;
#[doc(hidden)]
pub use static_assertions;

mod arena;
mod attachment;
mod attachment_word;
pub mod clock;
mod create;
mod destroy;
mod error;
mod file;
mod floor;
pub mod futex;
mod host;
mod id;
mod inspect;
pub mod layout;
mod lock;
mod map;
mod options;
mod pidfd;
mod probe;
mod region;
mod view;
mod wake;
mod wiped;

pub use arena::Arena;
pub use attachment::{Attachment, Identity};
pub use attachment_word::RowState;
pub use error::{CarveError, DestroyError, JoinError, OpenError, OutOfBounds};
pub use floor::MAX_FENCE;
pub use host::start_ticks;
pub use id::{AttachmentId, MAX_GENERATION, MAX_SLOTS};
pub use layout::SharedLayout;
pub use lock::{Acquired, LockError, LockGuard, LockWord};
pub use options::ArenaOptions;
pub use pidfd::PidFd;
pub use probe::{Gone, GoneBy, Probe};
pub use region::{Region, RegionInfo};
pub use view::{ArenaView, RegionView};
pub use wake::{Ticket, WakeWord, Woken};
