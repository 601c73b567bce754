//! Attacks on files that differ in the way, the deed and the target only.

use crate::attack::deeds::{self, Attempt, Deed, Target};
use crate::{Attack, Class, Probe, Reach, Witness};

/// Name, meaning, target, way, deed.
type Row = (&'static str, &'static str, Target, &'static str, Deed);

const PLAIN: &str = "";
const OWN_ROOT: &str = "/proc/self/root";
const THREAD_ROOT: &str = "/proc/thread-self/root";
const FIRST_ROOT: &str = "/proc/1/root";
const OWN_DIRECTORY: &str = "/proc/self/cwd/../../../../../../../../../../../..";
const FIRST_DIRECTORY: &str = "/proc/1/cwd/../../../../../../../..";

use Target::{Directories, Files, Hidden, ShownDirectories, ShownFiles};

/// What a way leads to, a deed may reach that another one does not: mounts, Landlock and file modes keep
/// different calls.
#[rustfmt::skip]
const OUTSIDE: &[Row] = &[
    ("append-by-thread-root", "another name of one's own root", Files, THREAD_ROOT, deeds::append),
    ("append-by-own-directory", "`..` beyond the workspace", Files, OWN_DIRECTORY, deeds::append),
    ("append-by-first-directory", "`..` from the first process", Files, FIRST_DIRECTORY, deeds::append),
    ("append-by-descriptor", "O_PATH opened again through /proc", Files, PLAIN, deeds::append_by_descriptor),
    ("truncate-by-own-root", "emptied by /proc", Files, OWN_ROOT, deeds::truncate),
    ("truncate-by-own-directory", "emptied past the workspace", Files, OWN_DIRECTORY, deeds::truncate),
    ("truncate-by-first-root", "emptied by the first process", Files, FIRST_ROOT, deeds::truncate),
    ("replace-by-own-root", "replaced by /proc", Files, OWN_ROOT, deeds::replace),
    ("replace-by-own-directory", "replaced past the workspace", Files, OWN_DIRECTORY, deeds::replace),
    ("replace-by-first-root", "replaced by the first process", Files, FIRST_ROOT, deeds::replace),
    ("exchange", "two names exchanged at once", Files, PLAIN, deeds::exchange),
    ("exchange-by-own-root", "the same by /proc", Files, OWN_ROOT, deeds::exchange),
    ("remove-by-own-root", "removed by /proc", Files, OWN_ROOT, deeds::remove),
    ("remove-by-own-directory", "removed past the workspace", Files, OWN_DIRECTORY, deeds::remove),
    ("mode-by-own-root", "a set-user-id bit by /proc", Files, OWN_ROOT, deeds::change_mode),
    ("mode-by-own-directory", "a set-user-id bit past the workspace", Files, OWN_DIRECTORY, deeds::change_mode),
    ("times-by-own-root", "another time by /proc", Files, OWN_ROOT, deeds::change_times),
    ("attribute-by-own-root", "an attribute by /proc", Files, OWN_ROOT, deeds::set_attribute),
    ("create-by-own-root", "a file that was not there, by /proc", Directories, OWN_ROOT, deeds::create_file),
    ("create-by-own-directory", "the same past the workspace", Directories, OWN_DIRECTORY, deeds::create_file),
    ("create-by-first-root", "the same by the first process", Directories, FIRST_ROOT, deeds::create_file),
    ("create-pipe", "a pipe that a service reads", Directories, PLAIN, deeds::create_pipe),
    ("create-nameless", "O_TMPFILE and a name afterwards", Directories, PLAIN, deeds::link_nameless),
    ("move-directory-above", "a directory above a mount is renamed", Directories, PLAIN, deeds::move_directory_above),
];

/// Any user could write there, were it not shown read-only.
#[rustfmt::skip]
const SHOWN: &[Row] = &[
    ("shown-append", "a path given by --ro is written", ShownFiles, PLAIN, deeds::append),
    ("shown-append-by-own-root", "the same by /proc", ShownFiles, OWN_ROOT, deeds::append),
    ("shown-append-by-first-root", "the same by the first process", ShownFiles, FIRST_ROOT, deeds::append),
    ("shown-append-by-descriptor", "O_PATH opened again for writing", ShownFiles, PLAIN, deeds::append_by_descriptor),
    ("shown-append-by-hard-link", "a second name where one may write", ShownFiles, PLAIN, deeds::append_by_hard_link),
    ("shown-truncate", "emptied", ShownFiles, PLAIN, deeds::truncate),
    ("shown-replace", "replaced by a rename", ShownFiles, PLAIN, deeds::replace),
    ("shown-exchange", "two names exchanged", ShownFiles, PLAIN, deeds::exchange),
    ("shown-remove", "removed", ShownFiles, PLAIN, deeds::remove),
    ("shown-mode", "another mode", ShownFiles, PLAIN, deeds::change_mode),
    ("shown-times", "another time", ShownFiles, PLAIN, deeds::change_times),
    ("shown-attribute", "an attribute", ShownFiles, PLAIN, deeds::set_attribute),
    ("shown-create-file", "a file that was not there", ShownDirectories, PLAIN, deeds::create_file),
    ("shown-create-directory", "a directory", ShownDirectories, PLAIN, deeds::create_directory),
    ("shown-create-link", "a link that the host follows", ShownDirectories, PLAIN, deeds::create_link),
    ("shown-create-pipe", "a pipe", ShownDirectories, PLAIN, deeds::create_pipe),
    ("shown-create-nameless", "O_TMPFILE and a name afterwards", ShownDirectories, PLAIN, deeds::link_nameless),
];

/// Secrets in the workspace. In the host's directory they are; in the ring they must not be.
#[rustfmt::skip]
const HIDDEN: &[Row] = &[
    ("hidden-read", "a hidden file by its name", Hidden, PLAIN, deeds::read_it),
    ("hidden-read-by-own-root", "the same by /proc", Hidden, OWN_ROOT, deeds::read_it),
    ("hidden-read-by-thread-root", "the same by the thread", Hidden, THREAD_ROOT, deeds::read_it),
    ("hidden-read-by-first-root", "the same by the first process", Hidden, FIRST_ROOT, deeds::read_it),
    ("hidden-read-by-descriptor", "O_PATH opened again", Hidden, PLAIN, deeds::read_by_descriptor),
    ("hidden-read-by-hard-link", "a second name", Hidden, PLAIN, deeds::read_by_hard_link),
    ("hidden-read-by-symbolic-link", "a link to it", Hidden, PLAIN, deeds::read_by_symbolic_link),
    ("hidden-read-renamed", "another name", Hidden, PLAIN, deeds::read_renamed),
    ("hidden-read-exchanged", "exchanged with a file of one's own", Hidden, PLAIN, deeds::read_exchanged),
    ("hidden-read-copied-up", "a change that copies it to another layer", Hidden, PLAIN, deeds::read_copied_up),
    ("hidden-read-below-renamed", "its directory under another name", Hidden, PLAIN, deeds::read_below_renamed_directory),
    ("hidden-read-below-held", "its directory by a descriptor", Hidden, PLAIN, deeds::read_below_held_directory),
    ("hidden-read-by-kernel-copy", "copied without a read", Hidden, PLAIN, deeds::copy_in_the_kernel),
];

pub(super) fn all() -> Vec<Probe> {
    [
        probes(Class::ReadOutside, Witness::Secret, HIDDEN),
        probes(Class::WriteOutside, Witness::Canary, OUTSIDE),
        probes(Class::WriteOutside, Witness::Canary, SHOWN),
    ]
    .concat()
}

fn probes(class: Class, witness: Witness, rows: &[Row]) -> Vec<Probe> {
    let probe = |(name, stands_for, target, way, deed): &Row| Probe {
        name,
        class,
        stands_for,
        witness,
        reach: Reach::Host,
        attack: Attack::On(Attempt { target: *target, way, deed: *deed }),
    };
    rows.iter().map(probe).collect()
}
