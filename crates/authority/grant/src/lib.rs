//! Grants: what the holder of a token may do.
//!
//! A grant is minted with a root key, narrowed by its holder without any key, checked at every
//! enforcement point without a call home, and revoked by id, at once. People and callers deal in
//! [`Rights`], [`Narrowing`] and [`Request`]; the logic in the token is generated from those, and a
//! token with any other logic in it is refused.

mod authority;
mod block;
mod cache;
mod fact;
mod keys;
mod names;
mod network;
mod records;
mod request;
mod revocations;
mod rights;
mod spend;
mod token;
mod verify;

pub use authority::{Authority, AuthorityError, DEFAULT_LIFETIME, MAX_LIFETIME, Minted};
pub use block::Elevation;
pub use keys::{KeyError, PublicKey, PublicKeyError, SecretKey};
pub use names::{
    Endpoint, Hosts, MAX_NAME_BYTES, MAX_PATH_BYTES, Name, NameError, Subtree, ToolPattern,
};
pub use records::Record;
pub use request::{ActionHash, Ask, Request, Sought, TrustedApprovers};
pub use revocations::{Revocations, RevocationsError};
pub use rights::{Budget, Dimension, MAX_ENTRIES, Narrowing, Rights};
pub use spend::{Account, Cost, Held, Left, Reserved, SpendError, Spending, Spent};
pub use token::{
    ElevationRequest, GrantId, GrantIdError, MAX_BLOCKS, MAX_TOKEN_BYTES, SignedElevation, Token,
    TokenError,
};
pub use verify::{Allowed, Basis, Inspected, Reason, Refused, SeenElevation, Standing, Verifier};
