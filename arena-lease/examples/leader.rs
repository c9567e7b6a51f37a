//! One of several processes works; when it ends, is killed or stopped, another goes on.
//!
//! Start it in several terminals, and then kill -9, kill -STOP or interrupt the one that leads:
//!
//! ```sh
//! cargo run --example leader
//! ```

use std::error::Error;
use std::thread;
use std::time::Duration;

use arena_lease::{Acquire, Arena, Leases, Renewed};

const TTL: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn Error>> {
    let leases = Leases::open(&Arena::open("leader-example")?)?;
    let lease = leases.lease("leader", TTL)?;
    let pid = std::process::id();
    loop {
        println!("{pid} waits");
        let Acquire::Held(hold) = lease.acquire_timeout(Duration::MAX)? else {
            continue;
        };
        println!(
            "{pid} leads under fence {}: {:?}",
            hold.fence, hold.took_over
        );
        // A tick is a third of the ttl, so that two may be missed.
        for tick in 0..30 {
            thread::sleep(TTL / 3);
            match lease.renew()? {
                Renewed::Held { left, .. } => println!("{pid} works: tick {tick}, {left:.1?} left"),
                Renewed::Lost(lost) => {
                    println!("{pid} lost: {lost:?}");
                    break;
                }
            }
        }
        println!("{pid} steps down: {}", lease.release()?);
    }
}
