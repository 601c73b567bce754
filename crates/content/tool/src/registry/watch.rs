//! Watches a folder and keeps a registry in step with the `.wasm` files in it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringwall_spec::ToolDigest;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::{Event, Registry};
use crate::compiler::{BoxError, Compiler, load};
use crate::store::read_wasm;

/// A program that writes a file in place may close it several times; a rename is whole at once.
const QUIET: Duration = Duration::from_millis(20);

/// Why a folder is not watched.
#[derive(Debug, thiserror::Error)]
#[error("the folder {} cannot be watched", folder.display())]
pub struct WatchError {
    folder: PathBuf,
    source: io::Error,
}

/// Ends the watch when dropped.
#[derive(Debug)]
pub struct Watcher {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

struct Watch {
    folder: PathBuf,
    inotify: OwnedFd,
    stop: Arc<OwnedFd>,
    registry: Arc<Registry>,
    compiler: Arc<dyn Compiler>,
    reserved: Reserved,
    report: Box<dyn Fn(Event) + Send>,
    /// Files that changed, and when to look at them.
    due: HashMap<String, Instant>,
}

/// Says why a name is not to be had by this content, if it is not.
pub type Reserved = Box<dyn Fn(&str, &ToolDigest) -> Option<String> + Send>;

/// Puts the tools of `folder` into service, then goes on doing so on a thread of its own. A file gets no
/// name that is `reserved`.
pub fn watch(
    folder: &Path,
    registry: Arc<Registry>,
    compiler: Arc<dyn Compiler>,
    reserved: Reserved,
    report: impl Fn(Event) + Send + 'static,
) -> Result<Watcher, WatchError> {
    let failed = |source: io::Error| WatchError { folder: folder.to_owned(), source };
    let started = || -> io::Result<(OwnedFd, OwnedFd)> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let flags = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&inotify, folder, flags)?;
        Ok((inotify, eventfd(0, EventfdFlags::CLOEXEC)?))
    };
    let (inotify, stop) = started().map_err(failed)?;
    let stop = Arc::new(stop);
    let mut watch = Watch {
        folder: folder.to_owned(),
        inotify,
        stop: Arc::clone(&stop),
        registry,
        compiler,
        reserved,
        report: Box::new(report),
        due: HashMap::new(),
    };
    watch.all_are_due().map_err(failed)?;
    watch.settle_due();
    let thread = std::thread::Builder::new().name("tool-watch".to_owned());
    let thread = thread.spawn(move || watch.run()).map_err(failed)?;
    Ok(Watcher { stop, thread: Some(thread) })
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // The counter cannot be full, and a thread that has ended already needs no telling.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Watch {
    fn run(mut self) {
        loop {
            let stopped = match self.wait() {
                Ok(stopped) => stopped,
                Err(errno) => return (self.report)(Event::Blind { reason: errno.to_string() }),
            };
            if stopped {
                return;
            }
            if let Err(reason) = self.read_events() {
                return (self.report)(Event::Blind { reason });
            }
            self.settle_due();
        }
    }

    /// Waits for something to change or to become due. True if the watch is to end.
    fn wait(&self) -> Result<bool, Errno> {
        let next = self.due.values().min().map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = next.and_then(|next| Timespec::try_from(next).ok());
        let mut ready = [
            PollFd::new(&self.inotify, PollFlags::IN),
            PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
        ];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(!ready[1].revents().is_empty()),
            Err(errno) => Err(errno),
        }
    }

    /// Notes which files to look at. An error is the reason why there is nothing left to watch.
    fn read_events(&mut self) -> Result<(), String> {
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut lost = false;
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.to_string()),
            };
            let flags = event.events();
            if flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED)
            {
                return Err(format!("the folder {} is gone", self.folder.display()));
            }
            lost |= flags.contains(ReadFlags::QUEUE_OVERFLOW);
            let name = event.file_name().and_then(|name| name.to_str().ok());
            if let Some(name) = name.filter(|name| name.ends_with(".wasm")) {
                let quiet =
                    if flags.contains(ReadFlags::CLOSE_WRITE) { QUIET } else { Duration::ZERO };
                self.due.insert(name.to_owned(), Instant::now() + quiet);
            }
        }
        if lost { self.all_are_due().map_err(|error| error.to_string()) } else { Ok(()) }
    }

    /// What is in the folder, and what was.
    fn all_are_due(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for entry in fs::read_dir(&self.folder)? {
            if let Ok(name) = entry?.file_name().into_string()
                && name.ends_with(".wasm")
            {
                self.due.insert(name, now);
            }
        }
        for file in self.registry.files() {
            self.due.insert(file, now);
        }
        Ok(())
    }

    fn settle_due(&mut self) {
        let now = Instant::now();
        let mut due: Vec<String> =
            self.due.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        due.sort();
        for file in due {
            self.due.remove(&file);
            let event = self.settle(&file);
            event.into_iter().for_each(&self.report);
        }
    }

    /// Brings the registry in step with one file.
    fn settle(&self, file: &str) -> Option<Event> {
        let begun = Instant::now();
        let path = self.folder.join(file);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.registry.withdraw(file);
            }
            // What a link leads to may change without a sign.
            Ok(found) if found.is_symlink() => {
                let reason = "it is a symbolic link; put the file itself into the folder";
                return Some(self.registry.refusal(file, reason.to_owned()));
            }
            _ => {}
        }
        let wasm = match read_wasm(&path) {
            Ok(wasm) => wasm,
            Err(error) => return Some(self.registry.refusal(file, told(Box::new(error)))),
        };
        let tool = match load(&*self.compiler, &wasm, file) {
            Ok((tool, _)) => tool,
            Err(error) => return Some(self.registry.refusal(file, told(Box::new(error)))),
        };
        if self.registry.of_file(file).is_some_and(|(_, serving)| serving.digest == tool.digest) {
            return None;
        }
        match (self.reserved)(tool.name(), &tool.digest) {
            Some(reason) => Some(self.registry.refusal(file, reason)),
            None => Some(self.registry.swap(file, tool, begun.elapsed())),
        }
    }
}

/// The whole chain of causes, as one line.
fn told(error: BoxError) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    line
}
