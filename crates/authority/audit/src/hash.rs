//! SHA-256 values and how they are written.

use sha2::{Digest, Sha256};

pub type Hash = [u8; 32];

/// SHA-256 of the parts, one after the other.
pub fn sha256(parts: &[&[u8]]) -> Hash {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}

pub fn hex(hash: &Hash) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(64);
    for byte in hash {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Only what [`hex`] writes: 64 lower-case digits.
pub(crate) fn from_hex(text: &[u8]) -> Option<Hash> {
    let text: &[u8; 64] = text.try_into().ok()?;
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(text.as_chunks::<2>().0) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(hash)
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_read_as_it_is_written_and_in_no_other_way() {
        let hash = sha256(&[b"a", b"bc"]);
        assert_eq!(hex(&hash), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(from_hex(hex(&hash).as_bytes()), Some(hash));
        assert_eq!(from_hex(hex(&hash).to_uppercase().as_bytes()), None);
        assert_eq!(from_hex(b"00"), None);
    }
}
