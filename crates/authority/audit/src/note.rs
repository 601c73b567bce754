//! Signed checkpoints: `tlog-checkpoint` and `signed-note` of C2SP, with Ed25519.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::hash::{Hash, sha256};

/// Ed25519 in `signed-note`.
const ALGORITHM: u8 = 1;
/// Longer than any checkpoint of ours, with room for cosignatures of witnesses.
pub(crate) const MOST_NOTE_BYTES: usize = 16 << 10;
const MOST_NAME_BYTES: usize = 200;

/// The signed state of a log: so many records, with this root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    pub origin: String,
    pub size: u64,
    pub root: Hash,
}

/// The public half of a log's key. Its text form is `name+hash+base64`.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    public: [u8; 32],
}

/// The secret half. Its text form is `PRIVATE+KEY+name+hash+base64`.
pub(crate) struct Signer {
    verifier: VerifierKey,
    pair: Ed25519KeyPair,
    seed: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("it is not a key of the form name+hash+base64")]
    Malformed,
    #[error("its hash does not belong to its name and key; it was changed")]
    Hash,
    #[error("it is for another algorithm than Ed25519")]
    Algorithm,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    #[error("it is not a signed checkpoint")]
    Malformed,
    #[error("it is for the log {found}, not {wanted}")]
    Origin { found: String, wanted: String },
    #[error("it carries no signature by the key {0}")]
    NotSigned(String),
    #[error("invalid signature: the note was forged or changed")]
    Forged,
}

impl VerifierKey {
    pub fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> [u8; 4] {
        let hash = sha256(&[self.name.as_bytes(), b"\n", &[ALGORITHM], &self.public]);
        [hash[0], hash[1], hash[2], hash[3]]
    }

    /// Takes a signed note for what it says, if this key signed it and its origin is this log.
    pub fn open(&self, note: &str) -> Result<Checkpoint, NoteError> {
        if note.len() > MOST_NOTE_BYTES {
            return Err(NoteError::Malformed);
        }
        let (checkpoint, text, signatures) = split(note).ok_or(NoteError::Malformed)?;
        if checkpoint.origin != self.name {
            let (found, wanted) = (checkpoint.origin, self.name.clone());
            return Err(NoteError::Origin { found, wanted });
        }
        let mut signed = false;
        for line in signatures.split_inclusive('\n') {
            let (name, bytes) = signature(line).ok_or(NoteError::Malformed)?;
            let Some(value) = bytes.strip_prefix(&self.id()).filter(|_| name == self.name) else {
                continue;
            };
            let key = UnparsedPublicKey::new(&ED25519, &self.public);
            if signed || key.verify(text.as_bytes(), value).is_err() {
                return Err(NoteError::Forged);
            }
            signed = true;
        }
        if signed { Ok(checkpoint) } else { Err(NoteError::NotSigned(self.to_string())) }
    }
}

impl Signer {
    pub(crate) fn new(name: &str, seed: [u8; 32]) -> Result<Signer, KeyError> {
        if !is_name(name) {
            return Err(KeyError::Malformed);
        }
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyError::Malformed)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| KeyError::Malformed)?;
        Ok(Signer { verifier: VerifierKey { name: name.to_owned(), public }, pair, seed })
    }

    pub(crate) fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    /// The text form, secret included.
    pub(crate) fn secret_text(&self) -> String {
        let data = BASE64.encode([&[ALGORITHM], &self.seed[..]].concat());
        let VerifierKey { name, .. } = &self.verifier;
        format!("PRIVATE+KEY+{name}+{}+{data}", hex4(self.verifier.id()))
    }

    pub(crate) fn from_secret_text(text: &str) -> Result<Signer, KeyError> {
        let text = text.strip_prefix("PRIVATE+KEY+").ok_or(KeyError::Malformed)?;
        let (name, id, seed) = parse_key(text)?;
        let signer = Signer::new(name, seed)?;
        if hex4(signer.verifier.id()) == id { Ok(signer) } else { Err(KeyError::Hash) }
    }

    /// The signed note for a log of `size` records with this root.
    pub(crate) fn sign(&self, size: u64, root: &Hash) -> String {
        let name = &self.verifier.name;
        let text = format!("{name}\n{size}\n{}\n", BASE64.encode(root));
        let signature = self.pair.sign(text.as_bytes());
        let value = BASE64.encode([&self.verifier.id(), signature.as_ref()].concat());
        format!("{text}\n\u{2014} {name} {value}\n")
    }
}

/// The checkpoint, the text that is signed, and the signature lines.
fn split(note: &str) -> Option<(Checkpoint, &str, &str)> {
    let middle = note.rfind("\n\n")?;
    let (text, signatures) = (&note[..=middle], &note[middle + 2..]);
    if signatures.is_empty() || !signatures.ends_with('\n') {
        return None;
    }
    if note.chars().any(|character| character.is_control() && character != '\n') {
        return None;
    }
    let mut lines = text.strip_suffix('\n')?.split('\n');
    let origin = lines.next().filter(|origin| is_name(origin))?;
    let size = lines.next()?;
    let root = lines.next()?;
    // Lines that extend a checkpoint may follow, but must say something.
    if lines.any(str::is_empty) {
        return None;
    }
    let number: u64 = size.parse().ok()?;
    let root = BASE64.decode(root).ok()?.try_into().ok()?;
    // One way to write a number.
    (number.to_string() == size)
        .then(|| (Checkpoint { origin: origin.to_owned(), size: number, root }, text, signatures))
}

fn signature(line: &str) -> Option<(&str, Vec<u8>)> {
    let (name, value) = line.strip_prefix("\u{2014} ")?.strip_suffix('\n')?.split_once(' ')?;
    let bytes = BASE64.decode(value).ok()?;
    (is_name(name) && bytes.len() > 4).then_some((name, bytes))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MOST_NAME_BYTES
        && !name.chars().any(|c| c.is_whitespace() || c.is_control() || c == '+')
}

/// Name, hash in hex and key of `name+hash+base64`.
fn parse_key(text: &str) -> Result<(&str, &str, [u8; 32]), KeyError> {
    let mut parts = text.splitn(3, '+');
    let (Some(name), Some(id), Some(data)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(KeyError::Malformed);
    };
    let data = BASE64.decode(data).map_err(|_| KeyError::Malformed)?;
    match data.split_first() {
        Some((&ALGORITHM, key)) if is_name(name) => {
            Ok((name, id, key.try_into().map_err(|_| KeyError::Malformed)?))
        }
        Some((&ALGORITHM, _)) | None => Err(KeyError::Malformed),
        Some(_) => Err(KeyError::Algorithm),
    }
}

fn hex4(id: [u8; 4]) -> String {
    format!("{:08x}", u32::from_be_bytes(id))
}

impl FromStr for VerifierKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<VerifierKey, KeyError> {
        let (name, id, public) = parse_key(text)?;
        let key = VerifierKey { name: name.to_owned(), public };
        if hex4(key.id()) == id { Ok(key) } else { Err(KeyError::Hash) }
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data = BASE64.encode([&[ALGORITHM], &self.public[..]].concat());
        write!(f, "{}+{}+{data}", self.name, hex4(self.id()))
    }
}

impl fmt::Debug for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifierKey({self})")
    }
}

/// Shows the public half only.
impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({})", self.verifier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signed_note::{Note, StandardSigner, StandardVerifier, Verifier, VerifierList};

    fn signer() -> Signer {
        Signer::new("ringwall/test", [7; 32]).unwrap()
    }

    #[test]
    fn another_implementation_takes_our_keys_and_notes() {
        let signer = signer();
        let note = signer.sign(3, &[9; 32]);
        let key = StandardVerifier::new(&signer.verifier().to_string()).unwrap();
        assert_eq!(key.name(), "ringwall/test");
        let known = VerifierList::new(vec![Box::new(key)]);
        let (good, unknown) = Note::from_bytes(note.as_bytes()).unwrap().verify(&known).unwrap();
        assert_eq!((good.len(), unknown.len()), (1, 0));
        let note = Note::from_bytes(note.as_bytes()).unwrap();
        let theirs = tlog_tiles::Checkpoint::from_reader(&mut note.text(), false).unwrap();
        assert_eq!(
            (theirs.origin(), theirs.size(), theirs.hash().0),
            ("ringwall/test", 3, [9; 32])
        );
    }

    #[test]
    fn we_take_what_another_implementation_signs() {
        let signer = signer();
        let theirs = StandardSigner::new(&signer.secret_text()).unwrap();
        let text = signer.sign(5, &[1; 32]);
        let mut note = Note::new(Note::from_bytes(text.as_bytes()).unwrap().text(), &[]).unwrap();
        note.add_sigs(&[&theirs]).unwrap();
        let note = String::from_utf8(note.to_bytes()).unwrap();
        assert_eq!(signer.verifier().open(&note).unwrap().size, 5);
        // Ed25519 is deterministic: byte for byte the same.
        assert_eq!(note, text);
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        let signer = signer();
        let text = signer.verifier().to_string();
        assert_eq!(text.parse::<VerifierKey>().as_ref(), Ok(signer.verifier()));
        let secret = Signer::from_secret_text(&signer.secret_text()).unwrap();
        assert_eq!(secret.verifier(), signer.verifier());
        assert!(!format!("{signer:?}").contains("PRIVATE"));
        let renamed = text.replace("ringwall/test", "ringwall/tesT");
        assert_eq!(renamed.parse::<VerifierKey>(), Err(KeyError::Hash));
    }

    #[test]
    fn no_bit_of_a_note_can_change() {
        let signer = signer();
        let note = signer.sign(3, &[9; 32]);
        assert!(signer.verifier().open(&note).is_ok());
        for at in 0..note.len() * 8 {
            let mut bytes = note.clone().into_bytes();
            bytes[at / 8] ^= 1 << (at % 8);
            let Ok(changed) = String::from_utf8(bytes) else { continue };
            assert!(signer.verifier().open(&changed).is_err(), "bit {at}: {changed}");
        }
    }

    #[test]
    fn the_key_of_another_log_says_nothing_about_this_one() {
        let other = Signer::new("ringwall/other", [7; 32]).unwrap();
        let same_name = Signer::new("ringwall/test", [8; 32]).unwrap();
        let note = signer().sign(3, &[9; 32]);
        assert!(matches!(other.verifier().open(&note), Err(NoteError::Origin { .. })));
        assert!(matches!(same_name.verifier().open(&note), Err(NoteError::NotSigned(_))));
    }
}
