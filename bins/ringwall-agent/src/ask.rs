//! One question to the model, asked again where that can help.

use std::io::{self, BufReader, Read};
use std::net::TcpStream;
use std::time::Duration;

use ringwall_agent_model::{Answer, SseParser, Start, StreamError, TalkError, http};

/// Where the gateway takes questions to models.
const HOST: &str = "inference.ringwall";

const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A model may think for long before it says its first word.
const SILENCE: Duration = Duration::from_secs(600);
const MAX_ERROR_BYTES: u64 = 8 << 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("the question is no JSON: {0}")]
    Question(#[from] serde_json::Error),
    #[error("the gateway cannot be reached: {0}")]
    Gateway(#[source] io::Error),
    #[error("the answer broke off: {0}")]
    Broken(#[source] io::Error),
    #[error("{said}")]
    Refused { said: String },
    #[error("the model's server answered {status}: {said}")]
    Status { status: u16, said: String, after: Option<Duration> },
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Talk(#[from] TalkError),
}

impl AskError {
    /// Whether the gateway said no.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, AskError::Refused { .. })
    }

    /// How long to wait before the same is asked again, if that can help. Nothing was done with what
    /// came of an answer that broke off.
    fn pause(&self, attempt: u32) -> Option<Duration> {
        let usual = (FIRST_PAUSE * 2_u32.saturating_pow(attempt)).min(LONGEST_PAUSE);
        match self {
            AskError::Gateway(_) | AskError::Broken(_) => Some(usual),
            AskError::Stream(StreamError::Cut | StreamError::Server(_)) => Some(usual),
            AskError::Status { status, after, .. } => {
                let passing = matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504 | 529);
                passing.then(|| after.unwrap_or(usual).min(LONGEST_PAUSE))
            }
            _ => None,
        }
    }
}

pub(crate) fn ask(
    start: &Start,
    piece: &mut impl FnMut(String) -> Result<(), TalkError>,
) -> Result<Answer, AskError> {
    let question = serde_json::to_vec(&start.provider.request(start))?;
    let mut attempt = 0;
    loop {
        let error = match once(start, &question, piece) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        attempt += 1;
        match error.pause(attempt) {
            Some(pause) if attempt < ATTEMPTS => std::thread::sleep(pause),
            _ => return Err(error),
        }
    }
}

fn once(
    start: &Start,
    question: &[u8],
    piece: &mut impl FnMut(String) -> Result<(), TalkError>,
) -> Result<Answer, AskError> {
    let mut stream = TcpStream::connect(&start.proxy).map_err(AskError::Gateway)?;
    stream.set_read_timeout(Some(SILENCE)).map_err(AskError::Gateway)?;
    let (path, headers) = (start.provider.path(), start.provider.headers());
    http::write_request(&mut stream, HOST, path, headers, question).map_err(AskError::Gateway)?;
    let (head, mut body) = http::read_answer(BufReader::new(stream)).map_err(AskError::Broken)?;
    if head.status != 200 {
        let mut said = Vec::new();
        let _ = body.take(MAX_ERROR_BYTES).read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        if head.header("x-ringwall") == Some("refused") {
            return Err(AskError::Refused { said });
        }
        let after = head.header("retry-after").and_then(|text| text.parse().ok());
        let after = after.map(Duration::from_secs);
        return Err(AskError::Status { status: head.status, said, after });
    }
    let (mut parser, mut reader) = (SseParser::default(), start.provider.reader());
    let mut bytes = vec![0; 16 << 10];
    loop {
        let read = match body.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(AskError::Broken(error)),
        };
        let events = parser.push(bytes.get(..read).unwrap_or_default());
        for event in events.map_err(StreamError::from)? {
            if let Some(text) = reader.take(&event)? {
                piece(text)?;
            }
        }
    }
    let answer = reader.finish()?;
    // The gateway closes when it has counted the tokens.
    body.wait_for_close();
    Ok(answer)
}
