//! The arena and its file: C1 to C8, and the faults that people met with names and files.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use arena_core::layout::{Header, SharedLayout as _};

use super::cast::{Peer, same};
use crate::{
    child::{Child, Plan},
    namespaces::Rooms,
    outcome::{Outcome, Stop, ensure},
    roles::peer::options,
    scenario::{Need, Run, Scenario},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "arena",
        "C1",
        "of_openers_that_race_one_creates_and_the_others_attach",
        racing_openers,
    )
    .rounds(20, 500),
    Scenario::new(
        "arena",
        "C1",
        "a_creator_killed_at_a_random_time_leaves_nothing_or_a_whole_arena",
        killed_creator,
    )
    .rounds(40, 2_000),
    Scenario::new(
        "arena",
        "C2",
        "a_file_system_that_is_too_small_is_an_error_with_numbers_and_no_file",
        too_small,
    )
    .needs(&[Need::Namespaces]),
    Scenario::new(
        "arena",
        "C2",
        "a_limit_on_file_sizes_is_an_error_and_no_signal",
        size_limit,
    ),
    Scenario::new(
        "arena",
        "C2",
        "a_file_that_was_cut_short_is_refused_and_no_signal",
        cut_short,
    ),
    Scenario::new(
        "arena",
        "C3",
        "a_process_that_only_attached_leaves_the_name_behind",
        attach_only,
    ),
    Scenario::new(
        "arena",
        "C4",
        "a_patched_header_is_refused_with_both_values_and_the_file_is_untouched",
        patched,
    ),
    Scenario::new(
        "arena",
        "C5",
        "the_mode_is_as_asked_whatever_the_umask_and_decides_who_may_attach",
        modes,
    )
    .needs(&[Need::OtherUser]),
    Scenario::new(
        "arena",
        "C6",
        "two_users_of_one_short_name_have_separate_arenas",
        two_users,
    )
    .needs(&[Need::OtherUser]),
    Scenario::new(
        "arena",
        "C6",
        "root_does_not_attach_to_a_name_that_another_user_made_first",
        squatted,
    )
    .needs(&[Need::OtherUser]),
    Scenario::new(
        "arena",
        "C8",
        "an_arena_opened_twice_in_one_process_is_one_peer_even_through_a_link",
        opened_twice,
    ),
    Scenario::new(
        "arena",
        "names",
        "what_is_no_regular_file_is_refused_without_waiting",
        not_regular,
    ),
    Scenario::new(
        "arena",
        "L14",
        "a_destroyed_arena_is_gone_for_those_inside_and_its_name_is_free",
        destroyed,
    )
    .rounds(10, 200),
    Scenario::new(
        "arena",
        "C6",
        "another_users_destroyed_arena_is_told_as_such_and_who_can_remove_its_name",
        anothers_ruin,
    )
    .needs(&[Need::OtherUser]),
    Scenario::new(
        "arena",
        "L14",
        "a_process_that_changed_its_root_is_told_of_a_removal_and_of_no_other",
        changed_root,
    )
    .needs(&[Need::OtherUser]),
];

fn opener(run: &Run, how: &str, options: &str, name: &Path) -> Outcome<Child> {
    ready(run, Plan::new("opener").arg(how).arg(options).arg(name))
}

fn ready(run: &Run, plan: Plan) -> Outcome<Child> {
    let mut child = run.start(plan)?;
    child.expect("start")?;
    Ok(child)
}

/// How the opening went, once the child is let go.
fn opened(child: &mut Child) -> Outcome<String> {
    child.ask("go", "opened")
}

/// Goal: a name is one arena. Method: eight children let go at once.
fn racing_openers(run: &mut Run) -> Outcome {
    run.each_round(|run, round| {
        let path = run.path(&format!("arena{round}"));
        let mut children: Vec<Child> = (0..8)
            .map(|_| opener(run, "open", "", &path))
            .collect::<Outcome<_>>()?;
        children.iter_mut().try_for_each(Child::go)?;
        let mut created = 0;
        for child in &mut children {
            let answer = child.expect("opened")?;
            created += u32::from(answer.starts_with("created"));
            ensure!(!answer.starts_with("refused"), "an opener was {answer}");
        }
        ensure!(created == 1, "{created} of 8 created the arena");
        drop(children);
        options().attach(&path).map(drop).map_err(Into::into)
    })
}

/// Goal: no half arena ever has a name. Method: a creator is killed after a random number of turns of a loop, while
/// four others wait to open; each of them comes through, one creates unless the dead one had.
fn killed_creator(run: &mut Run) -> Outcome {
    run.each_round(|run, round| {
        let path = run.path(&format!("arena{round}"));
        let mut doomed = opener(run, "open", "bytes=4194304", &path)?;
        let mut children: Vec<Child> = (0..4)
            .map(|_| opener(run, "open", "bytes=4194304", &path))
            .collect::<Outcome<_>>()?;
        doomed.go()?;
        (0..run.rng.below(200_000)).for_each(|turn| _ = std::hint::black_box(turn));
        doomed.kill()?;
        let there = path.exists();
        children.iter_mut().try_for_each(Child::go)?;
        let mut created = 0;
        for child in &mut children {
            let answer = child.expect("opened")?;
            created += u32::from(answer.starts_with("created"));
            ensure!(!answer.starts_with("refused"), "an opener was {answer}");
        }
        ensure!(
            created == u32::from(!there),
            "{created} created; was it there before: {there}"
        );
        drop(children);
        fs::remove_file(&path)?;
        let left = names(run.directory())?;
        same(
            "files left",
            &left.join(" "),
            &format!("arena-floor.{}", nix::unistd::geteuid()),
        )
    })
}

/// The files of a directory.
fn names(directory: &Path) -> Outcome<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(directory)?
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

/// Goal: a full /dev/shm is an error now and not a SIGBUS later. Method: a tmpfs of 64 KiB, an arena of 1 MiB.
fn too_small(run: &mut Run) -> Outcome {
    let rooms = Rooms {
        tmpfs: Some((run.directory().to_owned(), 64 << 10)),
        ..Rooms::default()
    };
    let plan = Plan::new("opener")
        .arg("open")
        .arg("bytes=1048576")
        .arg(run.path("arena"))
        .in_rooms(rooms);
    let mut child = ready(run, plan)?;
    let answer = opened(&mut child)?;
    ensure!(answer.starts_with("refused NoSpace"), "it was {answer}");
    let numbers: Vec<u64> = answer
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .collect();
    let sizes = |least, most| numbers.iter().any(|n| (least..=most).contains(n));
    ensure!(
        sizes(1 << 20, 2 << 20) && sizes(1, 64 << 10),
        "needed and available are not in it: {answer}"
    );
    let left = child.expect("left")?;
    ensure!(!left.contains("arena "), "a file is left: {left}");
    ensure!(
        left.split(' ')
            .all(|name| name.is_empty() || name.starts_with("arena-floor")),
        "left: {left}"
    );
    child.finish()
}

/// Goal: RLIMIT_FSIZE does not kill. Method: a limit of 64 KiB, an arena of 1 MiB.
fn size_limit(run: &mut Run) -> Outcome {
    let mut child = opener(run, "limit", "bytes=1048576", &run.path("arena"))?;
    let answer = opened(&mut child)?;
    ensure!(
        answer.starts_with("refused FileSizeLimit") && answer.contains("65536"),
        "it was {answer}"
    );
    child.finish()
}

/// Goal: a short file is found out before it is mapped. Method: cut the file at several lengths, attach.
fn cut_short(run: &mut Run) -> Outcome {
    let path = run.path("arena");
    drop(options().open(&path)?);
    let whole = fs::metadata(&path)?.len();
    for len in [whole - 1, whole - 4096, 4096, 100, 7, 0] {
        fs::OpenOptions::new()
            .write(true)
            .open(&path)?
            .set_len(len)?;
        let mut child = opener(run, "attach", "", &path)?;
        let answer = opened(&mut child)?;
        ensure!(
            answer.starts_with("refused"),
            "a file of {len} of {whole} bytes was {answer}"
        );
        child.finish()?;
        // Longer again, it is full of holes, which a full file system could not fill.
        fs::OpenOptions::new()
            .write(true)
            .open(&path)?
            .set_len(whole)?;
        let mut child = opener(run, "attach", "", &path)?;
        let answer = opened(&mut child)?;
        ensure!(
            answer.starts_with("refused") || len == whole - 1,
            "cut to {len} and stretched it was {answer}"
        );
        child.finish()?;
        fs::remove_file(&path)?;
        drop(options().open(&path)?);
    }
    Ok(())
}

/// Goal: only destroy ends a name. Method: one that attached leaves, is killed, exits as a forked child.
fn attach_only(run: &mut Run) -> Outcome {
    let mut one = Peer::new(run)?;
    Peer::new(run)?.leave()?;
    Peer::new(run)?.child.kill()?;
    one.ask("fork-return")?;
    one.must("gone", "false false")?;
    one.leave()?;
    options()
        .attach(run.path("arena"))
        .map(drop)
        .map_err(Into::into)
}

/// Goal: an arena of another making is refused with what was found and what was expected, and nobody is harmed.
/// Method: patch each word of the header that a version or a layout would change, attach, compare the file.
fn patched(run: &mut Run) -> Outcome {
    // The words of the header by the table in arena-core's layout.
    const WORDS: &[(u64, &str)] = &[
        (0, "magic"),
        (8, "format"),
        (16, "fingerprint"),
        (24, "length"),
        (32, "usable bytes"),
        (40, "slots"),
        (48, "regions"),
    ];
    let mut one = Peer::new(run)?;
    one.ask("carve things 100")?;
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(run.path("arena"))?;
    for (at, name) in WORDS {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, *at)?;
        let right = u64::from_le_bytes(word);
        let wrong = right + 0x1_0000;
        file.write_all_at(&wrong.to_le_bytes(), *at)?;
        let before = fs::read(run.path("arena"))?;
        let mut child = opener(run, "open", "", &run.path("arena"))?;
        let answer = opened(&mut child)?;
        child.finish()?;
        ensure!(
            answer.starts_with("refused"),
            "with another {name} it was {answer}"
        );
        let lower = answer.to_lowercase();
        let says = |number: u64| {
            lower.contains(&format!("{number:x}")) || lower.contains(&number.to_string())
        };
        ensure!(
            lower.contains("found") && lower.contains("expected"),
            "with another {name} it does not say what was found and expected: {answer}"
        );
        if matches!(*name, "magic" | "format" | "fingerprint") {
            ensure!(
                says(wrong) && says(right),
                "not both values of the {name} are in: {answer}"
            );
        }
        ensure!(
            fs::read(run.path("arena"))? == before,
            "the refused file was changed ({name})"
        );
        // Who is in already goes on.
        one.must("me", &one.id.clone())?;
        one.must("counts", "1 1")?;
        file.write_all_at(&word, *at)?;
    }
    Peer::new(run).map(drop)
}

/// Goal: the mode is what was asked for. Method: umask 077 and mode 660; a user of the file's group, then another.
fn modes(run: &mut Run) -> Outcome {
    let path = run.path("arena");
    let mut creator = opener(run, "umask", "mode=660", &path)?;
    let answer = opened(&mut creator)?;
    ensure!(answer.starts_with("created"), "the creator was {answer}");
    let mode = fs::metadata(&path)?.permissions().mode() & 0o777;
    ensure!(mode == 0o660, "the mode is {mode:o}");
    let group = fs::metadata(&path)?.gid();
    let plan = |group| {
        let plan = Plan::new("opener").arg("attach").arg("mode=660").arg(&path);
        plan.by_user(1_001).in_group(group)
    };
    let mut inside = ready(run, plan(group))?;
    let answer = opened(&mut inside)?;
    ensure!(
        answer.starts_with("attached"),
        "a user of the group was {answer}"
    );
    let mut outside = ready(run, plan(1_002))?;
    let answer = opened(&mut outside)?;
    ensure!(
        answer.starts_with("refused Permission"),
        "a user outside the group was {answer}"
    );
    ensure!(
        answer.contains(&path.display().to_string()) && answer.contains("660"),
        "path and mode are not in: {answer}"
    );
    Ok(())
}

/// Goal: users do not meet by accident. Method: two users open "jobs" in a directory that all may write to.
fn two_users(run: &mut Run) -> Outcome {
    fs::set_permissions(run.directory(), fs::Permissions::from_mode(0o1777))?;
    let options = format!("directory={}", run.directory().display());
    let plan = || Plan::new("opener").arg("open").arg(&options).arg("jobs");
    let (mut one, mut two) = (ready(run, plan())?, ready(run, plan().by_user(1_001))?);
    let (first, second) = (opened(&mut one)?, opened(&mut two)?);
    ensure!(
        first.starts_with("created") && second.starts_with("created"),
        "one was {first}, the other {second}"
    );
    ensure!(first != second, "both are {first}");
    Ok(())
}

/// Goal: whoever is first with a name does not get root's trust. Method: another user makes the file that root's name
/// leads to; root opens it.
fn squatted(run: &mut Run) -> Outcome {
    fs::set_permissions(run.directory(), fs::Permissions::from_mode(0o1777))?;
    let path = run.path("arena.0.jobs");
    let mut squatter = ready(
        run,
        Plan::new("opener")
            .arg("open")
            .arg("")
            .arg(&path)
            .by_user(1_001),
    )?;
    let answer = opened(&mut squatter)?;
    ensure!(answer.starts_with("created"), "the squatter was {answer}");
    let options = format!("directory={}", run.directory().display());
    let mut root = opener(run, "open", &options, Path::new("jobs"))?;
    let answer = opened(&mut root)?;
    ensure!(
        answer.starts_with("refused Owner") && answer.contains("1001"),
        "root was {answer}"
    );
    Ok(())
}

/// Goal: who cannot finish a destruction is told who can. Method: in a sticky directory root's arena, which others may
/// use, is marked as destroyed and keeps its name; another user opens it, then root.
fn anothers_ruin(run: &mut Run) -> Outcome {
    fs::set_permissions(run.directory(), fs::Permissions::from_mode(0o1777))?;
    let path = run.path("arena");
    let mode = "mode=666,owner=0";
    drop(options().mode(0o666).open(&path)?);
    let mut fields = Header::FIELDS.iter();
    let gone = fields
        .find(|field| field.name == "gone")
        .map(|field| field.offset);
    let at = gone.ok_or_else(|| Stop::failed("the header has no mark".to_owned()))?;
    let file = fs::OpenOptions::new().write(true).open(&path)?;
    file.write_all_at(&1_u64.to_le_bytes(), at.try_into().expect("it is small"))?;
    for how in ["open", "attach"] {
        let plan = Plan::new("opener").arg(how).arg(mode).arg(&path);
        let mut other = ready(run, plan.by_user(1_001))?;
        let answer = opened(&mut other)?;
        ensure!(
            answer.starts_with("refused Destroyed") && answer.contains("(user 0) or root"),
            "to {how}, the other was {answer}"
        );
    }
    let mut root = opener(run, "open", mode, &path)?;
    let answer = opened(&mut root)?;
    ensure!(answer.starts_with("created"), "root was {answer}");
    Ok(())
}

/// Goal: one process is one peer. Method: open again through a link in the directory's path; close one.
fn opened_twice(run: &mut Run) -> Outcome {
    symlink(run.directory(), run.path("link"))?;
    let (mut one, mut other) = (Peer::new(run)?, Peer::new(run)?);
    let again = one.ask(&format!("open-again {}", run.path("link/arena").display()))?;
    same(
        "the second opening",
        &again,
        &format!("{} other-address", one.id),
    )?;
    other.must("counts", "2 2")?;
    one.must("close-again", "closed")?;
    other.must(&format!("verdict {}", one.id), "alive")?;
    other.must("counts", "2 2")
}

/// Goal: nothing that has the name is followed, waited for or damaged. Method: a link to a good arena, a FIFO, a
/// directory, a dangling link, an empty file, a text.
fn not_regular(run: &mut Run) -> Outcome {
    drop(options().open(run.path("good"))?);
    symlink(run.path("good"), run.path("link"))?;
    symlink(run.path("nothing"), run.path("dangling"))?;
    nix::unistd::mkfifo(&run.path("fifo"), nix::sys::stat::Mode::S_IRWXU)?;
    fs::create_dir(run.path("directory"))?;
    fs::write(run.path("empty"), "")?;
    fs::write(run.path("text"), "to be or not to be\n".repeat(1_000))?;
    for name in ["link", "dangling", "fifo", "directory", "empty", "text"] {
        for how in ["open", "attach"] {
            let mut child = opener(run, how, "", &run.path(name))?;
            let answer = opened(&mut child)?;
            child.finish()?;
            ensure!(
                answer.starts_with("refused"),
                "{how} of a {name} was {answer}"
            );
            ensure!(
                run.path(name).symlink_metadata().is_ok(),
                "{how} removed the {name}"
            );
        }
    }
    Ok(())
}

/// Goal: destroy is seen at once by those inside, and the next opener starts anew. Method: destroy and open in turn.
fn destroyed(run: &mut Run) -> Outcome {
    run.each_round(|run, _| {
        // What the last round left goes with its name.
        if run.path("arena").exists() {
            options().attach(run.path("arena"))?.destroy()?;
        }
        let (mut one, mut other) = (Peer::new(run)?, Peer::new(run)?);
        one.must("gone", "false false")?;
        other.must("destroy", "destroyed")?;
        let gone = one.ask("gone")?;
        ensure!(gone.starts_with("true"), "those inside are told {gone}");
        ensure!(!run.path("arena").exists(), "the name is still there");
        let mut new = Peer::new(run)?;
        new.must("gone", "false false")?;
        new.must("counts", "1 1")?;
        one.must("counts", "2 2")?;
        // Whoever is still inside may destroy again, and does not take the new one with it.
        one.ask("destroy")?;
        new.must("gone", "false false")
    })
}

/// Goal: a name that is out of sight was not removed. Method: chroot after the opening, to a place without the name and
/// to one with another file of that name; then remove the file.
fn changed_root(run: &mut Run) -> Outcome {
    let path = run.path("arena");
    let empty = run.path("empty");
    let other = run.path("other");
    fs::create_dir(&empty)?;
    let inside = other.join(
        path.strip_prefix("/")
            .map_err(|e| Stop::failed(e.to_string()))?,
    );
    fs::create_dir_all(inside.parent().unwrap_or(&other))?;
    fs::write(&inside, "something else")?;
    let mut peers = [Peer::new(run)?, Peer::new(run)?];
    for (peer, root) in peers.iter_mut().zip([&empty, &other]) {
        peer.must(&format!("chroot {}", root.display()), "changed")?;
        peer.must("gone", "false false")?;
    }
    fs::remove_file(&path)?;
    peers
        .iter_mut()
        .try_for_each(|peer| peer.must("gone", "false true"))
}
