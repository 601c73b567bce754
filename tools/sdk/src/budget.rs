//! Keeps results bounded: what does not fit is left out, and the output says so.

/// How much a result may still hold. Tools count what they add and stop when it is spent.
#[derive(Debug, Clone)]
pub struct Budget {
    items: usize,
    bytes: usize,
    exhausted: bool,
}

impl Budget {
    pub fn new(items: usize, bytes: usize) -> Self {
        Self { items, bytes, exhausted: false }
    }

    /// Takes room for one item of `bytes`. After the first refusal nothing more fits, so that what
    /// is returned is always a beginning of the whole and never has holes.
    pub fn take(&mut self, bytes: usize) -> bool {
        if self.exhausted || self.items == 0 || bytes > self.bytes {
            self.exhausted = true;
            return false;
        }
        self.items -= 1;
        self.bytes -= bytes;
        true
    }

    /// Whether something was left out.
    pub fn exhausted(&self) -> bool {
        self.exhausted
    }
}

/// Cuts a text to at most `bytes`, at the end of a character. Tells whether it was cut.
pub fn cut(text: &mut String, bytes: usize) -> bool {
    if text.len() <= bytes {
        return false;
    }
    text.truncate(text.floor_char_boundary(bytes));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_first_refusal_nothing_more_fits() {
        let mut budget = Budget::new(10, 5);
        assert!(budget.take(3));
        assert!(!budget.take(4));
        assert!(!budget.take(1));
        assert!(budget.exhausted());
    }

    #[test]
    fn a_spent_budget_is_not_exhausted_until_more_is_asked_for() {
        let mut budget = Budget::new(1, 5);
        assert!(budget.take(5));
        assert!(!budget.exhausted());
        assert!(!budget.take(0));
        assert!(budget.exhausted());
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let mut text = "aé".to_owned();
        assert!(cut(&mut text, 2));
        assert_eq!(text, "a");
        assert!(!cut(&mut text, 2));
    }
}
