//! A seeded generator, so that a failure can be repeated.

/// `splitmix64`: small, fast, and the same everywhere.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The generator for `seed`, told apart from others of the same seed by `name`.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let mixed = name
            .bytes()
            .fold(seed ^ 0x9e37_79b9_7f4a_7c15, |state, byte| {
                (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        Self(mixed)
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// An index below `len`, which must not be 0.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        let bound = u64::try_from(len).expect("usize is at most 64 bits");
        usize::try_from(self.below(bound)).expect("below a usize")
    }

    /// A byte.
    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn the_same_seed_and_name_give_the_same_numbers() {
        let (mut a, mut b) = (Rng::new(7, "x"), Rng::new(7, "x"));
        assert!((0..100).all(|_| a.next() == b.next()));
    }

    #[test]
    fn another_name_gives_other_numbers() {
        let (mut a, mut b) = (Rng::new(7, "x"), Rng::new(7, "y"));
        assert!((0..8).any(|_| a.next() != b.next()));
    }
}
