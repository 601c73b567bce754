//! AppArmor, where the host has it: whether it is on, which profiles it knows, and putting the next
//! program under one.
//!
//! The profiles are `resources/apparmor`. Where AppArmor is off, the other layers stand alone.

use std::fs;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

const SWITCH: &str = "/sys/module/apparmor/parameters/enabled";
/// One line a profile, `name (mode)`; some kernels show it to the administrator only.
const LOADED: &str = "/sys/kernel/security/apparmor/profiles";
/// One directory a profile, `name.number`; open to everyone where securityfs is.
const LOADED_TREE: &str = "/sys/kernel/security/apparmor/policy/profiles";
/// The first is AppArmor's own, and there only if AppArmor is on. The second is the only one on
/// kernels before 5.8; it may be another security module's, which then refuses our command.
const NEXT_EXEC: [&str; 2] = ["self/attr/apparmor/exec", "self/attr/exec"];
/// A host with some hundred profiles has a list of a few dozen KiB.
const MAX_LIST_BYTES: u64 = 4 << 20;
const MAX_NAME_BYTES: usize = 128;

/// Whether the kernel runs with AppArmor.
pub fn enabled() -> bool {
    fs::read(SWITCH).is_ok_and(|switch| switch.starts_with(b"Y"))
}

/// Whether the kernel says that it has a profile of this name. False too where it does not tell,
/// for lack of rights or because securityfs is not mounted.
pub fn profile_loaded(name: &str) -> bool {
    listed_in(Path::new(LOADED), name)
        .or_else(|_| entry_in(Path::new(LOADED_TREE), name))
        .unwrap_or(false)
}

/// Puts the next program that this process executes under `profile`. `proc` is a proc file system in
/// which this process is: on its way up a ring has none at the usual path. The kernel checks that the
/// profile is loaded and that the change is allowed now; a process that gave up new privileges may
/// only go from no confinement to some.
pub fn change_on_exec(proc: BorrowedFd<'_>, profile: &str) -> io::Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if profile.is_empty() || profile.len() > MAX_NAME_BYTES || !profile.bytes().all(plain) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let command = format!("exec {profile}");
    let [own, shared] = NEXT_EXEC;
    let open =
        |path| rustix::fs::openat(proc, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let file = match open(own) {
        Err(Errno::NOENT) => open(shared)?,
        other => other?,
    };
    // The kernel takes a command in one write or not at all.
    match rustix::io::write(&file, command.as_bytes())? {
        written if written == command.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

fn listed_in(list: &Path, name: &str) -> io::Result<bool> {
    let mut text = Vec::new();
    fs::File::open(list)?.take(MAX_LIST_BYTES).read_to_end(&mut text)?;
    Ok(text
        .split(|byte| *byte == b'\n')
        .any(|line| line.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b" ("))))
}

fn entry_in(tree: &Path, name: &str) -> io::Result<bool> {
    for entry in fs::read_dir(tree)? {
        let entry = entry?.file_name();
        let number = entry.to_str().and_then(|entry| entry.strip_prefix(name)?.strip_prefix('.'));
        if number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit())) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
