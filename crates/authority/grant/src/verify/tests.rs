//! Narrowing never widens, and the typed rights and the token's logic say the same: for any rights,
//! any chain of narrowings and any request.

use std::collections::BTreeSet;
use std::str::FromStr;

use proptest::prelude::*;

use super::*;
use crate::names::{Endpoint, Name, Subtree, ToolPattern};
use crate::request::Ask;
use crate::{Authority as Minter, SecretKey};

/// Few words, so that they often meet.
const TOOLS: [&str; 6] = ["grep", "git", "git-log", "git-*", "g*", "*"];
const PATHS: [&str; 6] = ["/", "/a", "/a/b", "/ab", "/b", "/a/b/c"];
const ENDPOINTS: [&str; 9] = [
    "a.example:443",
    "a.example:443 GET",
    "a.example:* GET,POST",
    "b.example:80",
    "*.example:443",
    "**.example:443 GET",
    "*.example:* POST",
    "*:80 GET",
    "*:*",
];
const NAMES: [&str; 3] = ["one", "two", "three"];
const METHODS: [Option<&str>; 4] = [None, Some("GET"), Some("POST"), Some("ET")];

fn set<T: FromStr + Ord + std::fmt::Debug>(
    words: &'static [&'static str],
) -> impl Strategy<Value = BTreeSet<T>> {
    proptest::sample::subsequence(words, 0..=words.len())
        .prop_map(|words| words.iter().filter_map(|word| word.parse().ok()).collect())
}

fn narrowing() -> impl Strategy<Value = Narrowing> {
    fn maybe<T: FromStr + Ord + Clone + std::fmt::Debug>(
        words: &'static [&'static str],
    ) -> impl Strategy<Value = Option<BTreeSet<T>>> {
        proptest::option::weighted(0.4, set(words))
    }
    let lists = (
        maybe::<ToolPattern>(&TOOLS),
        (maybe::<Subtree>(&PATHS), maybe::<Subtree>(&PATHS)),
        maybe::<Endpoint>(&ENDPOINTS),
        (maybe::<Name>(&NAMES), maybe::<Name>(&NAMES)),
        (maybe::<Name>(&NAMES), maybe::<Name>(&NAMES)),
    );
    let rest = (proptest::option::of(0..50u64), proptest::option::weighted(0.2, 50..200u64));
    (lists, rest).prop_map(|((tools, paths, endpoints, names, places), (calls, expires))| {
        Narrowing {
            holder: None,
            tools,
            read: paths.0,
            write: paths.1,
            endpoints,
            secrets: names.0,
            phases: names.1,
            kinds: places.0,
            walls: places.1,
            budget: Budget { calls, ..Budget::default() },
            expires,
        }
    })
}

fn rights() -> impl Strategy<Value = Rights> {
    let names = || (set::<Name>(&NAMES), set::<Name>(&NAMES));
    let paths = (set::<Subtree>(&PATHS), set::<Subtree>(&PATHS));
    (set(&TOOLS), paths, set(&ENDPOINTS), names(), names()).prop_map(
        |(tools, paths, endpoints, names, places)| {
            let name = |text: &str| text.parse().unwrap();
            Rights {
                tools,
                read: paths.0,
                write: paths.1,
                endpoints,
                secrets: names.0,
                phases: names.1,
                kinds: places.0,
                walls: places.1,
                ..Rights::none(name("t"), name("o"), name("h"))
            }
        },
    )
}

fn ask() -> impl Strategy<Value = Ask> {
    let word =
        |words: &'static [&'static str]| proptest::sample::select(words).prop_map(str::to_owned);
    let name = move || word(&NAMES);
    prop_oneof![
        Just(Ask::Identity),
        word(&["grep", "git", "git-log", "rm"]).prop_map(|name| Ask::Tool { name }),
        word(&PATHS).prop_map(|path| Ask::Read { path }),
        word(&PATHS).prop_map(|path| Ask::Write { path }),
        (
            word(&["a.example", "b.example", "a.b.example", "example", "c.other"]),
            proptest::sample::select(&[80, 443][..]),
            proptest::sample::select(&METHODS[..])
        )
            .prop_map(|(host, port, method)| {
                Ask::Connect { host, port, method: method.map(str::to_owned) }
            }),
        name().prop_map(|name| Ask::Secret { name }),
        name().prop_map(|name| Ask::Phase { name }),
        (name(), name()).prop_map(|(kind, wall)| Ask::Place { kind, wall }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_chain_allows_a_subset_and_rights_and_logic_agree(
        rights in rights(),
        chain in proptest::collection::vec(narrowing(), 0..4),
        asks in proptest::collection::vec(ask(), 12),
        now in 1..150u64,
    ) {
        let key = SecretKey::generate().unwrap();
        let keys = [(1, key.public())];
        let mut token = Token::mint(&key, 1, &rights, 100).unwrap();
        let mut before: Option<(Vec<bool>, Standing)> = None;
        for step in 0..=chain.len() {
            if step > 0 {
                token = token.narrow(&chain[step - 1]).unwrap();
            }
            let verified = Verified::parse(&token, &keys).unwrap();
            prop_assert_eq!(&verified.authority.rights, &rights);
            let read: Vec<_> = verified.narrowings.iter().map(|(_, read)| read).collect();
            prop_assert_eq!(read, chain[..step].iter().collect::<Vec<_>>());
            let mut allowed = Vec::new();
            for ask in &asks {
                let request = Request::new("t", "o", ask.clone());
                let typed = now < verified.expires()
                    && verified.authority.rights.lists().refuse(ask).is_none()
                    && verified.narrowings.iter().all(|(_, one)| one.lists().refuse(ask).is_none());
                let logic = logic::authorize(&verified.biscuit, &request, None, now).is_ok();
                prop_assert_eq!(typed, logic, "{:?}", ask);
                allowed.push(typed);
            }
            let standing = verified.standing();
            if let Some((wider, of)) = &before {
                prop_assert!(allowed.iter().zip(wider).all(|(now, before)| !now || *before));
                prop_assert!(standing.expires_unix <= of.expires_unix);
                let least = of.budget.least(standing.budget);
                prop_assert_eq!(least, standing.budget);
            }
            before = Some((allowed, standing));
        }
    }
}

/// What a verifier keeps of a token does not outlive a revocation or an expiry.
#[test]
fn a_token_that_is_kept_parsed_still_ends() {
    let home = tempfile::tempdir().unwrap();
    let minter = Minter::open(home.path()).unwrap();
    let name = |text: &str| text.parse().unwrap();
    let rights = Rights::none(name("t"), name("o"), name("h"));
    let minted = minter.mint(&rights, std::time::Duration::from_secs(60)).unwrap();
    let time = Arc::new(std::sync::Mutex::new(SystemTime::now()));
    let shown = Arc::clone(&time);
    let verifier = minter.verifier().with_clock(move || *shown.lock().unwrap());
    let request = Request::new("t", "o", Ask::Identity);
    assert!(verifier.check(&minted.token, &request).is_ok());
    *time.lock().unwrap() += std::time::Duration::from_secs(61);
    assert!(verifier.check(&minted.token, &request).is_err());
    *time.lock().unwrap() -= std::time::Duration::from_secs(61);
    assert!(verifier.check(&minted.token, &request).is_ok());
    minter.revoke(&[minted.record.id]).unwrap();
    assert!(verifier.check(&minted.token, &request).is_err());
}
