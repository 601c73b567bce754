//! Who is logged in to the page. All of it is in memory and ends with the daemon.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::problem::{Code, Problem};

pub(super) const COOKIE: &str = "ringwall_person";
/// How long a code waits for its person.
pub(crate) const CODE_LIFE: Duration = Duration::from_secs(120);
/// How long a person stays logged in.
pub(crate) const SESSION_LIFE: Duration = Duration::from_secs(3600);
/// Codes and sessions at once, each.
const MOST_PEOPLE: usize = 32;

/// Somebody who is logged in.
#[derive(Debug, Clone)]
pub(crate) struct Person {
    /// The file of the key with which this one signs.
    pub(super) key: PathBuf,
    /// The public part, to be shown.
    pub(super) public: String,
    /// Goes out with each form, and must come back with it.
    pub(super) token: String,
    session: blake3::Hash,
}

impl Person {
    /// Whether this came with a form of this session. The comparison takes the same time wherever the
    /// difference is.
    pub(super) fn sent(&self, token: &str) -> bool {
        blake3::hash(self.token.as_bytes()) == blake3::hash(token.as_bytes())
    }
}

/// By the hash of what people hold, so that looking one up tells nothing by its time.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    codes: Mutex<HashMap<blake3::Hash, (PathBuf, String, Instant)>>,
    people: Mutex<HashMap<blake3::Hash, (Person, Instant)>>,
}

impl Sessions {
    /// A code with which one person can log in once.
    pub(super) fn new_code(&self, key: PathBuf, public: String) -> Result<String, Problem> {
        let code = secret()?;
        let mut codes = lock(&self.codes);
        codes.retain(|_, (_, _, until)| *until > Instant::now());
        if codes.len() >= MOST_PEOPLE {
            return Err(Problem::new(Code::Busy, "too many codes wait to be used"));
        }
        let until = Instant::now() + CODE_LIFE;
        codes.insert(blake3::hash(code.as_bytes()), (key, public, until));
        Ok(code)
    }

    /// Uses a code up, and gives the session for it.
    pub(super) fn log_in(&self, code: &str) -> Option<String> {
        let (key, public, until) = lock(&self.codes).remove(&blake3::hash(code.as_bytes()))?;
        if until <= Instant::now() {
            return None;
        }
        let (session, token) = (secret().ok()?, secret().ok()?);
        let hash = blake3::hash(session.as_bytes());
        let mut people = lock(&self.people);
        people.retain(|_, (_, until)| *until > Instant::now());
        if people.len() >= MOST_PEOPLE {
            return None;
        }
        let person = Person { key, public, token, session: hash };
        people.insert(hash, (person, Instant::now() + SESSION_LIFE));
        Some(session)
    }

    pub(super) fn person(&self, session: &str) -> Option<Person> {
        let people = lock(&self.people);
        let (person, until) = people.get(&blake3::hash(session.as_bytes()))?;
        (*until > Instant::now()).then(|| person.clone())
    }

    pub(super) fn log_out(&self, person: &Person) {
        lock(&self.people).remove(&person.session);
    }
}

/// 256 bits that nobody can guess.
fn secret() -> Result<String, Problem> {
    ringwall_safekeeping::random_name::<32>()
        .map_err(|_| Problem::new(Code::Internal, "the system gave no random bytes"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_lets_one_person_in_once() {
        let sessions = Sessions::default();
        let code = sessions.new_code("/key".into(), "ed25519/0".to_owned()).unwrap();
        assert!(sessions.log_in("").is_none() && sessions.log_in("0").is_none());
        let session = sessions.log_in(&code).unwrap();
        assert!(sessions.log_in(&code).is_none(), "it was used");
        let person = sessions.person(&session).unwrap();
        assert!(person.sent(&person.token) && !person.sent("") && !person.sent(&session));
        assert!(sessions.person(&code).is_none(), "a code is no session");
        sessions.log_out(&person);
        assert!(sessions.person(&session).is_none());
    }

    #[test]
    fn there_is_an_end_to_codes() {
        let sessions = Sessions::default();
        let code = |_| sessions.new_code("/key".into(), String::new());
        assert_eq!((0..MOST_PEOPLE + 3).map(code).filter(Result::is_ok).count(), MOST_PEOPLE);
    }
}
