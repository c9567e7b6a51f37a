//! How far a process came, shown as the name of the thread that asks: in ps, in top, in /proc.

use std::ffi::{CStr, CString};
use std::fs;
use std::sync::Mutex;

use nix::sys::prctl;
use nix::unistd::{Pid, gettid};

/// The name of one thread at a time, and what it was called before. Shown as far as the system allows, never an error.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    named: Mutex<Option<Named>>,
}

#[derive(Debug)]
struct Named {
    thread: Pid,
    before: CString,
    now: CString,
}

impl Shown {
    /// Calls the calling thread so: the first 15 bytes of `state`.
    pub(crate) fn show(&self, state: &str) {
        // In a child of fork it may have been copied locked.
        let Ok(mut named) = self.named.try_lock() else {
            return;
        };
        let thread = gettid();
        let kept = named.take();
        let before = match kept {
            Some(kept) if kept.thread == thread => Some(kept.before),
            other => {
                other.iter().for_each(Named::restore);
                prctl::get_name().ok()
            }
        };
        // The kernel's length.
        let now = CString::new(&state[..state.len().min(15)]).expect("states have no NUL");
        if let Some(before) = before
            && prctl::set_name(&now).is_ok()
        {
            *named = Some(Named {
                thread,
                before,
                now,
            });
        }
    }

    /// Calls the thread as it was called before.
    pub(crate) fn restore(&self) {
        if let Ok(mut named) = self.named.try_lock() {
            named.take().iter().for_each(Named::restore);
        }
    }
}

impl Named {
    /// Unless somebody else has named it since, or it has ended, or it is a thread of the parent's.
    fn restore(&self) {
        let path = format!("/proc/self/task/{}/comm", self.thread);
        let is_ours = |found: &CStr| found == self.now.as_c_str();
        if self.thread == gettid() {
            if prctl::get_name().is_ok_and(|found| is_ours(&found)) {
                let _shown = prctl::set_name(&self.before);
            }
        } else if let Ok(found) = fs::read(&path)
            && found.strip_suffix(b"\n") == Some(self.now.as_bytes())
        {
            let _shown = fs::write(&path, self.before.as_bytes());
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.restore();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    fn name() -> String {
        prctl::get_name().unwrap().into_string().unwrap()
    }

    #[test]
    fn a_thread_is_called_as_before_when_the_state_is_dropped_elsewhere_and_not_when_it_was_renamed()
     {
        for renamed in [false, true] {
            let (tell, told) = channel();
            let (go, gone) = channel();
            let thread = thread::Builder::new().name("worker".into());
            let thread = thread.spawn(move || {
                let shown = Shown::default();
                shown.show("acquire");
                shown.show("no-lock-acquired");
                assert_eq!(name(), "no-lock-acquire", "as much as the kernel keeps");
                if renamed {
                    prctl::set_name(c"mine").unwrap();
                }
                tell.send(shown).unwrap();
                gone.recv().unwrap();
                name()
            });
            drop(told.recv().unwrap());
            go.send(()).unwrap();
            let right = if renamed { "mine" } else { "worker" };
            assert_eq!(thread.unwrap().join().unwrap(), right);
        }
    }

    #[test]
    fn the_thread_that_asks_is_the_one_that_is_named() {
        let shown = Shown::default();
        let thread = thread::Builder::new().name("first".into());
        thread::scope(|scope| {
            let (tell, told) = channel();
            let (go, gone) = channel();
            let shown = &shown;
            let first = thread
                .spawn_scoped(scope, move || {
                    shown.show("standby1");
                    tell.send(()).unwrap();
                    gone.recv().unwrap();
                    name()
                })
                .unwrap();
            told.recv().unwrap();
            let before = name();
            shown.show("primary");
            assert_eq!(name(), "primary");
            go.send(()).unwrap();
            assert_eq!(first.join().unwrap(), "first");
            shown.restore();
            assert_eq!(name(), before);
        });
    }
}
