//! How much one copy may move: what lies inside a sandbox is not to be trusted to end.

/// Counts down the rest of a copy.
#[derive(Debug)]
pub(super) struct Budget {
    entries: u64,
    bytes: u64,
}

impl Budget {
    pub(super) const MOST_ENTRIES: u64 = 100_000;
    pub(super) const MOST_BYTES: u64 = 8 << 30;
    /// Directories below each other.
    pub(super) const MOST_DEPTH: usize = 64;

    pub(super) fn new() -> Budget {
        Budget { entries: Self::MOST_ENTRIES, bytes: Self::MOST_BYTES }
    }

    pub(super) fn entry(&mut self, depth: usize) -> anyhow::Result<()> {
        anyhow::ensure!(
            depth <= Self::MOST_DEPTH,
            "directories are nested more than {} deep; copy a part of them",
            Self::MOST_DEPTH
        );
        self.entries = self.entries.checked_sub(1).ok_or_else(|| {
            anyhow::anyhow!("more than {} files; copy a part of them", Self::MOST_ENTRIES)
        })?;
        Ok(())
    }

    pub(super) fn spend(&mut self, bytes: u64) -> anyhow::Result<()> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(|| {
            anyhow::anyhow!("more than {} GiB; copy a part of it", Self::MOST_BYTES >> 30)
        })?;
        Ok(())
    }

    pub(super) fn bytes_left(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_ends_at_its_bounds() {
        let mut budget = Budget { entries: 1, bytes: 10 };
        assert!(budget.entry(Budget::MOST_DEPTH + 1).is_err());
        assert!(budget.entry(0).is_ok());
        assert!(budget.entry(0).is_err());
        assert!(budget.spend(10).is_ok());
        assert!(budget.spend(1).is_err());
    }
}
