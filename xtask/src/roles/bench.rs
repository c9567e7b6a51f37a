//! The processes of `bench`: they take a lease or a file's lock, and wait for one.

use std::{fs::File, time::Duration};

use arena_core::clock;
use arena_lease::{Acquire, LatestStandby, Lead, Lease, Patience, Place};
use nix::fcntl::{Flock, FlockArg};

use super::{Role, peer::options, verbs::table};
use crate::told::Told;

pub(super) const ROLES: &[Role] = &[("bench-holder", holder), ("bench-waiter", waiter)];

/// Holds with so much memory resident until it is killed; renews every `renew` ms if that is not 0. The arguments: what
/// (`lease`, `flock`, `standby`), path, MiB, renew.
fn holder(mut told: Told) {
    let mut post = Post::new(&told.arg(), &told.arg());
    let (mib, renew_ms) = (told.number(), told.number());
    let bytes = usize::try_from(mib << 20).expect("memory fits the address space");
    let resident = vec![1_u8; bytes];
    post.take();
    told.say("holds");
    if renew_ms > 0 {
        loop {
            std::thread::sleep(Duration::from_millis(renew_ms));
            post.renew();
        }
    }
    told.rest();
    drop(std::hint::black_box(resident));
}

/// Told `wait`: blocks until it holds, and says when that was, in ns of the boot clock. Told `leave`: gives it up. The
/// arguments: what, path.
fn waiter(mut told: Told) {
    let mut post = Post::new(&told.arg(), &told.arg());
    told.say("waiter");
    loop {
        match told.hear().as_str() {
            "wait" => {
                post.take();
                told.say(&format!("took {}", clock::boot_ns()));
            }
            _ => {
                post.leave();
                told.say("left");
            }
        }
    }
}

/// Something that one process has at a time.
enum Post {
    Lease(Lease),
    Flock(Option<File>, Option<Flock<File>>),
    Standby(LatestStandby, Option<Place>),
}

impl Post {
    fn new(what: &str, path: &str) -> Self {
        if what == "flock" {
            let mut writable = File::options();
            let file = writable.write(true).create(true).truncate(false).open(path);
            return Self::Flock(Some(file.expect("the directory is there")), None);
        }
        let arena = options().open(path).expect("the arena opens");
        let leases = table(&arena).expect("the table opens");
        if what == "standby" {
            let latest = LatestStandby::open(&leases, "line", &Lead::default());
            return Self::Standby(latest.expect("there is room for a name"), None);
        }
        let lease = leases.lease("job", Duration::from_secs(30));
        Self::Lease(lease.expect("there is room for a name"))
    }

    /// Blocks until this process has it.
    fn take(&mut self) {
        match self {
            Self::Lease(lease) => {
                let outcome = lease.acquire_timeout(Duration::MAX);
                assert!(matches!(outcome, Ok(Acquire::Held(_))), "{outcome:?}");
            }
            Self::Standby(latest, place) => {
                let how = latest.acquire(&Patience::new());
                let how = how.expect("the line is whole").primary();
                *place = Some(how.expect("nobody else comes"));
            }
            Self::Flock(file, lock) => {
                let file = file.take().expect("it is not locked yet");
                let locked = Flock::lock(file, FlockArg::LockExclusive);
                *lock = Some(locked.map_err(|(_, e)| e).expect("the file can be locked"));
            }
        }
    }

    fn renew(&self) {
        let lease = match self {
            Self::Lease(lease) => Some(lease),
            Self::Standby(_, place) => place.as_ref().map(|place| place.lease()),
            Self::Flock(..) => None,
        };
        if let Some(lease) = lease {
            let renewed = lease.renew();
            assert!(
                renewed.as_ref().is_ok_and(|renewed| renewed.is_held()),
                "{renewed:?}"
            );
        }
    }

    fn leave(&mut self) {
        match self {
            Self::Lease(lease) => {
                let released = lease.release();
                assert!(matches!(released, Ok(true)), "{released:?}");
            }
            Self::Standby(_, place) => {
                let place = place.take().expect("it works");
                place.release().expect("nobody else took it");
            }
            Self::Flock(file, lock) => {
                let locked = lock.take().expect("it is locked");
                *file = Some(locked.unlock().map_err(|(_, e)| e).expect("unlocked"));
            }
        }
    }
}
