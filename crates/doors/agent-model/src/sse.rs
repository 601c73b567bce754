//! Server-sent events out of a stream of bytes, in pieces of any size.

/// The longest line and the most data of one event.
const MAX_BYTES: usize = 8 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    #[error("an event of the stream is longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("the stream is not UTF-8")]
    NotText,
}

/// One event: its data, lines joined. Names are of no use: the data of every provider says them too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub data: String,
}

#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// A line feed right now belongs to the carriage return before it.
    after_return: bool,
    begun: bool,
}

impl SseParser {
    /// Takes the next piece and gives the events that it completes.
    pub fn push(&mut self, piece: &[u8]) -> Result<Vec<Event>, SseError> {
        let mut events = Vec::new();
        for byte in piece {
            let after_return = std::mem::replace(&mut self.after_return, false);
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => {
                    self.after_return = *byte == b'\r';
                    events.extend(self.end_line()?);
                }
                _ if self.line.len() >= MAX_BYTES => return Err(SseError::TooLong),
                byte => self.line.push(*byte),
            }
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Result<Option<Event>, SseError> {
        let taken = std::mem::take(&mut self.line);
        let mut line = taken.as_slice();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch();
        }
        // Comments begin with a colon; other fields mean nothing here.
        if let Some(rest) = line.strip_prefix(b"data")
            && let Some(value) = rest.strip_prefix(b":").or(rest.is_empty().then_some(b""))
        {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            if self.data.len() + value.len() > MAX_BYTES {
                return Err(SseError::TooLong);
            }
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
            self.has_data = true;
        }
        Ok(None)
    }

    fn dispatch(&mut self) -> Result<Option<Event>, SseError> {
        if !std::mem::replace(&mut self.has_data, false) {
            return Ok(None);
        }
        let data = std::mem::take(&mut self.data);
        let data = String::from_utf8(data).map_err(|_| SseError::NotText)?;
        Ok(Some(Event { data }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(text: &[u8]) -> Vec<String> {
        let mut parser = SseParser::default();
        parser.push(text).unwrap().into_iter().map(|event| event.data).collect()
    }

    #[test]
    fn events_end_at_empty_lines_and_join_their_data() {
        let text =
            b"\xef\xbb\xbf: hello\nevent: x\ndata: one\ndata:two\n\nid: 3\n\ndata\n\ndata: cut";
        assert_eq!(all(text), ["one\ntwo", ""]);
        assert_eq!(all(b"data: a\r\n\r\ndata: b\r\rdata: c\n\n"), ["a", "b", "c"]);
        assert!(all(b"database: x\n\n").is_empty());
    }

    #[test]
    fn what_is_too_long_or_no_text_is_refused() {
        let mut parser = SseParser::default();
        let line = vec![b'x'; MAX_BYTES + 1];
        assert_eq!(parser.push(&line), Err(SseError::TooLong));
        assert_eq!(SseParser::default().push(b"data: \xff\n\n"), Err(SseError::NotText));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_a_stream_is_cut(
            text in "([a-z: ]{0,6}(data: ?[a-z]{0,4})?(\r\n|\n|\r)){0,12}",
            sizes in proptest::collection::vec(1..7_usize, 1..40),
        ) {
            let mut parser = SseParser::default();
            let (mut rest, mut events) = (text.as_bytes(), Vec::new());
            for size in sizes.iter().cycle() {
                if rest.is_empty() { break; }
                let (piece, after) = rest.split_at((*size).min(rest.len()));
                events.extend(parser.push(piece).unwrap().into_iter().map(|event| event.data));
                rest = after;
            }
            prop_assert_eq!(events, all(text.as_bytes()));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = SseParser::default().push(&bytes);
        }
    }
}
