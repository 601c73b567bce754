//! A world with an image, and a witness who saw how it was before.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::witness::{Namespace, Process, Witness};
use crate::{User, World, busybox_layout, eventually};

pub const IMAGE: &str = "test:latest";

/// One test at a time in this process: the witness cannot tell their processes apart.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Debug)]
pub struct Ground {
    pub world: World,
    pub witness: Witness,
    project: BTreeSet<PathBuf>,
    _alone: MutexGuard<'static, ()>,
}

impl Ground {
    pub fn new() -> Ground {
        let ground = Ground::on(World::new);
        let layout = ground.make_layout();
        let import = ["image", "import", &layout, "--name", IMAGE];
        ground.world.ringwall(import).exits(0);
        ground
    }

    /// Without an image: that of root is not the user's. Needs tests that run as root.
    pub fn of_ordinary_user() -> Ground {
        Ground::on(|| World::of(User::Ordinary))
    }

    fn on(world: impl FnOnce() -> World) -> Ground {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let world = world();
        world.write("file", "old\n");
        world.write("sub/other", "old\n");
        // Makes the state directory.
        assert!(world.sandboxes().is_empty());
        Ground {
            witness: Witness::new(&world.home()),
            project: files_below(&world.project()),
            world,
            _alone: alone,
        }
    }

    /// An image as other tools keep it, ready to be imported.
    fn make_layout(&self) -> String {
        let layout = busybox_layout(&self.world.path(""));
        layout.into_os_string().into_string().expect("a plain path")
    }

    /// Starts `ringwall ARGUMENTS` without a word to anybody.
    pub fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.world.command(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("ringwall can be started")
    }

    /// `ringwall gc`; gives the number of abandoned sandboxes that it found.
    #[track_caller]
    pub fn gc(&self) -> u64 {
        let report = self.world.ringwall(["gc", "-o", "json"]);
        let report = report.exits(0).json();
        report["sandboxes"].as_u64().expect("a number")
    }

    /// Where the programs are.
    pub fn programs(&self) -> PathBuf {
        let command = self.world.command(["--version"]);
        let program = Path::new(command.get_program());
        program.parent().expect("a directory").to_owned()
    }

    /// Runs that ended in order keep their changes: these are no leftovers.
    pub fn remove_finished(&self) {
        for record in self.world.sandboxes() {
            if record["state"] == "finished" {
                let id = record["id"].as_str().expect("an id");
                self.world.ringwall(["rm", id]).exits(0);
            }
        }
    }

    /// As before: nothing runs, nothing is mounted, no file was made, none was changed.
    #[track_caller]
    pub fn is_clean(&self, namespaces: &BTreeSet<Namespace>) {
        self.witness.sees_nothing(namespaces);
        let mut left = files_below(&self.world.home());
        left.retain(|path| !is_expected(path));
        assert!(left.is_empty(), "left in the state directory: {left:?}");
        assert_eq!(files_below(&self.world.project()), self.project);
        assert_eq!(self.world.read("file"), "old\n");
    }

    /// Waits for a process of Ringwall by the beginning of its name, as the kernel shows it.
    pub fn wait_for_process(&self, name: &str) -> Process {
        eventually(&format!("the start of {name}"), || self.find(name))
    }

    pub fn find(&self, name: &str) -> Option<Process> {
        let mut all = self.witness.processes().into_iter();
        all.find(|process| process.name.starts_with(name))
    }
}

/// The store of images, what guests go on from, the audit log, what is known of programs, the key of
/// snapshots, the one that seals permits, and the lock under which records come into being.
fn is_expected(path: &Path) -> bool {
    let stays = ["images", "templates", "audit", "keys"];
    stays.iter().any(|place| path.starts_with(place))
        || path == Path::new("remembered.json")
        || path == Path::new("snapshots")
        || path == Path::new("snapshots/.key")
        // Where it is looked for what sandboxes hold of a budget.
        || path == Path::new("grants")
        || path == Path::new("grants/held")
        || path == Path::new("sandboxes")
        || path == Path::new("sandboxes/.creation")
        // The directory stays for the next sandbox with a name. A link in it would be a leftover.
        || path == Path::new("names")
        || path == Path::new("permit-key")
}

fn files_below(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).expect("a directory").flatten() {
            let path = entry.path();
            let relative = path.strip_prefix(root).expect("it is below").to_owned();
            // Images are large and never a leftover of a run.
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && relative != Path::new("images") {
                pending.push(path);
            }
            found.insert(relative);
        }
    }
    found
}

pub fn send(pid: i32, signal: Signal) {
    // It may have ended on its own.
    let _ = kill_process(Pid::from_raw(pid).expect("a process"), signal);
}

pub fn pid_of(child: &Child) -> i32 {
    i32::try_from(child.id()).expect("a process")
}

/// Moments that nobody chose. The seed is shown when a test fails.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new() -> Dice {
        let mut seed = [0; 8];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()).expect("a seed");
        let seed = u64::from_le_bytes(seed);
        eprintln!("seed {seed}");
        Dice(seed)
    }

    /// Evenly between nothing and `most`.
    pub fn moment(&mut self, most: Duration) -> Duration {
        // SplitMix64: short, and even enough for moments.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let micros = u64::try_from(most.as_micros()).expect("a short time").max(1);
        Duration::from_micros(mixed % micros)
    }
}
