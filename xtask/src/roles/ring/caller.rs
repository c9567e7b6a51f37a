//! A process that publishes or reads many times between two marks, so that its system calls can be counted.

use arena_ring::{Cursor, PublishError, Published, Ring};

use super::opened;
use crate::{told::Told, tracee::mark};

/// Told `VERB TIMES`: does it so often between two marks. The arguments: path, ring.
pub(super) fn caller(mut told: Told) {
    let (_arena, ring) = opened(&mut told);
    let mut cursor = ring.cursor();
    told.say("caller");
    loop {
        let line = told.hear();
        let (verb, times) = line.split_once(' ').expect("the scenario tells both");
        let times: u32 = times.parse().expect("the scenario gives a number here");
        mark();
        for _ in 0..times {
            do_it(&ring, &mut cursor, verb);
        }
        mark();
        told.say("called");
    }
}

fn do_it(ring: &Ring, cursor: &mut Cursor, verb: &str) {
    let committed =
        |published: Result<Published, PublishError>| published.is_ok_and(Published::is_committed);
    let long = [7; 500];
    let as_it_must = match verb {
        "publish" => committed(ring.publish(b"topic", b"payload")),
        "span" => committed(ring.publish(b"topic", &long)),
        "many" => {
            let some: [(&[u8], &[u8]); 3] = [(b"a", b"b"), (b"", &long), (b"c", b"")];
            let published = ring.publish_many(&some);
            published.is_ok_and(|published| published.is_some_and(Published::is_committed))
        }
        "reserve" => ring.reserve(b"topic", 100).is_ok_and(|mut open| {
            open.write(3, b"payload").expect("it is inside");
            committed(open.commit())
        }),
        "drop" => ring.reserve(b"topic", 100).is_ok(),
        // What it finds: what was published before, or nothing.
        "read" => cursor.drain(3, |_| ()).is_ok(),
        "getppid" => nix::unistd::getppid().as_raw() >= 0,
        other => panic!("no verb is called {other}"),
    };
    assert!(as_it_must, "{verb} went wrong");
}

/// Sleeps until there is a record, passes over all there is, says so and waits to be told; again and again. The arguments: path, ring.
pub(super) fn sleeper(mut told: Told) {
    let (_arena, ring) = opened(&mut told);
    let mut cursor = ring.cursor();
    told.say("sleeps");
    loop {
        let found = cursor.next_timeout(None).expect("the ring is whole");
        found.expect("without a timeout there is a record in the end");
        cursor = ring.cursor();
        told.at("woken");
    }
}
