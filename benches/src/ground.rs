//! What all contenders stand on: one root file system, as a directory, an OCI image and OCI bundles.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The ring's own filter, for bubblewrap.
const JOB_FILTER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/job.bpf"));

/// The name of the image in every store.
pub(crate) const IMAGE: &str = "localhost/ringwall-bench:latest";

/// A temporary directory with everything in it; removed with this value.
#[derive(Debug)]
pub(crate) struct Ground {
    directory: TempDir,
    /// Where Ringwall's programs are.
    pub(crate) programs: PathBuf,
}

impl Ground {
    pub(crate) fn prepare() -> Result<Ground> {
        let ground = Ground::without_image()?;
        ground.make_image()?;
        ground.make_bundle("sleep", &["/bin/sleep", "100000"])?;
        run(Command::new(ground.ringwall())
            .args(["image", "import"])
            .arg(ground.path("image"))
            .args(["--name", IMAGE])
            .env("RINGWALL_HOME", ground.home()))?;
        Ok(ground)
    }

    /// For those who measure nothing that has an image.
    pub(crate) fn without_image() -> Result<Ground> {
        let ground =
            Ground { directory: TempDir::with_prefix("ringwall-bench.")?, programs: programs()? };
        ground.make_root()?;
        fs::write(ground.filter(), JOB_FILTER)?;
        ground.make_bundle("true", &["/bin/true"])?;
        Ok(ground)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Ringwall's own state, with the image imported.
    pub(crate) fn home(&self) -> PathBuf {
        self.path("home")
    }

    pub(crate) fn ringwall(&self) -> PathBuf {
        self.programs.join("ringwall")
    }

    /// The job filter as bubblewrap takes one.
    pub(crate) fn filter(&self) -> PathBuf {
        self.path("job.bpf")
    }

    /// A static busybox and the directories that runtimes mount on.
    fn make_root(&self) -> Result<()> {
        let root = self.path("root");
        for directory in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
            fs::create_dir_all(root.join(directory))?;
        }
        let busybox = find_program("busybox").context("busybox is missing; run `make setup`")?;
        fs::copy(busybox, root.join("bin/busybox"))?;
        for applet in ["sh", "sleep", "true"] {
            symlink("busybox", root.join("bin").join(applet))?;
        }
        Ok(())
    }

    fn make_image(&self) -> Result<()> {
        let image = format!("{}:latest", self.text("image"));
        run(Command::new("umoci").args(["init", "--layout"]).arg(self.path("image")))?;
        run(Command::new("umoci").args(["new", "--image", &image]))?;
        let mut insert = Command::new("umoci");
        insert.arg("insert");
        if !is_root() {
            insert.arg("--rootless");
        }
        run(insert.args(["--image", &image]).arg(self.path("root")).arg("/"))
    }

    /// The runtime's own default configuration, which confines less than a ring does.
    fn make_bundle(&self, name: &str, argv: &[&str]) -> Result<()> {
        let bundle = self.path(name);
        fs::create_dir_all(&bundle)?;
        let Some(runtime) = ["runc", "crun"].into_iter().find_map(find_program) else {
            return Ok(());
        };
        let mut spec = Command::new(runtime);
        spec.arg("spec").current_dir(&bundle);
        if !is_root() {
            spec.arg("--rootless");
        }
        run(&mut spec)?;
        let file = bundle.join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&file)?)?;
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!(argv);
        config["root"] = json!({ "path": self.path("root"), "readonly": true });
        Ok(fs::write(file, config.to_string())?)
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Looks along PATH and where root's programs are.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// Runs a command of the preparation; its complaint becomes the error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("could not start {name}"))?;
    if !output.status.success() {
        bail!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Next to this program, or where the environment says.
fn programs() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let beside = here.parent().map(Path::to_owned).unwrap_or_default();
    let programs = std::env::var_os("RINGWALL_PROGRAMS").map_or(beside, PathBuf::from);
    for program in ["ringwall", "ringwall-launcher", "ringwall-warden"] {
        if !programs.join(program).is_file() {
            bail!("{program} is not in {}; run `make build`", programs.display());
        }
    }
    Ok(programs)
}
