//! Tokens from anybody: raw bytes, changed tokens, and tokens to which a holder added a block of its
//! own. None may panic, and none may allow what the token it was made from does not.
//!
//! The first byte of the input chooses what is made of the rest.

#![no_main]

use std::sync::OnceLock;
use std::time::Duration;

use biscuit_auth::UnverifiedBiscuit;
use biscuit_auth::builder::BlockBuilder;
use libfuzzer_sys::fuzz_target;
use ringwall_grant::{Ask, Authority, Narrowing, Request, Rights, Token, Verifier};

struct World {
    _home: tempfile::TempDir,
    verifier: Verifier,
    token: Token,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let home = tempfile::tempdir().expect("a directory");
        let authority = Authority::open(home.path()).expect("an authority");
        let name = |text: &str| text.parse().expect("a name");
        let mut rights = Rights::none(name("t"), name("o"), name("h"));
        rights.tools = ["grep".parse().expect("a tool")].into();
        let minted = authority
            .mint(&rights, Duration::from_secs(600_000))
            .expect("a grant");
        let verifier = authority.verifier();
        World {
            _home: home,
            verifier,
            token: minted.token,
        }
    })
}

fuzz_target!(|input: &[u8]| {
    let [choice, rest @ ..] = input else {
        return;
    };
    let world = world();
    let token = match choice % 3 {
        0 => Token::from_bytes(rest).ok(),
        1 => changed(world.token.as_bytes(), rest),
        _ => added(&world.token, rest),
    };
    let Some(token) = token else {
        return;
    };
    let _ = token.ids();
    let _ = token.narrow(&Narrowing::default());
    let _ = world.verifier.inspect(&token);
    let tool = |name: &str| {
        Request::new(
            "t",
            "o",
            Ask::Tool {
                name: name.to_owned(),
            },
        )
    };
    let _ = world.verifier.check(&token, &tool("grep"));
    assert!(world.verifier.check(&token, &tool("rm")).is_err());
});

/// Pairs of a place and what is added there.
fn changed(token: &[u8], changes: &[u8]) -> Option<Token> {
    let mut bytes = token.to_vec();
    for change in changes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len();
        bytes[at] = bytes[at].wrapping_add(change[2]);
    }
    Token::from_bytes(&bytes).ok()
}

fn added(token: &Token, code: &[u8]) -> Option<Token> {
    let block = BlockBuilder::new()
        .code(std::str::from_utf8(code).ok()?)
        .ok()?;
    let token = UnverifiedBiscuit::from(token.as_bytes())
        .ok()?
        .append(block)
        .ok()?;
    Token::from_bytes(&token.to_vec().ok()?).ok()
}
