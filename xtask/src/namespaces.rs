//! Roles in new namespaces: user (when that is what it takes), PID, mount and time.

use std::{fmt, path::PathBuf, str::FromStr};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::wait::{WaitStatus, waitpid},
    unistd::{getegid, geteuid},
};

use crate::{roles::process, told::Told};

/// Which namespaces are new.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rooms {
    /// The role is pid 1.
    pub(crate) pid: bool,
    /// /proc is mounted anew, for the PID namespace.
    pub(crate) fresh_proc: bool,
    /// /proc is covered by an empty file system.
    pub(crate) hidden_proc: bool,
    /// The boot clock is this many seconds ahead.
    pub(crate) clock_ahead: Option<u32>,
    /// A tmpfs of so many bytes is mounted here.
    pub(crate) tmpfs: Option<(PathBuf, u64)>,
}

impl fmt::Display for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.pid.then(|| "pid".to_owned()));
        parts.extend(self.fresh_proc.then(|| "fresh-proc".to_owned()));
        parts.extend(self.hidden_proc.then(|| "hidden-proc".to_owned()));
        parts.extend(
            self.clock_ahead
                .map(|seconds| format!("clock-ahead={seconds}")),
        );
        parts.extend(
            self.tmpfs
                .as_ref()
                .map(|(path, bytes)| format!("tmpfs={bytes}:{}", path.display())),
        );
        f.write_str(&parts.join(","))
    }
}

impl FromStr for Rooms {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rooms = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name {
                "pid" => rooms.pid = true,
                "fresh-proc" => rooms.fresh_proc = true,
                "hidden-proc" => rooms.hidden_proc = true,
                "clock-ahead" => {
                    rooms.clock_ahead =
                        Some(value.parse().map_err(|_| format!("no seconds: {value}"))?)
                }
                "tmpfs" => {
                    let (bytes, path) = value
                        .split_once(':')
                        .ok_or_else(|| format!("no path: {value}"))?;
                    rooms.tmpfs = Some((
                        path.into(),
                        bytes.parse().map_err(|_| format!("no bytes: {bytes}"))?,
                    ));
                }
                _ => return Err(format!("no such namespace: {part}")),
            }
        }
        Ok(rooms)
    }
}

impl Rooms {
    fn flags(&self) -> CloneFlags {
        let mut flags = CloneFlags::empty();
        flags.set(CloneFlags::CLONE_NEWPID, self.pid);
        flags.set(
            CloneFlags::CLONE_NEWNS,
            self.fresh_proc || self.hidden_proc || self.tmpfs.is_some(),
        );
        // nix has no name for CLONE_NEWTIME, which unshare takes.
        let time = CloneFlags::from_bits_retain(nix::libc::CLONE_NEWTIME);
        if self.clock_ahead.is_some() {
            flags | time
        } else {
            flags
        }
    }
}

/// Opens the namespaces, plays the role inside them in a forked child (exec would take the capabilities away), tells
/// the parent its pid and ends as it does.
pub(crate) fn enter(rooms: &Rooms, play: impl FnOnce() -> i32) -> i32 {
    if let Err(reason) = open(rooms) {
        println!("refused: {reason}");
        return 1;
    }
    let Some(inner) = process::fork_worker() else {
        return match settle(rooms) {
            Ok(()) => play(),
            Err(e) => {
                println!("fail mounts: {e}");
                1
            }
        };
    };
    println!("pid {inner}");
    // The role alone has the pipes from now on, so that their end is its end.
    let quiet = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null");
    if let Ok(quiet) = quiet {
        _ = nix::unistd::dup2_stdin(&quiet);
        _ = nix::unistd::dup2_stdout(&quiet);
    }
    match waitpid(inner, None) {
        Ok(WaitStatus::Exited(_, code)) => code,
        _ => 1,
    }
}

/// What is left to do inside: the mounts.
fn settle(rooms: &Rooms) -> nix::Result<()> {
    let none: Option<&str> = None;
    if rooms.flags().contains(CloneFlags::CLONE_NEWNS) {
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    }
    if let Some((path, bytes)) = &rooms.tmpfs {
        mount(
            Some("tmpfs"),
            path,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(format!("size={bytes}").as_str()),
        )?;
    }
    if rooms.fresh_proc {
        mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none)?;
    }
    if rooms.hidden_proc {
        mount(
            Some("tmpfs"),
            "/proc",
            Some("tmpfs"),
            MsFlags::empty(),
            Some("size=4096"),
        )?;
    }
    Ok(())
}

/// Covers /proc for this process from now on; an answer for the parent.
pub(crate) fn hide_proc() -> String {
    let rooms = Rooms {
        hidden_proc: true,
        ..Rooms::default()
    };
    match open(&rooms).and_then(|()| settle(&rooms).map_err(|e| e.to_string())) {
        Ok(()) => "hidden".to_owned(),
        Err(reason) => reason,
    }
}

/// A role that shows that namespaces can be made: it is there, and ends.
pub(crate) fn probe(told: Told) {
    told.say("inside");
}

fn open(rooms: &Rooms) -> Result<(), String> {
    let say = |what: &'static str| move |e: nix::Error| format!("{what}: {e}");
    let write =
        |path: &str, text: String| std::fs::write(path, text).map_err(|e| format!("{path}: {e}"));
    if !geteuid().is_root() {
        // The same number inside: what a file's owner may do, and the floor of its fences, go by it.
        let (uid, gid) = (geteuid(), getegid());
        if uid.as_raw() == 65_534 {
            return Err("in a user namespace this user is nobody in particular".to_owned());
        }
        unshare(CloneFlags::CLONE_NEWUSER).map_err(say("a user namespace"))?;
        write("/proc/self/setgroups", "deny".to_owned())?;
        write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    }
    unshare(rooms.flags()).map_err(say("unshare"))?;
    if let Some(seconds) = rooms.clock_ahead {
        write(
            "/proc/self/timens_offsets",
            format!("boottime {seconds} 0\n"),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Rooms;

    #[test]
    fn rooms_survive_being_an_argument() {
        let rooms = Rooms {
            pid: true,
            fresh_proc: true,
            hidden_proc: false,
            clock_ahead: Some(86_400),
            tmpfs: Some(("/dev/shm/x".into(), 65_536)),
        };
        assert_eq!(rooms.to_string().parse(), Ok(rooms));
    }

    #[test]
    fn an_unknown_room_is_refused() {
        assert!("pid,attic".parse::<Rooms>().is_err());
    }
}
