//! A program of the host that runs no longer than agreed, and is always reaped.

use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A child process that ends with its owner, at the latest.
#[derive(Debug)]
pub(crate) struct Bounded(Child);

impl Bounded {
    pub(crate) fn start(command: &mut Command) -> std::io::Result<Bounded> {
        command.spawn().map(Bounded)
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// How it ended, if it did by then.
    pub(crate) fn wait_until(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK_EVERY),
                _ => return None,
            }
        }
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let mut sleeper = Bounded::start(Command::new("sleep").arg("60")).unwrap();
        let process = format!("/proc/{}", sleeper.child().id());
        assert_eq!(sleeper.wait_until(Instant::now() + Duration::from_millis(5)), None);
        drop(sleeper);
        assert!(!std::path::Path::new(&process).exists(), "neither running nor waiting to be read");
    }
}
