//! What children do: one short function a role. A role goes from point to point and waits where it is told to.

mod contender;
mod demo;
mod locker;
pub(crate) mod peer;
#[expect(unsafe_code, reason = "fork, clone and the like have no safe form")]
mod process;
mod sections;
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
    contender::ROLES,
    demo::ROLES,
    locker::ROLES,
    peer::ROLES,
    step::ROLES,
    survivor::ROLES,
];

/// Plays the role that the command line names; gives the exit code.
pub(crate) fn play(mut args: Vec<OsString>) -> i32 {
    told::die_with_parent();
    let rooms = |args: &mut Vec<OsString>| {
        let text: Vec<OsString> = args.drain(..2).collect();
        text[1]
            .to_str()
            .and_then(|text| text.parse().ok())
            .expect("the parent wrote the rooms")
    };
    if args.len() >= 2 && args[0] == "--in" {
        return namespaces::enter(&rooms(&mut args), &args);
    }
    if args.len() >= 2 && args[0] == "--settle" {
        let rooms = rooms(&mut args);
        if let Err(e) = namespaces::settle(&rooms) {
            println!("fail mounts: {e}");
            return 1;
        }
    }
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
