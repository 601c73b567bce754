//! The processor's time stamp counter.

/// Ticks since some moment, on the processor that runs this.
pub fn read() -> u64 {
    // SAFETY: the instruction reads a counter and touches no memory. Every x86_64 processor has it,
    // and Linux allows it in user space unless the process itself asked for a signal instead.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    #[test]
    fn time_goes_on() {
        let before = super::read();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(super::read() > before);
    }
}
