//! The lines of the log: records, and the signed checkpoints between them.
//!
//! ```text
//! {"v":1,"prev":"HEX","hash":"HEX","seq":0,"time":1763231231123,"ids":{...},"event":{...}}
//! {"checkpoint":"ORIGIN\nSIZE\nROOT\n\n— NAME SIGNATURE\n"}
//! ```
//!
//! One running hash goes through all lines. `prev` is its value before a record, and `hash` its value
//! after it: SHA-256 of the 32 bytes of `prev` and the line from `"seq"` to its end, newline not
//! included. Over a checkpoint the hash goes on in the same way, with the whole line. So a record
//! vouches for every byte before it, signatures too.
//!
//! The leaf of a record in the Merkle tree is its whole line without the newline. A checkpoint stands
//! behind every group of records that were written together and is no leaf.

use serde::{Deserialize, Serialize};

use crate::event::{Event, Ids};
use crate::hash::{Hash, from_hex, hex, sha256};

/// The longest line, newline included. A longer line is neither written nor read.
pub const MOST_LINE_BYTES: usize = 64 << 10;

/// The running hash before the first line.
pub(crate) const FIRST_HASH: Hash = [0; 32];

const BEFORE_PREV: &[u8] = br#"{"v":1,"prev":""#;
const BEFORE_HASH: &[u8] = br#"","hash":""#;
const BEFORE_BODY: &[u8] = br#"","#;
const BEFORE_CHECKPOINT: &[u8] = br#"{"checkpoint":"#;
const HEX: usize = 64;

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Body {
    pub seq: u64,
    /// Milliseconds since 1970, by the clock of the host.
    pub time: u64,
    pub ids: Ids,
    pub event: Event,
}

/// A line of the log, taken apart but not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Record(RecordLine<'a>),
    /// The signed note, as a JSON string.
    Checkpoint(&'a [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordLine<'a> {
    pub prev: Hash,
    pub hash: Hash,
    /// From `"seq"` to the end of the line.
    pub hashed: &'a [u8],
    /// The whole line.
    pub leaf: &'a [u8],
}

/// The parts of a body that are needed to put records in order.
#[derive(Debug, Deserialize)]
pub(crate) struct Heading<'a> {
    pub seq: u64,
    #[serde(rename = "time")]
    _time: u64,
    #[serde(rename = "ids")]
    _ids: serde::de::IgnoredAny,
    #[serde(borrow)]
    pub event: Kind<'a>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Kind<'a> {
    #[serde(borrow)]
    pub kind: std::borrow::Cow<'a, str>,
}

/// Takes a line without its newline apart; `None` when no line of ours can look so.
pub(crate) fn parse(line: &[u8]) -> Option<Line<'_>> {
    if let Some(rest) = line.strip_prefix(BEFORE_CHECKPOINT) {
        return rest.strip_suffix(b"}").map(Line::Checkpoint);
    }
    let rest = line.strip_prefix(BEFORE_PREV)?;
    let (prev, rest) = rest.split_at_checked(HEX)?;
    let (hash, rest) = rest.strip_prefix(BEFORE_HASH)?.split_at_checked(HEX)?;
    let hashed = rest.strip_prefix(BEFORE_BODY)?;
    let (prev, hash) = (from_hex(prev)?, from_hex(hash)?);
    Some(Line::Record(RecordLine { prev, hash, hashed, leaf: line }))
}

impl<'a> RecordLine<'a> {
    /// The hash that belongs to this record if it follows the hash that it names.
    pub(crate) fn computed_hash(&self) -> Hash {
        sha256(&[&self.prev, self.hashed])
    }

    pub(crate) fn heading(&self) -> Result<Heading<'a>, serde_json::Error> {
        serde_json::from_slice(self.leaf)
    }

    pub(crate) fn body(&self) -> Result<Body, serde_json::Error> {
        serde_json::from_slice(self.leaf)
    }
}

/// The running hash behind a checkpoint line.
pub(crate) fn hash_over_checkpoint(before: &Hash, line: &[u8]) -> Hash {
    sha256(&[before, line])
}

/// The note in a checkpoint line; `None` unless it is written in the one way that [`checkpoint`] does.
pub(crate) fn note(json: &[u8]) -> Option<String> {
    let note: String = serde_json::from_slice(json).ok()?;
    (serde_json::to_vec(&note).ok()? == json).then_some(note)
}

/// A record's line, newline included, and its hash.
pub(crate) fn record(prev: &Hash, body: &Body) -> Result<(Vec<u8>, Hash), serde_json::Error> {
    let json = serde_json::to_vec(body)?;
    // Without the brace that opens it.
    let hashed = json.get(1..).unwrap_or_default();
    let hash = sha256(&[prev, hashed]);
    let (prev, shown) = (hex(prev), hex(&hash));
    let line =
        [BEFORE_PREV, prev.as_bytes(), BEFORE_HASH, shown.as_bytes(), BEFORE_BODY, hashed, b"\n"];
    Ok((line.concat(), hash))
}

/// How long the line of a record can be at most, newline included, whatever its number and time are.
pub(crate) fn longest(ids: &Ids, event: &Event) -> Result<usize, serde_json::Error> {
    #[derive(Serialize)]
    struct Longest<'a> {
        seq: u64,
        time: u64,
        ids: &'a Ids,
        event: &'a Event,
    }
    let json = serde_json::to_vec(&Longest { seq: u64::MAX, time: u64::MAX, ids, event })?;
    let around = [BEFORE_PREV, BEFORE_HASH, BEFORE_BODY].map(<[u8]>::len).iter().sum::<usize>();
    // A newline comes in the place of the brace that opens it.
    Ok(around + 2 * HEX + json.len())
}

/// A checkpoint's line, newline included.
pub(crate) fn checkpoint(note: &str) -> Result<Vec<u8>, serde_json::Error> {
    Ok([BEFORE_CHECKPOINT, &serde_json::to_vec(note)?, b"}\n"].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Body {
        let event = Event::GrantRevoked { by: "a\nb".into(), reason: "\"}\n{".into() };
        Body { seq: 4, time: 5, ids: Ids::default().task("t"), event }
    }

    #[test]
    fn a_record_is_one_line_and_is_read_as_it_was_written() {
        let (line, hash) = record(&[3; 32], &body()).unwrap();
        let text = line.strip_suffix(b"\n").unwrap();
        assert!(!text.contains(&b'\n'));
        let Some(Line::Record(found)) = parse(text) else { panic!("no record") };
        assert_eq!((found.prev, found.hash, found.computed_hash()), ([3; 32], hash, hash));
        assert_eq!(found.body().unwrap(), body());
        assert_eq!(found.heading().unwrap().event.kind, "grant-revoked");
    }

    #[test]
    fn the_longest_line_of_a_record_is_known_before_it_is_written() {
        let Body { ids, event, .. } = body();
        let longest = longest(&ids, &event).unwrap();
        let last = Body { seq: u64::MAX, time: u64::MAX, ids, event };
        assert_eq!(record(&[3; 32], &last).unwrap().0.len(), longest);
    }

    #[test]
    fn a_checkpoint_is_one_line() {
        let line = checkpoint("a\n1\nroot\n\n— a sig\n").unwrap();
        let text = line.strip_suffix(b"\n").unwrap();
        assert!(!text.contains(&b'\n'));
        let Some(Line::Checkpoint(json)) = parse(text) else { panic!("no checkpoint") };
        assert_eq!(note(json).unwrap(), "a\n1\nroot\n\n— a sig\n");
        assert_eq!(note(br#""a\u000ab""#), None, "written in another way");
    }

    #[test]
    fn other_lines_are_not_taken() {
        for bad in [&b""[..], b"{}", b"{\"v\":2,\"prev\":\"", b"{\"checkpoint\":\"x\"", b"x"] {
            assert_eq!(parse(bad), None);
        }
    }
}
