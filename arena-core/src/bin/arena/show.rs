//! `arena show`.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use arena_core::{ArenaOptions, Attachment, OpenError, RowState};

use crate::args::Show;
use crate::look::{Byte, Look, look, missing_of};
use crate::{Failure, exit};
use arena_core::command::json::{Object, string};

/// Prints what is known. The exit code.
pub(crate) fn show(options: &ArenaOptions, args: &Show) -> Result<u8, Failure> {
    let look = look(options, &args.name).map_err(|error| Failure::of(&error))?;
    let out = match args.json {
        true => json(args.name.as_bytes(), &look) + "\n",
        false => text(&look),
    };
    crate::print(&out)?;
    Ok(match look.refused {
        Some(_) => exit::ARENA,
        None => 0,
    })
}

/// What is wrong: a word for it, what was found, what was expected.
fn wrong(error: &OpenError) -> (&'static str, Option<String>, Option<String>) {
    let both = |reason, found: String, expected: String| (reason, Some(found), Some(expected));
    match error {
        OpenError::Permission { .. } => ("permission", None, None),
        OpenError::NotRegular { found, .. } => {
            both("not_regular", (*found).into(), "a regular file".into())
        }
        OpenError::Owner {
            found, expected, ..
        } => both("owner", found.to_string(), expected.to_string()),
        OpenError::WritableByOthers { found, allowed, .. } => both(
            "writable_by_others",
            format!("{found:04o}"),
            format!("{allowed:04o}"),
        ),
        OpenError::FileSystem { found, .. } => ("file_system", Some(format!("{found:#x}")), None),
        OpenError::NotAnArena {
            found, expected, ..
        } => both(
            "not_an_arena",
            format!("{found:#018x}"),
            format!("{expected:#018x}"),
        ),
        OpenError::Incompatible {
            found, expected, ..
        } => both(
            "incompatible",
            format!("{found:#x}"),
            format!("{expected:#x}"),
        ),
        OpenError::Damaged {
            found, expected, ..
        } => both("damaged", found.to_string(), expected.to_string()),
        OpenError::OtherBoot {
            found, expected, ..
        } => both(
            "other_boot",
            format!("{found:032x}"),
            format!("{expected:032x}"),
        ),
        OpenError::TimeNamespace {
            found, expected, ..
        } => both("time_namespace", found.to_string(), expected.to_string()),
        OpenError::NoWideAtomics => ("no_wide_atomics", None, None),
        _ => ("system", None, None),
    }
}

fn json(name: &[u8], look: &Look) -> String {
    let header = look.header;
    let wrong = look.refused.as_ref().map(|error| {
        let (reason, found, expected) = wrong(error);
        Object::new()
            .bytes("reason", Some(reason.as_bytes()))
            .bytes("found", found.as_deref().map(str::as_bytes))
            .bytes("expected", expected.as_deref().map(str::as_bytes))
            .bytes("message", Some(crate::with_causes(error).as_bytes()))
            .end()
    });
    let slots = header.filter(|_| look.refused.is_none());
    let created = header.map(|header| seconds(header.created_us, 1_000_000));
    let regions = look.regions.iter().map(|region| {
        Object::new()
            .bytes("name", Some(&region.name))
            .bytes("kind", Some(format!("{:#018x}", region.kind).as_bytes()))
            .field("offset", Some(region.offset))
            .field("len_bytes", Some(region.len_bytes))
            .end()
    });
    let attachments = look.attachments.iter().map(|(row, byte)| {
        let missing = missing_of(row).into_iter().map(string);
        Object::new()
            .field("slot", Some(row.id.slot()))
            .field("epoch", Some(row.id.generation()))
            .bytes("state", Some(state(row).as_bytes()))
            .bytes("byte", Some(byte.word().as_bytes()))
            .field("pid", row.identity.map(|identity| identity.pid))
            .bytes("name", Some(&row.name))
            .field("joined", Some(seconds(row.joined_ms, 1_000)))
            .list("missing", missing)
            .end()
    });
    let fingerprint = header.map(|header| format!("{:#018x}", header.fingerprint));
    Object::new()
        .bytes("arena", Some(name))
        .bytes("path", Some(look.path.as_os_str().as_bytes()))
        .field("usable", Some(look.refused.is_none()))
        .field("wrong", wrong)
        .field("destroyed", Some(look.destroyed))
        .field("format", header.map(|header| header.format))
        .bytes("fingerprint", fingerprint.as_deref().map(str::as_bytes))
        .field("created", created)
        .field("len_bytes", look.len_bytes)
        .field("slots", slots.map(|header| header.slots))
        .field("attached", look.attached)
        .list("regions", regions)
        .field("refused_regions", Some(look.refused_regions))
        .list("attachments", attachments)
        .list("missing", look.missing.iter().copied().map(string))
        .end()
}

fn text(look: &Look) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("a String takes everything");
    let or_unknown = |number: Option<u64>| number.map_or("unknown".into(), |n| n.to_string());
    line(crate::plain(&look.path.display().to_string()));
    if let Some(error) = &look.refused {
        line(format!("  refused: {}", crate::with_causes(error)));
    }
    if look.destroyed {
        line("  destroyed: nothing in it is held any more".into());
    }
    if let Some(header) = look.header {
        let (format, fingerprint) = (header.format, header.fingerprint);
        let created = seconds(header.created_us, 1_000_000);
        line(format!(
            "  format {format}, layout {fingerprint:#018x}, created {created} s after 1970"
        ));
    }
    let attached = or_unknown(look.attached.map(u64::from));
    let slots = match (look.header, &look.refused) {
        (Some(header), None) => format!(" of at most {}", header.slots),
        _ => String::new(),
    };
    line(format!(
        "  {} bytes, {attached} attached{slots}",
        or_unknown(look.len_bytes)
    ));
    for region in &look.regions {
        let (name, kind) = (region.name.escape_ascii(), region.kind);
        let (offset, len) = (region.offset, region.len_bytes);
        line(format!(
            "  region {name}: {len} bytes at {offset}, kind {kind:#018x}"
        ));
    }
    if look.refused_regions > 0 {
        line(format!("  {} damaged regions", look.refused_regions));
    }
    for (row, byte) in &look.attachments {
        line(format!("  {}", attachment(row, *byte)));
    }
    if !look.missing.is_empty() {
        line(format!(
            "  missing on this system: {}",
            look.missing.join(", ")
        ));
    }
    out
}

fn attachment(row: &Attachment, byte: Byte) -> String {
    let pid = row.identity.map(|identity| identity.pid);
    let pid = pid.map_or("unknown".into(), |pid| pid.to_string());
    let (id, name) = (row.id, row.name.escape_ascii());
    let missing = match &missing_of(row)[..] {
        [] => String::new(),
        missing => format!(", without {}", missing.join(", ")),
    };
    let state = match (byte, state(row)) {
        (Byte::Held, "ready") => "attached",
        (Byte::Held, state) => state,
        (Byte::Free, _) => "dead: its byte is free, and its row not yet cleared away",
        (Byte::Unknown, _) => "unknown: its byte cannot be asked",
    };
    format!("{id}: pid {pid} ({name}){missing}, {state}")
}

fn state(row: &Attachment) -> &'static str {
    match row.state {
        RowState::Empty => "empty",
        RowState::Joining => "joining",
        RowState::Ready => "ready",
        RowState::Leaving => "leaving",
    }
}

/// `units` to the second, with three digits.
fn seconds(count: u64, units: u64) -> String {
    let thousandths = count % units / (units / 1_000);
    format!("{}.{thousandths:03}", count / units)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use arena_core::{AttachmentId, Identity, RegionInfo};

    use super::*;
    use crate::look::Raw;

    fn usable() -> Look {
        let row = Attachment {
            id: AttachmentId::new(3, 7).unwrap(),
            state: RowState::Ready,
            identity: Some(Identity {
                pid: 4711,
                pid_inode: 0,
                start_ticks: 1,
                pid_namespace: 2,
                boot_id: 3,
            }),
            name: b"wor\xffker".to_vec(),
            joined_ms: 61_234,
            beat_ms: 61_234,
        };
        let garbled = Attachment {
            id: AttachmentId::new(4, 1).unwrap(),
            state: RowState::Joining,
            identity: None,
            name: Vec::new(),
            joined_ms: 0,
            ..row.clone()
        };
        Look {
            path: PathBuf::from("/dev/shm/arena.0.jobs"),
            refused: None,
            destroyed: false,
            header: Some(Raw {
                format: 1,
                fingerprint: 0xABCD,
                slots: 1024,
                created_us: 1_700_000_000_123_456,
                gone: 0,
            }),
            len_bytes: Some(1_187_840),
            attached: Some(1),
            has_stand_ins: false,
            regions: vec![RegionInfo {
                name: b"leases".to_vec(),
                kind: 0x1234,
                offset: 139_648,
                len_bytes: 262_272,
            }],
            refused_regions: 0,
            attachments: vec![(row, Byte::Held), (garbled, Byte::Free)],
            missing: vec!["pidfd_identity"],
        }
    }

    fn refused() -> Look {
        Look {
            refused: Some(OpenError::Incompatible {
                path: PathBuf::from("/dev/shm/arena.0.jobs"),
                what: "format",
                found: 2,
                expected: 1,
            }),
            regions: Vec::new(),
            attachments: Vec::new(),
            attached: Some(2),
            missing: Vec::new(),
            ..usable()
        }
    }

    #[test]
    fn json_and_text_are_those_that_were_reviewed() {
        insta::assert_snapshot!(
            [
                json(b"jobs", &usable()),
                text(&usable()),
                json(b"jobs\xff", &refused()),
                text(&refused()),
            ]
            .join("\n")
        );
    }

    #[test]
    fn every_field_of_the_json_is_in_the_help() {
        use clap::CommandFactory as _;
        let mut command = crate::args::Cli::command();
        let show = command.find_subcommand_mut("show").unwrap();
        let help = show.render_long_help().to_string();
        for key in json(b"x", &usable()).split('"').skip(1).step_by(2) {
            let is_key = key
                .chars()
                .all(|char| char.is_ascii_lowercase() || char == '_');
            if is_key && !["leases", "held", "free", "ready", "joining", "x"].contains(&key) {
                let key = key.trim_end_matches("_base64");
                assert!(help.contains(key), "{key}");
            }
        }
    }
}
