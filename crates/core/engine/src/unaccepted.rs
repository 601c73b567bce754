//! Counts the bytes that wait in unaccepted TCP connections. The kernel charges a connection to a memory
//! control group, of either version, only when a program accepts it. Until then no group counts it.
//!
//! The list of connections is slow to read: the kernel looks through its table of the whole host. So the
//! number of sockets is asked first, which is cheap, and the list only where so many could be too much.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

/// More than this is not read of the list of connections: it has a line of 150 bytes for each.
const MOST_LISTED: u64 = 32 << 20;
/// What the kernel keeps for a connection beside its data.
const CONNECTION_BYTES: u64 = 4 << 10;

/// What one connection can hold where the host has the kernel's defaults, with room to spare.
const MOST_PER_CONNECTION: u64 = 8 << 20;
/// Larger than either file with numbers of sockets.
const STATISTICS_BYTES: usize = 512;

const LISTENING: &str = "0A";
const TIME_WAIT: &str = "06";

/// The numbers of sockets in one network namespace.
#[derive(Debug)]
pub(crate) struct Statistics {
    files: Vec<File>,
    most_per_connection: u64,
}

impl Statistics {
    /// Opens the statistics of a process's network namespace. Holds that namespace until it is dropped.
    pub(crate) fn of(pid: u32) -> Statistics {
        let open = |name: &str| File::open(format!("/proc/{pid}/net/{name}")).ok();
        // Another host may let a connection hold more. A new namespace has the settings of the host.
        let settings = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap_or_default();
        let largest = settings.split_whitespace().last().and_then(|word| word.parse().ok());
        Statistics {
            files: ["sockstat", "sockstat6"].into_iter().filter_map(open).collect(),
            most_per_connection: MOST_PER_CONNECTION
                .max(largest.map_or(0, |bytes: u64| bytes + bytes / 4)),
        }
    }

    /// Whether so many sockets as there are could hold more than that. True where it is not known.
    pub(crate) fn could_hold_more_than(&self, most: u64) -> bool {
        let mut sockets = if self.files.is_empty() { u64::MAX } else { 0 };
        for file in &self.files {
            sockets = sockets.saturating_add(tcp_sockets(file).unwrap_or(u64::MAX));
        }
        sockets.saturating_mul(self.most_per_connection) > most
    }
}

fn tcp_sockets(statistics: &File) -> Option<u64> {
    let mut buffer = [0; STATISTICS_BYTES];
    let length = statistics.read_at(&mut buffer, 0).ok()?;
    let text = std::str::from_utf8(buffer.get(..length)?).ok()?;
    let line = text.lines().find(|line| line.starts_with("TCP: ") || line.starts_with("TCP6: "))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

/// The bytes of all such connections in the network namespace of a process.
pub(crate) fn unaccepted_bytes(pid: u32) -> u64 {
    let mut bytes = 0;
    for table in ["tcp", "tcp6"] {
        let mut text = String::new();
        if let Ok(file) = File::open(format!("/proc/{pid}/net/{table}")) {
            let _ = file.take(MOST_LISTED).read_to_string(&mut text);
        }
        bytes += text.lines().skip(1).filter_map(bytes_of).sum::<u64>();
    }
    bytes
}

/// One line of /proc/net/tcp, if it is of a connection that no process has.
fn bytes_of(line: &str) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (state, queues, inode) = (fields.get(3)?, fields.get(4)?, fields.get(9)?);
    if *inode != "0" || [LISTENING, TIME_WAIT].contains(state) {
        return None;
    }
    let waiting = u64::from_str_radix(queues.split_once(':')?.1, 16).ok()?;
    // A quarter more for the blocks that it is in.
    Some(waiting + waiting / 4 + CONNECTION_BYTES)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_counts_until_it_is_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        to.write_all(&[7; 40_000]).unwrap();
        let port = format!("0100007F:{:04X}", listener.local_addr().unwrap().port());
        let of_port = || {
            let text = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
            let own = |line: &&str| line.split_whitespace().nth(1) == Some(port.as_str());
            text.lines().filter(own).filter_map(bytes_of).sum::<u64>()
        };
        assert_eq!(of_port(), 40_000 + 10_000 + CONNECTION_BYTES);
        let _accepted = listener.accept().unwrap();
        assert_eq!(of_port(), 0);
    }

    #[test]
    fn the_number_of_sockets_says_whether_they_could_hold_too_much() {
        let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let own = Statistics::of(std::process::id());
        assert_eq!(own.files.len(), 2);
        assert!(own.could_hold_more_than(listeners.len() as u64 * MOST_PER_CONNECTION - 1));
        assert!(!own.could_hold_more_than(u64::MAX - 1));
    }

    #[test]
    fn a_namespace_that_cannot_be_asked_could_hold_anything() {
        assert!(Statistics::of(u32::MAX).could_hold_more_than(u64::MAX - 1));
    }
}
