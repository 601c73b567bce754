//! Permits on their way to another process of the same home.
//!
//! A sealed permit is for one sandbox and one purpose. The keeper that opens it has drawn the id of its
//! sandbox itself, just before, so a permit that was used already is one for another sandbox.

use std::time::SystemTime;

use blake3::Hash;
use ringwall_spec::{Decided, Invalid, SandboxId, SandboxSpec, validate};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::caller::{CallerName, Payer};
use crate::issue::{Permit, PermitExpired};
use crate::key::SealKey;

const MAC_BYTES: usize = blake3::OUT_LEN;

/// What the process that opens a permit does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Raises the sandbox.
    Raise,
    /// Gives a sandbox that was kept ready to the caller.
    Take,
}

/// The one use that a sealed permit is good for.
#[derive(Debug, Clone, Copy)]
pub struct SealedFor<'a> {
    pub sandbox: &'a SandboxId,
    pub purpose: Purpose,
}

#[derive(Debug, thiserror::Error)]
#[error("the permit cannot be written down")]
pub struct SealError(#[source] serde_json::Error);

#[derive(Debug, thiserror::Error)]
pub enum OpenSealError {
    #[error("the permit was changed, or sealed with another home's key; create the sandbox again")]
    Forged,
    #[error("the permit is for another sandbox, or was used already; create the sandbox again")]
    OtherUse,
    #[error(transparent)]
    Expired(#[from] PermitExpired),
    #[error("the permit is of another version of Ringwall; create the sandbox again")]
    Unreadable(#[source] serde_json::Error),
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// All that is under the seal.
#[derive(Serialize, Deserialize)]
struct Sealed<T> {
    sandbox: SandboxId,
    purpose: Purpose,
    spec: SandboxSpec,
    decided: Option<Decided>,
    caller: CallerName,
    account: Payer,
    record: Option<u64>,
    until_unix_ms: Option<u64>,
    with: T,
}

impl SealKey {
    /// Seals a permit for one use, together with what else that use needs.
    pub fn seal<T: Serialize>(
        &self,
        permit: &Permit,
        used: SealedFor<'_>,
        with: &T,
    ) -> Result<Vec<u8>, SealError> {
        let sealed = Sealed {
            sandbox: used.sandbox.clone(),
            purpose: used.purpose,
            spec: permit.spec().clone(),
            decided: permit.decided().cloned(),
            caller: permit.caller.clone(),
            account: permit.account.clone(),
            record: permit.record,
            until_unix_ms: permit.until_unix_ms,
            with,
        };
        let mut bytes = vec![0; MAC_BYTES];
        serde_json::to_writer(&mut bytes, &sealed).map_err(SealError)?;
        let (mac, body) = bytes.split_at_mut(MAC_BYTES);
        mac.copy_from_slice(blake3::keyed_hash(&self.0, body).as_bytes());
        Ok(bytes)
    }

    /// Opens a permit that was sealed for exactly this use and has not expired. Nothing of it is read
    /// before its seal was checked.
    pub fn open_permit<T: DeserializeOwned>(
        &self,
        sealed: &[u8],
        used: SealedFor<'_>,
        now: SystemTime,
    ) -> Result<(Permit, T), OpenSealError> {
        let (mac, body) = sealed.split_first_chunk::<MAC_BYTES>().ok_or(OpenSealError::Forged)?;
        // Hashes are compared in constant time.
        if blake3::keyed_hash(&self.0, body) != Hash::from_bytes(*mac) {
            return Err(OpenSealError::Forged);
        }
        let sealed: Sealed<T> = serde_json::from_slice(body).map_err(OpenSealError::Unreadable)?;
        if sealed.sandbox != *used.sandbox || sealed.purpose != used.purpose {
            return Err(OpenSealError::OtherUse);
        }
        let permit = Permit {
            spec: validate(sealed.spec)?,
            decided: sealed.decided.map(Box::new),
            caller: sealed.caller,
            account: sealed.account,
            record: sealed.record,
            until_unix_ms: sealed.until_unix_ms,
        };
        permit.check(now)?;
        Ok((permit, sealed.with))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use ringwall_spec::{RingKind, Wall};

    use super::*;
    use crate::caller::SystemCaller;
    use crate::issue::Issued;

    const KEY: SealKey = SealKey([7; 32]);
    const NOW: SystemTime = UNIX_EPOCH;

    fn permit() -> Permit {
        let mut spec = SandboxSpec::new(Wall::single(RingKind::Process));
        spec.limits.memory_bytes = 123 << 20;
        Permit::issue(Issued {
            spec: validate(spec).unwrap(),
            decided: Some(Decided {
                rules: vec!["trust-levels.low (ringwall.toml:3)".to_owned()],
                kind: Some("build".to_owned()),
                ..Decided::default()
            }),
            caller: CallerName::Holder { grant: "g1".to_owned() },
            account: Payer::Grant { ids: vec!["g1".to_owned()], tenant: "acme".to_owned() },
            record: Some(12),
            until: Some(NOW + Duration::from_millis(1500)),
        })
    }

    fn id(number: u8) -> SandboxId {
        SandboxId::from_random([number; 12])
    }

    fn raise(sandbox: &SandboxId) -> SealedFor<'_> {
        SealedFor { sandbox, purpose: Purpose::Raise }
    }

    fn sealed() -> Vec<u8> {
        KEY.seal(&permit(), raise(&id(1)), &"with").unwrap()
    }

    fn open(key: &SealKey, sealed: &[u8], used: SealedFor<'_>) -> Result<Permit, OpenSealError> {
        key.open_permit::<String>(sealed, used, NOW).map(|(permit, _)| permit)
    }

    #[test]
    fn what_is_opened_is_what_was_sealed() {
        let (opened, with): (Permit, String) =
            KEY.open_permit(&sealed(), raise(&id(1)), NOW).unwrap();
        assert_eq!((opened, with.as_str()), (permit(), "with"));
        assert_eq!(permit().rules(), ["trust-levels.low (ringwall.toml:3)"]);
        assert_eq!((permit().kind(), permit().record()), ("build", Some(12)));
    }

    #[test]
    fn a_permit_in_which_any_bit_was_changed_is_refused() {
        let whole = sealed();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                let opened = open(&KEY, &changed, raise(&id(1)));
                assert!(matches!(opened, Err(OpenSealError::Forged)), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_permit_that_was_cut_or_has_more_behind_it_is_refused() {
        let whole = sealed();
        for length in 0..whole.len() {
            let opened = open(&KEY, &whole[..length], raise(&id(1)));
            assert!(matches!(opened, Err(OpenSealError::Forged)), "{length} bytes");
        }
        let opened = open(&KEY, &[&whole[..], b" "].concat(), raise(&id(1)));
        assert!(matches!(opened, Err(OpenSealError::Forged)));
    }

    #[test]
    fn the_spec_of_another_permit_does_not_fit_under_a_seal() {
        let mut spec = permit().spec().clone();
        spec.limits.memory_bytes *= 2;
        let wider = Permit { spec: validate(spec).unwrap(), ..permit() };
        let wider = KEY.seal(&wider, raise(&id(1)), &"with").unwrap();
        let swapped = [&sealed()[..MAC_BYTES], &wider[MAC_BYTES..]].concat();
        let opened = open(&KEY, &swapped, raise(&id(1)));
        assert!(matches!(opened, Err(OpenSealError::Forged)));
    }

    #[test]
    fn another_homes_key_opens_nothing() {
        let opened = open(&SealKey([8; 32]), &sealed(), raise(&id(1)));
        assert!(matches!(opened, Err(OpenSealError::Forged)));
        let plain = blake3::hash(&sealed()[MAC_BYTES..]);
        let without_key = [plain.as_bytes(), &sealed()[MAC_BYTES..]].concat();
        let opened = open(&KEY, &without_key, raise(&id(1)));
        assert!(matches!(opened, Err(OpenSealError::Forged)));
    }

    #[test]
    fn a_permit_of_one_sandbox_is_none_for_another_nor_for_another_use() {
        let opened = open(&KEY, &sealed(), raise(&id(2)));
        assert!(matches!(opened, Err(OpenSealError::OtherUse)));
        let taken = SealedFor { sandbox: &id(1), purpose: Purpose::Take };
        assert!(matches!(open(&KEY, &sealed(), taken), Err(OpenSealError::OtherUse)));
        let to_take = KEY.seal(&permit(), taken, &"with").unwrap();
        let opened = open(&KEY, &to_take, raise(&id(1)));
        assert!(matches!(opened, Err(OpenSealError::OtherUse)));
    }

    #[test]
    fn a_permit_whose_time_is_over_is_refused_sealed_or_not() {
        let at = |ms| NOW + Duration::from_millis(ms);
        assert_eq!(permit().check(at(1499)), Ok(()));
        let expired = permit().check(at(3500)).unwrap_err();
        let told = "the permit of grant g1 expired 2 s ago, so nothing was raised; ask again";
        assert_eq!(expired.to_string(), told);
        assert!(permit().check(at(1500)).is_err());
        let opened = KEY.open_permit::<String>(&sealed(), raise(&id(1)), at(1500));
        assert!(matches!(opened, Err(OpenSealError::Expired(_))));
    }

    #[test]
    fn a_permit_without_an_end_does_not_expire() {
        let spec = permit().valid_spec().clone();
        let caller = CallerName::System(SystemCaller::Verify);
        assert_eq!(caller.to_string(), "verify");
        let (decided, record, until) = (None, None, None);
        let endless =
            Permit::issue(Issued { spec, decided, caller, account: Payer::Owner, record, until });
        assert_eq!(endless.check(NOW + Duration::from_secs(1 << 40)), Ok(()));
        assert_eq!((endless.kind(), endless.rules().len()), ("untrusted", 0));
    }
}
