//! What a ring shows of the host: files to read, and nothing else that goes with them. No socket, no pipe, no lock,
//! no lease and no watch gets further than the ring.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::support::{Arena, Planted, Wall, at_every_wall, token};

const EWOULDBLOCK: i32 = 11;

/// Directories of the host that a process ring shows of itself.
const VISIBLE: [&str; 4] = ["/opt", "/usr/local/share", "/usr/lib", "/etc"];

/// A directory that everybody may look into, with one file; the arena's user owns it.
struct Shown {
    place: TempDir,
    flags: Vec<String>,
}

impl Shown {
    fn below(arena: &Arena, above: &str, asked: bool) -> Option<Shown> {
        let place = tempfile::Builder::new().prefix("ringwall-shown-").tempdir_in(above).ok()?;
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.path(), open).expect("own directory");
        let file = place.path().join("file");
        fs::write(&file, "text").expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("own file");
        arena.give(place.path());
        arena.give(&file);
        let path = place.path().to_str().expect("plain").to_owned();
        let flags = if asked { vec!["--ro".to_owned(), path] } else { Vec::new() };
        Some(Shown { place, flags })
    }

    /// Those that a ring with this wall sees: as a part of the host's tree, and asked for.
    fn all(arena: &Arena) -> Vec<Shown> {
        let visible = VISIBLE.iter().filter(|_| !arena.wall.has_image());
        let mut all: Vec<_> = visible.filter_map(|top| Shown::below(arena, top, false)).collect();
        all.extend(Shown::below(arena, "/var/tmp", true));
        all.extend(Shown::below(arena, "/tmp", true));
        assert!(all.len() >= 2);
        all
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn flags(&self) -> Vec<&str> {
        self.flags.iter().map(String::as_str).collect()
    }
}

/// A job that has done its first part and says so, and does the second when it is told to.
struct InTwoParts {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl InTwoParts {
    /// Inside the wall, or outside of it.
    fn begin(arena: &Arena, flags: Option<&[&str]>, script: &str) -> InTwoParts {
        let script = format!("$| = 1; {script}");
        let mut command = match flags {
            Some(flags) => {
                let perl = ["--", "perl", "-e", &script];
                arena.command([&["run", "-i"], arena.flags(), flags, &perl].concat())
            }
            None => {
                let mut perl = Command::new("perl");
                perl.args(["-e", &script]);
                arena.settle(&mut perl);
                perl
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n", "behind {:?}", arena.wall);
        InTwoParts { child, output }
    }

    fn finish(mut self) -> String {
        self.child.stdin.take().expect("a pipe").write_all(b"go on\n").expect("it listens");
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        assert!(self.child.wait().expect("ours to wait for").success(), "{rest}");
        rest
    }
}

const WATCH: &str = r#"
    my $queue = syscall(294, 04000);
    for my $place (@places) {
        my $name = $place; syscall(254, $queue, $name, 0xfff) >= 0 or die "no watch on $place: $!" }
    print "ready\n"; <STDIN>;
    for my $place (@places) { open(my $own, "<", "$place/file") or die; }
    open(my $events, "<&=", $queue) or die; my $seen = "";
    while (sysread($events, my $some, 65536)) { $seen .= $some }
    for (my $at = 0; $at < length $seen;) {
        my ($watch, $mask, $cookie, $long) = unpack("lLLL", substr($seen, $at, 16));
        print "saw ", unpack("Z*", substr($seen, $at + 16, $long)), " ", $mask, "\n"; $at += 16 + $long }
"#;

#[test]
fn watches_on_shown_directories_see_nothing_that_others_do() {
    at_every_wall(|arena| {
        for shown in Shown::all(arena) {
            let secret = token("opened-by-the-host");
            fs::write(shown.path(&secret), "").expect("a file");
            let place = shown.path("");
            let script = format!("my @places = ('{}');{WATCH}", place.display());
            let watched = |flags: Option<&[&str]>| {
                let job = InTwoParts::begin(arena, flags, &script);
                drop(File::open(shown.path(&secret)).expect("own file"));
                job.finish()
            };
            let (inside, outside) = (watched(Some(&shown.flags())), watched(None));
            // The watch works in there, for what the job does itself.
            assert!(inside.contains("saw file "), "{place:?} {:?}: {inside}", arena.wall);
            assert!(!inside.contains(&secret), "{place:?} {:?}: {inside}", arena.wall);
            assert!(outside.contains(&secret), "{outside}");
        }
    });
}

const LOCK: &str = r#"
    open(my $file, "<", $path) or die "$path: $!";
    flock($file, 6) or die "no lock: $!";
    open(my $other, "<", $path) or die;
    my $range = pack("ssx4qqix4", 0, 0, 0, 0, 0);
    fcntl($other, 6, $range) or die "no range: $!";
    print "ready\n"; <STDIN>; print "held\n";
"#;

#[test]
fn locks_on_shown_files_hold_up_nobody_outside() {
    at_every_wall(|arena| {
        for shown in Shown::all(arena) {
            let path = shown.path("file");
            let script = format!("my $path = '{}';{LOCK}", path.display());
            let locks = || {
                let file = File::options().read(true).write(true).open(&path).expect("own file");
                let whole = flock(&file, FlockOperation::NonBlockingLockExclusive);
                let range = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
                (whole, range)
            };
            let job = InTwoParts::begin(arena, Some(&shown.flags()), &script);
            assert_eq!(locks(), (Ok(()), Ok(())), "{path:?} behind {:?}", arena.wall);
            assert_eq!(job.finish(), "held\n");
            let job = InTwoParts::begin(arena, None, &script);
            let held = (Err(Errno::AGAIN), Err(Errno::AGAIN));
            assert_eq!(locks(), held, "the control of {path:?}");
            assert_eq!(job.finish(), "held\n");
        }
    });
}

/// A lease makes whoever opens the file wait until its holder gives it up.
const LEASE: &str = r#"
    $SIG{IO} = 'IGNORE';
    open(my $file, "<", $path) or die "$path: $!";
    my $taken = fcntl($file, 1024, 0) ? 'taken' : 'refused';
    print "ready\n"; <STDIN>; print "$taken\n";
"#;

#[test]
fn leases_on_shown_files_hold_up_nobody_outside() {
    at_every_wall(|arena| {
        for shown in Shown::all(arena) {
            let path = shown.path("file");
            let script = format!("my $path = '{}';{LEASE}", path.display());
            let open = || {
                let mut for_writing = File::options();
                let opened = for_writing.write(true).custom_flags(0o4000).open(&path);
                opened.map(drop).map_err(|error| error.raw_os_error())
            };
            let job = InTwoParts::begin(arena, Some(&shown.flags()), &script);
            assert_eq!(open(), Ok(()), "{path:?} behind {:?}", arena.wall);
            job.finish();
            let job = InTwoParts::begin(arena, None, &script);
            assert_eq!(open(), Err(Some(EWOULDBLOCK)), "the control of {path:?}");
            assert_eq!(job.finish(), "taken\n");
        }
    });
}

/// Says something to whoever reads from the pipe, if anybody does.
const PIPE: &str = r#"
    sysopen(my $pipe, $path, 04001) or do { print "nobody reads: ", $!+0, "\n"; exit };
    syswrite($pipe, "from the job"); print "somebody reads\n";
"#;

#[test]
fn pipes_in_shown_directories_lead_nowhere() {
    at_every_wall(|arena| {
        for shown in Shown::all(arena) {
            let path = shown.path("pipe");
            let mode = rustix::fs::Mode::from_raw_mode(0o666);
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).expect("a pipe");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("own pipe");
            let mut nonblocking = File::options();
            let mut reader =
                nonblocking.read(true).custom_flags(0o4000).open(&path).expect("a reader");
            let script = format!("my $path = '{}';{PIPE}", path.display());
            let mut heard = || {
                let mut text = String::new();
                let _ = reader.read_to_string(&mut text);
                text
            };
            arena.attack_with(&shown.flags(), &script).exits(0).never_shows("somebody");
            assert_eq!(heard(), "", "{path:?} behind {:?}", arena.wall);
            arena.control(&script).exits(0).shows("somebody");
            assert_eq!(heard(), "from the job");
        }
    });
}

#[test]
fn what_is_no_file_or_directory_cannot_be_shown() {
    at_every_wall(|arena| {
        let shown = Shown::below(arena, "/var/tmp", false).expect("a directory");
        let socket = shown.path("socket");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        for path in [socket.as_path(), Path::new("/dev/null")] {
            let refused = arena.attack_with(&["--ro", path.to_str().expect("plain")], "1");
            refused.exits(125);
            assert!(refused.err().contains("cannot be shown"), "{refused:?}");
        }
    });
}

#[test]
fn one_file_is_shown_with_its_content_and_without_its_locks() {
    at_every_wall(|arena| {
        let shown = Shown::below(arena, "/var/tmp", false).expect("a directory");
        fs::write(shown.path("secret"), "of a neighbour").expect("a file");
        let path = shown.path("file");
        let script = format!(
            "my $path = '{}'; print slurp($path), qq(\\n); print list('{}'), qq(\\n); \
             open(my $to, '>>', $path) and die; open(my $file, '<', $path); flock($file, 6) or die;",
            path.display(),
            shown.path("").display()
        );
        let flags = ["--ro", path.to_str().expect("plain")];
        let attack = arena.attack_with(&flags, &script);
        attack.exits(0).shows("text\nfile\n").never_shows("secret");
        let lock = LOCK.replace("my $path", "");
        let job = format!("my $path = '{}';{lock}", path.display());
        let job = InTwoParts::begin(arena, Some(&flags), &job);
        let file = File::open(&path).expect("own file");
        assert_eq!(flock(&file, FlockOperation::NonBlockingLockExclusive), Ok(()));
        job.finish();
    });
}

/// The directory of the system's policy, with a file in it.
struct Policy {
    file: Option<Planted>,
    made: bool,
}

impl Policy {
    const DIRECTORY: &str = "/etc/ringwall";

    fn plant() -> Policy {
        let made = fs::create_dir(Policy::DIRECTORY).is_ok();
        Policy { file: Planted::below(Path::new(Policy::DIRECTORY)), made }
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        self.file = None;
        if self.made {
            // Another test may have put something there by now.
            let _ = fs::remove_dir(Policy::DIRECTORY);
        }
    }
}

#[test]
fn system_policy_is_not_shown() {
    let policy = Policy::plant();
    let Some(file) = &policy.file else {
        println!("not tested here: only root writes system policy");
        return;
    };
    at_every_wall(|arena| {
        let script = format!("print slurp('{}') // 'nothing', qq(\\n);", file.path.display());
        arena.attack(&script).exits(0).shows("nothing").never_shows(&file.secret);
        arena.control(&script).shows(&file.secret);
        let refused = arena.attack_with(&["--ro", Policy::DIRECTORY], "1");
        refused.exits(125);
        assert!(refused.err().contains("cannot be shown"), "{refused:?}");
    });
}

/// Mounts a file system below a visible directory, in a mount namespace of its own, and one file
/// over another; then runs its arguments as the user that is named.
const MOUNTED: &str = r#"
    set -e; top=$1; user=$2; shift 2; rm -f $top/ready
    mount --make-rprivate /
    mkdir -p $top/inner $top/plain; echo kept >$top/plain/file; echo below >$top/over; ln -s plain $top/link
    mount -t tmpfs none $top/inner; chmod 755 $top/inner
    echo above >$top/inner/file; mount --bind $top/inner/file $top/over
    perl -MSocket -e 'socket(S, 1, 1, 0); bind(S, pack_sockaddr_un("$ARGV[0]/inner/socket")) or die;
        listen(S, 9); chmod 0777, "$ARGV[0]/inner/socket"; print "listens\n"; close STDOUT; sleep 60' $top >$top/ready &
    server=$!
    until test -s $top/ready; do sleep 0.05; done
    code=0; setpriv --reuid $user --regid $user --clear-groups "$@" || code=$?
    kill $server; exit $code
"#;

#[test]
fn directories_in_which_something_is_mounted_are_shown_in_parts_and_dead() {
    if !rustix::process::geteuid().is_root() {
        println!("not tested here: only root mounts");
        return;
    }
    for wall in [Wall::Process, Wall::ProcessOfOrdinaryUser, Wall::Container] {
        let arena = Arena::new(wall);
        let top = tempfile::Builder::new().prefix("ringwall-mounted-").tempdir_in("/opt");
        let top = top.expect("a directory");
        fs::set_permissions(top.path(), fs::Permissions::from_mode(0o755)).expect("own directory");
        let top = top.path().to_str().expect("plain");
        let script = format!(
            "my $top = '{top}'; print qq($_: ), slurp(qq($top/$_)) // qq(none\\n) for \
                 qw(inner/file over plain/file link/file);
             socket(my $s, 1, 1, 0); try('socket', connect($s, pack('S a108', 1, qq($top/inner/socket))) ? 0 : -1);
             open(my $file, '<', qq($top/inner/file)); try('lock', flock($file, 6) ? 0 : -1);
             try('write', open(my $new, '>', qq($top/new)) ? 0 : -1);"
        );
        let in_mounts = |inner: &Command| {
            let user = if arena.is_ordinary() { "12345" } else { "0" };
            let mut outer = Command::new("unshare");
            outer.args(["--mount", "sh", "-c", MOUNTED, "sh", top, user]);
            outer.arg(inner.get_program()).args(inner.get_args()).env_clear();
            outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
            outer.current_dir(arena.project()).stdin(Stdio::null()).process_group(0);
            let output = outer.output().expect("unshare runs");
            crate::support::Outcome::new(format!("{outer:?}"), output)
        };
        let flags: &[&str] = if wall.has_image() { &["--ro", top] } else { &[] };
        let attack = in_mounts(&arena.attack_command(flags, &script));
        attack.exits(0);
        // What is asked for is searched for hidden files first, and not beyond a mount.
        let inner = if wall.has_image() { "inner/file: none" } else { "inner/file: above" };
        for seen in [inner, "over: above", "plain/file: kept", "link/file: kept"] {
            attack.shows(seen);
        }
        let answers = attack.answers();
        assert_ne!(answers["socket"], 0, "{attack:?}");
        assert_ne!(answers["write"], 0, "{attack:?}");
        let mut control = Command::new("perl");
        let plain = "sub slurp {} sub try { print qq(try $_[0] ), ($_[1] ? $!+0 : 0), qq(\n) }";
        control.args(["-e", &format!("{plain} {script}")]);
        arena.settle(&mut control);
        let control = in_mounts(&control);
        assert_eq!(control.answer("socket"), 0, "{control:?}");
    }
}
