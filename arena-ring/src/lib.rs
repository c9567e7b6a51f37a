//! Records that many Linux processes publish and many read, in a shared arena.
