//! Bytes both ways between two streams, counted, searched and held to the rules.

use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::event::Verdict;
use crate::exchange::Visit;
use crate::meter::Exhausted;
use crate::needles::{Needles, Scanner};
use crate::task::{Held, Stream};

const BUFFER: usize = 8 * 1024;

pub(crate) struct Relay {
    pub(crate) held: Held,
    pub(crate) stream: Stream,
    /// What must not come down.
    pub(crate) needles: Needles,
}

#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    #[error("the stream broke: {0}")]
    Broken(#[from] std::io::Error),
}

/// Relays until both sides have said all, or the leash is cut.
pub(crate) async fn relay(
    visit: &Visit,
    client: impl AsyncRead + AsyncWrite + Unpin,
    server: impl AsyncRead + AsyncWrite + Unpin,
    sides: Relay,
) {
    let Relay { held, mut stream, needles } = sides;
    let meter = &visit.task.meter;
    let (up, down) = (AtomicU64::new(0), AtomicU64::new(0));
    let (mut client_reads, mut client_writes) = tokio::io::split(client);
    let (mut server_reads, mut server_writes) = tokio::io::split(server);
    let upwards = async {
        let count = |size| {
            up.fetch_add(size, Ordering::Relaxed);
            meter.up(size)
        };
        pump(&mut client_reads, &mut server_writes, count, None).await
    };
    let downwards = async {
        let count = |size| {
            down.fetch_add(size, Ordering::Relaxed);
            meter.down(size)
        };
        let scanner = (!needles.is_empty()).then(|| Scanner::new(needles));
        pump(&mut server_reads, &mut client_writes, count, scanner).await
    };
    // That a side leaves without a word is an end like any other.
    let (verdict, reason) = tokio::select! {
        both = async { tokio::try_join!(upwards, downwards) } => match both {
            Ok(_) => (Verdict::Ended, None),
            Err(Stop::Broken(error)) => (Verdict::Ended, Some(error.to_string())),
            Err(Stop::Exhausted(limit)) => (Verdict::Cut, Some(limit.to_string())),
        },
        cut = visit.leash.cut() => (Verdict::Cut, Some(cut.to_string())),
    };
    drop(held);
    stream.event.bytes_up += up.into_inner();
    stream.event.bytes_down += down.into_inner();
    let reason = reason.as_ref().map(|reason| reason as &dyn std::fmt::Display);
    // The decision was recorded; that its end is not does not undo it.
    let _ = stream.record(verdict, reason);
}

async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    count: impl Fn(u64) -> Result<(), Exhausted>,
    mut scanner: Option<Scanner>,
) -> Result<(), Stop> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let size = from.read(&mut buffer).await?;
        if size == 0 {
            if let Some(scanner) = &mut scanner {
                to.write_all(&scanner.rest()).await?;
            }
            // The other side may have closed for good already.
            let _ = to.shutdown().await;
            return Ok(());
        }
        count(size as u64)?;
        match &mut scanner {
            None => to.write_all(&buffer[..size]).await?,
            Some(scanner) => {
                let (certain, _) = scanner.pass(Bytes::copy_from_slice(&buffer[..size]));
                to.write_all(&certain).await?;
            }
        }
        to.flush().await?;
    }
}
