//! Files on their way between a sandbox and a client.
//!
//! A thread reads or writes in the sandbox, and a task passes the pieces on. The task waits for the client. It
//! gives up if the client takes too long or its grant has ended, and then the thread ends, too. A file is whole
//! only when its end was told. A file that breaks off is an error on the other side.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use futures_util::Stream;
use ringwall_desk::Caller;
use tokio::sync::mpsc;

use crate::body::next_piece;
use crate::problem::{Code, Problem};
pub(super) use crate::until::Until;

/// Pieces on their way, on each side of the task.
const PIECES: usize = 4;
/// How long a client may take nothing of a file, or send nothing of it.
const CLIENT_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one file may take.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(3600);

/// When the sandbox must have taken, or given, all of a file.
pub(super) fn deadline(caller: &Caller) -> Instant {
    Instant::now() + TRANSFER_TIMEOUT.min(caller.life())
}

pub(super) enum Piece {
    Bytes(Bytes),
    End,
}

/// The thread that reads in the sandbox writes here.
pub(super) struct ToClient(mpsc::Sender<Piece>);

/// The file as the client's body. Its last item is an error unless all of it came.
pub(super) fn to_client(until: Until) -> (ToClient, impl Stream<Item = io::Result<Bytes>> + use<>) {
    let (read, passed) = mpsc::channel(PIECES);
    let (passing, shown) = mpsc::channel(PIECES);
    tokio::spawn(pass_out(passed, passing, until, CLIENT_IDLE_TIMEOUT));
    let stream = futures_util::stream::unfold(Some(shown), |shown| async move {
        let mut shown = shown?;
        match shown.recv().await {
            Some(Piece::Bytes(bytes)) => Some((Ok(bytes), Some(shown))),
            Some(Piece::End) => None,
            None => Some((Err(io::ErrorKind::BrokenPipe.into()), None)),
        }
    });
    (ToClient(read), stream)
}

/// Passes pieces on until all are through, the client has gone or waits for too long, or its grant has ended.
async fn pass_out(
    mut read: mpsc::Receiver<Piece>,
    shown: mpsc::Sender<Piece>,
    mut until: Until,
    patience: Duration,
) {
    loop {
        let piece = tokio::select! {
            biased;
            () = until.over() => return,
            () = shown.closed() => return,
            piece = read.recv() => match piece {
                Some(piece) => piece,
                None => return,
            },
        };
        tokio::select! {
            biased;
            () = until.over() => return,
            sent = tokio::time::timeout(patience, shown.send(piece)) => match sent {
                Ok(Ok(())) => {}
                _ => return,
            },
        }
    }
}

impl ToClient {
    /// All of the file was written.
    pub(super) fn end(self) {
        let _ = self.0.blocking_send(Piece::End);
    }
}

impl Write for ToClient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Piece::Bytes(Bytes::copy_from_slice(bytes));
        self.0.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The thread that writes in the sandbox reads the client's pieces here.
pub(super) struct FromClient {
    pieces: mpsc::Receiver<Piece>,
    rest: Bytes,
    ended: bool,
}

pub(super) fn from_client() -> (mpsc::Sender<Piece>, FromClient) {
    let (pieces, received) = mpsc::channel(PIECES);
    (pieces, FromClient { pieces: received, rest: Bytes::new(), ended: false })
}

/// Passes a body on to its end. If the sandbox takes no more, that is no error here: its answer says why.
pub(super) async fn pass_on(
    body: Body,
    (pieces, mut until): (mpsc::Sender<Piece>, Until),
    most: u64,
) -> Result<(), Problem> {
    let passing = pass_in(body, pieces, (most, CLIENT_IDLE_TIMEOUT));
    tokio::select! {
        biased;
        () = until.over() => {
            let why = "the grant ended before the file was written";
            Err(Problem::new(Code::Unauthenticated, why))
        }
        passed = passing => passed,
    }
}

async fn pass_in(
    body: Body,
    pieces: mpsc::Sender<Piece>,
    (most, patience): (u64, Duration),
) -> Result<(), Problem> {
    let (mut body, mut total) = (body.into_data_stream(), 0u64);
    while let Some(piece) = next_piece(&mut body, patience).await? {
        total += piece.len() as u64;
        if total > most {
            let why = format!("a file has at most {most} bytes");
            return Err(Problem::new(Code::TooLarge, why));
        }
        if pieces.send(Piece::Bytes(piece)).await.is_err() {
            return Ok(());
        }
    }
    let _ = pieces.send(Piece::End).await;
    Ok(())
}

impl Read for FromClient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Bytes(bytes)) => self.rest = bytes,
                Some(Piece::End) => self.ended = true,
                // The client has gone before it had sent all of the file.
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let count = self.rest.len().min(buffer.len());
        let piece = self.rest.split_to(count);
        if let Some(place) = buffer.get_mut(..count) {
            place.copy_from_slice(&piece);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;
    use ringwall_desk::Books;

    const SOON: Duration = Duration::from_millis(1);

    fn owners(home: &tempfile::TempDir) -> Until {
        let books = Books::open(home.path()).unwrap();
        Until::of(&books, &Caller::Owner, "a test".to_owned())
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_ends_the_thread_that_reads_for_it() {
        let home = tempfile::tempdir().unwrap();
        let (read, passed) = mpsc::channel(PIECES);
        let (passing, mut shown) = mpsc::channel(PIECES);
        tokio::spawn(pass_out(passed, passing, owners(&home), SOON));
        let reading = tokio::task::spawn_blocking(move || {
            let mut sink = ToClient(read);
            loop {
                if let Err(error) = sink.write_all(b"more") {
                    return error.kind();
                }
            }
        });
        assert_eq!(reading.await.unwrap(), io::ErrorKind::BrokenPipe);
        // The client was not told that the file had ended.
        while let Some(piece) = shown.recv().await {
            assert!(matches!(piece, Piece::Bytes(_)));
        }
    }

    #[tokio::test]
    async fn a_file_without_an_end_is_an_error_for_its_reader() {
        let home = tempfile::tempdir().unwrap();
        for whole in [true, false] {
            let (mut sink, stream) = to_client(owners(&home));
            let reading = tokio::task::spawn_blocking(move || {
                sink.write_all(b"some").unwrap();
                if whole {
                    sink.end();
                }
            });
            let items: Vec<_> = stream.collect().await;
            reading.await.unwrap();
            assert_eq!(items[0].as_ref().unwrap(), "some");
            assert_eq!(items.iter().filter(|item| item.is_err()).count(), usize::from(!whole));
        }
    }

    #[tokio::test]
    async fn what_a_client_did_not_send_to_its_end_is_an_error_in_the_sandbox() {
        let read = async |body: Body, most: u64| {
            let (pieces, mut source) = from_client();
            let writing = tokio::task::spawn_blocking(move || {
                let mut all = Vec::new();
                source.read_to_end(&mut all).map(|_| all).map_err(|error| error.kind())
            });
            let passed = pass_in(body, pieces, (most, SOON)).await.map_err(|it| it.status());
            (passed.err().map(|status| status.as_u16()), writing.await.unwrap())
        };
        assert_eq!(read(Body::from("whole"), 5).await, (None, Ok(b"whole".to_vec())));
        let cut = Err(io::ErrorKind::UnexpectedEof);
        assert_eq!(read(Body::from("longer"), 5).await, (Some(413), cut.clone()));
        let first = futures_util::stream::iter([Ok::<_, io::Error>(Bytes::from("half"))]);
        let silent = Body::from_stream(first.chain(futures_util::stream::pending()));
        assert_eq!(read(silent, 5).await, (Some(400), cut.clone()));
        let broken =
            futures_util::stream::iter([Ok(Bytes::from("half")), Err(io::Error::other(""))]);
        assert_eq!(read(Body::from_stream(broken), 5).await, (Some(400), cut));
    }
}
