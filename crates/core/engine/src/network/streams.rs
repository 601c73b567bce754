//! Connections of a guest, which shares no socket with its host: its warden takes them on loopback, and
//! each goes through the channel to the engine and from here to the gateway.
//!
//! What comes out of a guest is hostile: it is carried and not looked at, and there is never more of it
//! than a stream's window and so many streams.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use ringwall_egress::Entrance;
use ringwall_wire::{Client, Door, PendingTunnel, Tunnel};

use super::watch::Shared;

/// Connections at once; the next ones wait in the guest.
const MOST_OPEN: usize = 64;
const PAUSE: Duration = Duration::from_millis(5);

/// Takes connections at one door until the guest is gone. The first one is requested before this returns:
/// a program that is started next must not find the door closed.
pub(super) fn serve(
    client: Client,
    door: Door,
    gateway: Arc<Shared>,
    task: String,
) -> io::Result<()> {
    let mut next = client.begin_accept(door);
    let thread = std::thread::Builder::new().name("network".to_owned());
    thread.spawn(move || {
        let open = Arc::new(());
        // An error is the end of the guest, or one that cannot listen there: then it has no such door.
        while let Ok(tunnel) = next.and_then(PendingTunnel::wait) {
            while Arc::strong_count(&open) > MOST_OPEN {
                std::thread::sleep(PAUSE);
            }
            // Without a gateway the connection is closed, which is no network.
            let _ = carry(tunnel, &gateway, (&task, door), &open);
            next = client.begin_accept(door);
        }
    })?;
    Ok(())
}

fn carry(
    tunnel: Tunnel,
    gateway: &Shared,
    (task, door): (&str, Door),
    open: &Arc<()>,
) -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let to = match door {
        Door::Proxy => Entrance::Proxy,
        Door::Dns => Entrance::Dns,
        Door::Direct(_) => Entrance::Direct,
    };
    gateway.connect(task, to, theirs.into())?;
    let (mut from_guest, mut to_guest) = tunnel.split();
    let (mut to_gateway, mut from_gateway) = (ours.try_clone()?, ours);
    let counted = Arc::clone(open);
    let named = || std::thread::Builder::new().name("stream".to_owned());
    named().spawn(move || {
        let _counted = counted;
        // However it ended, nothing more comes this way.
        let _ = io::copy(&mut from_guest, &mut to_gateway);
        let _ = to_gateway.shutdown(Shutdown::Write);
    })?;
    let counted = Arc::clone(open);
    named().spawn(move || {
        let _counted = counted;
        let _ = io::copy(&mut from_gateway, &mut to_guest);
        let _ = io::Write::flush(&mut to_guest);
        let _ = from_gateway.shutdown(Shutdown::Read);
    })?;
    Ok(())
}
