//! Leases between Linux processes: one holder, a successor when it dies, a fencing token.
