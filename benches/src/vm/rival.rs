//! The rival: Debian's kernel as its package has it, booted by QEMU's `microvm` with its defaults to a
//! shell script of busybox.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ringwall_guest::{Flavour, Kernel, initramfs_in};

use crate::ground::{Ground, find_program};

pub(crate) const RIVAL: &str = "QEMU microvm, Debian's kernel, busybox";

const WORD: &str = "rival-is-up";
/// On a busy host Debian's kernel may never find its clock with these options: then it hangs, which is
/// told and is no figure.
const PATIENCE: Duration = Duration::from_secs(12);
/// Such a boot is tried again this often.
const TRIES: usize = 5;

/// What the rival boots.
pub(crate) struct Rival {
    qemu: PathBuf,
    kernel: PathBuf,
    initramfs: PathBuf,
}

impl Rival {
    pub(crate) fn prepare(ground: &Ground, kernels: &[Kernel]) -> Result<Rival> {
        let qemu = find_program("qemu-system-x86_64").context("QEMU is missing")?;
        let debian = kernels.iter().find(|kernel| kernel.flavour == Flavour::Debian);
        let debian = debian.context("Debian's kernel is missing; run `make setup`")?;
        let init = ground.path("rival-init");
        fs::write(&init, format!("#!/bin/busybox sh\n/bin/busybox echo {WORD} >/dev/console\n"))?;
        // It loads no modules.
        let bare = Kernel { modules: Vec::new(), more_modules: Vec::new(), ..debian.clone() };
        let busybox = ground.path("root/bin/busybox");
        let files: [(&str, &Path, u32); 2] =
            [("/init", &init, 0o755), ("/bin/busybox", &busybox, 0o755)];
        let directory = ground.path("rival");
        let initramfs = initramfs_in(&directory, &bare, &files)?;
        Ok(Rival { qemu, kernel: packed_kernel(&debian.release, &directory)?, initramfs })
    }

    /// From the start of QEMU to the first word of the guest, and how many boots hung before.
    pub(crate) fn boot(&self) -> Result<(Duration, usize)> {
        let mut hung = 0;
        loop {
            match self.boot_once() {
                Ok(time) => return Ok((time, hung)),
                Err(error) if hung + 1 == TRIES => return Err(error),
                Err(_) => hung += 1,
            }
        }
    }

    fn boot_once(&self) -> Result<Duration> {
        let mut command = Command::new(&self.qemu);
        command.args(["-M", "microvm", "-accel", "tcg", "-m", "256", "-no-reboot"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio"]);
        command.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.initramfs);
        command.args(["-append", "console=ttyS0 reboot=t panic=-1"]);
        time_to_word(&mut command, WORD)
    }
}

/// `vmlinuz` out of the package that `make setup` fetched. Ours is unpacked already, which is a part of
/// why it boots sooner.
fn packed_kernel(release: &str, into: &Path) -> Result<PathBuf> {
    let cache = std::env::var_os("RINGWALL_CACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/ringwall")));
    let kernels = cache.context("no cache directory")?.join("kernels");
    let begin = format!("linux-image-{release}_");
    let package = fs::read_dir(&kernels)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin))
        })
        .with_context(|| {
            format!("no package of {release} in {}; run `make setup`", kernels.display())
        })?;
    crate::ground::run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(into))?;
    Ok(into.join(format!("boot/vmlinuz-{release}")))
}

/// From the start of a program to the line in which it says a word. Then it is ended.
pub(crate) fn time_to_word(command: &mut Command, word: &'static str) -> Result<Duration> {
    let name = command.get_program().display().to_string();
    let begun = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(command.spawn().with_context(|| format!("could not start {name}"))?);
    let output = running.0.stdout.take().context("no output")?;
    let (said, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(output);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            if String::from_utf8_lossy(&line).contains(word) {
                let _ = said.send(Instant::now());
                return;
            }
            line.clear();
        }
    });
    match heard.recv_timeout(PATIENCE) {
        Ok(at) => Ok(at.duration_since(begun)),
        Err(mpsc::RecvTimeoutError::Timeout) => bail!("{name} did not come up in {PATIENCE:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let status = running.0.wait()?;
            ensure!(status.success(), "{name} ended with {status}");
            bail!("{name} said nothing")
        }
    }
}

/// Never left behind.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
