//! The text of the rules: the format, its mistakes, and that nothing in it is idle.

use super::{job_rules, table};
use crate::seccomp::source::{Check, Condition, Decision, Errno, Rules, SyscallTable, Test};

const SMALL_TABLE: &str = "# three calls\nread 0\nioctl 16\nclone 56\n";

fn parse(filter: &str) -> Result<Rules, String> {
    let table = SyscallTable::parse(SMALL_TABLE).unwrap();
    Rules::parse(filter, &table).map_err(|error| error.to_string())
}

#[test]
fn a_rule_is_a_comment_and_a_line_that_may_go_on_after_a_space() {
    let rules = parse("# why\nallow read\n    clone\n").unwrap();
    assert_eq!(rules.decision(0), Some(&Decision::Allow));
    assert_eq!(rules.decision(56), Some(&Decision::Allow));
    assert_eq!(rules.decision(16), None);
}

#[test]
fn a_list_may_go_on_after_a_comma() {
    let rules = parse("# why\nrefuse 5 ioctl when arg1 not-in 1,2,\n    3,\n    4\n").unwrap();
    let test = Test::NotIn { mask: u32::MAX, values: vec![1, 2, 3, 4] };
    let check = Check { errno: Errno(5), conditions: vec![Condition { argument: 1, test }] };
    assert_eq!(rules.decision(16), Some(&Decision::Check(vec![check])));
}

#[test]
fn conditions_and_definitions_are_read() {
    let rules = parse(
        "define FIVE 5\n# why\nrefuse FIVE ioctl when arg1 & 0xf not-in 1,FIVE and arg2 has 8\n",
    )
    .unwrap();
    let not_in = Test::NotIn { mask: 0xf, values: vec![1, 5] };
    let conditions = vec![
        Condition { argument: 1, test: not_in },
        Condition { argument: 2, test: Test::Has(8) },
    ];
    let check = Check { errno: Errno(5), conditions };
    assert_eq!(rules.decision(16), Some(&Decision::Check(vec![check])));
}

#[test]
fn a_call_is_skipped_only_under_a_condition_and_a_pointer_is_tested_whole() {
    let rules = parse("# why\nskip ioctl when arg1 in 7 and arg2 set\n").unwrap();
    let conditions = vec![
        Condition { argument: 1, test: Test::In { mask: u32::MAX, values: vec![7] } },
        Condition { argument: 2, test: Test::Set },
    ];
    let check = Check { errno: Errno(0), conditions };
    assert_eq!(rules.decision(16), Some(&Decision::Check(vec![check])));
    let told = parse("# why\nskip ioctl\n").unwrap_err();
    assert_eq!(told, "line 2: the line must read `skip CALL when TEST`");
    assert!(parse("# why\nskip ioctl when arg2 & 1 set\n").is_err());
}

#[test]
fn checks_of_one_call_add_up_in_their_order() {
    let rules =
        parse("# a\nrefuse 1 ioctl when arg1 in 7\n# b\nrefuse 2 ioctl when arg1 in 8\n").unwrap();
    let Some(Decision::Check(checks)) = rules.decision(16) else { panic!("{rules:?}") };
    assert_eq!(checks.iter().map(|check| check.errno).collect::<Vec<_>>(), [Errno(1), Errno(2)]);
}

#[test]
fn a_filter_on_top_of_another_says_so_once() {
    assert!(!parse("# why\nallow read\n").unwrap().on_top);
    let rules = parse("# why\notherwise allow\n# why\nrefuse 1 read\n").unwrap();
    assert!(rules.on_top);
    assert_eq!(rules.decision(0), Some(&Decision::Refuse(Errno(1))));
}

#[test]
fn mistakes_are_told_with_their_line() {
    let no_comment = "the rule has no comment; say why it is there on the line above";
    let mistakes = [
        ("allow read\n", format!("line 1: {no_comment}")),
        ("# why\n\nallow read\n", format!("line 3: {no_comment}")),
        ("# why\nallow read\nallow clone\n", format!("line 3: {no_comment}")),
        ("# why\npermit read\n", r#"line 2: "permit" is not known here"#.into()),
        ("# why\nallow raed\n", r#"line 2: no system call is named "raed""#.into()),
        ("# why\nallow read read\n", r#"line 2: "read" was decided by an earlier rule"#.into()),
        (
            "# why\nallow ioctl\n# why\nrefuse 1 ioctl when arg0 in 1\n",
            r#"line 4: "ioctl" was decided by an earlier rule"#.into(),
        ),
        ("otherwise allow\n", format!("line 1: {no_comment}")),
        ("# why\notherwise refuse\n", "line 2: the line must read `otherwise allow`".into()),
        (
            "# why\notherwise allow\n# why\notherwise allow\n",
            r#"line 4: "otherwise" was decided by an earlier rule"#.into(),
        ),
        ("define A 1\ndefine A 1\n", r#"line 2: "A" was defined before"#.into()),
        ("define A\n", "line 1: the line must read `define NAME VALUE`".into()),
        ("# why\nrefuse\n", "line 2: the line must read `refuse ERRNO CALL...`".into()),
        ("# why\nrefuse 0 read\n", "line 2: 0 is not an error number".into()),
        ("# why\nrefuse 4096 read\n", "line 2: 4096 is not an error number".into()),
        (
            "# why\nrefuse EPERM read\n",
            r#"line 2: "EPERM" is neither a number of 32 bits nor a defined name"#.into(),
        ),
        (
            "# why\nrefuse 1 read clone when arg0 in 1\n",
            "line 2: `when` goes with exactly one call".into(),
        ),
        (
            "# why\nrefuse 1 read when arg6 in 1\n",
            r#"line 2: "arg6" is not one of arg0 to arg5"#.into(),
        ),
        (
            "# why\nrefuse 1 read when arg0 in\n",
            "line 2: the line must read `argN in|not-in|has VALUE,...`".into(),
        ),
        ("# why\nrefuse 1 read when arg0 like 1\n", r#"line 2: "like" is not known here"#.into()),
        (
            "# why\nrefuse 1 read when arg0 in 0x100000000\n",
            r#"line 2: "0x100000000" is neither a number of 32 bits nor a defined name"#.into(),
        ),
    ];
    for (filter, told) in mistakes {
        assert_eq!(parse(filter).unwrap_err(), told, "{filter}");
    }
}

#[test]
fn a_table_with_a_number_or_name_twice_is_refused() {
    for text in ["read 0\nwrite 0\n", "read 0\nread 1\n", "read\n", "read zero\n"] {
        assert!(SyscallTable::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn every_call_of_the_table_is_decided_by_name() {
    let rules = job_rules();
    let undecided: Vec<_> = table()
        .calls()
        .filter(|(_, number)| rules.decision(*number).is_none())
        .map(|c| c.0.to_owned())
        .collect();
    assert_eq!(undecided, Vec::<String>::new(), "add each to a rule of job.filter");
}

/// Names in the filter that the system's headers have too.
#[test]
fn definitions_agree_with_the_headers() {
    let headers = [
        ("EPERM", libc::EPERM as i64),
        ("ENOMEM", libc::ENOMEM as i64),
        ("EINVAL", libc::EINVAL as i64),
        ("MAP_HUGETLB", libc::MAP_HUGETLB as i64),
        ("MFD_HUGETLB", libc::MFD_HUGETLB as i64),
        ("SHM_HUGETLB", libc::SHM_HUGETLB as i64),
        ("SHM_LOCK", libc::SHM_LOCK as i64),
        ("F_OFD_SETLK", libc::F_OFD_SETLK as i64),
        ("F_OFD_SETLKW", libc::F_OFD_SETLKW as i64),
        ("CLOSE_RANGE_UNSHARE", libc::CLOSE_RANGE_UNSHARE as i64),
        ("CLONE_THREAD", libc::CLONE_THREAD as i64),
        ("CLONE_FILES", libc::CLONE_FILES as i64),
        ("RLIMIT_CORE", libc::RLIMIT_CORE as i64),
        ("S_IFCHR", libc::S_IFCHR as i64),
        ("RENAME_WHITEOUT", libc::RENAME_WHITEOUT as i64),
        ("ENOSYS", libc::ENOSYS as i64),
        ("EPROTONOSUPPORT", libc::EPROTONOSUPPORT as i64),
        ("ESOCKTNOSUPPORT", libc::ESOCKTNOSUPPORT as i64),
        ("EAFNOSUPPORT", libc::EAFNOSUPPORT as i64),
        ("TIOCSTI", libc::TIOCSTI as i64),
        ("TIOCLINUX", libc::TIOCLINUX as i64),
        ("TIOCSETD", 0x5423),
        ("NEW_NAMESPACE", NEW_NAMESPACE as i64),
        ("PER_LINUX", 0),
        ("PER_LINUX32", 8),
        ("UNAME26", 0x0020000),
        ("UNAME26_LINUX32", 0x0020008),
        ("PER_QUERY", 0xffff_ffff),
        ("SCHED_OTHER", libc::SCHED_OTHER as i64),
        ("SCHED_BATCH", libc::SCHED_BATCH as i64),
        ("SCHED_IDLE", libc::SCHED_IDLE as i64),
        ("AF_UNIX", libc::AF_UNIX as i64),
        ("AF_INET", libc::AF_INET as i64),
        ("AF_INET6", libc::AF_INET6 as i64),
        ("SOCK_STREAM", libc::SOCK_STREAM as i64),
        ("SOCK_DGRAM", libc::SOCK_DGRAM as i64),
        ("SOCK_SEQPACKET", libc::SOCK_SEQPACKET as i64),
        ("IPPROTO_IP", libc::IPPROTO_IP as i64),
        ("IPPROTO_ICMP", libc::IPPROTO_ICMP as i64),
        ("IPPROTO_TCP", libc::IPPROTO_TCP as i64),
        ("IPPROTO_UDP", libc::IPPROTO_UDP as i64),
        ("IPPROTO_ICMPV6", libc::IPPROTO_ICMPV6 as i64),
        ("SOL_IPV6", libc::SOL_IPV6 as i64),
        ("IPV6_FLOWLABEL_MGR", 32),
        ("NEW_LISTENER", libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as i64),
    ];
    let mut expected: Vec<_> = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
    expected.sort();
    let rules = job_rules();
    let written: Vec<_> =
        rules.definitions.iter().map(|(name, value)| (name.clone(), i64::from(*value))).collect();
    assert_eq!(written, expected);
}

const NEW_NAMESPACE: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;
