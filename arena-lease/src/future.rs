//! Leading as a future.

use arena_peers::core::thread::start_quiet;
use tokio::sync::oneshot;

use crate::cancel::Cancel;
use crate::error::LeaseError;
use crate::guard::Contest;
use crate::lead_options::Lead;
use crate::leases::Leases;
use crate::loss::Loss;
use crate::term::Term;

/// It acquires, which asks for verdicts and may start other threads.
const STACK_BYTES: usize = 256 * 1024;

impl Lead {
    /// [`contend`](Self::contend) as a future, for any executor (feature `tokio`).
    ///
    /// Cancel-safe: dropped at any point, nothing is held and nobody waits any more; what was acquired at that moment
    /// is released. A thread of this crate's waits meanwhile. It ends with the future, at most a few system calls
    /// later.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = arena_lease::Leases::open(&arena_lease::ArenaOptions::new().anonymous()?)?;
    /// # async fn work(_fence: u64) {}
    /// let rules = arena_lease::LeadOptions::new().build()?;
    /// if let Some(guard) = rules.acquire(&leases, "nightly").await?.won() {
    ///     tokio::select! {
    ///         () = work(guard.fence()) => {}
    ///         loss = guard.lost() => eprintln!("stopped: {loss}"),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`contend`](Self::contend).
    pub async fn acquire(
        &self,
        leases: &Leases,
        name: impl AsRef<[u8]>,
    ) -> Result<Contest, LeaseError> {
        let token = self.cancel.as_ref().map_or_else(Cancel::new, Cancel::child);
        let rules = Self {
            cancel: Some(token.clone()),
            ..self.clone()
        };
        let (leases, name) = (leases.clone(), name.as_ref().to_vec());
        let (tell, told) = oneshot::channel();
        start_quiet("arena-acquire", STACK_BYTES, move || {
            // Dropped by whoever notices: the thread that nobody listens any more, the channel that nobody did.
            let _unheard = tell.send(rules.contend(&leases, name));
        })
        .map_err(LeaseError::Helper)?;
        let mut dropped = Dropped(Some(token));
        let contest = told.await.expect("the thread tells before it ends");
        // From here on the token is the term's.
        dropped.0 = None;
        contest
    }
}

impl Term {
    /// Waits until the term ends, and says why it did (feature `tokio`). For any executor; cancel-safe.
    ///
    /// It is told by the thread that keeps the lease alive, or by whoever asks the term first. When that thread is held
    /// up it is late: [`is_leading`](Self::is_leading) is not.
    pub async fn lost(&self) -> Loss {
        match self.look() {
            Err(loss) => loss,
            Ok(_) => *self.heard().wait().await,
        }
    }
}

/// Cancels, unless it was disarmed.
struct Dropped(Option<Cancel>);

impl Drop for Dropped {
    fn drop(&mut self) {
        if let Some(token) = &self.0 {
            token.cancel();
        }
    }
}
