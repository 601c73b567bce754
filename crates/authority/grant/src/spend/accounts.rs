//! Whose budgets there are: of grants, which carry theirs, and of tenants, whose stand in a file.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SpendError;
use crate::names::Name;
use crate::rights::Budget;
use crate::token::{GrantId, GrantIdError};

const TENANTS_FILE: &str = "tenants.json";
const MOST_TENANTS_BYTES: u64 = 1 << 20;
const GRANT: &str = "grant:";
const TENANT: &str = "tenant:";

/// Who pays.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Account {
    Grant(GrantId),
    Tenant(String),
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Account::Grant(id) => write!(f, "{GRANT}{id}"),
            Account::Tenant(name) => write!(f, "{TENANT}{name}"),
        }
    }
}

impl From<Account> for String {
    fn from(account: Account) -> String {
        account.to_string()
    }
}

impl TryFrom<String> for Account {
    type Error = GrantIdError;

    /// An id alone is a grant's: it was written down before tenants had accounts.
    fn try_from(text: String) -> Result<Account, GrantIdError> {
        match text.strip_prefix(TENANT) {
            Some(name) => Ok(Account::Tenant(name.to_owned())),
            None => text.strip_prefix(GRANT).unwrap_or(&text).parse().map(Account::Grant),
        }
    }
}

/// What tenants may spend, as the owner of this home has written it down.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tenants {
    every: Budget,
    named: BTreeMap<String, Budget>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    #[serde(default)]
    every: BTreeMap<String, u64>,
    #[serde(default)]
    tenants: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Tenants {
    pub(super) fn read(home: &Path) -> Result<Tenants, SpendError> {
        let path = home.join(TENANTS_FILE);
        let mut text = Vec::new();
        let read = std::fs::File::open(&path)
            .and_then(|file| file.take(MOST_TENANTS_BYTES + 1).read_to_end(&mut text));
        match read {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Tenants::default()),
            Err(error) => Err(wrong(&path, error.to_string())),
            Ok(_) if text.len() as u64 > MOST_TENANTS_BYTES => {
                Err(wrong(&path, format!("it is longer than {MOST_TENANTS_BYTES} bytes")))
            }
            Ok(_) => Tenants::parse(&text).map_err(|why| wrong(&path, why)),
        }
    }

    fn parse(text: &[u8]) -> Result<Tenants, String> {
        // An object by name: a list would do for the derived reader, too.
        let object: serde_json::Map<String, Value> =
            serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let words = Words::deserialize(Value::Object(object)).map_err(|error| error.to_string())?;
        let mut named = BTreeMap::new();
        for (name, parts) in &words.tenants {
            name.parse::<Name>().map_err(|error| error.to_string())?;
            named.insert(name.clone(), budget(parts)?);
        }
        Ok(Tenants { every: budget(&words.every)?, named })
    }

    /// What is said of a tenant by its name counts before what is said of every one.
    pub(super) fn budget(&self, tenant: &str) -> Option<Budget> {
        let own = self.named.get(tenant).copied().unwrap_or_default();
        let budget = own.or(self.every);
        (budget != Budget::default()).then_some(budget)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.named.keys()
    }
}

fn budget(parts: &BTreeMap<String, u64>) -> Result<Budget, String> {
    let mut budget = Budget::default();
    for (name, most) in parts {
        if !budget.set(name, *most) {
            return Err(format!("there is no budget of {name:?}"));
        }
    }
    Ok(budget)
}

fn wrong(path: &Path, why: String) -> SpendError {
    SpendError::Tenants { path: PathBuf::from(path), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_what_its_name_says_and_else_what_every_one_has() {
        let text = br#"{"every": {"calls": 5, "tokens": 9}, "tenants": {"acme": {"calls": 7}}}"#;
        let tenants = Tenants::parse(text).unwrap();
        let acme = Budget { calls: Some(7), tokens: Some(9), ..Budget::default() };
        assert_eq!(tenants.budget("acme"), Some(acme));
        let other = Budget { calls: Some(5), tokens: Some(9), ..Budget::default() };
        assert_eq!(tenants.budget("other"), Some(other));
        assert_eq!(Tenants::default().budget("acme"), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_not_taken_for_no_budget() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(Tenants::read(home.path()).unwrap(), Tenants::default());
        for text in [
            "",
            "[]",
            r#"{"every": {"token": 5}}"#,
            r#"{"everyone": {}}"#,
            r#"{"tenants": {"a": {"tokens": -1}}}"#,
            r#"{"tenants": {"": {"tokens": 1}}}"#,
        ] {
            std::fs::write(home.path().join(TENANTS_FILE), text).unwrap();
            let error = Tenants::read(home.path()).unwrap_err();
            assert!(error.to_string().contains(TENANTS_FILE), "{text}: {error}");
        }
    }

    #[test]
    fn an_account_is_one_word_and_an_id_alone_is_a_grants() {
        let id = GrantId::of(b"x");
        for account in [Account::Grant(id), Account::Tenant("acme: a".to_owned())] {
            assert_eq!(Account::try_from(account.to_string()), Ok(account));
        }
        assert_eq!(Account::try_from(id.to_string()), Ok(Account::Grant(id)));
        assert!(Account::try_from("grant:x".to_owned()).is_err());
    }
}
