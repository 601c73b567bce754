//! Attacks on files that are kept safe: what others plant, and what the machine does meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ringwall_safekeeping::{
    Access, Content, Directory, FileError, Hold, Lock, Trust, Wait, beneath, create_new, hold,
    is_leftover, lock_within as lock, open, open_for, read, replace,
};
use rustix::fs::{CWD, FileType, Mode, OFlags};

const ALL: [Trust; 5] = [Trust::Secret, Trust::Own, Trust::OwnOrRoots, Trust::Sealed, Trust::Owned];
/// Set for a copy of this program that writes until it is killed.
const WRITE_TO: &str = "RINGWALL_TEST_WRITE_TO";
const LARGE: usize = 1 << 20;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// Fails when something that must not wait does.
fn soon<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(work()));
    told.recv_timeout(Duration::from_secs(20)).expect("it waits for ever")
}

fn is_untrusted<T>(result: Result<T, FileError>) -> bool {
    matches!(result, Err(FileError::Untrusted { .. }))
}

#[test]
fn a_link_at_the_target_is_replaced_and_never_written_through() {
    let place = tempfile::tempdir().unwrap();
    let (victim, path) = (place.path().join("victim"), place.path().join("file"));
    fs::write(&victim, "as it was").unwrap();
    symlink(&victim, &path).unwrap();
    assert!(matches!(create_new(&path, Content::durable(b"x")), Err(FileError::Exists(_))));
    for trust in ALL {
        assert!(is_untrusted(open(&path, trust)), "{trust:?}");
        assert!(is_untrusted(open_for(&path, trust, Access::Append)), "{trust:?}");
    }
    replace(&path, Content::durable(b"new")).unwrap();
    assert!(!path.is_symlink());
    assert_eq!(read(&path, Trust::Secret, 3).unwrap(), b"new");
    assert_eq!(fs::read(&victim).unwrap(), b"as it was");
}

#[test]
fn a_lock_is_not_taken_through_a_link_or_on_a_pipe() {
    let place = tempfile::tempdir().unwrap();
    let (link, pipe) = (place.path().join("link"), place.path().join("pipe"));
    symlink(place.path().join("made-elsewhere"), &link).unwrap();
    fifo(&pipe);
    assert!(is_untrusted(lock(&link, Hold::Alone, Wait::Never)));
    assert!(soon(move || is_untrusted(lock(&pipe, Hold::Alone, Wait::Forever))));
    assert!(!place.path().join("made-elsewhere").exists());
}

#[test]
fn a_directory_in_the_place_of_a_file_is_an_error_and_stays() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    fs::create_dir(&path).unwrap();
    assert!(create_new(&path, Content::durable(b"x")).is_err());
    assert!(replace(&path, Content::durable(b"x")).is_err());
    for trust in ALL {
        assert!(open(&path, trust).is_err(), "{trust:?}");
        assert!(is_untrusted(open_for(&path, trust, Access::Append)), "{trust:?}");
    }
    assert_eq!(names(place.path()), ["file"], "nothing is left");
}

#[test]
fn a_pipe_in_the_place_of_a_file_makes_nobody_wait() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    fifo(&path);
    for trust in ALL {
        let path = path.clone();
        assert!(soon(move || is_untrusted(open(&path, trust))), "{trust:?}");
    }
    let to = path.clone();
    soon(move || replace(&to, Content::durable(b"new"))).unwrap();
    assert_eq!(read(&path, Trust::Secret, 3).unwrap(), b"new");
}

#[test]
fn a_file_that_others_can_open_is_trusted_only_as_far_as_it_can_be() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    create_new(&path, Content::durable(b"secret")).unwrap();
    let trusted = |bits: u32| {
        chmod(&path, bits);
        ALL.map(|trust| read(&path, trust, 6).is_ok())
    };
    assert_eq!(trusted(0o600), [true, true, true, false, true]);
    assert_eq!(trusted(0o444), [false, true, true, true, true]);
    for bits in [0o640, 0o604] {
        assert_eq!(trusted(bits), [false, true, true, false, true], "{bits:o}");
    }
    for bits in [0o620, 0o602, 0o666] {
        assert_eq!(trusted(bits), [false, false, false, false, true], "{bits:o}");
    }
    chmod(&path, 0o400);
    fs::hard_link(&path, place.path().join("second")).unwrap();
    assert!(is_untrusted(open(&path, Trust::Sealed)), "a second name");
    let error = {
        chmod(&path, 0o640);
        read(&path, Trust::Secret, 6).unwrap_err().to_string()
    };
    assert!(error.contains("open to others") && error.contains("chmod go= "), "{error}");
}

#[test]
fn a_file_of_another_user_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let own = place.path().join("file");
    create_new(&own, Content::durable(b"planted")).unwrap();
    let foreign = if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&own, Some(12_345), None).unwrap();
        own
    } else {
        // Root's, on every machine.
        PathBuf::from("/etc/passwd")
    };
    for trust in [Trust::Secret, Trust::Own, Trust::Sealed, Trust::Owned] {
        let error = open(&foreign, trust).unwrap_err().to_string();
        assert!(error.contains("is another user's"), "{trust:?}: {error}");
    }
    let as_root_sees_it = open(&foreign, Trust::OwnOrRoots).is_ok();
    assert_eq!(as_root_sees_it, !rustix::process::geteuid().is_root());
    assert!(Directory::open(Path::new("/proc/1"), Trust::Own).is_err() || is_own("/proc/1"));
}

fn is_own(path: &str) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().uid() == rustix::process::geteuid().as_raw()
}

#[test]
fn a_directory_that_others_can_enter_or_that_is_a_link_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a/b");
    Directory::make(&path, Trust::Secret).unwrap();
    assert_eq!(mode(&path), 0o700);
    for (bits, trusted) in [(0o750, [false, true]), (0o720, [false, false]), (0o700, [true, true])]
    {
        chmod(&path, bits);
        let found = [Trust::Secret, Trust::Own].map(|trust| Directory::make(&path, trust).is_ok());
        assert_eq!(found, trusted, "{bits:o}");
    }
    let link = place.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(Directory::make(&link, Trust::Own).is_err());
    fs::write(place.path().join("file"), "").unwrap();
    assert!(Directory::make(&place.path().join("file"), Trust::Own).is_err());
}

#[test]
fn a_larger_file_than_was_agreed_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    replace(&path, Content::quick(b"123456")).unwrap();
    assert_eq!(read(&path, Trust::Secret, 6).unwrap(), b"123456");
    assert!(matches!(read(&path, Trust::Secret, 5), Err(FileError::TooLarge { most: 5, .. })));
    // It has no length, and no end.
    assert!(read(Path::new("/dev/zero"), Trust::Own, 5).is_err());
}

#[test]
fn the_mode_is_what_was_asked_for_whatever_was_there() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    fs::write(&path, "").unwrap();
    chmod(&path, 0o666);
    replace(&path, Content::quick(b"x")).unwrap();
    assert_eq!(mode(&path), 0o600);
    replace(&path, Content::durable(b"x").with_mode(0o444)).unwrap();
    assert_eq!(mode(&path), 0o444);
}

#[test]
fn of_many_writers_of_a_new_file_one_succeeds_and_nothing_is_left() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("one");
    let won: usize = std::thread::scope(|scope| {
        let try_it = |number: u8| {
            let path = &path;
            move || usize::from(create_new(path, Content::durable(&[number])).is_ok())
        };
        let writers: Vec<_> = (0..8).map(|number| scope.spawn(try_it(number))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert_eq!(won, 1);
    assert_eq!(names(place.path()), ["one"]);
}

#[test]
fn a_reader_meets_a_whole_file_while_two_writers_replace_it() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    replace(&path, Content::quick(&[b'a'; LARGE])).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for letter in [b'a', b'b'] {
            let (path, stop) = (&path, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    replace(path, Content::quick(&[letter; LARGE])).unwrap();
                }
            });
        }
        let whole = (0..200).all(|_| is_whole(&path));
        stop.store(true, Ordering::Relaxed);
        assert!(whole);
    });
    assert_eq!(names(place.path()), ["file"]);
}

fn is_whole(path: &Path) -> bool {
    let content = read(path, Trust::Secret, LARGE as u64).unwrap();
    content.len() == LARGE && content.iter().all(|byte| *byte == content[0])
}

/// Writes until somebody kills it; does nothing unless it is such a copy.
#[test]
fn a_writer_to_kill() {
    let Some(path) = std::env::var_os(WRITE_TO) else { return };
    let path = Path::new(&path);
    for letter in (b'a'..=b'z').cycle() {
        if let Err(error) = replace(path, Content::durable(&vec![letter; LARGE])) {
            println!("refused: {error:?}");
            return;
        }
    }
}

/// This program again, as one that only writes.
fn writer(path: &Path, before: &str) -> Child {
    let script = format!("{before} exec \"$0\" --exact a_writer_to_kill --nocapture");
    Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(WRITE_TO, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_writer_that_is_killed_leaves_a_whole_file_and_what_is_known_as_a_leftover() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    let mut leftovers = 0;
    for round in 0..20u64 {
        let mut writing = writer(&path, "");
        let begun = Instant::now();
        while !path.exists() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(round * 3 % 17));
        writing.kill().unwrap();
        writing.wait().unwrap();
        assert!(is_whole(&path), "round {round}");
        for name in names(place.path()) {
            assert!(name == "file" || is_leftover(&name), "{name}");
            leftovers += usize::from(is_leftover(&name));
        }
    }
    assert!(leftovers > 0, "no writer was killed between write and rename, so nothing was shown");
}

#[test]
fn a_disk_that_is_full_leaves_the_old_file_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    replace(&path, Content::durable(b"old")).unwrap();
    // No file can grow beyond 64 KiB; the kernel says so instead of killing.
    let mut writing = writer(&path, "trap '' XFSZ; ulimit -f 64;");
    let mut said = String::new();
    writing.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(writing.wait().unwrap().success(), "{said}");
    assert!(said.contains("refused: "), "{said}");
    assert_eq!(read(&path, Trust::Secret, 3).unwrap(), b"old");
    assert_eq!(names(place.path()), ["file"]);
}

#[test]
fn a_lock_is_free_again_when_it_is_dropped_also_while_a_copy_of_it_is_open() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("lock");
    let first = lock(&path, Hold::Alone, Wait::Never).unwrap().unwrap();
    assert_eq!(mode(&path), 0o600);
    for (how, wait) in [
        (Hold::Alone, Wait::Never),
        (Hold::Shared, Wait::Never),
        (Hold::Shared, Wait::For(Duration::from_millis(30))),
    ] {
        assert!(lock(&path, how, wait).unwrap().is_none(), "{how:?} {wait:?}");
    }
    let copy = first.try_clone().unwrap();
    drop(first);
    let shared = lock(&path, Hold::Shared, Wait::Never).unwrap();
    assert!(shared.is_some() && lock(&path, Hold::Shared, Wait::Never).unwrap().is_some());
    assert!(lock(&path, Hold::Alone, Wait::Never).unwrap().is_none());
    drop((shared, copy));
}

#[test]
fn one_who_waits_gets_the_lock_when_its_holder_lets_go() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("lock");
    let held = lock(&path, Hold::Alone, Wait::Never).unwrap().unwrap();
    let waiting = [Wait::Forever, Wait::For(Duration::from_secs(20))].map(|wait| {
        let path = path.clone();
        std::thread::spawn(move || lock(&path, Hold::Shared, wait).unwrap().is_some())
    });
    std::thread::sleep(Duration::from_millis(30));
    assert!(waiting.iter().all(|waiter| !waiter.is_finished()));
    drop(held);
    assert!(waiting.into_iter().all(|waiter| waiter.join().unwrap()));
}

#[test]
fn what_an_heir_of_the_descriptor_holds_stays_held() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("record");
    let file = File::create_new(&path).unwrap();
    assert!(hold(&file, Hold::Alone, Wait::Never).unwrap());
    let heir = file.try_clone().unwrap();
    drop(file);
    let look = || Lock::take(File::open(&path).unwrap(), Hold::Shared, Wait::Never).unwrap();
    assert!(look().is_none());
    drop(heir);
    assert!(look().is_some());
}

#[test]
fn no_way_leads_out_of_a_directory() {
    let place = tempfile::tempdir().unwrap();
    let inside = place.path().join("inside");
    fs::create_dir_all(inside.join("sub")).unwrap();
    fs::write(inside.join("sub/file"), "here").unwrap();
    fs::write(place.path().join("outside"), "there").unwrap();
    symlink("../outside", inside.join("link")).unwrap();
    symlink("sub", inside.join("alias")).unwrap();
    let root = File::open(&inside).unwrap();
    let open = |path: &str| beneath::open(&root, path, OFlags::RDONLY, beneath::Mounts::Refused);
    assert!(open("sub/file").is_ok());
    for path in ["link", "alias/file", "../outside", "sub/../../outside", "/etc/passwd"] {
        assert!(open(path).is_err(), "{path}");
    }
    let whole = |path: &Path| beneath::open_without_links(path, OFlags::RDONLY);
    let inside = inside.canonicalize().unwrap();
    assert!(whole(&inside.join("sub/file")).is_ok());
    assert_eq!(whole(&inside.join("alias/file")).unwrap_err(), rustix::io::Errno::LOOP);
    // Another file system lies at /proc.
    let top = File::open("/").unwrap();
    for (mounts, enters) in [(beneath::Mounts::Entered, true), (beneath::Mounts::Refused, false)] {
        let opened = beneath::open(&top, "proc/version", OFlags::RDONLY, mounts);
        assert_eq!(opened.is_ok(), enters, "{mounts:?}");
    }
}
