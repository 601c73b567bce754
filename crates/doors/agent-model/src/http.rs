//! As much of HTTP/1.1 as it takes to ask one question through a proxy and read the answer to its end.

use std::io::{self, BufRead, Read, Write};

const MAX_HEAD_BYTES: u64 = 64 << 10;
const MAX_CHUNK_LINE: u64 = 256;

/// What came back, up to its body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
}

/// The body of an answer, read to its end and no further.
#[derive(Debug)]
pub struct Body<R> {
    from: R,
    left: Left,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Bytes(u64),
    /// Of this chunk, and then others.
    Chunk(u64),
    /// The first, or one after another.
    ChunkHead {
        first: bool,
    },
    UntilEnd,
    Nothing,
}

/// Writes a request in the form that proxies take. The connection ends with its answer.
pub fn write_request(
    to: &mut impl Write,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<()> {
    let mut head = format!(
        "POST http://{host}{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    to.write_all(head.as_bytes())?;
    to.write_all(body)?;
    to.flush()
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the answer is no HTTP: {what}"))
}

/// A line without its end.
fn read_line(from: &mut impl BufRead, most: u64) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(most).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(malformed("a line has no end"));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map_err(|_| malformed("a line is no text"))
}

/// Reads the head of an answer, and makes its body readable.
pub fn read_answer<R: BufRead>(mut from: R) -> io::Result<(Head, Body<R>)> {
    let mut left = MAX_HEAD_BYTES;
    let mut next = |from: &mut R| -> io::Result<String> {
        let line = read_line(from, left)?;
        left = left.saturating_sub(line.len() as u64 + 2);
        Ok(line)
    };
    let first = next(&mut from)?;
    let status = first
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.get(2..5))
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| malformed("it has no status"))?;
    let mut head = Head { status, headers: Vec::new() };
    loop {
        let line = next(&mut from)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| malformed("a header"))?;
        head.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let left = match (head.header("transfer-encoding"), head.header("content-length")) {
        (Some(coding), _) if coding.eq_ignore_ascii_case("chunked") => {
            Left::ChunkHead { first: true }
        }
        (Some(_), _) => return Err(malformed("an unknown transfer encoding")),
        (None, Some(length)) => {
            Left::Bytes(length.parse().map_err(|_| malformed("a content length"))?)
        }
        (None, None) => Left::UntilEnd,
    };
    Ok((head, Body { from, left }))
}

impl Head {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

impl<R: BufRead> Body<R> {
    /// Whether all of it was read, as far as the answer tells.
    pub fn is_whole(&self) -> bool {
        matches!(self.left, Left::Nothing | Left::Bytes(0) | Left::UntilEnd)
    }

    /// Waits until the other side has closed: by then it has counted all of the answer.
    pub fn wait_for_close(&mut self) {
        let mut rest = [0; 512];
        while self.from.read(&mut rest).is_ok_and(|read| read > 0) {}
    }

    fn begin_chunk(&mut self, first: bool) -> io::Result<()> {
        if !first && !read_line(&mut self.from, MAX_CHUNK_LINE)?.is_empty() {
            return Err(malformed("a chunk has no end"));
        }
        let line = read_line(&mut self.from, MAX_CHUNK_LINE)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(digits, 16).map_err(|_| malformed("the size of a chunk"))?;
        self.left = Left::Chunk(size);
        if size == 0 {
            // What could follow are trailers, which mean nothing here.
            while !read_line(&mut self.from, MAX_HEAD_BYTES)?.is_empty() {}
            self.left = Left::Nothing;
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Body<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if let Left::ChunkHead { first } = self.left {
            self.begin_chunk(first)?;
        }
        let most = match self.left {
            Left::Nothing | Left::Bytes(0) => return Ok(0),
            Left::Bytes(left) | Left::Chunk(left) => left,
            Left::UntilEnd | Left::ChunkHead { .. } => u64::MAX,
        };
        let room = usize::try_from(most).unwrap_or(usize::MAX).min(into.len());
        let read = self.from.read(into.get_mut(..room).unwrap_or_default())?;
        let taken = read as u64;
        match &mut self.left {
            Left::Bytes(_) | Left::Chunk(_) if read == 0 => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Left::Bytes(left) => *left -= taken,
            Left::Chunk(left) if *left == taken => self.left = Left::ChunkHead { first: false },
            Left::Chunk(left) => *left -= taken,
            Left::UntilEnd if read == 0 => self.left = Left::Nothing,
            Left::UntilEnd | Left::ChunkHead { .. } | Left::Nothing => {}
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answer(text: &str) -> io::Result<(Head, String)> {
        let (head, mut body) = read_answer(text.as_bytes())?;
        let mut all = String::new();
        body.read_to_string(&mut all)?;
        Ok((head, all))
    }

    #[test]
    fn bodies_end_by_length_by_chunks_or_with_the_connection() {
        let (head, body) = answer("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef").unwrap();
        assert_eq!((head.status, body.as_str()), (200, "abc"));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        assert_eq!(answer(chunked).unwrap().1, "abcde");
        assert_eq!(answer("HTTP/1.0 500 No\r\n\r\nuntil the end").unwrap().1, "until the end");
    }

    #[test]
    fn a_cut_answer_is_an_error() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-",
            "SSH-2.0-x\r\n\r\n",
        ] {
            assert!(answer(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_request_names_its_target_whole() {
        let mut bytes = Vec::new();
        write_request(&mut bytes, "a.example", "/v1/x", &[("accept", "y")], b"{}").unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("POST http://a.example/v1/x HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("content-length: 2\r\naccept: y\r\n\r\n{}"), "{text}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            if let Ok((_, mut body)) = read_answer(&bytes[..]) {
                let _ = body.read_to_end(&mut Vec::new());
            }
        }
    }
}
