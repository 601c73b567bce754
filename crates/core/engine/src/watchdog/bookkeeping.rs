//! What the kernel notes about processes piece by piece: mappings, locks on files, watches.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Found, memory};

/// A mapping, a lock, a watch: all that is told in one line about a process is about so large.
const LINE_BYTES: u64 = 256;
/// After a count the engine rests for this many times what the count took.
const REST_AFTER_COUNT: u32 = 9;

/// Asking the kernel for what it notes is dear, so that is done only when the kernel of the whole host has
/// grown since it was last found in order. A job can make the kernel grow and shrink as often as it likes, and
/// the engine's time is not counted to the job: so a count is followed by a rest, which only growth by the
/// whole limit ends early.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    in_order: Option<u64>,
    rests_until: Option<Instant>,
}

/// The result of a count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) bytes: u64,
    /// A process that runs and that the engine may not read. It counts as more than any limit.
    pub(super) unreadable: Option<u32>,
}

impl Noted {
    const TOO_MUCH: Noted = Noted { bytes: u64::MAX, unreadable: None };
}

impl Kernel {
    /// The mappings, locks and watches of these processes, if it is time to ask.
    pub(super) fn bookkeeping<F: AsRef<[Found]>>(
        &mut self,
        found: impl FnOnce() -> F,
        most: u64,
    ) -> Noted {
        let (now, began) = (kernel_bytes(), Instant::now());
        let before = *self.in_order.get_or_insert(now);
        let rests = self.rests_until.is_some_and(|until| began < until);
        let growth = if rests { most } else { most / 8 };
        if now <= before.saturating_add(growth) {
            self.in_order = Some(before.min(now));
            return Noted::default();
        }
        self.in_order = Some(now);
        let noted = count(found().as_ref(), most);
        self.rests_until = Some(rest_after(began, began.elapsed()));
        noted
    }
}

fn rest_after(began: Instant, took: Duration) -> Instant {
    began + took + took.saturating_mul(REST_AFTER_COUNT)
}

fn count(found: &[Found], most: u64) -> Noted {
    let mut bytes = 0;
    for one in found {
        match lines_about(&one.asked, (most - bytes) / LINE_BYTES) {
            Ok(lines) => bytes += lines * LINE_BYTES,
            // Locks and mappings of a process that runs may be any number, unless they are seen.
            Err(error) if !is_gone(&error) && memory(&one.asked).is_some() => {
                return Noted { unreadable: Some(one.pid), ..Noted::TOO_MUCH };
            }
            // It has ended, and the kernel has taken back what it had.
            Err(_) => {}
        }
        if bytes >= most {
            return Noted::TOO_MUCH;
        }
    }
    Noted { bytes, unreadable: None }
}

/// How many lines the kernel has to tell about a process, up to a bound.
fn lines_about(process: &str, most: u64) -> io::Result<u64> {
    let mut all = 0;
    for file in fs::read_dir(format!("{process}/fdinfo"))? {
        all += lines(&file?.path(), most - all)?;
        if all > most {
            return Ok(all);
        }
    }
    Ok(all + lines(Path::new(&format!("{process}/maps")), most - all)?)
}

/// How many lines a file has, up to a bound. A file that was closed meanwhile has none.
fn lines(path: &Path, most: u64) -> io::Result<u64> {
    let file = match File::open(path) {
        Err(error) if is_gone(&error) => return Ok(0),
        opened => opened?,
    };
    let bound = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1);
    let count = BufReader::with_capacity(1 << 16, file).split(b'\n').take(bound).count();
    Ok(u64::try_from(count).unwrap_or(u64::MAX))
}

/// The process has ended, or the file was closed.
fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::SRCH, Errno::NOENT].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|number| gone.contains(&number))
}

/// What the kernel has taken for itself and cannot give back on its own.
fn kernel_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix("SUnreclaim:"));
    let kibibytes = found.and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::super::{look, threads};
    use super::*;

    fn own() -> Found {
        let pid = std::process::id();
        look(pid, threads(pid).unwrap())
    }

    #[test]
    fn the_kernel_is_asked_for_details_only_when_it_has_grown() {
        let own = [own()];
        let most = 1 << 40;
        let mut quiet = Kernel::default();
        assert_eq!(quiet.bookkeeping(|| &own, most), Noted::default());
        let mut grown = Kernel { in_order: Some(0), ..Kernel::default() };
        let most = 4 * kernel_bytes();
        let noted = grown.bookkeeping(|| &own, most);
        assert!((10 * LINE_BYTES..most).contains(&noted.bytes), "{noted:?}");
        let mut tight = Kernel { in_order: Some(0), ..Kernel::default() };
        assert_eq!(tight.bookkeeping(|| &own, LINE_BYTES), Noted::TOO_MUCH);
    }

    #[test]
    fn after_a_count_only_growth_by_the_whole_limit_is_a_reason_for_the_next() {
        let now = kernel_bytes();
        let count = |kernel: &mut Kernel, most| {
            let mut counted = false;
            kernel.bookkeeping(
                || {
                    counted = true;
                    Vec::new()
                },
                most,
            );
            counted
        };
        let later = Instant::now() + Duration::from_secs(3600);
        let resting = || Kernel { in_order: Some(0), rests_until: Some(later) };
        assert!(!count(&mut resting(), 4 * now), "an eighth of the limit");
        assert!(count(&mut resting(), now / 4), "the whole limit");
        let mut rested = Kernel { in_order: Some(0), rests_until: Some(Instant::now()) };
        assert!(count(&mut rested, 4 * now));
        assert!(rested.rests_until > Some(Instant::now() - Duration::from_secs(60)));
        // What the kernel gives back meanwhile counts.
        let mut shrunk = Kernel { in_order: Some(u64::MAX / 2), rests_until: Some(later) };
        assert!(!count(&mut shrunk, now));
        assert!(shrunk.in_order < Some(u64::MAX / 2));
    }

    #[test]
    fn a_count_that_took_long_is_followed_by_a_longer_rest() {
        let began = Instant::now();
        let second = Duration::from_secs(1);
        assert_eq!(rest_after(began, second), began + 10 * second);
    }

    #[test]
    fn a_process_that_has_ended_has_nothing_noted() {
        let gone = Found { pid: 1, asked: "/proc/no-such-process".to_owned(), bytes: 0 };
        assert_eq!(count(&[gone], 1 << 20), Noted::default());
    }
}
