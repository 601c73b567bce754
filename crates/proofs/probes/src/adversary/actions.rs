//! Everything that the adversary can do, one system call or a few at a time.

use std::fs;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ringwall_linux::interface::{self, Answer};
use rustix::fs::{
    CWD, FlockOperation, Mode, OFlags, RenameFlags, XattrFlags,
    inotify::{self, CreateFlags, WatchFlags},
};
use rustix::process::{Pid, Resource, Rlimit, Signal};

use super::{HELPERS, Player, names_in, shown};

pub(crate) type Action = fn(&mut Player<'_>) -> io::Result<String>;

pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) weight: u32,
    pub(crate) action: Action,
}

const fn row(name: &'static str, weight: u32, action: Action) -> Row {
    Row { name, weight, action }
}

/// All actions, and how often each is chosen compared with the others.
pub(crate) const ACTIONS: &[Row] = &[
    row("write", 8, write),
    row("append", 4, append),
    row("truncate", 3, truncate),
    row("read", 8, read),
    row("list", 3, list),
    row("copy", 4, copy),
    row("rename", 6, rename),
    row("exchange", 4, exchange),
    row("swap", 4, swap),
    row("rename-above", 3, rename_above),
    row("link", 3, link),
    row("symlink", 4, symlink),
    row("mkdir", 3, mkdir),
    row("rmdir", 2, rmdir),
    row("unlink", 3, unlink),
    row("chmod", 3, chmod),
    row("attribute", 2, attribute),
    row("open-path", 3, open_path),
    row("read-kept", 4, read_kept),
    row("send-descriptor", 3, send_descriptor),
    row("keep-in-flight", 1, keep_in_flight),
    row("lock", 3, lock),
    row("watch", 2, watch),
    row("read-events", 1, read_events),
    row("flood", 1, flood),
    row("fork", 2, fork),
    row("hold", 3, hold),
    row("knock", 10, knock),
    row("limit", 1, limit),
    row("signal", 1, signal),
    row("process-files", 4, process_files),
    row("connect-tcp", 2, connect_tcp),
    row("send-udp", 2, send_udp),
    row("connect-abstract", 2, connect_abstract),
    row("connect-named", 3, connect_named),
];

const PATIENCE: Duration = Duration::from_millis(200);
const OWN_MODE: u32 = 0o600;
const MOST_SWAPS: usize = 16;
const BETWEEN_SWAPS: Duration = Duration::from_millis(2);

fn write(player: &mut Player<'_>) -> io::Result<String> {
    let path = player.anything();
    if let Some(above) = path.parent() {
        // It may be there already, or not be ours to make.
        let _ = fs::create_dir_all(above);
    }
    fs::write(&path, format!("{}\n", player.stamp))?;
    Ok("written".to_owned())
}

fn append(player: &mut Player<'_>) -> io::Result<String> {
    let path = player.anything();
    let mut file = fs::OpenOptions::new().append(true).open(&path)?;
    writeln!(file, "{}", player.stamp)?;
    player.keep(file);
    Ok("written".to_owned())
}

fn truncate(player: &mut Player<'_>) -> io::Result<String> {
    let path = player.anything();
    fs::OpenOptions::new().write(true).open(&path)?.set_len(0)?;
    Ok("emptied".to_owned())
}

fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    file.take(4096).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read(player: &mut Player<'_>) -> io::Result<String> {
    let path = player.anything();
    Ok(shown(&bytes_of(&path)?))
}

fn list(player: &mut Player<'_>) -> io::Result<String> {
    let path = player.anything();
    let path = if path.is_dir() { path } else { path.parent().unwrap_or(&path).to_owned() };
    names_in(&path)
}

fn copy(player: &mut Player<'_>) -> io::Result<String> {
    let (from, to) = (player.anything(), player.own());
    let bytes = bytes_of(&from)?;
    fs::write(&to, [player.stamp.as_bytes(), b"\n", &bytes].concat())?;
    Ok(format!("{} bytes", bytes.len()))
}

fn rename(player: &mut Player<'_>) -> io::Result<String> {
    let (from, to) = (player.own(), player.anything());
    fs::rename(&from, &to)?;
    Ok("renamed".to_owned())
}

fn exchange(player: &mut Player<'_>) -> io::Result<String> {
    let (one, other) = (player.own(), player.anything());
    rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE)?;
    Ok("exchanged".to_owned())
}

/// A directory and a link that leads out are exchanged again and again: a check finds the one, and what comes
/// after it the other.
fn swap(player: &mut Player<'_>) -> io::Result<String> {
    let directory = player.directory();
    let target = player.dice.one_of(&player.scene.elsewhere).cloned();
    let target = player.noted(target.unwrap_or_else(|| PathBuf::from("/etc")));
    let times = 1 + player.dice.below(MOST_SWAPS);
    // Either may be there from the last time.
    let _ = fs::create_dir_all(&directory);
    let other = directory.with_extension("swapped");
    let _ = std::os::unix::fs::symlink(&target, &other);
    for _ in 0..times {
        rustix::fs::renameat_with(CWD, &other, CWD, &directory, RenameFlags::EXCHANGE)?;
        std::thread::sleep(BETWEEN_SWAPS);
    }
    Ok(format!("{times} times"))
}

/// Takes a directory above a mount away, and plants a link to another one in its place.
fn rename_above(player: &mut Player<'_>) -> io::Result<String> {
    let from = player.above();
    let name = format!("{}-moved-{}", player.scene.mark, player.dice.below(4));
    let to = from.with_file_name(name);
    fs::rename(&from, &to)?;
    let target = player.outside();
    let target = target.parent().unwrap_or(&target).to_owned();
    match player.dice.below(3) {
        0 => fs::rename(&to, &from).map(|()| "there and back".to_owned()),
        _ => {
            std::os::unix::fs::symlink(target, &from).map(|()| "a link is in its place".to_owned())
        }
    }
}

fn link(player: &mut Player<'_>) -> io::Result<String> {
    let (from, to) = (player.anything(), player.own());
    fs::hard_link(&from, &to)?;
    Ok("linked".to_owned())
}

fn symlink(player: &mut Player<'_>) -> io::Result<String> {
    let (target, at) = (player.anything(), player.own());
    std::os::unix::fs::symlink(&target, &at)?;
    Ok("linked".to_owned())
}

fn mkdir(player: &mut Player<'_>) -> io::Result<String> {
    fs::create_dir(player.anything())?;
    Ok("made".to_owned())
}

fn rmdir(player: &mut Player<'_>) -> io::Result<String> {
    fs::remove_dir(player.anything())?;
    Ok("removed".to_owned())
}

fn unlink(player: &mut Player<'_>) -> io::Result<String> {
    fs::remove_file(player.anything())?;
    Ok("removed".to_owned())
}

fn chmod(player: &mut Player<'_>) -> io::Result<String> {
    let path = player.anything();
    let directory = path.is_dir();
    let mode = *player.dice.one_of(&[0o700, 0o755, 0o777, 0o4755]).unwrap_or(&OWN_MODE);
    let mode = if directory { mode } else { mode & !0o100 | OWN_MODE };
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    Ok(format!("{mode:o}"))
}

fn attribute(player: &mut Player<'_>) -> io::Result<String> {
    let path = player.anything();
    let name = *player.dice.one_of(&["user.a", "trusted.overlay.opaque"]).unwrap_or(&"user.a");
    rustix::fs::setxattr(&path, name, player.stamp.as_bytes(), XattrFlags::empty())?;
    Ok(format!("{name} is set"))
}

/// Without a right to read, and kept: the name may mean another file when it is used.
fn open_path(player: &mut Player<'_>) -> io::Result<String> {
    let path = player.outside();
    let opened = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    player.keep(opened);
    Ok("kept".to_owned())
}

/// Reads or lists what a descriptor stands for that was kept.
fn read_kept(player: &mut Player<'_>) -> io::Result<String> {
    let at = player.dice.below(player.kept.len());
    let Some(kept) = player.kept.get(at) else { return Ok("nothing is kept".to_owned()) };
    let number = kept.as_raw_fd();
    let path = PathBuf::from(format!("/proc/self/fd/{number}"));
    let target = fs::read_link(&path)?;
    player.note(target.display());
    // A socket cannot be opened, and the bytes in a pipe are not a file's.
    if !target.starts_with("/") {
        return Ok("not a file".to_owned());
    }
    if path.is_dir() { names_in(&path) } else { Ok(shown(&bytes_of(&path)?)) }
}

/// Over a socket and back: what arrives is opened again through /proc.
fn send_descriptor(player: &mut Player<'_>) -> io::Result<String> {
    let path = player.anything();
    let sent = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let (one, other) = ringwall_linux::fdpass::pair()?;
    ringwall_linux::fdpass::send(one.as_fd(), b"x", &[sent.as_fd()])?;
    let mut buffer = [0; 16];
    let received = ringwall_linux::fdpass::receive(other.as_fd(), &mut buffer)?;
    let got = received.and_then(|(_, all)| all.into_iter().next());
    let got = got.ok_or(io::ErrorKind::UnexpectedEof)?;
    let again = PathBuf::from(format!("/proc/self/fd/{}", got.as_raw_fd()));
    let answer =
        if again.is_dir() { names_in(&again) } else { bytes_of(&again).map(|b| shown(&b)) };
    player.keep(got);
    answer
}

/// Descriptors on their way in a socket belong to no process, and count for their user.
fn keep_in_flight(player: &mut Player<'_>) -> io::Result<String> {
    let (one, other) = ringwall_linux::fdpass::pair()?;
    let null = fs::File::open("/dev/null")?;
    let sent = (0..8).take_while(|_| {
        ringwall_linux::fdpass::send(one.as_fd(), b"x", &[null.as_fd(); 8]).is_ok()
    });
    let sent = sent.count();
    player.keep(one);
    player.keep(other);
    Ok(format!("{sent} messages"))
}

fn lock(player: &mut Player<'_>) -> io::Result<String> {
    let path = player.shown_or_anything();
    let file = fs::File::open(&path)?;
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    match player.dice.below(2) {
        0 => rustix::fs::flock(&file, exclusive)?,
        _ => rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockShared)?,
    }
    player.keep(file);
    Ok("locked".to_owned())
}

fn watch(player: &mut Player<'_>) -> io::Result<String> {
    let path = player.shown_or_anything();
    let path = if path.is_dir() { path } else { path.parent().unwrap_or(&path).to_owned() };
    let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    inotify::add_watch(&queue, &path, WatchFlags::ALL_EVENTS)?;
    player.keep(queue);
    Ok("watched".to_owned())
}

/// Names that events tell, of files that may be hidden.
fn read_events(player: &mut Player<'_>) -> io::Result<String> {
    let mut names = String::new();
    for kept in &player.kept {
        let target = fs::read_link(format!("/proc/self/fd/{}", kept.as_raw_fd()))?;
        if !target.to_string_lossy().contains("inotify") {
            continue;
        }
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(kept, &mut buffer);
        while let Ok(event) = events.next() {
            if let Some(name) = event.file_name() {
                names.push_str(&name.to_string_lossy());
                names.push(' ');
            }
        }
    }
    Ok(names)
}

/// Many small files: names, inodes and events.
fn flood(player: &mut Player<'_>) -> io::Result<String> {
    let place = player.own();
    fs::create_dir_all(&place)?;
    let number = player.dice.below(8);
    let name = |at: usize| place.join(format!("flood-{number}-{at}"));
    let made = (0..48).take_while(|at| fs::write(name(*at), player.stamp).is_ok()).count();
    Ok(format!("{made} files"))
}

fn start(player: &mut Player<'_>, word: &str) -> io::Result<String> {
    player.note(word);
    let child = Command::new(player.program)
        .args(["--adversary-helper", word, &player.scene.mark])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    player.children.push(child);
    Ok("started".to_owned())
}

fn fork(player: &mut Player<'_>) -> io::Result<String> {
    start(player, "wait")
}

fn hold(player: &mut Player<'_>) -> io::Result<String> {
    let word = player.dice.one_of(&HELPERS).copied().unwrap_or("wait");
    start(player, word)
}

/// A call that a wall refuses, namespaces and mounts among them, with arguments that do no harm.
fn knock(player: &mut Player<'_>) -> io::Result<String> {
    let all: Vec<_> = interface::all().collect();
    let Some(interface) = player.dice.one_of(&all) else { return Ok(String::new()) };
    player.note(interface.name);
    // Where it is open it may change the caller, as a new namespace does; the next actions then try
    // what can be done there.
    Ok(match interface.knock() {
        Answer::Refused(errno) => format!("refused: {errno}"),
        Answer::Reached(None) => "done".to_owned(),
        Answer::Reached(Some(errno)) => format!("reached: {errno}"),
    })
}

fn limit(player: &mut Player<'_>) -> io::Result<String> {
    let all = [Resource::Nofile, Resource::Core, Resource::Memlock, Resource::Nproc];
    let resource = player.dice.one_of(&all).copied().unwrap_or(Resource::Core);
    let had = rustix::process::getrlimit(resource);
    let more = had.maximum.map(|most| most.saturating_mul(2));
    rustix::process::setrlimit(resource, Rlimit { current: more, maximum: more })?;
    let has = rustix::process::getrlimit(resource);
    Ok(format!("{:?} is now {:?}", had.maximum, has.maximum))
}

fn signal(player: &mut Player<'_>) -> io::Result<String> {
    let all = [Signal::TERM, Signal::HUP, Signal::STOP, Signal::KILL];
    let signal = player.dice.one_of(&all).copied().unwrap_or(Signal::TERM);
    let target = *player.dice.one_of(&[1, player.scene.victim]).unwrap_or(&1);
    player.note(format!("{signal:?} to {target}"));
    let target = Pid::from_raw(target).ok_or(io::ErrorKind::NotFound)?;
    rustix::process::kill_process(target, signal)?;
    Ok("sent".to_owned())
}

/// What /proc tells of a process, the host's among them if there are any.
fn process_files(player: &mut Player<'_>) -> io::Result<String> {
    let victim = player.scene.victim.to_string();
    let targets = ["1", "self", "2", "3", victim.as_str()];
    let target = player.dice.one_of(&targets).copied().unwrap_or("self");
    let files = ["environ", "cmdline", "maps", "mountinfo", "fd", "root", "cwd", "task", "mem"];
    let file = player.dice.one_of(&files).copied().unwrap_or("environ");
    let path = player.noted(PathBuf::from(format!("/proc/{target}/{file}")));
    if file == "mem" {
        // From here on it is the process's memory: opening it is what counts.
        return fs::File::open(&path).map(|_| "opened".to_owned());
    }
    if path.is_dir() { names_in(&path) } else { Ok(shown(&bytes_of(&path)?)) }
}

fn connect_tcp(player: &mut Player<'_>) -> io::Result<String> {
    let to = player.dice.one_of(&player.scene.tcp).cloned().unwrap_or_default();
    player.note(&to);
    let to: SocketAddr = to.parse().map_err(io::Error::other)?;
    TcpStream::connect_timeout(&to, PATIENCE)?.write_all(player.scene.greeting.as_bytes())?;
    Ok("reached".to_owned())
}

fn send_udp(player: &mut Player<'_>) -> io::Result<String> {
    let to = player.dice.one_of(&player.scene.udp).cloned().unwrap_or_default();
    player.note(&to);
    let to: SocketAddr = to.parse().map_err(io::Error::other)?;
    let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    UdpSocket::bind(from)?.send_to(player.scene.greeting.as_bytes(), to)?;
    Ok("sent".to_owned())
}

fn connect_abstract(player: &mut Player<'_>) -> io::Result<String> {
    let address = UnixAddr::from_abstract_name(&player.scene.abstract_socket)?;
    UnixStream::connect_addr(&address)?.write_all(player.scene.greeting.as_bytes())?;
    Ok("reached".to_owned())
}

fn connect_named(player: &mut Player<'_>) -> io::Result<String> {
    let all = [&player.scene.sockets[..], &player.scene.engine_sockets].concat();
    let Some(path) = player.dice.one_of(&all).cloned() else { return Ok(String::new()) };
    let way = player.dice.one_of(&super::WAYS).copied().unwrap_or_default();
    let path = player.noted(PathBuf::from(format!("{way}{}", path.display())));
    UnixStream::connect(&path)?.write_all(player.scene.greeting.as_bytes())?;
    Ok("reached".to_owned())
}
