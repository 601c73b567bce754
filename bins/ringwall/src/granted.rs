//! Who asks at the command line: the owner, or the holder of a token in a file. What either may do, and who
//! pays, is decided by `ringwall-desk`.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use ringwall_desk::{Books, Caller, Desk, Lease, Placed, Watched};
use ringwall_engine::{Engine, EngineConfig, Killer};
use ringwall_grant::{MAX_TOKEN_BYTES, Token};

/// A caller, and the books of this home.
pub(crate) struct Asking {
    pub(crate) books: Arc<Books>,
    pub(crate) caller: Caller,
}

/// A sandbox that may be raised, and who asked for it.
pub(crate) struct Admitted {
    pub(crate) asking: Asking,
    pub(crate) placed: Placed,
}

impl Asking {
    /// The holder of the token in `grant`, or the owner.
    pub(crate) fn by(grant: Option<&Path>) -> anyhow::Result<Asking> {
        let books = books()?;
        let caller = match grant {
            None => Caller::Owner,
            Some(file) => books.authenticate(read_token(file)?)?,
        };
        Ok(Asking { books, caller })
    }

    pub(crate) fn desk<'a>(&'a self, engine: &'a Engine) -> Desk<'a> {
        Desk::new(engine, &self.books)
    }

    /// Has the run ended when its grant ends.
    pub(crate) fn watch(&self, what: String, killer: Killer) -> Lease {
        let end = Box::new(move || killer.kill());
        self.books.lease(&self.caller, Watched { what, end })
    }
}

pub(crate) fn books() -> anyhow::Result<Arc<Books>> {
    Ok(Books::open(&EngineConfig::from_environment()?.home)?)
}

/// Writes down that old rights are back, if an elevation has ended since the last look.
pub(crate) fn record_ended() -> anyhow::Result<()> {
    Ok(books()?.record_ended()?)
}

pub(crate) fn read_token(file: &Path) -> anyhow::Result<Token> {
    let wrong = || format!("{} must hold the token of a grant", file.display());
    let text = std::fs::File::open(file).and_then(token_text).with_context(wrong)?;
    text.parse().with_context(wrong)
}

/// Reads what may be a token, and no more than one can have.
pub(crate) fn token_text(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    // Twice the bytes: a token's text is longer than the token.
    source.take(2 * MAX_TOKEN_BYTES as u64).read_to_string(&mut text)?;
    Ok(text)
}
