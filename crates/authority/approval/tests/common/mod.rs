//! A home, a policy's approvers, and a request that is refused.
#![allow(dead_code, clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use ringwall_approval::{
    Action, Answer, ApprovalId, Approvals, Approver, AskError, AskedFor, Authorized, DecideError,
    Decided, ElevationRule, UseError, Verdict,
};
use ringwall_grant::{Ask, Authority, Name, Request, Rights, SecretKey, Token, Verifier};

pub(crate) struct World {
    pub(crate) home: tempfile::TempDir,
    pub(crate) authority: Authority,
    pub(crate) verifier: Verifier,
    pub(crate) approvals: Approvals,
    pub(crate) clock: Arc<Mutex<SystemTime>>,
    /// May approve, by group.
    pub(crate) alice: SecretKey,
    /// Is an approver, but not of this.
    pub(crate) bob: SecretKey,
    pub(crate) token: Token,
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn rule() -> ElevationRule {
    ElevationRule {
        name: name("net"),
        approvers: vec![name("group:oncall"), name("carol")],
        max: Duration::from_secs(900),
        single_use: false,
    }
}

pub(crate) fn once() -> ElevationRule {
    ElevationRule { single_use: true, ..rule() }
}

pub(crate) fn request() -> Request {
    let ask = Ask::Connect { host: "a.example".to_owned(), port: 443, method: None };
    Request::new("t-1", "acme", ask)
}

pub(crate) fn action() -> Action {
    let parameters: BTreeMap<_, _> = [("size".to_owned(), "1".to_owned())].into();
    Action::of(&request(), parameters, "box", "1")
}

pub(crate) fn mint(authority: &Authority) -> Token {
    let mut rights = Rights::none(name("t-1"), name("acme"), name("agent"));
    rights.tools = ["grep".parse().unwrap()].into();
    authority.mint(&rights, Duration::from_secs(3600)).unwrap().token
}

impl World {
    pub(crate) fn new() -> World {
        let home = tempfile::tempdir().unwrap();
        let authority = Authority::open(home.path()).unwrap();
        let clock = Arc::new(Mutex::new(SystemTime::now()));
        let shown = Arc::clone(&clock);
        let verifier = authority.verifier().with_clock(move || *shown.lock().unwrap());
        let approvals = Approvals::open(home.path()).unwrap();
        let token = mint(&authority);
        let key = || SecretKey::generate().unwrap();
        World { home, authority, verifier, approvals, clock, alice: key(), bob: key(), token }
    }

    pub(crate) fn approvers(&self) -> Vec<Approver> {
        let approver = |who: &str, group: &str, key: &SecretKey| Approver {
            name: name(who),
            groups: vec![name(group)],
            key: key.public(),
        };
        vec![approver("alice", "oncall", &self.alice), approver("bob", "other", &self.bob)]
    }

    pub(crate) fn now(&self) -> SystemTime {
        *self.clock.lock().unwrap()
    }

    pub(crate) fn later(&self, seconds: u64) {
        *self.clock.lock().unwrap() += Duration::from_secs(seconds);
    }

    pub(crate) fn ask_of(
        &self,
        token: &Token,
        action: &Action,
        rule: &ElevationRule,
    ) -> Result<AskedFor, AskError> {
        self.approvals.ask(&self.verifier, token, &request(), action, rule, None)
    }

    pub(crate) fn ask(&self, rule: &ElevationRule) -> ApprovalId {
        self.ask_of(&self.token, &action(), rule).unwrap().id
    }

    pub(crate) fn answer(
        &self,
        id: &ApprovalId,
        key: &SecretKey,
        rule: &ElevationRule,
        verdict: Verdict,
    ) -> Result<Decided, DecideError> {
        let approvers = self.approvers();
        let answer = Answer {
            verdict,
            reason: "looks right",
            key,
            approvers: &approvers,
            rule,
            presented: &[],
        };
        self.approvals.decide(id, &answer, self.now())
    }

    pub(crate) fn approve(&self, id: &ApprovalId, rule: &ElevationRule) -> Decided {
        self.answer(id, &self.alice, rule, Verdict::Approve { lasting: None }).unwrap()
    }

    /// Asked, approved and put into the token.
    pub(crate) fn elevated(&self, rule: &ElevationRule) -> (ApprovalId, Token) {
        let id = self.ask(rule);
        self.approve(&id, rule);
        let token = self.approvals.elevate(&self.token, &id, self.now()).unwrap();
        (id, token)
    }

    pub(crate) fn go(
        &self,
        token: &Token,
        action: &Action,
        rule: &ElevationRule,
    ) -> Result<Authorized, UseError> {
        let approvers = self.approvers();
        let policy = (rule, approvers.as_slice());
        self.approvals.authorize(&self.verifier, token, &request(), action, policy, false)
    }

    pub(crate) fn file(&self, id: &ApprovalId, kind: &str) -> std::path::PathBuf {
        self.home.path().join(format!("approvals/{id}.{kind}"))
    }
}

pub(crate) fn edit(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(path, text.replace(from, to)).unwrap();
}
