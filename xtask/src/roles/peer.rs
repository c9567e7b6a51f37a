//! A process that attaches to an arena and then does, one line at a time, what it is told.

use std::{path::PathBuf, time::Duration};

use arena_core::{Arena, ArenaOptions};
use arena_peers::{Peers, Verdict};

use super::{Role, process, verbs::Verbs};
use crate::{namespaces, text, told::Told};

pub(super) const ROLES: &[Role] = &[
    ("peer", peer),
    ("headless-peer", headless),
    ("late-headless-peer", late_headless),
    ("opener", opener),
    ("rest", rest),
];

/// The options that roles and scenarios share: small, so that it costs little to make one, and quick to say Busy.
pub(crate) fn options() -> ArenaOptions {
    ArenaOptions::new()
        .usable_bytes(256 << 10)
        .slots(64)
        .busy_timeout(Duration::from_millis(100))
}

/// The options that an argument describes: `KEY=VALUE` with commas between.
pub(crate) fn options_from(text: &str) -> ArenaOptions {
    text.split(',')
        .filter(|part| !part.is_empty())
        .fold(options(), |options, part| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let number = || {
                value
                    .parse::<u64>()
                    .expect("the scenario gives a number here")
            };
            let small = || u16::try_from(number()).expect("slots are a u16");
            match key {
                "bytes" => options.usable_bytes(number()),
                "slots" => options.slots(small()),
                "mode" => options.mode(u32::from_str_radix(value, 8).expect("a mode is octal")),
                "owner" => options.allow_owner(value.parse().expect("a uid is a u32")),
                "directory" => options.directory(value),
                _ => panic!("no option of an arena is called {key}"),
            }
        })
}

/// Tries to open (or attach), says how that went, and ends. The arguments: how, options, name.
fn opener(mut told: Told) {
    let (how, options, name) = (told.arg(), options_from(&told.arg()), told.arg());
    if how == "umask" {
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    }
    if how == "limit" {
        let limit = nix::sys::resource::Resource::RLIMIT_FSIZE;
        nix::sys::resource::setrlimit(limit, 64 << 10, 64 << 10).expect("a limit may be lowered");
    }
    told.at("start");
    let opened = match how.as_str() {
        "attach" => options.attach(&name),
        _ => options.open(&name),
    };
    match opened {
        Ok(arena) => {
            let what = if arena.created() {
                "created"
            } else {
                "attached"
            };
            let path = arena.path().map(PathBuf::from).unwrap_or_default();
            told.at(&format!("opened {what} {}", path.display()));
        }
        Err(e) => told.say(&format!("opened refused {}", text::error(&e))),
    }
    let entries = std::fs::read_dir(told.directory()).expect("the scenario's directory is there");
    let names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    told.at(&format!("left {}", names.join(" ")));
}

/// Attaches, says who it is, and obeys. The arguments: options, path.
fn peer(told: Told) {
    attach_and_obey(told, || ());
}

fn attach_and_obey(mut told: Told, attached: impl FnOnce()) {
    let (options, path) = (options_from(&told.arg()), told.arg());
    let arena = match options.open(&path) {
        Ok(arena) => arena,
        Err(e) => {
            told.at(&format!("peer refused {}", text::error(&e)));
            return;
        }
    };
    attached();
    let me = arena.me().expect("an arena that was opened is attached to");
    told.say(&format!("peer {}", text::id(me)));
    obey(&told, &arena, &options);
}

/// The same, in another thread; the main thread ends once the arena is attached to.
fn headless(told: Told) {
    let (attached, is_attached) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        attach_and_obey(told, || {
            attached.send(()).expect("the main thread waits for it")
        });
        std::process::exit(0);
    });
    _ = is_attached.recv();
    process::end_this_thread();
}

/// The same; the main thread ends first.
fn late_headless(told: Told) {
    std::thread::spawn(move || {
        until_main_thread_is_gone();
        peer(told);
        std::process::exit(0);
    });
    process::end_this_thread();
}

fn until_main_thread_is_gone() {
    let main = format!("/proc/{}/stat", std::process::id());
    while !std::fs::read_to_string(&main).is_ok_and(|stat| stat.contains(") Z ")) {
        std::thread::yield_now();
    }
}

/// Starts threads that end, one after the other.
fn churn() {
    loop {
        _ = std::thread::spawn(std::thread::yield_now).join();
    }
}

/// Says that it is there, and waits.
fn rest(told: Told) {
    told.at("rest");
}

fn obey(told: &Told, arena: &Arena, options: &ArenaOptions) {
    let mut others = Vec::new();
    let mut verbs = Verbs::default();
    loop {
        let line = told.hear();
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words.as_slice() {
            ["end"] => return,
            ["me"] => me(arena),
            ["verdict", id] => verdict(arena, id),
            ["verdicts", id, times] => verdicts(arena, id, times),
            ["counts"] => counts(arena),
            ["reap"] => arena.reap().to_string(),
            ["open-again", other] => again(options, other, arena, &mut others),
            ["close-again"] => {
                others.clear();
                "closed".to_owned()
            }
            ["carve", name, bytes] => carve(arena, name, bytes),
            ["destroy"] => arena
                .destroy()
                .map_or_else(|e| text::error(&e), |()| "destroyed".to_owned()),
            ["gone"] => format!("{} {}", arena.is_gone(), arena.is_unlinked()),
            ["fork"] => process::fork_sleeper(),
            ["raw-clone"] => process::raw_clone_sleeper(),
            ["fork-me"] => process::ask_in_fork(|| me(arena)),
            ["fork-return"] => match process::fork_and_return() {
                Some(ended) => ended,
                None => return,
            },
            ["close-all"] => {
                process::close_everything();
                process::wait_for_ever();
            }
            ["fill", mib] => {
                let bytes = text::number(mib).unwrap_or(0) << 20;
                let memory = vec![1_u8; usize::try_from(bytes).unwrap_or(0)];
                // For as long as the process lives.
                std::hint::black_box(memory.leak());
                "filled".to_owned()
            }
            ["dump", directory] => process::dump_core(directory),
            ["churn"] => {
                std::thread::spawn(churn);
                "churns".to_owned()
            }
            ["chroot", directory] => match nix::unistd::chroot(*directory) {
                Ok(()) => "changed".to_owned(),
                Err(errno) => text::error(&errno),
            },
            ["hide-proc"] => namespaces::hide_proc(),
            ["exec"] => process::become_role("rest"),
            other => {
                let answer = verbs.answer(arena, other);
                answer.unwrap_or_else(|| format!("no verb {line:?}"))
            }
        };
        told.say(&format!("{} {answer}", words[0]));
    }
}

fn me(arena: &Arena) -> String {
    arena
        .me()
        .map_or_else(|e| format!("refused {}", text::error(&e)), text::id)
}

/// What is known of a peer: `alive`, `unknown`, or `dead WITNESS`.
pub(crate) fn verdict(arena: &Arena, id: &str) -> String {
    let id = text::parse_id(id).expect("the scenario gives an id");
    match Peers::new(arena).verdict(id) {
        Verdict::Dead(proof) => format!("dead {:?}", proof.witness()).to_lowercase(),
        Verdict::Alive => "alive".to_owned(),
        Verdict::Unknown => "unknown".to_owned(),
    }
}

/// All verdicts of `times` attempts, each once.
fn verdicts(arena: &Arena, id: &str, times: &str) -> String {
    let times: u32 = times.parse().expect("the scenario gives a number here");
    let all: std::collections::BTreeSet<String> = (0..times).map(|_| verdict(arena, id)).collect();
    all.into_iter().collect::<Vec<_>>().join(" ")
}

/// Used and live rows.
fn counts(arena: &Arena) -> String {
    let counts = Peers::new(arena).counts();
    format!("{} {}", counts.used, counts.live)
}

fn again(options: &ArenaOptions, path: &str, first: &Arena, others: &mut Vec<Arena>) -> String {
    match options.open(path) {
        Ok(arena) => {
            let same = arena.base_address() == first.base_address();
            let answer = format!(
                "{} {}",
                me(&arena),
                if same {
                    "same-address"
                } else {
                    "other-address"
                }
            );
            others.push(arena);
            answer
        }
        Err(e) => format!("refused {}", text::error(&e)),
    }
}

fn carve(arena: &Arena, name: &str, bytes: &str) -> String {
    match arena.carve(
        name.as_bytes(),
        1,
        bytes.parse().expect("the scenario gives a number"),
    ) {
        Ok(region) => format!("at {}", region.offset()),
        Err(e) => format!("refused {}", text::error(&e)),
    }
}
