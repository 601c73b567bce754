//! How an engine takes over a guest, before any frame.
//!
//! A guest may be a copy: many can start from one snapshot, all in the middle of the same
//! instruction. So the first word is the guest's, always the same; then the engine sends what makes
//! this guest this one (random bytes, time, names), and the guest echoes a number that nobody could
//! have known before. What was on its way when the snapshot was taken cannot be mistaken for it.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

/// Every message begins with one of these.
const READY: [u8; 8] = *b"RW-READY";
const FAILED: [u8; 8] = *b"RW-FAILD";
const ADOPT: [u8; 8] = *b"RW-ADOPT";
const TAKEN: [u8; 8] = *b"RW-TAKEN";

/// Longest body of a message.
const MAX_BODY: usize = 4096;
/// Longest name of a host.
const MAX_HOSTNAME: usize = 64;

pub const NONCE_BYTES: usize = 32;

/// Why a guest is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Taking {
    /// Nobody has had it before.
    First,
    /// It was had before, rested for a moment and goes on as the same: connection and names stay.
    Again,
    /// It is a copy of one that somebody had: everything that tells the two apart is new.
    Copy,
}

/// What makes a guest this one and no other.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adoption {
    pub taking: Taking,
    pub nonce: [u8; NONCE_BYTES],
    /// Fresh random bytes of the host, in two halves: serde knows arrays up to 32.
    pub seed: ([u8; 32], [u8; 32]),
    /// Nanoseconds since 1970.
    pub unix_nanos: u64,
    pub hostname: String,
    pub machine_id: [u8; 16],
    /// What the guest can write, all together.
    pub disk_bytes: u64,
    pub disk_inodes: u64,
    pub pids: u32,
}

impl std::fmt::Debug for Adoption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the seed.
        f.debug_struct("Adoption").field("hostname", &self.hostname).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error("the guest ended before it was ready; its kernel or its VMM stopped")]
    Gone(#[source] io::Error),
    #[error("the guest could not start: {0}")]
    Failed(String),
    #[error("the guest said something else than agreed")]
    Confused,
    #[error("the guest answered for somebody else: it is not the one that was started")]
    WrongNonce,
}

/// The guest's first word: it waits to be adopted.
pub fn say_ready(to: &mut impl Write) -> io::Result<()> {
    send(to, &READY, &[])
}

/// The guest's last word, if it cannot start.
pub fn say_failed(to: &mut impl Write, why: &str) -> io::Result<()> {
    let text = why.as_bytes();
    send(to, &FAILED, text.get(..MAX_BODY).unwrap_or(text))
}

/// The engine's side: waits for the first word.
pub fn wait_ready(from: &mut impl Read) -> Result<(), AdoptError> {
    match receive(from).map_err(AdoptError::Gone)? {
        Some((READY, body)) if body.is_empty() => Ok(()),
        Some((FAILED, body)) => Err(AdoptError::Failed(printable(&body))),
        _ => Err(AdoptError::Confused),
    }
}

/// The engine's side: makes the guest its own. The guest has said that it is ready.
pub fn adopt(stream: &mut (impl Read + Write), adoption: &Adoption) -> Result<(), AdoptError> {
    let body = postcard::to_stdvec(adoption).map_err(|_| AdoptError::Confused)?;
    send(stream, &ADOPT, &body).map_err(AdoptError::Gone)?;
    match receive(stream).map_err(AdoptError::Gone)? {
        Some((TAKEN, nonce)) if nonce == adoption.nonce => Ok(()),
        Some((TAKEN, _)) => Err(AdoptError::WrongNonce),
        Some((FAILED, body)) => Err(AdoptError::Failed(printable(&body))),
        _ => Err(AdoptError::Confused),
    }
}

/// The guest's side: what the engine sent.
pub fn wait_adoption(from: &mut impl Read) -> io::Result<Adoption> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let Some((ADOPT, body)) = receive(from)? else {
        return Err(wrong());
    };
    let adoption: Adoption = postcard::from_bytes(&body).map_err(|_| wrong())?;
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let hostname = adoption.hostname.as_bytes();
    if hostname.len() > MAX_HOSTNAME || !hostname.iter().copied().all(good) {
        return Err(wrong());
    }
    Ok(adoption)
}

/// The guest's side: everything of the adoption is in force.
pub fn say_taken(to: &mut impl Write, adoption: &Adoption) -> io::Result<()> {
    send(to, &TAKEN, &adoption.nonce)
}

fn send(to: &mut impl Write, kind: &[u8; 8], body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    to.write_all(&[kind.as_slice(), &length.to_le_bytes(), body].concat())?;
    to.flush()
}

/// `None` if what came is too long to be ours.
fn receive(from: &mut impl Read) -> io::Result<Option<([u8; 8], Vec<u8>)>> {
    let (mut kind, mut length) = ([0; 8], [0; 4]);
    from.read_exact(&mut kind)?;
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    let Some(length) = usize::try_from(length).ok().filter(|length| *length <= MAX_BODY) else {
        return Ok(None);
    };
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(Some((kind, body)))
}

/// A guest's words may end on a terminal.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(512).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn adoption() -> Adoption {
        Adoption {
            taking: Taking::First,
            nonce: [7; 32],
            seed: ([1; 32], [2; 32]),
            unix_nanos: 1,
            hostname: "ring-abc".into(),
            machine_id: [3; 16],
            disk_bytes: 1 << 20,
            disk_inodes: 100,
            pids: 10,
        }
    }

    #[test]
    fn a_guest_is_taken_over_with_what_the_engine_sent() {
        let (mut engine, mut guest) = UnixStream::pair().unwrap();
        let inside = std::thread::spawn(move || {
            say_ready(&mut guest).unwrap();
            let taken = wait_adoption(&mut guest).unwrap();
            say_taken(&mut guest, &taken).unwrap();
            taken
        });
        wait_ready(&mut engine).unwrap();
        adopt(&mut engine, &adoption()).unwrap();
        assert_eq!(inside.join().unwrap(), adoption());
    }

    #[test]
    fn an_answer_with_another_number_is_not_believed() {
        let (mut engine, mut guest) = UnixStream::pair().unwrap();
        let other = Adoption { nonce: [8; 32], ..adoption() };
        say_taken(&mut guest, &other).unwrap();
        assert!(matches!(adopt(&mut engine, &adoption()), Err(AdoptError::WrongNonce)));
    }

    #[test]
    fn a_guest_that_cannot_start_says_why_in_plain_letters() {
        let (mut engine, mut guest) = UnixStream::pair().unwrap();
        say_failed(&mut guest, "no root\x1b[31m device").unwrap();
        let error = wait_ready(&mut engine).unwrap_err();
        assert_eq!(error.to_string(), "the guest could not start: no root [31m device");
    }

    #[test]
    fn garbage_silence_and_endless_messages_are_errors() {
        let (mut engine, mut guest) = UnixStream::pair().unwrap();
        guest.write_all(b"RW-READY\xff\xff\xff\xff").unwrap();
        assert!(matches!(wait_ready(&mut engine), Err(AdoptError::Confused)));
        guest.write_all(&[0; 12]).unwrap();
        assert!(matches!(wait_ready(&mut engine), Err(AdoptError::Confused)));
        drop(guest);
        assert!(matches!(wait_ready(&mut engine), Err(AdoptError::Gone(_))));
    }

    #[test]
    fn a_hostname_that_is_none_is_refused_inside() {
        let odd = Adoption { hostname: "a\nb".into(), ..adoption() };
        let body = postcard::to_stdvec(&odd).unwrap();
        let mut bytes = Vec::new();
        send(&mut bytes, &ADOPT, &body).unwrap();
        assert!(wait_adoption(&mut bytes.as_slice()).is_err());
    }
}
