//! Bytes as hexadecimal digits, and back.

/// Lower case.
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for digit in bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]) {
        text.push(char::from(DIGITS[usize::from(digit)]));
    }
    text
}

/// Only what [`encode`] writes.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    fn digit(byte: u8) -> Option<u8> {
        match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        }
    }
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// Exactly so many bytes.
pub fn decode_array<const LENGTH: usize>(text: &str) -> Option<[u8; LENGTH]> {
    if text.len() != 2 * LENGTH {
        return None;
    }
    decode(text)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_have_one_spelling() {
        assert_eq!(encode(&[0, 0xaf, 0xff]), "00afff");
        assert_eq!(decode("00afff"), Some(vec![0, 0xaf, 0xff]));
        for bad in ["0", "0g", "AA", "ü"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
        assert_eq!(decode_array::<2>("00af"), Some([0, 0xaf]));
        assert_eq!(decode_array::<2>("00"), None);
    }
}
