//! Looking for a value in bytes that go by, in the forms that it may take, across every border.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use bytes::{Bytes, BytesMut};
use zeroize::Zeroizing;

/// Shorter pieces would be found by chance.
const SHORTEST: usize = 8;

/// The forms of one or more values: plain and backwards, base64 at each of its three positions, base32,
/// percent codes, hexadecimal, escapes of JSON and HTML, two bytes for each character.
#[derive(Clone, Default)]
pub(crate) struct Needles(Arc<Vec<Zeroizing<Vec<u8>>>>);

impl Needles {
    pub(crate) fn add(&mut self, value: &[u8]) {
        let mut forms = vec![value.to_vec(), percent_encoded(value), hexadecimal(value)];
        forms.push(String::from_utf8_lossy(value).replace('/', "\\/").into_bytes());
        forms.push(value.iter().rev().copied().collect());
        forms.push(lower_codes(&percent_encoded(value)));
        forms.push(hexadecimal(value).to_ascii_uppercase());
        forms.extend([each(value, "%"), each(value, "\\u00"), each(value, "\\x")]);
        for form in [each(value, "%"), each(value, "\\u00")] {
            forms.push(lower_codes(&form));
        }
        forms.push(html_escaped(value));
        forms.push(value.iter().flat_map(|byte| [*byte, 0]).collect());
        for lead in 0..5 {
            forms.push(base32_core(value, lead));
        }
        for lead in 0..3 {
            forms.push(base64_core(&STANDARD, value, lead));
            forms.push(base64_core(&URL_SAFE, value, lead));
        }
        for form in forms {
            let long = form.len() >= SHORTEST.min(value.len());
            if long && !form.is_empty() && !self.0.iter().any(|known| **known == form) {
                Arc::make_mut(&mut self.0).push(Zeroizing::new(form));
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn found_in(&self, bytes: &[u8]) -> bool {
        self.0.iter().any(|needle| memchr::memmem::find(bytes, needle).is_some())
    }

    /// Overwrites every form with stars; says how many there were.
    fn blot_out(&self, bytes: &mut [u8]) -> usize {
        let mut found = 0;
        for needle in self.0.iter() {
            let mut from = 0;
            while let Some(at) = memchr::memmem::find(&bytes[from..], needle) {
                bytes[from + at..from + at + needle.len()].fill(b'*');
                from += at + needle.len();
                found += 1;
            }
        }
        found
    }

    /// How many bytes at the end could be the beginning of a form.
    fn open_end(&self, bytes: &[u8]) -> usize {
        let begins = |needle: &Zeroizing<Vec<u8>>| {
            let most = needle.len().saturating_sub(1).min(bytes.len());
            (1..=most).rev().find(|length| bytes.ends_with(&needle[..*length])).unwrap_or(0)
        };
        self.0.iter().map(begins).max().unwrap_or(0)
    }
}

/// Goes through a stream. Only bytes that could begin a form wait for the next piece.
pub(crate) struct Scanner {
    needles: Needles,
    waiting: BytesMut,
}

impl Scanner {
    pub(crate) fn new(needles: Needles) -> Self {
        Self { needles, waiting: BytesMut::new() }
    }

    /// Takes a piece and gives back what is certain, with every form blotted out, and how many.
    pub(crate) fn pass(&mut self, piece: Bytes) -> (Bytes, usize) {
        if self.waiting.is_empty()
            && !self.needles.found_in(&piece)
            && self.needles.open_end(&piece) == 0
        {
            return (piece, 0);
        }
        self.waiting.extend_from_slice(&piece);
        let found = self.needles.blot_out(&mut self.waiting);
        let certain = self.waiting.len() - self.needles.open_end(&self.waiting);
        (self.waiting.split_to(certain).freeze(), found)
    }

    /// What was still waiting when the stream ended.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.waiting.split().freeze()
    }

    /// For those who only look: whether a form has gone by.
    pub(crate) fn sees(&mut self, piece: &Bytes) -> bool {
        self.pass(piece.clone()).1 > 0
    }
}

/// The characters of base64 that do not depend on what stands before and after the value.
fn base64_core(alphabet: &impl Engine, value: &[u8], lead: usize) -> Vec<u8> {
    let mut bytes = vec![0; lead];
    bytes.extend_from_slice(value);
    let text = alphabet.encode(&bytes);
    let first = (lead * 8).div_ceil(6);
    let last = bytes.len() * 8 / 6;
    text.as_bytes().get(first..last).unwrap_or_default().to_vec()
}

/// The same with base32 of RFC 4648, at each of its five positions.
fn base32_core(value: &[u8], lead: usize) -> Vec<u8> {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut bytes = vec![0; lead];
    bytes.extend_from_slice(value);
    let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    let (first, last) = ((lead * 8).div_ceil(5), bytes.len() * 8 / 5);
    let digit = |number: usize| (0..5).fold(0, |sum, at| sum << 1 | bit(number * 5 + at));
    (first..last).map(|number| ALPHABET[usize::from(digit(number))]).collect()
}

/// Every byte as a code of two digits behind some sign.
fn each(value: &[u8], sign: &str) -> Vec<u8> {
    value.iter().flat_map(|byte| format!("{sign}{byte:02X}").into_bytes()).collect()
}

/// Percent codes and escapes in small digits.
fn lower_codes(text: &[u8]) -> Vec<u8> {
    let mut lower = text.to_vec();
    let mut at = 0;
    while at < lower.len() {
        let digits = match lower[at..] {
            [b'%', ..] => 2,
            [b'\\', b'u', ..] => 5,
            _ => 0,
        };
        let end = (at + 1 + digits).min(lower.len());
        if digits > 0 {
            lower[at..end].make_ascii_lowercase();
        }
        at = end;
    }
    lower
}

fn html_escaped(value: &[u8]) -> Vec<u8> {
    let escaped = |byte: &u8| match byte {
        b'&' => b"&amp;".to_vec(),
        b'<' => b"&lt;".to_vec(),
        b'>' => b"&gt;".to_vec(),
        b'"' => b"&quot;".to_vec(),
        b'\'' => b"&#39;".to_vec(),
        other => vec![*other],
    };
    value.iter().flat_map(escaped).collect()
}

fn percent_encoded(value: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(value.len());
    for byte in value {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            text.push(*byte);
        } else {
            text.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    text
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

/// Undoes percent codes once; what is no code stays.
pub(crate) fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        let code = (*byte == b'%')
            .then(|| after.get(..2))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(value) => {
                decoded.push(value);
                rest = &after[2..];
            }
            None => {
                decoded.push(*byte);
                rest = after;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"s3cr3t/value+with=odd&bytes";

    fn needles() -> Needles {
        let mut needles = Needles::default();
        needles.add(SECRET);
        needles
    }

    fn passed(stream: &[u8], cut: usize) -> (Vec<u8>, usize) {
        let mut scanner = Scanner::new(needles());
        let mut out = Vec::new();
        let mut found = 0;
        for piece in stream.chunks(cut) {
            let (certain, here) = scanner.pass(Bytes::copy_from_slice(piece));
            out.extend_from_slice(&certain);
            found += here;
        }
        out.extend_from_slice(&scanner.rest());
        (out, found)
    }

    #[test]
    fn every_form_is_blotted_out_wherever_the_stream_is_cut() {
        let mut forms = vec![SECRET.to_vec(), percent_encoded(SECRET), hexadecimal(SECRET)];
        for lead in 0..3 {
            let mut with_lead = vec![b'x'; lead];
            with_lead.extend_from_slice(SECRET);
            with_lead.extend_from_slice(b"tail");
            forms.push(STANDARD.encode(&with_lead).into_bytes());
            forms.push(URL_SAFE.encode(&with_lead).into_bytes());
        }
        let base32 = |lead: usize| {
            let padded = [vec![b'x'; lead], SECRET.to_vec(), b"tail".to_vec()].concat();
            base32_core(&padded, 0)
        };
        forms.extend((0..5).map(base32));
        let text = std::str::from_utf8(SECRET).unwrap();
        forms.extend([
            text.chars().rev().collect::<String>().into_bytes(),
            text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            text.replace('&', "&amp;").into_bytes(),
            text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>().into_bytes(),
            text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>().into_bytes(),
            text.bytes().map(|byte| format!("{byte:02X}")).collect::<String>().into_bytes(),
            text.bytes().map(|byte| format!("\\u{byte:04x}")).collect::<String>().into_bytes(),
            text.replace('/', "%2f")
                .replace('+', "%2b")
                .replace('=', "%3d")
                .replace('&', "%26")
                .into_bytes(),
        ]);
        for form in forms {
            let stream = [b"before s3cr3 ".as_slice(), &form, b" after s3cr3t/val"].concat();
            for cut in 1..stream.len() {
                let (out, found) = passed(&stream, cut);
                assert_eq!(found, 1, "{} cut at {cut}", String::from_utf8_lossy(&form));
                assert_eq!(out.len(), stream.len());
                assert!(!needles().found_in(&out));
                assert!(out.starts_with(b"before s3cr3 ") && out.ends_with(b" after s3cr3t/val"));
            }
        }
    }

    #[test]
    fn other_bytes_do_not_wait() {
        let mut scanner = Scanner::new(needles());
        assert_eq!(scanner.pass(Bytes::from_static(b"data: 1\n\n")).0, "data: 1\n\n");
        assert_eq!(scanner.pass(Bytes::from_static(b"data: s3")).0, "data: ");
        assert_eq!(scanner.pass(Bytes::from_static(b"!")).0, "s3!");
    }

    #[test]
    fn percent_codes_are_undone_once() {
        assert_eq!(percent_decoded(b"a%41%2541%zz%4"), b"aA%41%zz%4");
    }
}
