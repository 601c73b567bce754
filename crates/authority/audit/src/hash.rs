//! SHA-256 values and how they are written.

use ringwall_safekeeping::hex::decode_array;
use sha2::{Digest, Sha256};

pub use ringwall_safekeeping::hex::encode as hex;

pub type Hash = [u8; 32];

/// SHA-256 of the parts, one after the other.
pub fn sha256(parts: &[&[u8]]) -> Hash {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// Only what [`hex`] writes: 64 lower-case digits.
pub(crate) fn from_hex(text: &[u8]) -> Option<Hash> {
    decode_array(std::str::from_utf8(text).ok()?)
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
