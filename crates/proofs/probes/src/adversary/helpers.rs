//! Processes that the adversary starts and leaves to themselves for a while.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// What such a process can be told to do.
pub const HELPERS: [&str; 4] = ["wait", "hold-memory", "end-first-thread", "hold-sockets"];

/// Longer than a command of the adversary takes, and short enough to be gone before the next but one.
const WHILE: Duration = Duration::from_secs(3);
/// Two of them are more than a sandbox may have.
const HELD: usize = 96 << 20;

/// Does it, and returns when it is over. An unknown word only waits.
pub fn help(word: &str) -> io::Result<()> {
    match word {
        "hold-memory" => {
            let held = memory();
            std::thread::sleep(WHILE);
            drop(held);
        }
        "end-first-thread" => {
            let holder = || {
                let held = memory();
                std::thread::sleep(WHILE);
                drop(held);
                ringwall_linux::process::exit_now(0)
            };
            std::thread::Builder::new().spawn(holder)?;
            ringwall_linux::process::end_this_thread();
        }
        "hold-sockets" => {
            let pairs: Vec<_> = (0..48).map_while(|_| UnixStream::pair().ok()).collect();
            let open: Vec<_> = (0..48).map_while(|_| fs::File::open("/dev/null").ok()).collect();
            std::thread::sleep(WHILE);
            drop((pairs, open));
        }
        _ => std::thread::sleep(WHILE),
    }
    Ok(())
}

/// Touched, so that it is really there.
fn memory() -> Vec<u8> {
    let mut held = Vec::new();
    if held.try_reserve_exact(HELD).is_ok() {
        held.resize(HELD, 7);
    }
    held
}
