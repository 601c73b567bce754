//! Machine files, jobs, verdicts and the page, without a machine. Tests that boot are `make lab`'s.

use std::path::{Path, PathBuf};

use ringwall_linux::host::support;

use crate::job::{self, Job};
use crate::judge::judge;
use crate::machine::{self, Machine, User};
use crate::message::JobReport;
use crate::results::{JobResult, MachineResults, Outcome, Results};
use crate::{disk, emulator, lab, page};

const MACHINE: &str =
    "about = \"A machine.\"\nkernel = \"6.1\"\ncgroups = \"v2\"\nruns = [\"one\"]\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn one_job() -> Vec<Job> {
    vec![Job::parse("one", "about = \"x\"\nscript = \"true\"").expect("a job")]
}

fn machine_with(more: &str) -> anyhow::Result<Machine> {
    Machine::parse("m", &format!("{MACHINE}{more}"), &one_job())
}

fn error_with(more: &str) -> String {
    format!("{:#}", machine_with(more).expect_err("must be refused"))
}

fn report(code: i32, output: &str) -> JobReport {
    JobReport { code: Some(code), timed_out: false, output: output.to_owned(), millis: 1 }
}

#[test]
fn every_machine_and_job_of_the_repository_is_valid() {
    let jobs = job::read_all(&root().join("tests/lab/jobs")).expect("jobs");
    let machines = machine::read_all(&root().join("tests/lab/machines"), &jobs).expect("machines");
    assert!(machines.iter().any(|machine| machine.ci));
    for job in &jobs {
        let runs = |machine: &Machine| machine.runs.contains(&job.name);
        assert!(machines.iter().any(runs), "no machine runs {}", job.name);
    }
}

/// What the table of `ringwall-linux` promises from its oldest kernel on is tried in CI on that kernel.
/// Emulated twice, a microVM takes more than the two minutes that a guest has to boot: the machine `kvm` runs them.
#[test]
fn every_wall_of_the_table_is_tried_on_the_oldest_kernel_for_both_users() {
    let jobs = job::read_all(&root().join("tests/lab/jobs")).expect("jobs");
    let machines = machine::read_all(&root().join("tests/lab/machines"), &jobs).expect("machines");
    let oldest = support::OLDEST_TESTED.to_string();
    for row in support::table().iter().filter(|row| row.wall != support::Wall::Vm) {
        let (job, user) = (row.wall.name(), user_of(row.user));
        let tries = |machine: &&Machine| {
            let expected = machine.runs.iter().any(|name| name == job)
                && machine.users.contains(&user)
                && machine.refusal(job, user).is_none();
            machine.ci && machine.kernel == oldest && expected
        };
        assert!(machines.iter().any(|it| tries(&it)), "no machine tries {job} as {user:?}");
    }
}

#[test]
fn no_machine_has_a_kernel_that_the_table_does_not_speak_of() {
    let jobs = job::read_all(&root().join("tests/lab/jobs")).expect("jobs");
    let machines = machine::read_all(&root().join("tests/lab/machines"), &jobs).expect("machines");
    let numbers = |kernel: &str| -> Option<support::Version> {
        let (major, minor) = kernel.split_once('.')?;
        Some(support::Version(major.parse().ok()?, minor.parse().ok()?))
    };
    let versions: Vec<_> = machines.iter().filter_map(|it| numbers(&it.kernel)).collect();
    assert!(versions.len() > 10, "{versions:?}");
    assert!(versions.iter().all(|version| *version >= support::OLDEST_TESTED), "{versions:?}");
}

fn user_of(user: support::User) -> User {
    match user {
        support::User::Root => User::Root,
        support::User::Ordinary => User::User,
    }
}

#[test]
fn an_unknown_key_is_refused_by_file_and_key() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("wrong.toml");
    std::fs::write(&path, format!("{MACHINE}procesors = 2\n")).expect("a file");
    let error = machine::read_all(directory.path(), &one_job()).expect_err("must be refused");
    let error = format!("{error:#}");
    assert!(error.contains("wrong.toml") && error.contains("procesors"), "{error}");
}

#[test]
fn an_unknown_key_of_a_job_or_a_refusal_is_refused() {
    let error = Job::parse("j", "about = \"x\"\nscript = \"true\"\ntimeout = 3").expect_err("bad");
    assert!(error.to_string().contains("timeout"), "{error}");
    let error = error_with("[[refused]]\njob = \"one\"\nas = \"root\"\nsays = \"no\"\nwhy = \"x\"");
    assert!(error.contains("why"), "{error}");
}

#[test]
fn machines_name_only_jobs_and_users_that_run_there() {
    let error = format!("{:#}", Machine::parse("m", MACHINE, &[]).expect_err("no such job"));
    assert!(error.contains("\"one\""), "{error}");
    let refusal = "users = [\"root\"]\n[[refused]]\njob = \"one\"\nas = \"user\"\nsays = \"no\"";
    assert!(error_with(refusal).contains("does not run on this machine"));
}

#[test]
fn words_for_shells_and_command_lines_are_plain() {
    for line in [
        "command_line = \"a'; reboot\"",
        "proc_options = \"$(id)\"",
        "lsms = [\"a b\\nc\"]",
        "sysctls = { \"a\" = \"`id`\" }",
    ] {
        assert!(error_with(line).contains("invalid value"), "{line}");
    }
    assert!(error_with("memory_mib = 1").contains("256 MiB"));
}

#[test]
fn what_a_machine_file_says_reaches_the_emulator_and_the_guest() {
    let machine = machine_with(
        "lsms = [\"yama\"]\nclock = \"1970-01-01T00:01:00\"\nmodules = [\"kvm_amd\"]\nmemory_mib = 512\nproc_options = \"hidepid=2\"",
    )
    .expect("valid");
    let place = PathBuf::from("/x");
    let parts = emulator::Parts {
        qemu: place.clone(),
        kernel: place.clone(),
        initramfs: place.clone(),
        root_disk: place.clone(),
        lab_disk: place.clone(),
        console: place,
    };
    let words = emulator::arguments(&machine, &parts, 7).join(" ");
    for part in ["-m 512", "lsm=yama", "lab.modules=kvm_amd", "base=1970-01-01T00:01:00", "fd=7"] {
        assert!(words.contains(part), "{part} is not in {words}");
    }
    assert!(disk::settings(&machine).contains("PROC_OPTIONS='hidepid=2'"));
}

#[test]
fn jobs_are_handed_out_for_the_users_that_machine_and_job_share() {
    let jobs = vec![
        Job::parse("one", "about = \"x\"\nscript = \"true\"\nusers = [\"user\"]").expect("a job"),
    ];
    let machine = Machine::parse("m", MACHINE, &jobs).expect("valid");
    let plan: Vec<User> = lab::plan(&machine, &jobs).iter().map(|(_, user)| *user).collect();
    assert_eq!(plan, [User::User]);
}

#[test]
fn a_refusal_counts_only_with_its_words() {
    let refusal = "[[refused]]\njob = \"one\"\nas = \"user\"\nsays = \"sysctl -w\"";
    let machine = machine_with(refusal).expect("valid");
    let job = &one_job()[0];
    let outcome = |user, report: &JobReport| judge(&machine, job, user, report).outcome;
    assert_eq!(outcome(User::Root, &report(0, "")), Outcome::Works);
    assert_eq!(outcome(User::Root, &report(125, "ringwall: sysctl -w")), Outcome::Fails);
    assert_eq!(outcome(User::User, &report(125, "fix: sysctl -w x=1")), Outcome::Refused);
    assert_eq!(outcome(User::User, &report(125, "something else")), Outcome::Fails);
    assert_eq!(outcome(User::User, &report(0, "sysctl -w")), Outcome::NotRefused);
    let late = JobReport { timed_out: true, ..report(1, "sysctl -w") };
    assert_eq!(outcome(User::User, &late), Outcome::Fails);
}

fn results_of(machine: &str, release: &str, jobs: Vec<JobResult>) -> MachineResults {
    MachineResults {
        machine: machine.to_owned(),
        about: "A machine.".to_owned(),
        kernel: "6.1".to_owned(),
        release: release.to_owned(),
        jobs,
    }
}

fn result(user: User, outcome: Outcome, reason: &str) -> JobResult {
    JobResult { job: "one".to_owned(), user, outcome, reason: reason.to_owned() }
}

#[test]
fn newer_results_replace_those_of_the_same_machine_only() {
    let of = |machine, release| results_of(machine, release, Vec::new());
    let mut kept = Results { machines: vec![of("a", "1"), of("b", "1")] };
    kept.merge(&Results { machines: vec![of("b", "2")] });
    assert_eq!(kept.machines, [of("a", "1"), of("b", "2")]);
}

#[test]
fn results_that_the_machine_file_no_longer_expects_are_named_as_not_run() {
    let works = |user| result(user, Outcome::Works, "");
    let kept = |jobs| Results { machines: vec![results_of("m", "6.1.0", jobs)] };
    let outcomes = |kept: &Results, machine: &Machine| -> Vec<Outcome> {
        let fitted = kept.fit(std::slice::from_ref(machine), &one_job());
        fitted.machines[0].jobs.iter().map(|job| job.outcome).collect()
    };
    let both = kept(vec![works(User::Root), works(User::User)]);
    let machine = machine_with("").expect("valid");
    assert_eq!(both.fit(std::slice::from_ref(&machine), &one_job()), both);
    assert_eq!(outcomes(&both, &machine), [Outcome::Works; 2]);
    // A user came to the file, the machine has another kernel, or it has no results at all.
    let root_only = kept(vec![works(User::Root)]);
    assert_eq!(outcomes(&root_only, &machine), [Outcome::Works, Outcome::NotRun]);
    let newer = Machine { kernel: "6.12".to_owned(), ..machine.clone() };
    assert_eq!(outcomes(&both, &newer), [Outcome::NotRun; 2]);
    assert_eq!(outcomes(&Results::default(), &machine), [Outcome::NotRun; 2]);
    // The refusal has other words now.
    let refusal =
        "users = [\"user\"]\n[[refused]]\njob = \"one\"\nas = \"user\"\nsays = \"sysctl\"";
    let refusing = machine_with(refusal).expect("valid");
    let refused = |reason| kept(vec![result(User::User, Outcome::Refused, reason)]);
    assert_eq!(outcomes(&refused("do: sysctl -w"), &refusing), [Outcome::Refused]);
    assert_eq!(outcomes(&refused("no"), &refusing), [Outcome::NotRun]);
    assert_eq!(outcomes(&both, &refusing), [Outcome::NotRun]);
    // And results of machines without a file go.
    assert!(both.fit(&[], &one_job()).machines.is_empty());
}

#[test]
fn what_the_time_of_the_lab_does_not_suffice_for_has_failed() {
    let place = tempfile::tempdir().expect("a directory");
    std::fs::write(place.path().join("recipe"), "x").expect("a file");
    let somewhere = || place.path().join("nothing");
    let sources = disk::Sources {
        programs: somewhere(),
        agent: somewhere(),
        apparmor: somewhere(),
        scripts: somewhere(),
        image: somewhere(),
        guest_kernels: somewhere(),
    };
    let mut lab = lab::Lab::open(place.path(), &place.path().join("out"), sources).expect("a lab");
    lab.end = Some(std::time::Instant::now());
    let machine = machine_with("").expect("valid");
    let results = lab.run_machine(&machine, &one_job()).expect("results");
    let failed = |job: &JobResult| !job.outcome.is_expected() && job.reason.contains("time of the");
    assert!(!results.jobs.is_empty() && results.jobs.iter().all(failed), "{results:?}");
}

#[test]
fn the_page_shows_every_outcome_with_its_reason() {
    let refused = result(User::User, Outcome::Refused, "because");
    let machines = vec![
        results_of("m", "6.12.95-amd64", vec![refused]),
        results_of("n", "not run", vec![result(User::Root, Outcome::NotRun, "")]),
    ];
    let page = page::render(&Results { machines }, &one_job());
    assert!(page.contains("| one | - | refused |"), "{page}");
    assert!(page.contains("- one as user: `because`"), "{page}");
    assert!(page.contains("| one | not run | - |"), "{page}");
    assert!(page.contains("| not run | A machine. | 1 not run | - |"), "{page}");
}

#[test]
fn the_page_says_what_the_table_of_kernels_says_about_each_machine() {
    let page = |release| {
        page::render(&Results { machines: vec![results_of("m", release, Vec::new())] }, &[])
    };
    let last = support::DIFFERENCES.last().expect("a difference").below;
    let before = |text: &str| format!("(kernels.md#differences) before {text} apply.");
    assert!(page("6.12.95+deb12-amd64").contains(&before(&last.to_string())), "{last}");
    assert!(page("7.2.13").contains("every feature of [the table](kernels.md#differences)"));
    assert!(!page("unknown").contains("kernels.md#differences"));
}

#[test]
fn the_page_of_hosts_is_made_from_the_kept_results() {
    let jobs = job::read_all(&root().join("tests/lab/jobs")).expect("jobs");
    let page = std::fs::read_to_string(root().join("docs/reference/hosts.md")).expect("the page");
    assert_eq!(page, page::render(&kept_results(), &jobs), "make it again with: make hosts-page");
}

fn kept_results() -> Results {
    Results::read(&root().join("docs/reference/hosts/results.json")).expect("kept results")
}

#[test]
fn every_pair_of_machine_and_job_has_a_result_or_is_named_as_not_run() {
    let jobs = job::read_all(&root().join("tests/lab/jobs")).expect("jobs");
    let machines = machine::read_all(&root().join("tests/lab/machines"), &jobs).expect("machines");
    let kept = kept_results();
    let fitted = kept.fit(&machines, &jobs);
    let is_stale = |it: &&MachineResults| !kept.machines.contains(it);
    let stale: Vec<&str> =
        fitted.machines.iter().filter(is_stale).map(|it| it.machine.as_str()).collect();
    assert!(kept == fitted, "run these in the lab, and then `make hosts-page`: {stale:?}");
    for (machine, results) in machines.iter().zip(&kept.machines) {
        for result in &results.jobs {
            // CI runs its machines every time, so they have results.
            let told =
                result.outcome.is_expected() || (result.outcome == Outcome::NotRun && !machine.ci);
            assert!(told, "{}: {result:?}", machine.name);
        }
    }
}

#[test]
fn a_full_disk_is_named_where_results_are_written() {
    let error = Results::default().write(Path::new("/dev/full")).expect_err("a full disk");
    let error = format!("{error:#}");
    assert!(error.contains("/dev/full") && error.contains("No space left"), "{error}");
}
