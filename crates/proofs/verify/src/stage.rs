//! What attacks go for on the host, and how it is watched: secrets, canaries, listeners, a victim.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringwall_probes::Scene;
use ringwall_spec::Limits;
use rustix::fs::FlockOperation;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use tempfile::TempDir;

/// Names of variables whose values everybody may know.
const PLAIN_VARIABLES: [&str; 12] = [
    "PATH", "HOME", "LANG", "TERM", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "HOSTNAME",
    "SHLVL", "_",
];
const LISTEN_PAUSE: Duration = Duration::from_millis(5);
const MOST_HEARD: u64 = 256;
/// Real files of a kind that attacks are told of.
const MOST_REAL: usize = 4;

/// Programs that every host has; one is enough.
const USED: [&str; 3] = ["/usr/bin/env", "/usr/bin/ls", "/bin/busybox"];

/// Everything is gone when it is dropped.
pub(crate) struct Stage {
    places: Vec<TempDir>,
    secrets: Vec<String>,
    before: Vec<(PathBuf, Option<Look>)>,
    heard: Arc<Mutex<Vec<String>>>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    victim: Child,
    pub(crate) scene: Scene,
}

/// What can be seen of a canary.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    content: Vec<u8>,
    names: BTreeSet<std::ffi::OsString>,
    mode: u32,
    owner: (u32, u32),
    changed: (i64, i64),
}

/// What became of the stage.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Canaries that are not what they were.
    pub(crate) changed: Vec<PathBuf>,
    /// Greetings that a listener heard.
    pub(crate) heard: Vec<String>,
    pub(crate) victim_gone: bool,
    /// Processes that an attack left on the host.
    pub(crate) survivors: Vec<i32>,
    /// The log of the engine is not whole, or has a line that an attack wrote.
    pub(crate) log_forged: bool,
}

impl Stage {
    /// Lays it out. `state` is Ringwall's own directory, which no attack may read either.
    pub(crate) fn set(program: &Path, state: &Path, limits: &Limits) -> io::Result<Stage> {
        let mark = format!("ringwall-{:x}", random());
        let laid = Laid::out(state)?;
        let Laid {
            places,
            mut secrets,
            secret_files,
            canaries,
            shown,
            sockets,
            mut ears,
            deciding,
        } = laid;
        let victim_secret = format!("secret-{:x}", random());
        let victim = Command::new(program)
            .args(["--victim", &mark, &victim_secret])
            .env("RINGWALL_VERIFY_SECRET", &victim_secret)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        secrets.push(victim_secret);
        let (mut tcp, mut udp) = (Vec::new(), Vec::new());
        for address in ["127.0.0.1:0", "[::1]:0"] {
            if let Ok(listener) = TcpListener::bind(address) {
                tcp.push(listener.local_addr()?.to_string());
                ears.push(Ear::Listener(listener.into()));
            }
            if let Ok(socket) = UdpSocket::bind(address) {
                udp.push(socket.local_addr()?.to_string());
                ears.push(Ear::Datagrams(socket.into()));
            }
        }
        let abstract_socket = format!("{mark}-abstract");
        let address = SocketAddr::from_abstract_name(&abstract_socket)?;
        ears.push(Ear::Listener(UnixListener::bind_addr(&address)?.into()));
        let (heard, over) = (Arc::default(), Arc::<AtomicBool>::default());
        let threads = ears.into_iter().map(|ear| listen(ear, &heard, &over));
        let mut threads = threads.collect::<io::Result<Vec<_>>>()?;
        let program = USED.iter().map(PathBuf::from).find(|path| path.is_file());
        if let Some(program) = &program {
            threads.push(use_program(program.clone(), &over)?);
        }
        let scene = Scene {
            secrets: secret_files,
            canaries,
            tcp,
            udp,
            abstract_socket,
            sockets,
            program: program.clone(),
            victim: i32::try_from(victim.id()).map_err(io::Error::other)?,
            greeting: mark.clone(),
            mark,
            workspace: None,
            hidden: Vec::new(),
            shown,
            elsewhere: Vec::new(),
            policies: deciding.policies,
            approvals: deciding.approvals,
            keys: deciding.keys,
            records: deciding.records,
            logs: deciding.logs,
            engine_sockets: deciding.sockets,
            pids: limits.pids,
            memory_bytes: limits.memory_bytes,
            disk_bytes: limits.disk_bytes,
            open_files: limits.open_files,
        };
        let shown = scene.shown.iter().cloned();
        let watched = scene.canaries.iter().cloned().chain(shown).chain(scene.planted_programs());
        let before = watched.map(|path| (path.clone(), look(&path))).collect();
        Ok(Stage { places, secrets, before, heard, over, threads, victim, scene })
    }

    /// A secret that lies somewhere else, too.
    pub(crate) fn keep_secret(&mut self, secret: &str) {
        self.secrets.push(secret.to_owned());
    }

    /// A secret that a text gives away.
    pub(crate) fn secret_in(&self, text: &str) -> bool {
        self.secrets.iter().any(|secret| text.contains(secret.as_str()))
    }

    /// How often a listener was reached.
    pub(crate) fn heard_so_far(&self) -> usize {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// What has become of it by now. A victim and survivors are looked for after the sandbox has ended.
    pub(crate) fn look(&mut self) -> Seen {
        let changed = self.before.iter().filter(|(path, was)| look(path) != *was);
        Seen {
            changed: changed.map(|(path, _)| path.clone()).collect(),
            heard: self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            victim_gone: !matches!(self.victim.try_wait(), Ok(None)),
            survivors: survivors(&self.scene.mark, self.scene.victim),
            log_forged: false,
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        for pid in survivors(&self.scene.mark, self.scene.victim) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // Without a wall, attacks that leave something leave it here.
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let places = ["/tmp", "/var/tmp", "/dev/shm", "/run", "/", "/etc"].map(PathBuf::from);
        let left = places.iter().chain([&home]).flat_map(|place| fs::read_dir(place).ok());
        let names = left.flatten().flatten().map(|entry| entry.path());
        let ours = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(&self.scene.mark))
        };
        for path in names.filter(ours).chain(self.scene.planted_programs()) {
            let _ = fs::remove_file(path);
        }
        self.places.clear();
    }
}

/// Files, directories and sockets, in several places of the host.
struct Laid {
    places: Vec<TempDir>,
    secrets: Vec<String>,
    secret_files: Vec<PathBuf>,
    canaries: Vec<PathBuf>,
    shown: Vec<PathBuf>,
    sockets: Vec<PathBuf>,
    ears: Vec<Ear>,
    deciding: Deciding,
}

/// The files that decide about sandboxes: first those that were laid out, then the real ones.
#[derive(Default)]
struct Deciding {
    policies: Vec<PathBuf>,
    approvals: Vec<PathBuf>,
    keys: Vec<PathBuf>,
    records: Vec<PathBuf>,
    logs: Vec<PathBuf>,
    sockets: Vec<PathBuf>,
}

impl Laid {
    fn out(state: &Path) -> io::Result<Laid> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let elsewhere = [Path::new("/var/tmp"), state, Path::new("/tmp")];
        let mut laid = Laid {
            places: Vec::new(),
            secrets: environment_secrets(),
            secret_files: Vec::new(),
            canaries: Vec::new(),
            shown: Vec::new(),
            sockets: Vec::new(),
            ears: Vec::new(),
            deciding: Deciding::default(),
        };
        for place in home.as_deref().into_iter().chain(elsewhere) {
            let made = tempfile::Builder::new().prefix(".ringwall-verify-").tempdir_in(place);
            if let Ok(made) = made {
                if place == state {
                    laid.fill_deciding(made.path(), home.as_deref(), state)?;
                }
                laid.fill(made)?;
            }
        }
        if laid.places.is_empty() {
            return Err(io::Error::other("no canary can be put anywhere"));
        }
        laid.fill_shown()?;
        laid.fill_trees()?;
        // A process that may read it knows the hash; no other may learn it.
        let shadow = fs::read_to_string("/etc/shadow").unwrap_or_default();
        if let Some(line) = shadow.lines().next() {
            laid.secrets.push(line.to_owned());
            laid.secret_files.push(PathBuf::from("/etc/shadow"));
        }
        Ok(laid)
    }

    /// Stand-ins beside the real ones, so that attacks may do their worst.
    fn fill_deciding(&mut self, place: &Path, home: Option<&Path>, state: &Path) -> io::Result<()> {
        let mut stand_in = |name: &str| -> io::Result<PathBuf> {
            let secret = format!("secret-{:x}", random());
            let path = place.join(name);
            fs::write(&path, &secret)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            self.secrets.push(secret);
            Ok(path)
        };
        let (policy, approval) = (stand_in("ringwall.toml")?, stand_in("approval.json")?);
        let (key, record, log) = (stand_in("key")?, stand_in("record.json")?, stand_in("log")?);
        self.canaries.extend([place.to_owned(), policy.clone(), approval.clone(), log.clone()]);
        let socket = place.join("api.sock");
        self.ears.push(Ear::Listener(UnixListener::bind(&socket)?.into()));
        let config = home.map(|home| home.join(".config/ringwall/ringwall.toml"));
        let system = [PathBuf::from("/etc/ringwall/ringwall.toml"), state.join("distrusted-walls")];
        let with = |first: PathBuf, directory: &str| -> Vec<PathBuf> {
            let real = fs::read_dir(state.join(directory)).into_iter().flatten().flatten();
            let real = real.map(|entry| entry.path()).filter(|path| path.is_file()).take(MOST_REAL);
            std::iter::once(first).chain(real).collect()
        };
        self.deciding = Deciding {
            policies: std::iter::once(policy).chain(config).chain(system).collect(),
            approvals: with(approval, "approvals")
                .into_iter()
                .chain(with(log.clone(), "grants").into_iter().skip(1))
                .collect(),
            keys: with(key, "keys"),
            records: with(record, "sandboxes"),
            logs: with(log, "audit"),
            sockets: vec![socket, state.join("api.sock")],
        };
        Ok(())
    }

    /// Sockets below what a process ring shows of the host, as services have them there. Only root can put them
    /// there.
    fn fill_trees(&mut self) -> io::Result<()> {
        for tree in ["/opt", "/usr/local", "/etc"] {
            let made = tempfile::Builder::new().prefix(".ringwall-verify-").tempdir_in(tree);
            let Ok(place) = made else { continue };
            let socket = place.path().join("socket");
            self.ears.push(Ear::Listener(UnixListener::bind(&socket)?.into()));
            fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755))?;
            fs::set_permissions(&socket, fs::Permissions::from_mode(0o777))?;
            self.sockets.push(socket);
            self.places.push(place);
        }
        Ok(())
    }

    /// The files that jobs are shown: any user could write to them, were it not for their mount.
    fn fill_shown(&mut self) -> io::Result<()> {
        let place = tempfile::Builder::new().prefix(".ringwall-verify-").tempdir_in("/tmp")?;
        let place_path = place.path().canonicalize()?.join("shown");
        let (file, directory) = (place_path.join("file.txt"), place_path.join("directory"));
        fs::create_dir_all(&directory)?;
        fs::write(&file, "as it was\n")?;
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755))?;
        for path in [&place_path, &directory, &file] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
        }
        self.shown = vec![file, directory];
        self.places.push(place);
        Ok(())
    }

    fn fill(&mut self, place: TempDir) -> io::Result<()> {
        let secret = format!("secret-{:x}", random());
        let path = place.path().join("secret.txt");
        fs::write(&path, &secret)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        self.secrets.push(secret);
        self.secret_files.push(path);
        let canary = place.path().join("canary.txt");
        fs::write(&canary, "as it was\n")?;
        let directory = place.path().join("canaries");
        fs::create_dir(&directory)?;
        self.canaries.extend([canary, directory]);
        let socket = place.path().join("socket");
        self.ears.push(Ear::Listener(UnixListener::bind(&socket)?.into()));
        self.sockets.push(socket);
        self.places.push(place);
        Ok(())
    }
}

/// Variables of this process that a job must not inherit.
fn environment_secrets() -> Vec<String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, value)| value.len() >= 8 && !PLAIN_VARIABLES.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

fn look(path: &Path) -> Option<Look> {
    let metadata = fs::symlink_metadata(path).ok()?;
    let names = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.file_name());
    Some(Look {
        content: if metadata.is_file() { fs::read(path).ok()? } else { Vec::new() },
        names: names.collect(),
        mode: metadata.mode(),
        owner: (metadata.uid(), metadata.gid()),
        // The time of any change, attributes too, and no process can set it.
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

/// Processes with this mark among their arguments, but for the victim.
fn survivors(mark: &str, victim: i32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != victim)
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("--linger") && line.contains(mark)
        })
        .collect()
}

pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

/// A socket of the host that no process behind a wall may reach.
enum Ear {
    Listener(OwnedFd),
    Datagrams(OwnedFd),
}

impl Ear {
    fn socket(&self) -> &OwnedFd {
        match self {
            Ear::Listener(socket) | Ear::Datagrams(socket) => socket,
        }
    }

    /// What came, if anything did.
    fn hear(&self) -> Option<Vec<u8>> {
        let mut heard = Vec::new();
        match self {
            Ear::Listener(listener) => {
                let stream = rustix::net::accept(listener).ok()?;
                set_socket_timeout(&stream, Timeout::Recv, READ_PATIENCE).ok()?;
                let _ = fs::File::from(stream).take(MOST_HEARD).read_to_end(&mut heard);
            }
            Ear::Datagrams(socket) => {
                heard.resize(MOST_HEARD as usize, 0);
                let length = rustix::io::read(socket, &mut heard).ok()?;
                heard.truncate(length);
            }
        }
        Some(heard)
    }
}

const READ_PATIENCE: Option<Duration> = Some(Duration::from_millis(300));

/// Opens a program as one that starts it would, and holds a lock on it.
fn use_program(program: PathBuf, over: &Arc<AtomicBool>) -> io::Result<JoinHandle<()>> {
    let over = Arc::clone(over);
    std::thread::Builder::new().name("program".to_owned()).spawn(move || {
        let locked = fs::File::open(&program);
        if let Ok(file) = &locked {
            // Where another verify holds one, that is as good.
            let _ = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
        }
        while !over.load(Ordering::SeqCst) {
            let _ = fs::File::open(&program);
            std::thread::sleep(LISTEN_PAUSE);
        }
        drop(locked);
    })
}

fn listen(
    ear: Ear,
    heard: &Arc<Mutex<Vec<String>>>,
    over: &Arc<AtomicBool>,
) -> io::Result<JoinHandle<()>> {
    rustix::io::ioctl_fionbio(ear.socket(), true)?;
    let (heard, over) = (Arc::clone(heard), Arc::clone(over));
    std::thread::Builder::new().name("listener".to_owned()).spawn(move || {
        while !over.load(Ordering::SeqCst) {
            match ear.hear() {
                Some(bytes) => {
                    let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                    heard.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                }
                None => std::thread::sleep(LISTEN_PAUSE),
            }
        }
    })
}
