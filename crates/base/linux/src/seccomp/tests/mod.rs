//! What the filters decide: by the rules, by running the program here, and by the kernel.

mod compiled;
mod kernel;
mod machine;
mod numbers;
mod sealed;
mod wasm;
mod watched;
mod written;

use std::sync::LazyLock;

use super::source::{Rules, SyscallTable};

const TABLE: &str = include_str!("../../../../../../resources/seccomp/x86_64.syscalls");
const JOB: &str = include_str!("../../../../../../resources/seccomp/job.filter");
const SEALED: &str = include_str!("../../../../../../resources/seccomp/sealed.filter");
const WATCHED: &str = include_str!("../../../../../../resources/seccomp/watched.filter");

static PARSED_TABLE: LazyLock<SyscallTable> = LazyLock::new(|| SyscallTable::parse(TABLE).unwrap());

fn table() -> &'static SyscallTable {
    &PARSED_TABLE
}

/// What a job is held to.
fn job_rules() -> Rules {
    nesting_rules().with_on_top(&sealed_rules())
}

/// The same without what seals it.
fn nesting_rules() -> Rules {
    Rules::parse(JOB, table()).unwrap()
}

fn sealed_rules() -> Rules {
    Rules::parse(SEALED, table()).unwrap()
}

fn number(call: &str) -> u32 {
    table().calls().find(|(name, _)| *name == call).unwrap_or_else(|| panic!("{call}?")).1
}
