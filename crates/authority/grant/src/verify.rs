//! Checking a grant at an enforcement point. No call home: keys, the list of revoked grants and the
//! clock are all it needs.

mod logic;
mod refusal;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use biscuit_auth::Biscuit;

use crate::authority::unix;
use crate::block::{Authority, Elevation};
use crate::cache::Cache;
use crate::keys::PublicKey;
use crate::request::{Request, Sought};
use crate::revocations::Revocations;
use crate::rights::{Budget, Narrowing, Rights};
use crate::token::{GrantId, Token};

pub use refusal::{Reason, Refused};

/// Tokens that are kept parsed.
const CACHED_TOKENS: usize = 1024;

type Clock = Box<dyn Fn() -> SystemTime + Send + Sync>;

/// Checks grants. One for each process; it can be shared by threads.
pub struct Verifier {
    keys: Vec<(u32, PublicKey)>,
    revocations: Revocations,
    clock: Clock,
    cache: Cache<Verified>,
}

/// A token whose signatures are good and whose blocks are of our form.
#[derive(Debug)]
struct Verified {
    biscuit: Biscuit,
    authority: Authority,
    /// With the number of their block.
    narrowings: Vec<(usize, Narrowing)>,
    elevations: Vec<(usize, PublicKey, Elevation)>,
    ids: Vec<GrantId>,
}

/// What a request may go ahead with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    pub grant: Standing,
    pub basis: Basis,
    /// An elevation for exactly this action that holds now, also where the grant alone suffices:
    /// policy may ask for it.
    pub elevation: Option<SeenElevation>,
}

/// A grant that is good at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Of all its blocks; the last is the grant's own.
    pub ids: Vec<GrantId>,
    pub task: String,
    pub tenant: String,
    pub holder: String,
    pub expires_unix: u64,
    /// The least of what its blocks say, for all calls under each of its ids together.
    pub budget: Budget,
}

impl Standing {
    /// How long it is good yet.
    pub fn life(&self, now: SystemTime) -> Duration {
        let ends = UNIX_EPOCH + Duration::from_secs(self.expires_unix);
        ends.duration_since(now).unwrap_or_default()
    }

    /// Of all its blocks, in words: who looks for one that was revoked finds it here.
    pub fn all_ids(&self) -> String {
        self.ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }
}

/// Why a request is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The grant itself has the right.
    Grant,
    /// Only the elevation gives it.
    Elevation,
}

/// An elevation in a token, with the approver who signed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenElevation {
    pub elevation: Elevation,
    pub approver: PublicKey,
}

/// A grant for people to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    pub standing: Standing,
    pub rights: Rights,
    pub narrowings: Vec<Narrowing>,
    /// What each of its blocks says may be spent under its id, where it says so.
    pub budgets: Vec<(GrantId, Budget)>,
    pub elevations: Vec<SeenElevation>,
    pub sealed: bool,
    /// Why it is of no use now, if it is not.
    pub refused: Option<Refused>,
}

impl Inspected {
    /// Where it lets be written, block by block: what is in every list.
    pub fn writable(&self) -> impl Iterator<Item = Vec<&Path>> {
        let narrowed = self.narrowings.iter().filter_map(|narrowing| narrowing.write.as_ref());
        let lists = narrowed.chain([&self.rights.write]);
        lists.map(|list| list.iter().map(|subtree| Path::new(subtree.as_str())).collect())
    }
}

impl Verifier {
    /// Root keys by number; two can be active at once.
    pub fn new(keys: Vec<(u32, PublicKey)>, revocations: Revocations) -> Verifier {
        let cache = Cache::new(CACHED_TOKENS);
        Verifier { keys, revocations, clock: Box::new(SystemTime::now), cache }
    }

    /// With another clock than the system's.
    pub fn with_clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    pub fn now(&self) -> SystemTime {
        (self.clock)()
    }

    /// Decides one request. The typed rights are looked at first, for the sake of a good answer; then
    /// the token's own logic. Both must allow it.
    pub fn check(&self, token: &Token, request: &Request) -> Result<Allowed, Refused> {
        let now = unix(self.now());
        let verified = self.verified(token)?;
        let grant = self.standing(&verified, request, now)?;
        let elevation = request.sought.as_ref().and_then(|sought| verified.elevation(sought, now));
        let basis = match (verified.authority.rights.lists().refuse(&request.ask), &elevation) {
            (None, _) => Basis::Grant,
            (Some(_), Some(_)) => Basis::Elevation,
            (Some(dimension), None) => {
                let ended = request
                    .sought
                    .as_ref()
                    .and_then(|sought| verified.elevation(sought, 0))
                    .map(|seen| seen.elevation.until);
                return Err(Refused::not_granted(&request.ask, dimension, ended));
            }
        };
        let by = elevation.as_ref().filter(|_| basis == Basis::Elevation);
        logic::authorize(&verified.biscuit, request, by, now)?;
        Ok(Allowed { grant, basis, elevation })
    }

    /// Whether an approver's elevation could make the request good: all that a check looks at, but
    /// not the rights of the first block.
    pub fn check_elevatable(&self, token: &Token, request: &Request) -> Result<Standing, Refused> {
        self.standing(&*self.verified(token)?, request, unix(self.now()))
    }

    /// What a grant says, if its signatures are good.
    pub fn inspect(&self, token: &Token) -> Result<Inspected, Refused> {
        let verified = self.verified(token)?;
        let current = self.current(&verified, unix(self.now()));
        Ok(Inspected {
            standing: verified.standing(),
            rights: verified.authority.rights.clone(),
            narrowings: verified
                .narrowings
                .iter()
                .map(|(_, narrowing)| narrowing.clone())
                .collect(),
            budgets: verified.budgets(),
            elevations: verified.elevations.iter().map(SeenElevation::of).collect(),
            sealed: verified.biscuit.container().proof.is_sealed(),
            refused: current.err(),
        })
    }

    /// The grant is good now, is for this task, and no narrowing is in the way.
    fn standing(
        &self,
        verified: &Verified,
        request: &Request,
        now: u64,
    ) -> Result<Standing, Refused> {
        request.ask.validate().map_err(Refused::request)?;
        self.current(verified, now)?;
        let rights = &verified.authority.rights;
        if rights.tenant.as_str() != request.tenant {
            return Err(Refused::other("tenant", rights.tenant.as_str(), &request.tenant));
        }
        if rights.task.as_str() != request.task {
            return Err(Refused::other("task", rights.task.as_str(), &request.task));
        }
        for (block, narrowing) in &verified.narrowings {
            if let Some(dimension) = narrowing.lists().refuse(&request.ask) {
                return Err(Refused::narrowed(&request.ask, dimension, *block));
            }
        }
        Ok(verified.standing())
    }

    /// Not revoked, and not expired.
    fn current(&self, verified: &Verified, now: u64) -> Result<(), Refused> {
        match self.revocations.find(&verified.ids, now) {
            Err(error) => return Err(Refused::revocations(&error)),
            Ok(Some(id)) => return Err(Refused::revoked(id)),
            Ok(None) => {}
        }
        let expires = verified.expires();
        if now >= expires { Err(Refused::expired(expires)) } else { Ok(()) }
    }

    fn verified(&self, token: &Token) -> Result<Arc<Verified>, Refused> {
        self.cache.get_or(token.as_bytes(), || Verified::parse(token, &self.keys))
    }
}

impl Verified {
    fn parse(token: &Token, keys: &[(u32, PublicKey)]) -> Result<Verified, Refused> {
        let choose = |number: Option<u32>| {
            let key = keys.iter().find(|(own, _)| Some(*own) == number).map(|(_, key)| *key);
            key.ok_or(biscuit_auth::error::Format::UnknownPublicKey)?.to_biscuit()
        };
        let biscuit = Biscuit::from(token.as_bytes(), choose).map_err(|error| match error {
            biscuit_auth::error::Token::Format(biscuit_auth::error::Format::UnknownPublicKey) => {
                Refused::unknown_key()
            }
            _ => Refused::signature(),
        })?;
        // A grant has one spelling: what readers pass over is not signed, and two spellings of one
        // grant would be two to whoever compares bytes.
        if !biscuit.to_vec().is_ok_and(|spelt| spelt == token.as_bytes()) {
            return Err(Refused::signature());
        }
        let printed =
            |block| biscuit.print_block_source(block).map_err(|_| Refused::foreign(block));
        let authority = Authority::read(&printed(0)?).map_err(|_| Refused::foreign(0))?;
        let (mut narrowings, mut elevations) = (Vec::new(), Vec::new());
        for (block, key) in biscuit.external_public_keys().iter().enumerate().skip(1) {
            let foreign = || Refused::foreign(block);
            match key {
                None => {
                    let narrowing = Narrowing::read(&printed(block)?).map_err(|_| foreign())?;
                    narrowings.push((block, narrowing));
                }
                Some(key) => {
                    let key = PublicKey::of_biscuit(key).ok_or_else(foreign)?;
                    let elevation = Elevation::read(&printed(block)?).map_err(|_| foreign())?;
                    elevations.push((block, key, elevation));
                }
            }
        }
        let ids = biscuit.revocation_identifiers().iter().map(|id| GrantId::of(id)).collect();
        Ok(Verified { biscuit, authority, narrowings, elevations, ids })
    }

    fn expires(&self) -> u64 {
        let narrowed = self.narrowings.iter().filter_map(|(_, narrowing)| narrowing.expires);
        narrowed.fold(self.authority.expires, u64::min)
    }

    fn budgets(&self) -> Vec<(GrantId, Budget)> {
        let own = std::iter::once((0, self.authority.rights.budget));
        let narrowed = self.narrowings.iter().map(|(block, narrowing)| (*block, narrowing.budget));
        own.chain(narrowed)
            .filter(|(_, budget)| *budget != Budget::default())
            .filter_map(|(block, budget)| Some((*self.ids.get(block)?, budget)))
            .collect()
    }

    fn standing(&self) -> Standing {
        let rights = &self.authority.rights;
        let narrowed = || self.narrowings.iter().map(|(_, narrowing)| narrowing);
        let holder = narrowed().filter_map(|narrowing| narrowing.holder.as_ref()).next_back();
        Standing {
            ids: self.ids.clone(),
            task: rights.task.as_str().to_owned(),
            tenant: rights.tenant.as_str().to_owned(),
            holder: holder.unwrap_or(&rights.holder).as_str().to_owned(),
            expires_unix: self.expires(),
            budget: narrowed()
                .fold(rights.budget, |least, narrowing| least.least(narrowing.budget)),
        }
    }

    /// The elevation for this action that lasts longest, if it still holds then and its signer is one
    /// of those who may give it.
    fn elevation(&self, sought: &Sought, at: u64) -> Option<SeenElevation> {
        self.elevations
            .iter()
            .filter(|(_, key, elevation)| {
                let trusted = sought.trusted.iter().any(|trusted| {
                    trusted.elevation == elevation.name.as_str() && trusted.keys.contains(key)
                });
                trusted && elevation.action == sought.action && at < elevation.until
            })
            .max_by_key(|(_, _, elevation)| elevation.until)
            .map(SeenElevation::of)
    }
}

impl SeenElevation {
    fn of((_, approver, elevation): &(usize, PublicKey, Elevation)) -> SeenElevation {
        SeenElevation { elevation: elevation.clone(), approver: *approver }
    }
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("keys", &self.keys).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
