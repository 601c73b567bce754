//! Across processes: an elevation is used once, and a process that is killed leaves an approval
//! pending or decided.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod common;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use common::{World, action, once, request, rule};
use ringwall_approval::{Answer, ApprovalId, Approvals, Approver, State, UseError, Verdict};
use ringwall_grant::{Authority, SecretKey, Token};

/// This test's own program, as another process that does the other half of the test.
fn half(test: &str, world: &World, more: &[(&str, String)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env("RINGWALL_TEST_HOME", world.home.path());
    command.envs(more.iter().map(|(name, value)| (*name, value.as_str())));
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn other_half() -> Option<PathBuf> {
    std::env::var_os("RINGWALL_TEST_HOME").map(PathBuf::from)
}

fn approver(key: &SecretKey) -> Approver {
    Approver {
        name: common::name("alice"),
        groups: vec![common::name("oncall")],
        key: key.public(),
    }
}

#[test]
fn of_many_processes_that_use_it_at_once_one_does() {
    if let Some(home) = other_half() {
        let token: Token = std::env::var("RINGWALL_TEST_TOKEN").unwrap().parse().unwrap();
        let key = std::env::var("RINGWALL_TEST_APPROVER").unwrap().parse().unwrap();
        let approvers =
            [Approver { name: common::name("alice"), groups: vec![common::name("oncall")], key }];
        let authority = Authority::open(&home).unwrap();
        let approvals = Approvals::open(&home).unwrap();
        let rule = once();
        let used = approvals.authorize(
            &authority.verifier(),
            &token,
            &request(),
            &action(),
            (&rule, &approvers),
            false,
        );
        match used {
            Ok(_) => println!("\nresult: used"),
            Err(UseError::AlreadyUsed(_)) => println!("\nresult: refused"),
            Err(error) => println!("\nresult: {error}"),
        }
        return;
    }
    let world = World::new();
    let (_, token) = world.elevated(&once());
    let more = [
        ("RINGWALL_TEST_TOKEN", token.to_text().to_string()),
        ("RINGWALL_TEST_APPROVER", world.alice.public().to_string()),
    ];
    let name = "of_many_processes_that_use_it_at_once_one_does";
    let children: Vec<Child> = (0..8).map(|_| half(name, &world, &more).spawn().unwrap()).collect();
    let said: Vec<String> = children
        .into_iter()
        .map(|child| {
            let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
            output
                .lines()
                .find_map(|line| line.strip_prefix("result: "))
                .unwrap_or(&output)
                .to_owned()
        })
        .collect();
    let count = |what: &str| said.iter().filter(|one| *one == what).count();
    assert_eq!((count("used"), count("refused")), (1, 7), "{said:?}");
}

/// A child decides one approval after the other and is killed somewhere in the next. Each of them must
/// then be whole: pending, and good to decide; or decided, and good to use.
#[test]
fn a_process_that_is_killed_leaves_nothing_half_done() {
    if let Some(home) = other_half() {
        let path = PathBuf::from(std::env::var_os("RINGWALL_TEST_KEY").unwrap());
        let key = SecretKey::load(&path).unwrap();
        let approvals = Approvals::open(&home).unwrap();
        let (rule, approvers) = (rule(), [approver(&key)]);
        println!("\ndone");
        for id in std::env::var("RINGWALL_TEST_IDS").unwrap().split(' ') {
            let answer = Answer {
                verdict: Verdict::Approve { lasting: None },
                reason: "yes",
                key: &key,
                approvers: &approvers,
                rule: &rule,
                presented: &[],
            };
            approvals.decide(&id.parse().unwrap(), &answer, SystemTime::now()).unwrap();
            println!("done");
        }
        return;
    }
    let world = World::new();
    let key_file = world.home.path().join("alice.key");
    world.alice.store_new(&key_file).unwrap();
    let numbered = |round: usize, number: usize| {
        let mut action = action();
        action.incarnation = format!("{round} {number}");
        action
    };
    for round in 0..6 {
        let asked =
            |number| world.ask_of(&world.token, &numbered(round, number), &rule()).unwrap().id;
        let ids: Vec<ApprovalId> = (0..5).map(asked).collect();
        let list: Vec<_> = ids.iter().map(ApprovalId::as_str).collect();
        let more = [
            ("RINGWALL_TEST_KEY", key_file.display().to_string()),
            ("RINGWALL_TEST_IDS", list.join(" ")),
        ];
        let name = "a_process_that_is_killed_leaves_nothing_half_done";
        let mut child = half(name, &world, &more).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told =
            lines.filter(|line| line.as_ref().is_ok_and(|line| line == "done")).take(1 + round % 5);
        assert_eq!(told.count(), 1 + round % 5);
        // Another point of the next decision in each round.
        std::thread::sleep(Duration::from_micros(300 * round as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(world.approvals.list(SystemTime::now()).unwrap().broken.is_empty());
        let mut decided = 0;
        for (number, id) in ids.iter().enumerate() {
            match world.approvals.get(id, SystemTime::now()).unwrap().state {
                State::Pending => drop(world.approve(id, &rule())),
                State::Approved(_) => decided += 1,
                other => panic!("{other:?}"),
            }
            let token = world.approvals.elevate(&world.token, id, SystemTime::now()).unwrap();
            world.go(&token, &numbered(round, number), &rule()).unwrap();
        }
        assert!(
            decided >= round % 5,
            "what was told to be done was not: {decided} in round {round}"
        );
    }
}
