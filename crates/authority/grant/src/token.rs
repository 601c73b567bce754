//! The token itself: bytes that a holder carries, can narrow, and cannot widen.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use biscuit_auth::{Biscuit, ThirdPartyRequest, UnverifiedBiscuit};
use ringwall_safekeeping::hex;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::block::{Authority, Elevation};
use crate::keys::SecretKey;
use crate::rights::{Lists, MAX_ENTRIES, Narrowing, Rights};

/// The largest token that is looked at.
pub const MAX_TOKEN_BYTES: usize = 64 << 10;
/// The most blocks of a token: the first, narrowings and elevations.
pub const MAX_BLOCKS: usize = 32;

/// What a token's text begins with; so that it is found where it should not be.
const PREFIX: &str = "rwg_";

/// A grant in its holder's hands. Whoever has it may use it: keep it out of logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Zeroizing<Vec<u8>>);

/// One block of one token. Revoking it ends this token and all that were made from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId([u8; 16]);

/// What an approver signs on: it stands for one token, and cannot be used as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElevationRequest(Vec<u8>);

/// An elevation with an approver's signature, for one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedElevation(Vec<u8>);

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("it is no grant: {0}")]
    Malformed(&'static str),
    #[error(
        "the grant is sealed, so nothing can be added to it; use the one that it was made from"
    )]
    Sealed,
    #[error("the grant would be larger than {MAX_TOKEN_BYTES} bytes; give it fewer rights")]
    TooLarge,
    #[error("the grant has {MAX_BLOCKS} blocks already; narrow an earlier one")]
    TooManyBlocks,
    #[error("a list in the grant has more than {MAX_ENTRIES} entries")]
    TooManyEntries,
    #[error("the grant cannot be made: {0}")]
    Make(String),
}

fn make(error: impl fmt::Display) -> TokenError {
    TokenError::Make(error.to_string())
}

fn adding(error: biscuit_auth::error::Token) -> TokenError {
    match error {
        biscuit_auth::error::Token::AppendOnSealed => TokenError::Sealed,
        biscuit_auth::error::Token::Format(_) => TokenError::Malformed("its blocks cannot be read"),
        other => make(other),
    }
}

impl Token {
    /// Makes a fresh grant. The number of the key is written into it, so that keys can be replaced.
    pub fn mint(
        key: &SecretKey,
        key_number: u32,
        rights: &Rights,
        expires_unix: u64,
    ) -> Result<Token, TokenError> {
        check_lists(&rights.lists())?;
        let block = Authority { rights: rights.clone(), expires: expires_unix };
        let token = Biscuit::builder()
            .merge(block.build().map_err(make)?)
            .root_key_id(key_number)
            .build(&key.pair().map_err(make)?)
            .and_then(|token| token.to_vec())
            .map_err(make)?;
        Token::bounded(token)
    }

    /// Makes a grant that allows less, without any key and without asking anybody.
    pub fn narrow(&self, narrowing: &Narrowing) -> Result<Token, TokenError> {
        check_lists(&narrowing.lists())?;
        let token = self.opened()?;
        if token.block_count() >= MAX_BLOCKS {
            return Err(TokenError::TooManyBlocks);
        }
        let narrowed = token.append(narrowing.build().map_err(make)?).map_err(adding)?;
        Token::bounded(narrowed.to_vec().map_err(make)?)
    }

    /// The same grant, to which nothing can be added any more: no narrowing and no elevation.
    pub fn seal(&self) -> Result<Token, TokenError> {
        let sealed = self.opened()?.seal().map_err(adding)?;
        Token::bounded(sealed.to_vec().map_err(make)?)
    }

    /// What an approver needs to elevate this token and no other.
    pub fn elevation_request(&self) -> Result<ElevationRequest, TokenError> {
        let request = self.opened()?.third_party_request().map_err(adding)?;
        request.serialize().map(ElevationRequest).map_err(make)
    }

    /// Adds what an approver signed for this token. The caller has checked where it comes from.
    pub fn elevated(&self, elevation: &SignedElevation) -> Result<Token, TokenError> {
        let token = self.opened()?;
        if token.block_count() >= MAX_BLOCKS {
            return Err(TokenError::TooManyBlocks);
        }
        let elevated = token.append_third_party(&elevation.0).map_err(adding)?;
        Token::bounded(elevated.to_vec().map_err(make)?)
    }

    /// The ids of its blocks, the grant that it began as first. They are of use only where the
    /// signatures have been verified, or nothing hangs on them.
    pub fn ids(&self) -> Result<Vec<GrantId>, TokenError> {
        Ok(self.opened()?.revocation_identifiers().iter().map(|id| GrantId::of(id)).collect())
    }

    /// Reads a token from its bytes. Nothing is verified yet.
    pub fn from_bytes(bytes: &[u8]) -> Result<Token, TokenError> {
        check_shape(bytes)?;
        Ok(Token(Zeroizing::new(bytes.to_vec())))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As it is handed on: one word.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(&*self.0)))
    }

    fn bounded(bytes: Vec<u8>) -> Result<Token, TokenError> {
        if bytes.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLarge);
        }
        Ok(Token(Zeroizing::new(bytes)))
    }

    fn opened(&self) -> Result<UnverifiedBiscuit, TokenError> {
        UnverifiedBiscuit::from(&*self.0)
            .map_err(|_| TokenError::Malformed("its blocks cannot be read"))
    }
}

impl std::str::FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        if text.len() > PREFIX.len() + MAX_TOKEN_BYTES / 3 * 4 + 4 {
            return Err(TokenError::Malformed("it is too large"));
        }
        let code =
            text.strip_prefix(PREFIX).ok_or(TokenError::Malformed("grants begin with rwg_"))?;
        let bytes = URL_SAFE_NO_PAD
            .decode(code)
            .map_err(|_| TokenError::Malformed("a part of it is missing or changed"))?;
        Token::from_bytes(&bytes)
    }
}

fn check_lists(lists: &Lists<'_>) -> Result<(), TokenError> {
    if lists.longest() > MAX_ENTRIES { Err(TokenError::TooManyEntries) } else { Ok(()) }
}

/// Bounds a token before anything of it is parsed: its size, and how many blocks its outermost
/// message has. Fields are numbered in the token's schema; blocks after the first are field 3.
fn check_shape(bytes: &[u8]) -> Result<(), TokenError> {
    const BLOCKS: u64 = 3;
    const CUT: TokenError = TokenError::Malformed("a part of it is missing or changed");
    if bytes.is_empty() || bytes.len() > MAX_TOKEN_BYTES {
        return Err(TokenError::Malformed("it is empty or too large"));
    }
    let (mut rest, mut blocks) = (bytes, 1);
    while !rest.is_empty() {
        let (tag, after) = varint(rest).ok_or(CUT)?;
        let skipped = match tag & 7 {
            0 => varint(after).ok_or(CUT)?.1,
            2 => {
                let (length, content) = varint(after).ok_or(CUT)?;
                let length = usize::try_from(length).map_err(|_| CUT)?;
                content.get(length..).ok_or(CUT)?
            }
            _ => return Err(CUT),
        };
        if tag >> 3 == BLOCKS {
            blocks += 1;
            if blocks > MAX_BLOCKS {
                return Err(TokenError::Malformed("it has too many blocks"));
            }
        }
        rest = skipped;
    }
    Ok(())
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f).checked_shl(7 * u32::try_from(at).ok()?)?;
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} bytes)", self.0.len())
    }
}

impl ElevationRequest {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<ElevationRequest, TokenError> {
        const WRONG: TokenError = TokenError::Malformed("it asks for no elevation");
        if bytes.len() > 1024 {
            return Err(WRONG);
        }
        ThirdPartyRequest::deserialize(bytes).map_err(|_| WRONG)?;
        Ok(ElevationRequest(bytes.to_vec()))
    }

    /// Signs what a person has said yes to.
    pub fn sign(
        &self,
        key: &SecretKey,
        elevation: &Elevation,
    ) -> Result<SignedElevation, TokenError> {
        let request = ThirdPartyRequest::deserialize(&self.0).map_err(make)?;
        request
            .create_block(&key.pair().map_err(make)?.private(), elevation.build().map_err(make)?)
            .and_then(|block| block.serialize())
            .map(SignedElevation)
            .map_err(make)
    }
}

impl SignedElevation {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// From a record whose origin has been verified.
    pub fn from_verified_record(bytes: Vec<u8>) -> SignedElevation {
        SignedElevation(bytes)
    }
}

impl GrantId {
    pub(crate) fn of(signature: &[u8]) -> GrantId {
        let mut id = [0; 16];
        id.copy_from_slice(&Sha256::digest(signature)[..16]);
        GrantId(id)
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrantId({self})")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid grant id {0:?}: expected 32 hexadecimal digits, see `ringwall grant ls`")]
pub struct GrantIdError(String);

impl std::str::FromStr for GrantId {
    type Err = GrantIdError;

    fn from_str(text: &str) -> Result<GrantId, GrantIdError> {
        let wrong = || GrantIdError(text.chars().take(64).collect());
        hex::decode_array(text).map(GrantId).ok_or_else(wrong)
    }
}

impl From<GrantId> for String {
    fn from(id: GrantId) -> String {
        id.to_string()
    }
}

impl serde::Serialize for GrantId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for GrantId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<GrantId, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
