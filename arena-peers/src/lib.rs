//! Who is attached to a shared arena, and proof that one of them died.
