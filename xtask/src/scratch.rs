//! A directory in shared memory for the time of a task, gone afterwards whatever happens.

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

use nix::sys::signal::{SigSet, Signal};

/// The directories that there are, for the case that a signal ends the task.
static PRESENT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A directory, removed with what is in it when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// The mark that the names of this process's directories begin with.
    pub(crate) fn mark() -> String {
        format!("arena-xtask.{}.", std::process::id())
    }

    /// Makes the directory for `name`.
    pub(crate) fn new(name: &str) -> std::io::Result<Self> {
        let path = Path::new("/dev/shm").join(format!("{}{name}", Self::mark()));
        std::fs::create_dir(&path)?;
        present().push(path.clone());
        Ok(Self(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        present().retain(|path| *path != self.0);
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{}: {e}", self.0.display());
        }
    }
}

fn present() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    PRESENT
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Lets SIGINT, SIGTERM and SIGHUP end the process only after its directories are removed. Called before any thread
/// is started; children are given their signals back by [`undisturbed`].
pub(crate) fn clean_up_on_signals() {
    let signals: SigSet = SIGNALS.into_iter().collect();
    signals
        .thread_block()
        .expect("signals that exist can be blocked");
    std::thread::spawn(move || {
        let Ok(signal) = signals.wait() else { return };
        for path in present().iter() {
            // A child that still writes there dies with us, a moment later.
            _ = std::fs::remove_dir_all(path);
        }
        std::process::exit(128 + signal as i32);
    });
}

/// In a child: the signals are as they always are.
pub(crate) fn undisturbed() {
    let signals: SigSet = SIGNALS.into_iter().collect();
    signals
        .thread_unblock()
        .expect("signals that exist can be unblocked");
}
