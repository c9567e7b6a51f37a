//! What children do: one short function a role. A role goes from point to point and waits where it is told to.

mod bench;
mod calls;
mod contender;
mod demo;
pub(crate) mod line_sections;
mod locker;
pub(crate) mod peer;
mod places;
#[expect(unsafe_code, reason = "fork, clone and the like have no safe form")]
pub(crate) mod process;
pub(crate) mod ring;
mod sections;
mod stander;
mod step;
pub(crate) mod survivor;
pub(crate) mod verbs;

use std::ffi::OsString;

use crate::{
    inside, namespaces,
    told::{self, Told},
};

/// A role, by its name on the command line.
type Role = (&'static str, fn(Told));

const ROLES: &[&[Role]] = &[
    &[("probe", namespaces::probe)],
    bench::ROLES,
    calls::ROLES,
    contender::ROLES,
    demo::ROLES,
    locker::ROLES,
    peer::ROLES,
    places::ROLES,
    stander::ROLES,
    ring::ROLES,
    step::ROLES,
    survivor::ROLES,
];

/// Plays the role that the command line names; gives the exit code.
pub(crate) fn play(mut args: Vec<OsString>) -> i32 {
    told::die_with_parent();
    if args.len() >= 2 && args[0] == "--in" {
        let rooms = args.drain(..2).nth(1);
        let rooms = rooms.and_then(|text| text.to_str()?.parse().ok());
        let rooms = rooms.expect("the parent wrote the rooms");
        return namespaces::enter(&rooms, || play_role(args));
    }
    play_role(args)
}

fn play_role(mut args: Vec<OsString>) -> i32 {
    if args.is_empty() {
        eprintln!("a child needs a role");
        return 64;
    }
    let name = args.remove(0);
    let told = Told::new(args);
    if name == "scenario" {
        return inside::run(told);
    }
    match ROLES
        .iter()
        .copied()
        .flatten()
        .find(|(role, _)| name == *role)
    {
        Some((_, role)) => role(told),
        None => {
            eprintln!("no role is called {}", name.display());
            return 64;
        }
    }
    0
}
