//! Memory of the kernel instead of one's own: buffers, files without a name, processes that look dead.
//! Each stops a little beyond what the sandbox may have.

use std::fs::{self, File};
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags};
use rustix::fs::{MemfdFlags, XattrFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;

use super::succeeded_if;
use crate::{Account, Scene, Tried};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 32 << 10;
/// More sockets than a process may have open.
const MOST_SOCKETS: usize = 4096;
/// More would not fit into a file's list of names.
const ATTRIBUTES_OF_A_FILE: usize = 64;
/// What a ring may have (`limit_watches` of crates/base/linux). A host has 128 for each user.
const QUEUES_OF_A_RING: usize = 16;
/// A ring has a file system of its own for terminals, with room for so many.
const TERMINALS_OF_A_RING: usize = 32;
/// The kernel remembers so many closed connections of a ring.
const CLOSED_OF_A_RING: u64 = 4096;
/// As many as wait for a program that never accepts.
const CONNECTIONS_OF_A_DOOR: usize = 100;
const DESCRIPTORS_OF_A_MESSAGE: usize = 64;
/// How often a full buffer is tried again: its reader may need a moment.
const TRIES: u32 = 5;
const MOMENT: Duration = Duration::from_millis(2);
/// Long enough for a watchdog that looks from time to time.
const WHILE: Duration = Duration::from_millis(700);

fn wanted(scene: &Scene) -> u64 {
    scene.memory_bytes + scene.memory_bytes / 2
}

/// Holds on to all of it for a while: who counts from outside may be late.
fn held<T>(bytes: u64, scene: &Scene, what: T) -> Tried {
    let all = bytes >= wanted(scene);
    if all {
        std::thread::sleep(WHILE);
    }
    drop(what);
    let mib = bytes / MIB;
    succeeded_if(all, format!("{mib} MiB are held"), format!("{mib} MiB was the most"))
}

/// Writes until nothing more is taken, or enough is.
fn fill(mut to: impl Write, enough: u64) -> u64 {
    let (block, mut written, mut full) = (vec![7; BLOCK], 0, 0);
    while written < enough && full < TRIES {
        match to.write(&block) {
            Ok(taken) => {
                written += taken as u64;
                full = 0;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                full += 1;
                std::thread::sleep(MOMENT);
            }
            Err(_) => break,
        }
    }
    written
}

pub(crate) fn memory_files(scene: &Scene) -> Tried {
    let made = match rustix::fs::memfd_create("ringwall", MemfdFlags::CLOEXEC) {
        Ok(made) => File::from(made),
        Err(error) => return Tried::Failed(error.to_string()),
    };
    held(fill(&made, wanted(scene)), scene, &made)
}

pub(crate) fn local_sockets(scene: &Scene) -> Tried {
    let (mut bytes, mut all) = (0, Vec::new());
    while bytes < wanted(scene) && all.len() < MOST_SOCKETS {
        let Ok((one, other)) = UnixStream::pair() else { break };
        for end in [&one, &other] {
            // Where that is refused, buffers stay as they are.
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(end, 4 << 20);
            if end.set_nonblocking(true).is_ok() {
                bytes += fill(end, wanted(scene) - bytes.min(wanted(scene)));
            }
        }
        all.push((one, other));
    }
    held(bytes, scene, all)
}

pub(crate) fn tcp_buffers(scene: &Scene) -> Tried {
    let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) {
        Ok(listener) => listener,
        Err(error) => return Tried::Impossible(error.to_string()),
    };
    let pair = || -> io::Result<(TcpStream, TcpStream)> {
        let to = TcpStream::connect(listener.local_addr()?)?;
        let from = listener.accept()?.0;
        to.set_nonblocking(true)?;
        Ok((to, from))
    };
    let (mut bytes, mut all) = (0, Vec::new());
    while bytes < wanted(scene) && all.len() < MOST_SOCKETS {
        let Ok((to, from)) = pair() else { break };
        bytes += fill(&to, wanted(scene) - bytes);
        all.push((to, from));
    }
    held(bytes, scene, all)
}

/// Bytes that are lost on the way were never held, so only those count that can be read in the end.
pub(crate) fn udp_buffers(scene: &Scene) -> Tried {
    let block = vec![7; BLOCK];
    let socket = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
        socket.set_nonblocking(true)?;
        let to = socket.local_addr()?;
        for _ in 0..128 {
            socket.send_to(&block, to)?;
        }
        Ok(socket)
    };
    // Half of the memory that a datagram takes can be overhead.
    let most = usize::try_from(wanted(scene) * 4 / BLOCK as u64).unwrap_or(MOST_SOCKETS);
    let all: Vec<UdpSocket> = (0..most.min(MOST_SOCKETS)).map_while(|_| socket().ok()).collect();
    std::thread::sleep(WHILE);
    let (mut bytes, mut buffer) = (0, vec![0; BLOCK]);
    for socket in &all {
        while let Ok(size) = socket.recv(&mut buffer) {
            bytes += size as u64;
        }
    }
    held(bytes, scene, all)
}

/// A pipe holds 64 KiB at first, and 1 MiB for a process that asks.
pub(crate) fn pipes(scene: &Scene) -> Tried {
    let (mut bytes, mut all) = (0, Vec::new());
    while bytes < wanted(scene) && all.len() < MOST_SOCKETS {
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let Ok((from, to)) = rustix::pipe::pipe_with(flags) else { break };
        // Where that is refused, the pipe stays as it is.
        let _ = rustix::pipe::fcntl_setpipe_size(&to, MIB as usize);
        let to = File::from(to);
        bytes += fill(&to, wanted(scene) - bytes);
        all.push((from, to));
    }
    held(bytes, scene, all)
}

/// The kernel charges a connection to a group when it is accepted.
pub(crate) fn unaccepted(scene: &Scene) -> Tried {
    let (mut bytes, mut all, mut doors) = (0, Vec::new(), Vec::new());
    while bytes < wanted(scene) && all.len() < MOST_SOCKETS {
        let Ok(door) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) else { break };
        let Ok(address) = door.local_addr() else { break };
        let before = bytes;
        for _ in 0..CONNECTIONS_OF_A_DOOR {
            let Ok(to) = TcpStream::connect(address) else { break };
            if bytes >= wanted(scene) || to.set_nonblocking(true).is_err() {
                break;
            }
            bytes += fill(&to, wanted(scene) - bytes);
            all.push(to);
        }
        doors.push(door);
        if bytes == before {
            break;
        }
    }
    held(bytes, scene, (all, doors))
}

/// A descriptor that was sent stays with the socket, even when the sender has closed its own.
pub(crate) fn descriptors_on_their_way(scene: &Scene) -> Tried {
    let Ok(file) = File::open("/dev/null") else {
        return Tried::Impossible("there is no /dev/null".to_owned());
    };
    let passed = [file.as_fd(); DESCRIPTORS_OF_A_MESSAGE];
    let send = |by: &UnixStream| {
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_OF_A_MESSAGE))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&passed));
        let word = [IoSlice::new(&[7])];
        rustix::net::sendmsg(by, &word, &mut ancillary, SendFlags::DONTWAIT).is_ok()
    };
    // The kernel looks at the number before it adds to it.
    let allowed = scene.open_files as usize + 2 * DESCRIPTORS_OF_A_MESSAGE;
    let (mut sent, mut all) = (0, Vec::new());
    while sent <= allowed {
        let Ok((one, other)) = UnixStream::pair() else { break };
        let before = sent;
        while sent <= allowed && send(&one) {
            sent += DESCRIPTORS_OF_A_MESSAGE;
        }
        all.push((one, other));
        if sent == before {
            break;
        }
    }
    let told = format!("{sent} descriptors were on their way");
    succeeded_if(sent > allowed, told.clone(), told)
}

pub(crate) fn terminals(_: &Scene) -> Tried {
    let terminal = || rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).ok();
    let all: Vec<_> = (0..TERMINALS_OF_A_RING * 2).map_while(|_| terminal()).collect();
    let told = format!("{} terminals were open", all.len());
    succeeded_if(all.len() > TERMINALS_OF_A_RING, told.clone(), told)
}

pub(crate) fn closed(_: &Scene) -> Tried {
    let text = match fs::read_to_string("/proc/sys/net/ipv4/tcp_max_tw_buckets") {
        Ok(text) => text,
        Err(error) => return Tried::Impossible(error.to_string()),
    };
    let most = text.trim().parse().unwrap_or(u64::MAX);
    let told = format!("the kernel remembers {most} connections");
    succeeded_if(most > CLOSED_OF_A_RING, told.clone(), told)
}

/// Attributes are memory of the kernel, and no content of a file.
pub(crate) fn attributes(scene: &Scene) -> Tried {
    let directory = Path::new("/dev/shm").join(format!("{}-attributes", scene.mark));
    if let Err(error) = fs::create_dir(&directory) {
        return Tried::Impossible(error.to_string());
    }
    let block = vec![7; BLOCK];
    let enough = usize::try_from(wanted(scene) / BLOCK as u64).unwrap_or(MOST_SOCKETS);
    let set = |number: usize| -> io::Result<()> {
        let path = directory.join((number / ATTRIBUTES_OF_A_FILE).to_string());
        File::options().create(true).append(true).open(&path)?;
        let name = format!("user.ringwall{}", number % ATTRIBUTES_OF_A_FILE);
        Ok(rustix::fs::setxattr(&path, name, &block, XattrFlags::empty())?)
    };
    let made = (0..enough).take_while(|number| set(*number).is_ok()).count();
    let tried = held((made * BLOCK) as u64, scene, made);
    let _ = fs::remove_dir_all(&directory);
    tried
}

/// Each queue of events is memory, and the host has few for each of its users.
pub(crate) fn watch_queues(_: &Scene) -> Tried {
    let queue = || inotify::init(CreateFlags::CLOEXEC).ok();
    let all: Vec<_> = (0..QUEUES_OF_A_RING * 2).map_while(|_| queue()).collect();
    let most = all.len();
    succeeded_if(
        most > QUEUES_OF_A_RING,
        format!("{most} queues are open"),
        format!("{most} queues was the most"),
    )
}

/// The first thread ends, and with it all that `/proc/PID` tells of a process; another one holds the
/// memory, and says so in the end.
pub(crate) fn ended_thread(scene: &Scene) -> Tried {
    let scene = scene.clone();
    let holder = move || {
        let mut kept: Vec<Vec<u8>> = Vec::new();
        let mut tried = None;
        for number in 0..wanted(&scene) / MIB {
            let mut block = Vec::new();
            if block.try_reserve_exact(MIB as usize).is_err() {
                tried = Some(Tried::Failed(format!("{number} MiB was the most")));
                break;
            }
            block.resize(MIB as usize, (number % 255) as u8 + 1);
            kept.push(block);
        }
        let bytes = kept.len() as u64 * MIB;
        let tried = tried.unwrap_or_else(|| held(bytes, &scene, kept));
        let account = Account { probe: ENDED_THREAD.to_owned(), tried };
        let mut line = serde_json::to_vec(&account).unwrap_or_default();
        line.push(b'\n');
        // The thread that has ended may have held the lock of the standard output.
        let told = rustix::io::write(rustix::stdio::stdout(), &line).is_ok();
        ringwall_linux::process::exit_now(i32::from(!told))
    };
    match std::thread::Builder::new().spawn(holder) {
        Ok(_) => ringwall_linux::process::end_this_thread(),
        Err(error) => Tried::Impossible(error.to_string()),
    }
}

/// The name of that attack: no thread is left to tell it.
pub(crate) const ENDED_THREAD: &str = "exhaust-behind-an-ended-thread";
