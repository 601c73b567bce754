//! Numbers from a seed: the same seed gives the same numbers.

/// SplitMix64: short, and even enough to choose by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Dice for one part of the choices: they do not depend on the draws for other parts.
    pub fn branch(&self, part: u64) -> Dice {
        let apart = part.wrapping_add(1).wrapping_mul(0xd6e8_feb8_6659_fd93);
        Dice(Dice(self.0 ^ apart).number())
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `most`; 0 where there is nothing to choose from.
    pub fn below(&mut self, most: usize) -> usize {
        let most = u64::try_from(most).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.number() % most).unwrap_or_default()
    }

    pub fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again_and_another_seed_gives_others() {
        let draw = |seed| {
            let mut dice = Dice::new(seed);
            (0..32).map(|_| dice.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(7).iter().all(|number| *number < 1000));
        assert_eq!(Dice::new(1).one_of::<u8>(&[]), None);
    }

    #[test]
    fn parts_have_numbers_of_their_own() {
        let dice = Dice::new(7);
        let firsts: std::collections::BTreeSet<u64> =
            (0..1000).map(|part| dice.branch(part).number()).collect();
        assert_eq!(firsts.len(), 1000);
        assert_eq!(dice.branch(3), Dice::new(7).branch(3));
        assert_ne!(dice.branch(3), Dice::new(8).branch(3));
    }
}
