//! From a refused request to an elevation and back, and all the ways to get one that was not given.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod common;

use std::time::Duration;

use common::{World, action, edit, mint, name, once, request, rule};
use ringwall_approval::{
    Action, Answer, ApprovalId, Approver, AskError, DecideError, Difference, ElevateError,
    ElevationRule, MAX_PENDING_OF_TASK, MAX_PENDING_OF_TENANT, Permit, RecordError, State,
    UseError, Verdict, Wanted, Why,
};
use ringwall_grant::{Ask, Basis, Narrowing, Reason, Request, Rights, SecretKey, TokenError};

const YES: Verdict = Verdict::Approve { lasting: None };

#[test]
fn an_approved_action_goes_ahead_until_its_time_is_up_and_then_the_old_rights_are_back() {
    let world = World::new();
    let refused = world.go(&world.token, &action(), &rule()).unwrap_err();
    assert!(matches!(refused, UseError::Refused(no) if matches!(no.reason, Reason::NotGranted(_))));
    let id = world.ask(&rule());
    assert!(matches!(world.approvals.get(&id, world.now()).unwrap().state, State::Pending));
    let decided = world.approve(&id, &rule());
    assert_eq!(decided.decision.approver, "alice");
    let token = world.approvals.elevate(&world.token, &id, world.now()).unwrap();
    for first in [true, false, false] {
        let authorized = world.go(&token, &action(), &rule()).unwrap();
        assert_eq!(authorized.allowed.basis, Basis::Elevation);
        let used = authorized.used.unwrap();
        assert_eq!((used.id, used.first, used.once), (id.clone(), first, false));
    }
    assert_eq!(world.approvals.holding(world.now()).unwrap().len(), 1);
    assert!(world.approvals.returned(world.now()).unwrap().is_empty());

    world.later(900);
    let no = world.go(&token, &action(), &rule()).unwrap_err();
    assert!(
        matches!(no, UseError::Refused(no) if matches!(no.reason, Reason::ElevationEnded { .. }))
    );
    let grep = Request::new("t-1", "acme", Ask::Tool { name: "grep".to_owned() });
    world.verifier.check(&token, &grep).unwrap();
    assert!(world.approvals.holding(world.now()).unwrap().is_empty());
    let returned = world.approvals.returned(world.now()).unwrap();
    assert_eq!(returned.len(), 1);
    assert_eq!((&returned[0].decision, &returned[0].why), (&decided.decision, &Why::Time));
    assert!(world.approvals.returned(world.now()).unwrap().is_empty(), "told once");
}

#[test]
fn an_elevation_can_be_ended_before_its_time() {
    let world = World::new();
    let (id, token) = world.elevated(&rule());
    world.approvals.end(&id, "task done", world.now()).unwrap();
    assert!(matches!(world.go(&token, &action(), &rule()), Err(UseError::NotApproved(_, "over"))));
    let returned = world.approvals.returned(world.now()).unwrap();
    assert_eq!(returned[0].why, Why::Ended("task done".to_owned()));
    assert!(world.approvals.end(&id, "again", world.now()).is_err());
}

#[test]
fn a_no_is_a_no() {
    let world = World::new();
    let id = world.ask(&rule());
    let decided = world.answer(&id, &world.alice, &rule(), Verdict::Deny).unwrap();
    assert!(!decided.decision.approved);
    let elevated = world.approvals.elevate(&world.token, &id, world.now());
    assert!(matches!(elevated, Err(ElevateError::NotApproved(_, "denied"))));
    let again = world.answer(&id, &world.alice, &rule(), YES);
    assert!(matches!(again, Err(DecideError::AlreadyDecided(_, "denied", by)) if by == "alice"));
}

#[test]
fn any_other_action_is_refused_and_the_difference_is_named() {
    let world = World::new();
    let (id, token) = world.elevated(&rule());
    type Change = fn(&mut Action);
    let changes: [(Difference, Change); 6] = [
        (Difference::Parameters, |action| {
            action.parameters.insert("size".to_owned(), "2".to_owned());
        }),
        (Difference::Parameters, |action| action.parameters.clear()),
        (Difference::Sandbox, |action| action.sandbox = "other".to_owned()),
        (Difference::Incarnation, |action| action.incarnation = "2".to_owned()),
        (Difference::Action, |action| action.action = "write".to_owned()),
        (Difference::Resource, |action| action.resource = "- b.example:443".to_owned()),
    ];
    for (difference, change) in changes {
        let mut other = action();
        change(&mut other);
        match world.go(&token, &other, &rule()) {
            Err(UseError::OtherAction { id: named, what }) => {
                assert_eq!((named, what), (id.clone(), difference))
            }
            other => panic!("{difference}: {other:?}"),
        }
    }
    world.go(&token, &action(), &rule()).unwrap();
}

#[test]
fn an_approval_is_of_one_token() {
    let world = World::new();
    let id = world.ask(&rule());
    world.approve(&id, &rule());
    let other = mint(&world.authority);
    let narrowed = world.token.narrow(&Narrowing::default()).unwrap();
    for token in [&other, &narrowed] {
        let elevated = world.approvals.elevate(token, &id, world.now());
        assert!(matches!(elevated, Err(ElevateError::OtherToken(_))));
    }
    let token = world.approvals.elevate(&world.token, &id, world.now()).unwrap();
    world.authority.revoke(&world.token.ids().unwrap()).unwrap();
    let no = world.go(&token, &action(), &rule()).unwrap_err();
    assert!(matches!(no, UseError::Refused(no) if matches!(no.reason, Reason::Revoked(_))));
}

#[test]
fn what_is_single_use_is_used_once() {
    let world = World::new();
    let (_, token) = world.elevated(&once());
    assert!(world.go(&token, &action(), &once()).unwrap().used.unwrap().first);
    assert!(matches!(world.go(&token, &action(), &once()), Err(UseError::AlreadyUsed(_))));
}

#[test]
fn each_of_two_approvals_of_the_same_is_used_once() {
    let world = World::new();
    let (first, token) = world.elevated(&once());
    // Asked with the grant that is elevated already.
    let asked = world.ask_of(&token, &action(), &once()).unwrap();
    let shorter = Verdict::Approve { lasting: Some(Duration::from_secs(60)) };
    world.answer(&asked.id, &world.alice, &once(), shorter).unwrap();
    let token = world.approvals.elevate(&token, &asked.id, world.now()).unwrap();
    let used = |_| world.go(&token, &action(), &once()).unwrap().used.unwrap().id;
    assert_eq!([0, 1].map(used), [first, asked.id]);
    assert!(matches!(world.go(&token, &action(), &once()), Err(UseError::AlreadyUsed(_))));
}

#[test]
fn of_many_threads_that_use_it_at_once_one_does() {
    let world = World::new();
    let (_, token) = world.elevated(&once());
    let used: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| usize::from(world.go(&token, &action(), &once()).is_ok())))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(used, 1);
}

#[test]
fn an_elevation_that_is_not_needed_is_not_used_up() {
    let world = World::new();
    let (_, token) = world.elevated(&once());
    let grep = Request::new("t-1", "acme", Ask::Tool { name: "grep".to_owned() });
    let action = Action::of(&grep, [].into(), "box", "1");
    let approvers = world.approvers();
    let rules = [once()];
    let go = || {
        let policy = (&rules[0], approvers.as_slice());
        world.approvals.authorize(&world.verifier, &token, &grep, &action, policy, false)
    };
    assert_eq!(go().unwrap().used, None);
    world.go(&token, &common::action(), &once()).unwrap();
}

#[test]
fn policy_may_ask_for_an_elevation_of_what_the_grant_allows() {
    let world = World::new();
    let grep = Request::new("t-1", "acme", Ask::Tool { name: "grep".to_owned() });
    let action = Action::of(&grep, [].into(), "box", "1");
    let (rules, approvers) = ([once()], world.approvers());
    let go = |token| {
        let policy = (&rules[0], approvers.as_slice());
        world.approvals.authorize(&world.verifier, token, &grep, &action, policy, true)
    };
    // The caller sees that there is none.
    assert_eq!(go(&world.token).unwrap().used, None);
    let asked = world
        .approvals
        .ask(&world.verifier, &world.token, &grep, &action, &rules[0], None)
        .unwrap();
    world.approve(&asked.id, &rules[0]);
    let token = world.approvals.elevate(&world.token, &asked.id, world.now()).unwrap();
    assert!(go(&token).unwrap().used.is_some());
    assert!(matches!(go(&token), Err(UseError::AlreadyUsed(_))));
}

#[test]
fn only_who_the_rule_names_decides() {
    let world = World::new();
    let id = world.ask(&rule());
    let stranger = SecretKey::generate().unwrap();
    for verdict in [YES, Verdict::Deny] {
        let wrong = world.answer(&id, &stranger, &rule(), verdict);
        assert!(matches!(wrong, Err(DecideError::WrongKey(_))), "{wrong:?}");
        let not = world.answer(&id, &world.bob, &rule(), verdict);
        assert!(matches!(not, Err(DecideError::NotAnApprover { .. })), "{not:?}");
    }
    let other_rule = ElevationRule { name: common::name("ci"), ..rule() };
    let other = world.answer(&id, &world.alice, &other_rule, YES);
    assert!(matches!(other, Err(DecideError::OtherRule { .. })));
    assert!(matches!(world.approvals.get(&id, world.now()).unwrap().state, State::Pending));
}

#[test]
fn whoever_asks_does_not_decide() {
    let world = World::new();
    let key = SecretKey::generate().unwrap();
    // The requester's own key, though policy should name it an approver.
    let asked = world
        .approvals
        .ask(&world.verifier, &world.token, &request(), &action(), &rule(), Some(key.public()))
        .unwrap();
    let approver = |who: &str, key: &SecretKey| Approver {
        name: common::name(who),
        groups: vec![common::name("oncall")],
        key: key.public(),
    };
    // And its name: the holder of the grant is called agent.
    let approvers = [approver("mallory", &key), approver("agent", &world.bob)];
    let decide = |key: &SecretKey, presented: &[_]| {
        let rule = rule();
        let answer = Answer {
            verdict: YES,
            reason: "me",
            key,
            approvers: &approvers,
            rule: &rule,
            presented,
        };
        world.approvals.decide(&asked.id, &answer, world.now())
    };
    assert!(matches!(decide(&key, &[]), Err(DecideError::SelfApproval(_))));
    assert!(matches!(decide(&world.bob, &[]), Err(DecideError::SelfApproval(_))));
    // A call that carries the grant, one made from it, or any other.
    let narrowed = world.token.narrow(&Narrowing::default()).unwrap();
    for token in [&world.token, &narrowed] {
        let carried = decide(&world.alice, &token.ids().unwrap());
        assert!(matches!(carried, Err(DecideError::SelfApproval(_))));
    }
    let other = mint(&world.authority);
    assert!(matches!(decide(&world.alice, &other.ids().unwrap()), Err(DecideError::WithGrant)));
}

#[test]
fn deciding_cannot_be_approved() {
    let world = World::new();
    let pending = world.ask(&rule());
    let tool =
        Request::new("t-1", "acme", Ask::Tool { name: "ringwall.approvals.approve".to_owned() });
    let parameters = [("id".to_owned(), pending.to_string())].into();
    let approve = Action::of(&tool, parameters, "box", "1");
    let asked = world.approvals.ask(&world.verifier, &world.token, &tool, &approve, &rule(), None);
    assert!(matches!(asked, Err(AskError::Action(_))), "{asked:?}");
}

#[test]
fn an_elevation_lasts_no_longer_than_policy_and_the_grant_allow() {
    let world = World::new();
    let id = world.ask(&rule());
    let lasting = |seconds| Verdict::Approve { lasting: Some(Duration::from_secs(seconds)) };
    let long = world.answer(&id, &world.alice, &rule(), lasting(901));
    assert!(matches!(long, Err(DecideError::TooLong { most: 900, .. })));
    let none = world.answer(&id, &world.alice, &rule(), lasting(0));
    assert!(matches!(none, Err(DecideError::TooShort)));
    // Policy became stricter after the question, or laxer: the stricter counts.
    let shorter = ElevationRule { max: Duration::from_secs(60), ..rule() };
    assert!(world.answer(&id, &world.alice, &shorter, lasting(61)).is_err());
    let longer = ElevationRule { max: Duration::from_secs(9999), ..rule() };
    assert!(world.answer(&id, &world.alice, &longer, lasting(901)).is_err());
    world.later(3000);
    let decided = world.answer(&id, &world.alice, &rule(), lasting(900)).unwrap();
    assert_eq!(decided.decision.until_unix, decided.asked.expires_unix);
}

#[test]
fn a_question_that_nobody_answered_lapses() {
    let world = World::new();
    let id = world.ask(&rule());
    world.later(3700);
    let late = world.answer(&id, &world.alice, &rule(), YES);
    assert!(matches!(late, Err(DecideError::Lapsed(_))));
    assert!(matches!(world.approvals.get(&id, world.now()).unwrap().state, State::Lapsed));
}

#[test]
fn a_flood_of_questions_is_refused() {
    let world = World::new();
    let numbered = |number: usize| {
        let mut action = action();
        action.parameters.insert("n".to_owned(), number.to_string());
        action
    };
    for number in 0..MAX_PENDING_OF_TASK {
        world.ask_of(&world.token, &numbered(number), &rule()).unwrap();
    }
    let more = world.ask_of(&world.token, &numbered(99), &rule());
    assert!(matches!(more, Err(AskError::TaskFlood)), "{more:?}");
    // The same question again is the same approval.
    let again = world.ask_of(&world.token, &numbered(3), &rule()).unwrap();
    assert_eq!(world.approvals.list(world.now()).unwrap().approvals.len(), MAX_PENDING_OF_TASK);
    world.answer(&again.id, &world.alice, &rule(), Verdict::Deny).unwrap();
    world.ask_of(&world.token, &numbered(99), &rule()).unwrap();
}

#[test]
fn a_tenant_does_not_take_the_questions_of_another() {
    let world = World::new();
    let ask_as = |task: &str, tenant: &str, number: usize| {
        let rights = Rights::none(name(task), name(tenant), name("agent"));
        let token = world.authority.mint(&rights, Duration::from_secs(3600)).unwrap().token;
        let request = Request::new(task, tenant, request().ask);
        let parameters = [("n".to_owned(), number.to_string())].into();
        let action = Action::of(&request, parameters, "box", "1");
        world.approvals.ask(&world.verifier, &token, &request, &action, &rule(), None)
    };
    for number in 0..MAX_PENDING_OF_TASK {
        ask_as("release", "mallory", number).unwrap();
    }
    assert!(matches!(ask_as("release", "mallory", 99), Err(AskError::TaskFlood)));
    ask_as("release", "acme", 0).unwrap();
    // With tasks of all names, and in the name of a tenant that is written like the task.
    for number in MAX_PENDING_OF_TASK..MAX_PENDING_OF_TENANT {
        ask_as(&format!("t-{number}"), "mallory", number).unwrap();
    }
    assert!(matches!(ask_as("another", "mallory", 0), Err(AskError::TenantFlood)));
    ask_as("another", "release", 0).unwrap();
    ask_as("release", "acme", 1).unwrap();
}

#[test]
fn an_approver_who_is_the_holder_under_one_of_its_names_does_not_decide() {
    let world = World::new();
    let id = world.ask(&rule());
    let approver = |who: &str| Approver {
        name: name(who),
        groups: vec![name("oncall")],
        key: world.alice.public(),
    };
    for names in [["agent", "ann"], ["ann", "agent"]] {
        let (approvers, rule) = (names.map(approver), rule());
        let answer = Answer {
            verdict: YES,
            reason: "me",
            key: &world.alice,
            approvers: &approvers,
            rule: &rule,
            presented: &[],
        };
        let decided = world.approvals.decide(&id, &answer, world.now());
        assert!(matches!(decided, Err(DecideError::SelfApproval(_))), "{decided:?}");
    }
}

#[test]
fn only_what_an_elevation_could_help_is_asked() {
    let world = World::new();
    let sealed = world.token.seal().unwrap();
    let asked = world.ask_of(&sealed, &action(), &rule());
    assert!(matches!(asked, Err(AskError::Token(TokenError::Sealed))));
    let without = Narrowing { endpoints: Some([].into()), ..Narrowing::default() };
    let narrowed = world.token.narrow(&without).unwrap();
    let asked = world.ask_of(&narrowed, &action(), &rule());
    assert!(
        matches!(asked, Err(AskError::Refused(no)) if matches!(no.reason, Reason::Narrowed { .. }))
    );
    let other = Action { task: "t-2".to_owned(), ..action() };
    let asked = world.ask_of(&world.token, &other, &rule());
    assert!(matches!(asked, Err(AskError::OtherTask { .. })));
    assert!(world.approvals.list(world.now()).unwrap().approvals.is_empty());
}

fn forged(result: Result<impl std::fmt::Debug, UseError>) {
    match result {
        Err(UseError::Record(RecordError::Forged(_))) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_edited_record_is_worth_nothing() {
    let world = World::new();
    let (id, token) = world.elevated(&once());
    let (request, decision) = (world.file(&id, "request"), world.file(&id, "decision"));
    let keep = |path: &std::path::Path| (path.to_owned(), std::fs::read(path).unwrap());
    let whole = [keep(&request), keep(&decision)];
    for (path, from, to) in [
        (&request, "\"size\":\"1\"", "\"size\":\"2\""),
        (&request, "\"max_seconds\":900", "\"max_seconds\":9000"),
        (&decision, "\"once\":true", "\"once\":false"),
        (&decision, "\"until_unix\":", "\"until_unix\":9"),
        (&decision, "looks right", "looks fine!"),
        (&decision, "alice", "carol"),
    ] {
        edit(path, from, to);
        forged(world.go(&token, &action(), &once()));
        assert!(world.approvals.get(&id, world.now()).is_err());
        assert_eq!(world.approvals.list(world.now()).unwrap().broken.len(), 1);
        whole.iter().for_each(|(path, content)| std::fs::write(path, content).unwrap());
    }
    world.go(&token, &action(), &once()).unwrap();
}

#[test]
fn a_record_does_not_stand_for_another() {
    let world = World::new();
    let (yes, token) = world.elevated(&rule());
    let mut other = action();
    other.parameters.clear();
    let id = world.ask_of(&world.token, &other, &rule()).unwrap().id;
    std::fs::copy(world.file(&yes, "decision"), world.file(&id, "decision")).unwrap();
    let elevated = world.approvals.elevate(&world.token, &id, world.now());
    assert!(matches!(elevated, Err(ElevateError::Record(RecordError::Forged(_)))));
    // Without its records an elevation in a token is worth nothing either.
    std::fs::remove_file(world.file(&yes, "decision")).unwrap();
    assert!(matches!(
        world.go(&token, &action(), &rule()),
        Err(UseError::NotApproved(_, "pending"))
    ));
    std::fs::remove_file(world.file(&yes, "request")).unwrap();
    assert!(matches!(world.go(&token, &action(), &rule()), Err(UseError::Record(_))));
}

#[test]
fn a_record_from_another_home_is_forged() {
    let (world, other) = (World::new(), World::new());
    let id = other.ask(&rule());
    std::fs::copy(other.file(&id, "request"), world.file(&id, "request")).unwrap();
    let answer = world.answer(&id, &world.alice, &rule(), YES);
    assert!(matches!(answer, Err(DecideError::Record(RecordError::Forged(_)))));
}

/// Who has the seal's key, but no approver's, writes a yes: the signature is missing, or by a key that
/// policy does not name.
#[test]
fn a_decision_by_a_key_that_policy_does_not_name_gives_nothing() {
    let world = World::new();
    let id = world.ask(&rule());
    let mallory = SecretKey::generate().unwrap();
    let approvers =
        [Approver { name: common::name("carol"), groups: Vec::new(), key: mallory.public() }];
    let rule = rule();
    let answer = Answer {
        verdict: YES,
        reason: "mine",
        key: &mallory,
        approvers: &approvers,
        rule: &rule,
        presented: &[],
    };
    world.approvals.decide(&id, &answer, world.now()).unwrap();
    let token = world.approvals.elevate(&world.token, &id, world.now()).unwrap();
    // Policy as it is: carol has no such key.
    let no = world.go(&token, &action(), &rule).unwrap_err();
    assert!(matches!(no, UseError::Refused(no) if matches!(no.reason, Reason::NotGranted(_))));
}

#[test]
fn two_people_at_once_make_one_decision() {
    let world = World::new();
    for _ in 0..8 {
        let mut action = action();
        action.incarnation = format!("{:?}", std::time::Instant::now());
        let id = world.ask_of(&world.token, &action, &rule()).unwrap().id;
        let done: usize = std::thread::scope(|scope| {
            let people: Vec<_> = [YES, Verdict::Deny, YES, Verdict::Deny]
                .into_iter()
                .map(|verdict| {
                    let (world, id) = (&world, &id);
                    scope.spawn(move || world.answer(id, &world.alice, &rule(), verdict).is_ok())
                })
                .collect();
            people.into_iter().map(|person| usize::from(person.join().unwrap())).sum()
        });
        assert_eq!(done, 1);
    }
}

#[test]
fn a_reason_is_needed_and_bounded() {
    let world = World::new();
    let id = world.ask(&rule());
    let approvers = world.approvers();
    for reason in ["", "  ", &"x".repeat(3000)] {
        let rule = rule();
        let answer = Answer {
            verdict: YES,
            reason,
            key: &world.alice,
            approvers: &approvers,
            rule: &rule,
            presented: &[],
        };
        let decided = world.approvals.decide(&id, &answer, world.now());
        assert!(matches!(decided, Err(DecideError::Reason)));
    }
}

#[test]
fn an_id_is_never_a_path() {
    for bad in ["", "apr-", "apr-../../keys", "apr-0123456789AB", "x", "apr-0123456789ab/"] {
        assert!(bad.parse::<ApprovalId>().is_err(), "{bad}");
    }
}

#[test]
fn whoever_enforces_asks_once_and_then_uses_what_was_given_to_this_grant_alone() {
    let world = World::new();
    let (request, action, rule, approvers) = (request(), action(), once(), world.approvers());
    let wanted = Wanted { request: &request, action: &action, rule: &rule, approvers: &approvers };
    let go = |token| world.approvals.use_or_ask(&world.verifier, token, wanted).unwrap();
    let asked = |permit| match permit {
        Permit::Asked(asked) => asked.id,
        Permit::Used(used) => panic!("used {}", used.id),
    };
    let id = asked(go(&world.token));
    assert_eq!(asked(go(&world.token)), id, "one question");
    let other = mint(&world.authority);
    let others = asked(go(&other));
    assert_ne!(others, id);
    world.approve(&id, &rule);
    assert_eq!(asked(go(&other)), others, "it was given to another grant");
    assert!(matches!(go(&world.token), Permit::Used(used) if used.id == id && used.once));
    let again = asked(go(&world.token));
    assert!(again != id && again != others, "it was used up");
}
