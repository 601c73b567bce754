//! What a keeper waits for, in one thread: orders of attached callers, signals, connections and the end of
//! its warden. Whatever makes a new mount namespace looks at every thread of the host, so a host with
//! thousands of sandboxes has few for each.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use ringwall_linux::signals::SignalWatch;
use ringwall_ring::EvidenceError;
use ringwall_spec::Ending;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::rights::RightsOrder;

/// What attached callers want of the keeper itself.
#[derive(Debug)]
pub(crate) enum Order {
    Take {
        permit: Vec<u8>,
        done: Sender<Result<(), String>>,
    },
    Snapshot {
        id: String,
        name: Option<String>,
        for_fork: bool,
        done: Sender<Result<(), String>>,
    },
    ChangeRights {
        change: RightsOrder,
        done: Sender<Result<(), String>>,
    },
    End(Ending),
    /// The ring is not as it was raised.
    Changed(EvidenceError),
}

/// Where orders are given.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    sender: Sender<Order>,
    bell: Arc<OwnedFd>,
}

/// The keeper has ended.
#[derive(Debug)]
pub(crate) struct Ended;

impl Orders {
    pub(crate) fn send(&self, order: Order) -> Result<(), Ended> {
        self.sender.send(order).map_err(|_| Ended)?;
        // It fails only where so many wait that the bell rings anyway.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        Ok(())
    }
}

/// Where orders come in.
#[derive(Debug)]
pub(crate) struct Ordered {
    receiver: Receiver<Order>,
    bell: Arc<OwnedFd>,
}

pub(crate) fn orders() -> io::Result<(Orders, Ordered)> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, receiver) = mpsc::channel();
    Ok((Orders { sender, bell: bell.clone() }, Ordered { receiver, bell }))
}

/// What came first.
#[derive(Debug)]
pub(crate) enum Happened {
    Ordered(Order),
    Signal,
    WardenEnded,
    /// A caller wants to attach.
    Connection,
    Nothing,
}

/// All that a keeper waits for.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    pub(crate) ordered: &'a Ordered,
    pub(crate) signals: &'a SignalWatch,
    pub(crate) warden: &'a OwnedFd,
    pub(crate) socket: Option<&'a UnixListener>,
}

impl Waiting<'_> {
    /// Waits no longer than `patience`. Orders come before everything else, in their order.
    pub(crate) fn next(&self, patience: Duration) -> io::Result<Happened> {
        if let Ok(order) = self.ordered.receiver.try_recv() {
            return Ok(Happened::Ordered(order));
        }
        let mut polled = vec![
            PollFd::from_borrowed_fd(self.ordered.bell.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.warden.as_fd(), PollFlags::IN),
        ];
        polled.extend(self.socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
        let patience = Timespec::try_from(patience).ok();
        match poll(&mut polled, patience.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
        if ready.first() == Some(&true) {
            // What rang while it was read is in the channel by now.
            let _ = rustix::io::read(&*self.ordered.bell, &mut [0; 8]);
            if let Ok(order) = self.ordered.receiver.try_recv() {
                return Ok(Happened::Ordered(order));
            }
        }
        Ok(match ready.get(1..) {
            Some([true, ..]) => Happened::Signal,
            Some([_, true, ..]) => Happened::WardenEnded,
            Some([_, _, true]) => Happened::Connection,
            _ => Happened::Nothing,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::process::Signal;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_keeper_hears_of_all_that_it_waits_for_and_loses_no_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let socket = UnixListener::bind(&path).unwrap();
        let signals = SignalWatch::new(&[Signal::WINCH]).unwrap();
        // Readable once its other end is gone, as a warden's is.
        let (warden, other) = UnixStream::pair().unwrap();
        let warden = OwnedFd::from(warden);
        let (orders, ordered) = orders().unwrap();
        let waiting = Waiting {
            ordered: &ordered,
            signals: &signals,
            warden: &warden,
            socket: Some(&socket),
        };
        assert!(matches!(waiting.next(Duration::ZERO).unwrap(), Happened::Nothing));
        for ending in [Ending::Stopped, Ending::Oom] {
            orders.send(Order::End(ending)).unwrap();
        }
        for ending in [Ending::Stopped, Ending::Oom] {
            let next = waiting.next(LONG).unwrap();
            assert!(matches!(next, Happened::Ordered(Order::End(end)) if end == ending));
        }
        let late = orders.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || late.send(Order::End(Ending::Timeout)).unwrap());
            let next = loop {
                match waiting.next(LONG).unwrap() {
                    // The bell still rings for orders that were taken before.
                    Happened::Nothing => {}
                    happened => break happened,
                }
            };
            assert!(matches!(next, Happened::Ordered(Order::End(Ending::Timeout))), "{next:?}");
        });
        let _caller = UnixStream::connect(&path).unwrap();
        let heard = loop {
            match waiting.next(LONG).unwrap() {
                Happened::Nothing => {}
                happened => break happened,
            }
        };
        assert!(matches!(heard, Happened::Connection), "{heard:?}");
        drop(other);
        assert!(matches!(waiting.next(LONG).unwrap(), Happened::WardenEnded));
    }
}
