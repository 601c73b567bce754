//! Makes a socket of any two byte streams, so that there is one way to wait for a warden.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;

const BUFFER_BYTES: usize = 64 << 10;

/// The end of either direction ends that direction of the socket; a stream that fails ends both.
pub(super) fn to_socket(
    mut reader: impl Read + Send + 'static,
    mut writer: impl Write + Send + 'static,
) -> io::Result<UnixStream> {
    let (ours, mut inner) = UnixStream::pair()?;
    let mut outer = inner.try_clone()?;
    thread::Builder::new().name("wire-relay-in".into()).spawn(move || {
        // Either kind of end looks the same to the client: its peer is gone.
        let _ = copy(&mut reader, &mut inner);
        let _ = inner.shutdown(Shutdown::Both);
    })?;
    thread::Builder::new().name("wire-relay-out".into()).spawn(move || {
        if copy(&mut outer, &mut writer).is_err() {
            let _ = outer.shutdown(Shutdown::Both);
        }
    })?;
    Ok(ours)
}

fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                to.write_all(buffer.get(..n).unwrap_or_default())?;
                to.flush()?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
