//! A process that does one verb many times between two marks, so that its system calls can be counted.

use std::time::Duration;

use arena_core::{Arena, clock};
use arena_lease::{Acquire, Lease, Refused};
use arena_peers::{PeerId, Peers, Verdict};

use super::{Role, peer::options, verbs::table};
use crate::{told::Told, tracee::mark};

pub(super) const ROLES: &[Role] = &[("caller", caller)];

/// Told `VERB TIMES`: does it so often between two marks. Told `ask`: does a round of everything, outside of marks. The
/// argument: the path of an arena in which another process holds "theirs".
fn caller(mut told: Told) {
    let arena = options()
        .open(told.arg())
        .expect("the scenario's arena opens");
    let caller = Caller::new(&arena);
    told.say("caller");
    loop {
        let line = told.hear();
        let Some((verb, times)) = line.split_once(' ') else {
            caller.ask();
            told.say("asked");
            continue;
        };
        let times: u32 = times.parse().expect("the scenario gives a number here");
        mark();
        for _ in 0..times {
            caller.verb(verb);
        }
        mark();
        told.say("called");
    }
}

struct Caller {
    peers: Peers,
    theirs: Lease,
    mine: Lease,
    cycled: Lease,
    holder: PeerId,
}

impl Caller {
    fn new(arena: &Arena) -> Self {
        let leases = table(arena).expect("the table opens");
        let lease = |name| {
            let hour = Duration::from_secs(3_600);
            leases.lease(name, hour).expect("there is room for a name")
        };
        let (mine, theirs) = (lease("mine"), lease("theirs"));
        held(&mine);
        let holder = match theirs.acquire() {
            Ok(Acquire::Refused(Refused::Held { by, .. })) => by,
            other => panic!("another process should hold: {other:?}"),
        };
        Self {
            peers: Peers::new(arena),
            cycled: lease("cycled"),
            theirs,
            mine,
            holder,
        }
    }

    /// What the verbs ask the system now and then is asked now: whether the file is there, whether the holder lives.
    fn ask(&self) {
        for verb in ["renew", "cycle", "acquire", "holder"] {
            self.verb(verb);
        }
    }

    fn verb(&self, verb: &str) {
        let as_it_must = match verb {
            "mine" => self.mine.mine(),
            "renew" => self.mine.renew().is_ok_and(|renewed| renewed.is_held()),
            "acquire" => matches!(self.theirs.acquire(), Ok(Acquire::Refused(_))),
            "holder" => self
                .theirs
                .holder()
                .is_some_and(|by| by.peer == self.holder),
            "cycle" => {
                held(&self.cycled);
                self.cycled.release().is_ok_and(|released| released)
            }
            "clock" => clock::boot_ns() > 0,
            "verdict" => self.peers.verdict(self.holder) == Verdict::Alive,
            "getppid" => nix::unistd::getppid().as_raw() >= 0,
            other => panic!("no verb is called {other}"),
        };
        assert!(as_it_must, "{verb} went wrong");
    }
}

fn held(lease: &Lease) {
    let outcome = lease.acquire();
    assert!(matches!(outcome, Ok(Acquire::Held(_))), "{outcome:?}");
}
