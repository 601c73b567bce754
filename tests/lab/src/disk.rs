//! The second disk of a machine: programs, scripts and settings, made anew for every boot.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use rustix::process::geteuid;

use crate::machine::Machine;

const SCRIPTS: [(&str, &str); 3] = [
    ("start.sh", include_str!("../guest/start.sh")),
    ("as.sh", include_str!("../guest/as.sh")),
    ("look.sh", include_str!("../guest/look.sh")),
];

/// Programs that are brought in where they have been built.
pub const PROGRAMS: [&str; 9] = [
    "ringwall",
    "ringwall-launcher",
    "ringwall-warden",
    "ringwall-probe",
    "ringwall-gateway",
    "ringwall-daemon",
    "ringwall-agent",
    "ringwall-wasm-warden",
    "ringwall-wasm-compiler",
];

/// Without these there is nothing to try.
const NEEDED_PROGRAMS: usize = 4;

/// Room for the file system's own data.
const SPARE_MIB: u64 = 48;

/// From where the parts of a disk come.
#[derive(Debug, Clone)]
pub struct Sources {
    /// The directory with the programs.
    pub programs: PathBuf,
    /// This program, which is the agent in the machine.
    pub agent: PathBuf,
    /// `resources/apparmor` of the repository.
    pub apparmor: PathBuf,
    /// `scripts` of the repository, from which machines get the demo.
    pub scripts: PathBuf,
    /// The container image, from the cache.
    pub image: PathBuf,
    /// The kernel of microVMs, from the cache.
    pub guest_kernels: PathBuf,
}

impl Sources {
    pub fn has_program(&self, name: &str) -> bool {
        self.programs.join(name).exists()
    }
}

/// Collects everything in `stage` and makes `disk` from it.
pub fn make(machine: &Machine, sources: &Sources, stage: &Path, disk: &Path) -> anyhow::Result<()> {
    fill(machine, sources, stage)
        .with_context(|| format!("cannot collect the programs in {}", stage.display()))?;
    let mib = (tree_bytes(stage)? >> 20) + SPARE_MIB;
    if disk.exists() {
        fs::remove_file(disk)?;
    }
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    // On the disk all files are root's, whoever runs the lab.
    let mut command = Command::new(if geteuid().is_root() { "mke2fs" } else { "unshare" });
    if !geteuid().is_root() {
        command.args(["--map-root-user", "mke2fs"]);
    }
    let made = command
        .env("PATH", path)
        .args(["-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d"])
        .args([stage, disk])
        .arg(format!("{mib}M"))
        .output()
        .context("mke2fs cannot be started; install the package e2fsprogs")?;
    if !made.status.success() {
        bail!(
            "cannot make the disk {}: {}",
            disk.display(),
            String::from_utf8_lossy(&made.stderr).trim()
        );
    }
    Ok(())
}

fn fill(machine: &Machine, sources: &Sources, stage: &Path) -> anyhow::Result<()> {
    if stage.exists() {
        fs::remove_dir_all(stage)?;
    }
    fs::create_dir_all(stage.join("bin"))?;
    for (index, name) in PROGRAMS.iter().enumerate() {
        if sources.has_program(name) {
            bring(&sources.programs.join(name), &stage.join("bin").join(name))?;
        } else if index < NEEDED_PROGRAMS {
            bail!("{} has no {name}; build it first", sources.programs.display());
        }
    }
    bring(&sources.agent, &stage.join("bin/ringwall-lab"))?;
    for (name, text) in SCRIPTS {
        let path = stage.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(stage.join("machine.env"), settings(machine))?;
    let sysctls: String =
        machine.sysctls.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
    fs::write(stage.join("sysctls"), sysctls)?;
    copy_tree(&sources.apparmor, &stage.join("apparmor"))?;
    copy_tree(&sources.image, &stage.join("image"))?;
    copy_tree(&sources.guest_kernels, &stage.join("guest-kernels"))?;
    copy_tree(&sources.scripts.join("demo"), &stage.join("scripts/demo"))?;
    bring(&sources.scripts.join("demo.sh"), &stage.join("scripts/demo.sh"))?;
    let tools = sources.programs.join("tools");
    if tools.is_dir() {
        copy_tree(&tools, &stage.join("bin/tools"))?;
    }
    Ok(())
}

/// The values that `start.sh` reads. [`Machine`] refuses characters that mean something to a shell.
pub fn settings(machine: &Machine) -> String {
    format!(
        "CGROUPS='{}'\nREAD_ONLY_ROOT='{}'\nPROC_OPTIONS='{}'\nAPPARMOR_PROFILES='{}'\n",
        machine.cgroups.name(),
        if machine.read_only_root { "yes" } else { "no" },
        machine.proc_options,
        machine.apparmor_profiles.join(" "),
    )
}

/// A hard link where the file systems allow one: the programs are large.
fn bring(from: &Path, to: &Path) -> anyhow::Result<()> {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            bring(&entry.path(), &target)?;
        }
    }
    Ok(())
}

fn tree_bytes(directory: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            tree_bytes(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}
