//! What this process was given by whoever started it, and hands on to every ring.

use super::read_text;

/// How many seccomp filters are on this process. Rings inherit them: a container's own filter counts
/// as well. `None` on kernels before 5.10, which do not tell.
pub fn seccomp_filters() -> Option<u32> {
    filters_in(&read_text("/proc/self/status")?)
}

fn filters_in(status: &str) -> Option<u32> {
    let value = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_read_where_the_kernel_tells_it() {
        assert_eq!(filters_in("Seccomp:\t2\nSeccomp_filters:\t3\n"), Some(3));
        assert_eq!(filters_in("Seccomp:\t2\n"), None);
    }
}
