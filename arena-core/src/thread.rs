//! Threads that a library starts: named, small, and out of the way of the program's signals.

use std::io;
use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow};

/// Starts a thread in which no signal is ever handled, so that none of the program's lands there.
///
/// `name` is at most 15 bytes, `stack_bytes` is raised to the system's least. The signals are blocked
/// before the thread exists and given back to the caller afterwards.
///
/// # Errors
///
/// `EAGAIN`: no thread or no memory is to be had.
pub fn start_quiet(
    name: &str,
    stack_bytes: usize,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = Builder::new()
        .name(name.into())
        .stack_size(stack_bytes)
        .spawn(body);
    before.thread_set_mask()?;
    started
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::Signal;

    #[test]
    fn thread_blocks_the_signals_that_its_starter_goes_on_to_take() {
        let before = SigSet::thread_get_mask().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = start_quiet("quiet", 0, move || {
            tell.send(SigSet::thread_get_mask().unwrap()).unwrap();
        });
        let inside = told.recv().unwrap();
        thread.unwrap().join().unwrap();
        assert!(inside.contains(Signal::SIGTERM) && inside.contains(Signal::SIGCHLD));
        assert_eq!(SigSet::thread_get_mask().unwrap(), before);
    }
}
