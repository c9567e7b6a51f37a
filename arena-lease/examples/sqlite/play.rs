//! A leader that is stopped just before its write, and the one that takes over.

use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use arena_lease::{Acquire, Arena, Lease, Leases};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::recipe::{self, Write};

/// Short, so that the example is.
const TTL: Duration = Duration::from_millis(500);

/// The first leader: acquires, says so, and writes when it is told to. It does not look whether it still leads: it
/// stands for one that did so on the line before.
pub(crate) fn first_leader(directory: &Path) -> Result<(), Box<dyn Error>> {
    let lease = lease_in(directory)?;
    let fence = acquire(&lease)?;
    println!("leader: {fence}");
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let database = recipe::open(&directory.join("ledger.db"))?;
    match recipe::write(&database, "balance", fence, 90)? {
        Write::Done => println!("leader: done"),
        Write::Stale { newest } => println!("leader: refused: fence {newest} wrote"),
    }
    Ok(())
}

/// Plays it, telling what happens; whether the late write was refused. `leader` is the command that runs
/// [`first_leader`] in a directory.
pub(crate) fn play(
    leader: impl FnOnce(&Path) -> io::Result<Command>,
) -> Result<bool, Box<dyn Error>> {
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let database = recipe::open(&directory.path().join("ledger.db"))?;
    let mut old = Leader::start(leader(directory.path())?)?;
    let older: u64 = old.says()?.parse()?;
    println!("the first leader has fence {older}, and is stopped just before it writes");
    old.stop()?;

    let lease = lease_in(directory.path())?;
    let newer = acquire(&lease)?;
    println!("the second leader took over with fence {newer}, and writes 100");
    match recipe::write(&database, "balance", newer, 100)? {
        Write::Done => {}
        Write::Stale { newest } => return Err(format!("refused: fence {newest} wrote").into()),
    }

    old.go_on()?;
    println!("the first leader goes on, and writes 90: {}", old.says()?);
    let found = recipe::read(&database, "balance")?;
    println!("the database has {found:?} (fence, value)");
    if found == Some((newer, 100)) {
        println!("the late write was refused");
        return Ok(true);
    }
    eprintln!("the late write got through");
    Ok(false)
}

fn lease_in(directory: &Path) -> Result<Lease, Box<dyn Error>> {
    let leases = Leases::open(&Arena::open(directory.join("arena"))?)?;
    Ok(leases.lease("ledger", TTL)?)
}

fn acquire(lease: &Lease) -> Result<u64, Box<dyn Error>> {
    match lease.acquire_timeout(Duration::from_secs(60))? {
        Acquire::Held(hold) => Ok(hold.fence),
        Acquire::Refused(why) => Err(format!("not acquired: {why:?}").into()),
    }
}

/// The first leader, as its own process.
struct Leader {
    child: Child,
    stdin: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Leader {
    fn start(mut command: Command) -> Result<Self, Box<dyn Error>> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self {
            stdin: child.stdin.take().ok_or("stdin is piped")?,
            lines: BufReader::new(child.stdout.take().ok_or("stdout is piped")?),
            child,
        })
    }

    /// The next thing it says.
    fn says(&mut self) -> Result<String, Box<dyn Error>> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line)? == 0 {
                return Err("the first leader ended".into());
            }
            // Run by a test, it shares its output with the test's harness.
            if let Some((_, said)) = line.split_once("leader: ") {
                return Ok(said.trim_end().to_owned());
            }
        }
    }

    /// Stops it, and waits until it is stopped.
    fn stop(&self) -> Result<(), Box<dyn Error>> {
        kill(self.pid()?, Signal::SIGSTOP)?;
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(self.pid()?), flags)?;
        Ok(())
    }

    fn go_on(&mut self) -> Result<(), Box<dyn Error>> {
        writeln!(self.stdin)?;
        kill(self.pid()?, Signal::SIGCONT)?;
        Ok(())
    }

    fn pid(&self) -> Result<Pid, Box<dyn Error>> {
        Ok(Pid::from_raw(self.child.id().try_into()?))
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
