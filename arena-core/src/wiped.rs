//! Memory that the kernel empties in a child: how a forked process is known without a system call.
#![expect(
    unsafe_code,
    reason = "the page is mapped and its lock is shared with fork handlers here"
)]

use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use nix::libc;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::futex;

const LEN: NonZeroUsize = NonZeroUsize::new(4096).expect("a page is not empty");

/// A private page that reads as zeros in every child that does not share this memory, whether it
/// was made by fork or by a raw clone (`MADV_WIPEONFORK`).
#[derive(Debug)]
pub(crate) struct WipedPage {
    start: NonNull<libc::c_void>,
}

// SAFETY: the page is reached only as atomics, and unmapped only by its owner's drop.
unsafe impl Send for WipedPage {}
// SAFETY: likewise.
unsafe impl Sync for WipedPage {}

impl WipedPage {
    pub(crate) fn new() -> io::Result<WipedPage> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: no address is asked for, so no mapping of anybody's is replaced.
        let start = unsafe { mmap_anonymous(None, LEN, protection, MapFlags::MAP_PRIVATE) }?;
        let page = WipedPage { start };
        // SAFETY: the advice concerns the page mapped above, which nothing else knows yet.
        unsafe { madvise(start, LEN.get(), MmapAdvise::MADV_WIPEONFORK) }?;
        Ok(page)
    }

    /// The `N`th of the page's words; all are 0 until stored, and 0 again in a child.
    pub(crate) fn word<const N: usize>(&self) -> &AtomicU64 {
        const { assert!(N < 512, "a page has 512 words") };
        // SAFETY: `N < 512`, so the word lies in the page.
        let at = unsafe { self.start.cast::<AtomicU64>().add(N) };
        // SAFETY: the page is mapped, readable and writable until `self` is dropped, aligned, and
        // only ever used as these atomics.
        unsafe { at.as_ref() }
    }
}

impl Drop for WipedPage {
    fn drop(&mut self) {
        // SAFETY: the page is ours, and no reference into it outlives `self`. A child has the
        // mapping too, so this is right there as well.
        let unmapped = unsafe { munmap(self.start, LEN.get()) };
        debug_assert!(unmapped.is_ok(), "the page was mapped by `new`");
    }
}

/// What this process keeps once, whatever the number of arenas: one lock and one value, both of
/// which a child finds unborn. The parent's value is leaked there, since its memory may have been
/// copied in the middle of a change.
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    page: AtomicPtr<WipedPage>,
    fork_waits: bool,
    value: std::marker::PhantomData<T>,
}

impl<T: Default + Send> PerProcess<T> {
    /// A value during whose use fork does not wait: what is open then, a child inherits.
    #[must_use]
    pub const fn forked_freely() -> PerProcess<T> {
        PerProcess {
            page: AtomicPtr::new(std::ptr::null_mut()),
            fork_waits: false,
            value: std::marker::PhantomData,
        }
    }

    /// A value during whose use a fork of another thread waits, so what is opened and closed again
    /// is never inherited. (A raw clone does not wait.) There is one of these in this crate.
    pub(crate) const fn that_fork_waits_for() -> PerProcess<T> {
        PerProcess {
            fork_waits: true,
            ..PerProcess::forked_freely()
        }
    }

    /// Runs `body` alone in this process. Not re-entrant.
    ///
    /// # Errors
    ///
    /// When the first call of a process cannot map a page.
    pub fn with<R>(&'static self, body: impl FnOnce(&mut T) -> R) -> io::Result<R> {
        let page = self.page()?;
        let _held = Held::new(lock_word(page));
        // Relaxed: only the holder of the lock reads or writes this word.
        let stored = page.word::<1>().load(Ordering::Relaxed);
        let mut value: *mut T = std::ptr::with_exposed_provenance_mut(
            usize::try_from(stored).expect("an address was stored"),
        );
        if value.is_null() {
            value = Box::into_raw(Box::default());
            // Relaxed: as above.
            page.word::<1>()
                .store(value.expose_provenance() as u64, Ordering::Relaxed);
        }
        // SAFETY: the address came from Box::into_raw in this process (a child finds 0), is never
        // freed, and the lock makes this the only reference.
        Ok(body(unsafe { &mut *value }))
    }

    fn page(&'static self) -> io::Result<&'static WipedPage> {
        // EDGE process page, acquire half: the page is mapped and advised.
        let mut page = self.page.load(Ordering::Acquire);
        if page.is_null() {
            let fresh = WipedPage::new()?;
            // Relaxed: published below. Held until fork knows of the lock.
            lock_word(&fresh).store(1, Ordering::Relaxed);
            let fresh = Box::into_raw(Box::new(fresh));
            let null = std::ptr::null_mut();
            // EDGE process page, release half: the page is whole before its address is seen.
            page =
                match self
                    .page
                    .compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire)
                {
                    Ok(_) => {
                        if self.fork_waits {
                            fork_waits_for(fresh);
                        }
                        // SAFETY: a page that was stored is never freed.
                        release(lock_word(unsafe { &*fresh }));
                        fresh
                    }
                    Err(first) => {
                        // SAFETY: `fresh` came from Box::into_raw above and nobody else saw it.
                        drop(unsafe { Box::from_raw(fresh) });
                        first
                    }
                };
        }
        // SAFETY: a page that was stored is never freed.
        Ok(unsafe { &*page })
    }
}

/// The lock: 0 free, 1 held, 2 held and somebody sleeps. A child finds it free.
fn lock_word(page: &WipedPage) -> &AtomicU32 {
    // SAFETY: word 0 is used as this 32-bit atomic alone, here and in the fork handlers.
    unsafe { AtomicU32::from_ptr(page.word::<0>().as_ptr().cast()) }
}

struct Held<'a>(&'a AtomicU32);

impl<'a> Held<'a> {
    fn new(word: &'a AtomicU32) -> Held<'a> {
        acquire(word);
        Held(word)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        release(self.0);
    }
}

fn acquire(word: &AtomicU32) {
    // EDGE process lock, acquire half.
    if word
        .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        // EDGE process lock, acquire half.
        while word.swap(2, Ordering::Acquire) != 0 {
            let _woken = futex::wait(word, 2, None);
        }
    }
}

fn release(word: &AtomicU32) {
    // EDGE process lock, release half: what the holder did is seen by the next one.
    if word.swap(0, Ordering::Release) == 2 {
        futex::wake_one(word);
    }
}

/// The page whose lock fork takes.
static FORK_PAGE: AtomicPtr<WipedPage> = AtomicPtr::new(std::ptr::null_mut());

fn fork_waits_for(page: *mut WipedPage) {
    extern "C" fn prepare() {
        on_page(acquire);
    }
    extern "C" fn parent() {
        on_page(release);
    }
    fn on_page(step: fn(&AtomicU32)) {
        // EDGE process page, acquire half.
        let page = FORK_PAGE.load(Ordering::Acquire);
        // SAFETY: stored before the handlers were registered, and never freed.
        step(lock_word(unsafe { &*page }));
    }
    // EDGE process page, release half.
    FORK_PAGE.store(page, Ordering::Release);
    // SAFETY: the handlers touch a static and a page that is never unmapped. A child needs no
    // handler: the kernel emptied its page, so its lock is free.
    let registered = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), None) };
    debug_assert_eq!(registered, 0, "fails only without memory");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forked_child_reads_zero_where_its_parent_stored() {
        let page = WipedPage::new().unwrap();
        page.word::<3>().store(7, Ordering::Relaxed);
        // SAFETY: the child only loads a word and leaves by _exit.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let code = i32::from(page.word::<3>().load(Ordering::Relaxed) != 0);
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0));
        assert_eq!(page.word::<3>().load(Ordering::Relaxed), 7);
    }
}
