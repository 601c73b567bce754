//! Tokens are input: made by hand, widened, cut, mixed and changed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use biscuit_auth::builder::{Algorithm, BlockBuilder};
use biscuit_auth::{Biscuit, KeyPair, UnverifiedBiscuit};
use common::{World, only_tools, rights, tool};
use proptest::prelude::*;
use ringwall_grant::{
    ActionHash, Ask, Basis, Elevation, MAX_BLOCKS, MAX_TOKEN_BYTES, Narrowing, Reason, Request,
    SecretKey, Token, TrustedApprovers, Verifier,
};

/// A block that somebody with the library, but without our key, adds to a token.
fn with_block(token: &Token, code: &str) -> Token {
    let block = BlockBuilder::new().code(code).unwrap();
    let token = UnverifiedBiscuit::from(token.as_bytes()).unwrap().append(block).unwrap();
    Token::from_bytes(&token.to_vec().unwrap()).unwrap()
}

/// The same with a key of their own, as an approver would.
fn with_signed_block(token: &Token, code: &str) -> Token {
    let token = UnverifiedBiscuit::from(token.as_bytes()).unwrap();
    let key = KeyPair::new_with_algorithm(Algorithm::Ed25519);
    let block = BlockBuilder::new().code(code).unwrap();
    let request = token.third_party_request().unwrap();
    let block = request.create_block(&key.private(), block).unwrap().serialize().unwrap();
    Token::from_bytes(&token.append_third_party(&block).unwrap().to_vec().unwrap()).unwrap()
}

const WIDENING: [&str; 12] = [
    "tool(\"exact\", \"rm\");",
    "tool(\"prefix\", \"\");",
    "only_tool(\"prefix\", \"\");",
    "right(\"tool\", \"rm\");",
    "elevate(\"a\", \"net\", hex:00, 99999999999, false);",
    "want_tool(\"grep\");",
    "now(0); expires(99999999999);",
    "tool($a, $b) <- want_tool($b), want($a);",
    "task(\"t-2\"); tenant(\"other\");",
    "narrowed(1);\ntool(\"prefix\", \"\");",
    "check if true trusting previous;",
    "narrowed(1);\ncheck if want_tool($t), $t.matches(\"((a{50}){50}){50}\");",
];

#[test]
fn a_holder_who_adds_statements_gains_nothing() {
    let world = World::new();
    let verifier = world.authority.verifier();
    let narrowed = world.token().narrow(&only_tools(&["grep"])).unwrap();
    for code in WIDENING {
        for base in [world.token(), narrowed.clone()] {
            for token in [with_block(&base, code), with_signed_block(&base, code)] {
                let no = verifier.check(&token, &tool("rm")).expect_err(code);
                assert_eq!(no.reason, Reason::NotAGrant, "{code}: {no}");
            }
        }
    }
    // What has our form but nobody's trust does no harm and no good.
    let code = format!("elevate(\"a\", \"net\", hex:{}, 99999999999, false);", "00".repeat(32));
    let token = with_signed_block(&world.token(), &code);
    verifier.check(&token, &tool("grep")).unwrap();
    let trusted = TrustedApprovers {
        elevation: "net".to_owned(),
        keys: vec![SecretKey::generate().unwrap().public()],
    };
    let rm = tool("rm").with_elevations(ActionHash([0; 32]), vec![trusted]);
    assert!(matches!(verifier.check(&token, &rm).unwrap_err().reason, Reason::NotGranted(_)));
}

/// The library prints strings as they are. A statement can therefore look like another one, and must
/// not be worth more than it looks.
#[test]
fn statements_hidden_in_strings_do_not_widen() {
    let world = World::new();
    let verifier = world.authority.verifier();
    let term = |text: &str| biscuit_auth::builder::Term::Str(text.to_owned());
    let hidden = biscuit_auth::builder::Fact::new(
        "only_tool".to_owned(),
        vec![term("exact"), term("grep\");\nonly_tool(\"exact\", \"git-x")],
    );
    let looks = world.token().narrow(&only_tools(&["git-x", "grep"])).unwrap();
    let mut block = BlockBuilder::new().code("narrowed(1);").unwrap().fact(hidden).unwrap();
    let source = UnverifiedBiscuit::from(looks.as_bytes()).unwrap().print_block_source(1).unwrap();
    let check = source.lines().find(|line| line.starts_with("check")).unwrap();
    block = block.check(check.trim_end_matches(';')).unwrap();
    let token = UnverifiedBiscuit::from(world.token().as_bytes()).unwrap().append(block).unwrap();
    let token = Token::from_bytes(&token.to_vec().unwrap()).unwrap();
    for name in ["grep", "git-x", "git-y", "rm"] {
        assert!(verifier.check(&token, &tool(name)).is_err(), "{name}");
    }
}

#[test]
fn only_the_trusted_approver_elevates_and_only_that_action_until_then() {
    let world = World::new();
    let (approver, stranger) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
    let action = ActionHash([7; 32]);
    let now = std::time::SystemTime::now();
    let unix = now.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let elevation = Elevation {
        approval: "a-1".parse().unwrap(),
        name: "net".parse().unwrap(),
        action,
        until: unix + 60,
        once: true,
    };
    let base = world.token();
    let signed = |key: &SecretKey| base.elevation_request().unwrap().sign(key, &elevation).unwrap();
    let elevated = base.elevated(&signed(&approver)).unwrap();
    let trusted = || {
        let keys = vec![approver.public()];
        vec![TrustedApprovers { elevation: "net".to_owned(), keys }]
    };
    let connect = || {
        let ask = Ask::Connect { host: "a.example".to_owned(), port: 443, method: None };
        Request::new("t-1", "acme", ask)
    };
    let verifier = world.authority.verifier();
    let allowed = verifier.check(&elevated, &connect().with_elevations(action, trusted())).unwrap();
    assert_eq!(allowed.basis, Basis::Elevation);
    assert_eq!(allowed.elevation.unwrap().elevation, elevation);
    // The grant's own rights are as before.
    verifier.check(&elevated, &tool("grep")).unwrap();

    let refused = |verifier: &Verifier, token: &Token, request: Request| {
        verifier.check(token, &request).unwrap_err().reason
    };
    let not = |reason: Reason| assert!(matches!(reason, Reason::NotGranted(_)), "{reason:?}");
    not(refused(&verifier, &elevated, connect()));
    not(refused(&verifier, &elevated, connect().with_elevations(ActionHash([8; 32]), trusted())));
    let mut other_name = trusted();
    other_name[0].elevation = "ci".to_owned();
    not(refused(&verifier, &elevated, connect().with_elevations(action, other_name)));
    let wrong = base.elevated(&signed(&stranger)).unwrap();
    not(refused(&verifier, &wrong, connect().with_elevations(action, trusted())));
    let late =
        world.authority.verifier().with_clock(move || now + std::time::Duration::from_secs(61));
    let ended = refused(&late, &elevated, connect().with_elevations(action, trusted()));
    assert_eq!(ended, Reason::ElevationEnded { at_unix: unix + 60 });

    // On another token of the same rights the signature is not good.
    let transplanted = world.token().elevated(&signed(&approver)).unwrap();
    let no = refused(&verifier, &transplanted, connect().with_elevations(action, trusted()));
    assert_eq!(no, Reason::NotAGrant);
    // What a narrowing took away stays away.
    let without_net = Narrowing { endpoints: Some([].into()), ..Narrowing::default() };
    let narrowed = base.narrow(&without_net).unwrap();
    let narrowed = narrowed
        .elevated(&narrowed.elevation_request().unwrap().sign(&approver, &elevation).unwrap())
        .unwrap();
    let no = refused(&verifier, &narrowed, connect().with_elevations(action, trusted()));
    assert!(matches!(no, Reason::Narrowed { .. }));
}

#[test]
fn a_token_is_bounded_before_it_is_parsed() {
    assert!(Token::from_bytes(&[]).is_err());
    assert!(Token::from_bytes(&vec![0; MAX_TOKEN_BYTES + 1]).is_err());
    // Field 3, length 0, too often.
    let many: Vec<u8> = [0x1a, 0].repeat(MAX_BLOCKS);
    assert!(Token::from_bytes(&many).unwrap_err().to_string().contains("too many blocks"));
    assert!(Token::from_bytes(&[0x1a, 0x7f]).is_err());
    assert!("rwg_%%%".parse::<Token>().is_err() && "abc".parse::<Token>().is_err());
    let world = World::new();
    let mut token = world.token();
    for _ in 1..MAX_BLOCKS {
        token = token.narrow(&Narrowing::default()).unwrap();
    }
    world.authority.verifier().check(&token, &tool("grep")).unwrap();
    assert!(token.narrow(&Narrowing::default()).is_err());
    let mut many = rights();
    many.tools = (0..257).map(|number| format!("t{number}").parse().unwrap()).collect();
    assert!(world.authority.mint(&many, std::time::Duration::from_secs(9)).is_err());
}

#[test]
fn the_largest_grants_are_still_checked_within_limits() {
    let world = World::new();
    let mut many = rights();
    many.read =
        (0..256).map(|number| format!("/d{number}/{}", "x".repeat(40)).parse().unwrap()).collect();
    let token = world.mint(&many);
    let narrowing = Narrowing { read: Some(many.read.clone()), ..Narrowing::default() };
    let token = token.narrow(&narrowing).unwrap();
    let path = format!("/d255/{}/file", "x".repeat(40));
    world.authority.verifier().check(&token, &common::read(&path)).unwrap();
}

fn other_logic() -> impl Strategy<Value = String> {
    let names = ["tool", "only_tool", "elevate", "expires", "task", "narrowed", "x"];
    let fact = (0..names.len(), "[a-z-]{0,6}")
        .prop_map(move |(at, text)| format!("{}(\"exact\", \"{text}\");", names[at]));
    proptest::collection::vec(fact, 0..4).prop_map(|facts| facts.join("\n"))
}

/// Homes are slow to make, and these tests leave no trace in one.
fn shared() -> &'static World {
    static WORLD: std::sync::OnceLock<World> = std::sync::OnceLock::new();
    WORLD.get_or_init(World::new)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_block_of_anybody_allows_what_was_not(code in other_logic(), name in "[a-z-]{1,6}") {
        let world = shared();
        let verifier = world.authority.verifier();
        let base = world.token().narrow(&only_tools(&["grep"])).unwrap();
        for token in [with_block(&base, &code), with_signed_block(&base, &code)] {
            if verifier.check(&token, &tool(&name)).is_ok() {
                prop_assert!(verifier.check(&base, &tool(&name)).is_ok());
            }
        }
    }

    #[test]
    fn changed_bytes_are_refused(at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let world = shared();
        let verifier = world.authority.verifier();
        let token = world.token().narrow(&only_tools(&["grep"])).unwrap();
        let mut bytes = token.as_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(token) = Token::from_bytes(&bytes) {
            prop_assert!(verifier.check(&token, &tool("grep")).is_err());
            let _ = token.narrow(&Narrowing::default());
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(token) = Token::from_bytes(&bytes) {
            let _ = (token.ids(), token.seal(), token.narrow(&Narrowing::default()));
        }
    }
}

/// The number of a field that has its usual value anyway can be changed without a signature's notice.
#[test]
fn another_spelling_of_a_grant_is_refused() {
    let world = shared();
    let verifier = world.authority.verifier();
    let bytes = world.token().as_bytes().to_vec();
    // A public key: its field, its length, which algorithm, and 32 bytes.
    let key = bytes.windows(6).position(|six| six == [0x12, 0x24, 0x08, 0x00, 0x12, 0x20]);
    let mut other = bytes.clone();
    other[key.expect("a public key") + 2] ^= 0x10;
    let [same, other] = [bytes, other].map(|bytes| Token::from_bytes(&bytes).unwrap());
    assert!(verifier.check(&same, &tool("grep")).is_ok());
    verifier.check(&other, &tool("grep")).unwrap_err();
}

#[test]
fn blocks_of_two_tokens_do_not_mix() {
    let world = World::new();
    let key = KeyPair::new_with_algorithm(Algorithm::Ed25519);
    // All that the first block says, under another root.
    let source =
        UnverifiedBiscuit::from(world.token().as_bytes()).unwrap().print_block_source(0).unwrap();
    let forged = Biscuit::builder().code(source).unwrap().root_key_id(1).build(&key).unwrap();
    let forged = Token::from_bytes(&forged.to_vec().unwrap()).unwrap();
    let no = world.authority.verifier().check(&forged, &tool("grep")).unwrap_err();
    assert_eq!(no.reason, Reason::NotAGrant);
}
