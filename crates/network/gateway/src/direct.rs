//! The door for programs that know no proxy: what they connect to says where they want to go. From
//! there on it is a tunnel like any other.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use crate::event::{Door, Verdict};
use crate::exchange::Visit;
use crate::forward::decide_and_record;
use crate::tunnel;

const PATIENCE: Duration = Duration::from_secs(15);

/// Serves a connection to an address, which its first six bytes tell where nobody else could.
pub(crate) async fn serve<S>(visit: Visit, address: Option<SocketAddr>, mut io: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let address = match address {
        Some(address) => address,
        None => match tokio::time::timeout(PATIENCE, told(&mut io)).await {
            Ok(Ok(address)) => address,
            // Gone or silent: nothing was asked.
            _ => return,
        },
    };
    let stream = visit.task.stream(Door::Direct);
    let Some(fakes) = &visit.task.fakes else { return };
    let host = match fakes.host(address.ip()) {
        Ok(host) => host,
        Err(unknown) => return stream.note(Verdict::Refused, &unknown),
    };
    let mut stream = stream.to(&host, address.port());
    match decide_and_record(&visit, &host, address.port(), &mut stream).await {
        Ok((way, held)) => tunnel::serve(Arc::new(visit), way, held, stream, io).await,
        // There is no way to tell the program but to close.
        Err(problem) => stream.note(problem.verdict(), &problem),
    }
}

async fn told(io: &mut (impl AsyncRead + Unpin)) -> std::io::Result<SocketAddr> {
    let mut bytes = [0; 6];
    io.read_exact(&mut bytes).await?;
    let [a, b, c, d, high, low] = bytes;
    let address = Ipv4Addr::new(a, b, c, d);
    Ok(SocketAddr::new(address.into(), u16::from_be_bytes([high, low])))
}
