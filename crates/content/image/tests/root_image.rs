//! Root images: one file system from an image's layers, checked by the format's own tools.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ringwall_image::{FlattenError, ImageLimits, NoProgress, UnpackLimits, write_root_image};
use support::erofs::{self, Node};
use support::{is_root, run, told, tool};
use tempfile::TempDir;

const SOME_TIME: i64 = 1_600_000_000;

fn write(layers: &[PathBuf], image: &Path, limits: &ImageLimits) -> Result<u64, FlattenError> {
    let file = File::options().read(true).write(true).create_new(true).open(image).unwrap();
    write_root_image(layers, &file, [7; 16], limits, &NoProgress)
}

/// A layer as a directory to fill, and the image that becomes of it.
struct Setting {
    place: TempDir,
}

impl Setting {
    fn new() -> Setting {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("layer")).unwrap();
        fs::set_permissions(place.path().join("layer"), Permissions::from_mode(0o755)).unwrap();
        Setting { place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn layer(&self) -> PathBuf {
        self.path("layer")
    }

    fn image(&self) -> PathBuf {
        let image = self.path("image");
        let bytes = write(&[self.layer()], &image, &ImageLimits::default()).unwrap();
        assert_eq!(fs::metadata(&image).unwrap().len(), bytes);
        image
    }

    /// One of everything that a layer can have, and of every size that is at some edge.
    fn with_everything() -> Setting {
        let setting = Setting::new();
        let root = setting.layer();
        let sizes = [0, 1, 31, 32, 2900, 4031, 4032, 4033, 4095, 4096, 4097, 8192, 300_000];
        fs::create_dir(root.join("sizes")).unwrap();
        for size in sizes {
            let content: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            fs::write(root.join(format!("sizes/{size}")), content).unwrap();
        }
        fs::create_dir(root.join("many")).unwrap();
        for number in 0..700 {
            fs::write(root.join(format!("many/{number}")), number.to_string()).unwrap();
        }
        fs::create_dir_all(root.join("deep/er/and/deeper")).unwrap();
        fs::create_dir(root.join("names")).unwrap();
        let longest = [0xff; 255];
        for name in [b"!".as_slice(), b"-", b"..a", b"~", b"\x01\n", b"\x80\xfe", &longest] {
            fs::write(root.join("names").join(OsStr::from_bytes(name)), name).unwrap();
        }
        symlink("../../outside", root.join("link")).unwrap();
        symlink("x/".repeat(2000), root.join("long-link")).unwrap();
        fs::write(root.join("one-name"), "linked").unwrap();
        fs::hard_link(root.join("one-name"), root.join("deep/other-name")).unwrap();
        fs::hard_link(root.join("one-name"), root.join("third-name")).unwrap();
        run(Command::new("mkfifo").arg(root.join("pipe")));
        for (name, mode) in [("sizes/1", 0o751), ("sizes/31", 0o400), ("deep/er", 0o1777)] {
            fs::set_permissions(root.join(name), Permissions::from_mode(mode)).unwrap();
        }
        if is_root() {
            std::os::unix::fs::lchown(root.join("sizes/32"), Some(65_000), Some(70_000)).unwrap();
            std::os::unix::fs::lchown(root.join("link"), Some(12), Some(34)).unwrap();
            run(Command::new("mknod").arg(root.join("device")).args(["c", "1", "300"]));
        }
        let touch = format!("find . -exec touch -h -d @{SOME_TIME} {{}} +");
        run(Command::new("sh").args(["-c", &touch]).current_dir(&root));
        setting
    }
}

/// A directory in the words of the reader, apart from where inodes are.
fn tree_at(root: &Path) -> BTreeMap<Vec<u8>, Node> {
    let mut nodes = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(path) = waiting.pop() {
        let found = fs::symlink_metadata(root.join(&path)).unwrap();
        let content = if found.is_file() {
            fs::read(root.join(&path)).unwrap()
        } else if found.is_symlink() {
            fs::read_link(root.join(&path)).unwrap().as_os_str().as_bytes().to_vec()
        } else {
            Vec::new()
        };
        if found.is_dir() {
            let entries = fs::read_dir(root.join(&path)).unwrap();
            waiting.extend(entries.map(|entry| path.join(entry.unwrap().file_name())));
        }
        let (uid, gid) = (found.uid(), found.gid());
        let node = Node {
            nid: 0,
            mode: found.mode(),
            owner: if is_root() { (uid, gid) } else { (0, 0) },
            mtime: found.mtime(),
            links: if found.is_dir() { 0 } else { u32::try_from(found.nlink()).unwrap() },
            content,
            // 1:300 as the kernel has it in 32 bits.
            device: found.file_type().is_char_device().then_some(0x0010_012c),
        };
        nodes.insert(path.as_os_str().as_bytes().to_vec(), node);
    }
    nodes
}

/// What the reader says, without what a directory on a disk does not show the same way.
fn comparable(mut nodes: BTreeMap<Vec<u8>, Node>) -> BTreeMap<Vec<u8>, Node> {
    for node in nodes.values_mut() {
        node.nid = 0;
        if node.kind() == 0o040_000 {
            node.links = 0;
        }
    }
    nodes
}

#[track_caller]
fn assert_same(left: &BTreeMap<Vec<u8>, Node>, right: &BTreeMap<Vec<u8>, Node>) {
    let names = |nodes: &BTreeMap<Vec<u8>, Node>| -> Vec<String> {
        nodes.keys().map(|name| name.escape_ascii().to_string()).collect()
    };
    assert_eq!(names(left), names(right));
    for (name, node) in left {
        assert!(*node == right[name], "{}", name.escape_ascii());
    }
}

#[test]
fn everything_that_a_layer_has_comes_out_as_it_went_in() {
    let setting = Setting::with_everything();
    let nodes = erofs::read(&setting.image());
    assert_same(&comparable(nodes.clone()), &tree_at(&setting.layer()));
    let links = |name: &[u8]| nodes[name].links;
    assert_eq!((links(b""), links(b"deep"), links(b"deep/er")), (6, 3, 3));
    assert_eq!(nodes[&b"one-name"[..]].nid, nodes[&b"deep/other-name"[..]].nid);
}

#[test]
fn fsck_erofs_finds_no_fault_and_extracts_the_same_tree() {
    let setting = Setting::with_everything();
    let image = setting.image();
    let out = setting.path("out");
    // Version 1.5 extracts neither devices nor pipes nor hard links as such.
    run(Command::new(tool("fsck.erofs")).arg(&image));
    run(Command::new(tool("fsck.erofs"))
        .arg(format!("--extract={}", out.display()))
        .args(["--preserve-perms", "--no-preserve-owner"])
        .arg(&image));
    let alike = |mut nodes: BTreeMap<Vec<u8>, Node>| {
        nodes.retain(|_, node| matches!(node.kind(), 0o040_000 | 0o100_000 | 0o120_000));
        nodes.values_mut().for_each(|node| (node.links, node.owner) = (0, (0, 0)));
        nodes
    };
    assert_same(&alike(tree_at(&out)), &alike(tree_at(&setting.layer())));
}

#[test]
fn the_kernel_shows_the_same_tree() {
    let known = fs::read_to_string("/proc/filesystems").unwrap().contains("\terofs\n");
    if !(is_root() && known) {
        println!("not tested here: mounting a root image takes root and a kernel with EROFS");
        return;
    }
    let setting = Setting::with_everything();
    let (image, at) = (setting.image(), setting.path("mounted"));
    fs::create_dir(&at).unwrap();
    // Every name is also looked up, which searches directories where listing only reads them.
    let compare = "mount -t erofs -o ro,loop \"$0\" \"$1\" && cd \"$2\" && \
        list() { find . -printf '%y %m %U %G %T@ %l %P\\n' | grep -v '^d .* [.]$' | LC_ALL=C sort; } && \
        list >../want && (cd \"$1\" && list >../got) && cmp ../want ../got && \
        find . -type f -print0 | xargs -0 -I{} cmp {} \"$1\"/{} && \
        stat -c '%h %n' one-name >../want && (cd \"$1\" && stat -c '%h %n' one-name >../got) && \
        cmp ../want ../got";
    let mut command = Command::new(tool("unshare"));
    command.args(["--mount", "sh", "-c", compare]);
    run(command.args([&image, &at, &setting.layer()]));
}

#[test]
fn the_same_layers_give_the_same_bytes() {
    let [one, two] = [Setting::with_everything(), Setting::with_everything()];
    assert!(fs::read(one.image()).unwrap() == fs::read(two.image()).unwrap());
}

#[test]
fn small_files_take_little_more_than_their_size() {
    let setting = Setting::new();
    for number in 0..1000 {
        fs::write(setting.layer().join(format!("{number}")), [b'x'; 700]).unwrap();
    }
    let bytes = fs::metadata(setting.image()).unwrap().len();
    assert!(bytes < 1000 * 900, "{bytes} bytes for 1000 files of 700 bytes");
}

#[test]
fn an_image_without_layers_is_an_empty_directory() {
    let setting = Setting::new();
    let image = setting.path("image");
    write(&[], &image, &ImageLimits::default()).unwrap();
    assert_eq!(erofs::read(&image).len(), 1);
    run(Command::new(tool("fsck.erofs")).arg(image));
}

#[test]
fn a_symlink_of_a_layer_leads_nowhere() {
    let setting = Setting::new();
    let [lower, upper] = ["lower", "upper"].map(|name| setting.path(name));
    fs::create_dir_all(lower.join("a")).unwrap();
    fs::write(lower.join("a/file"), "lower").unwrap();
    fs::create_dir_all(setting.path("secret/a")).unwrap();
    fs::write(setting.path("secret/a/stolen"), "secret").unwrap();
    fs::create_dir(&upper).unwrap();
    symlink(setting.path("secret/a"), upper.join("a")).unwrap();
    let image = setting.path("image");
    for (layers, names) in [([&lower, &upper], 2), ([&upper, &lower], 3)] {
        write(&layers.map(Clone::clone), &image, &ImageLimits::default()).unwrap();
        let nodes = erofs::read(&image);
        assert_eq!(nodes.len(), names);
        assert!(!nodes.contains_key(&b"a/stolen"[..]));
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn directories_are_merged_down_to_the_first_layer_that_has_something_else() {
    let setting = Setting::new();
    let [bottom, middle, top] = ["bottom", "middle", "top"].map(|name| setting.path(name));
    for (layer, file) in [(&bottom, "old"), (&top, "new")] {
        for directory in ["hidden", "merged", "replaced"] {
            fs::create_dir_all(layer.join(directory)).unwrap();
            fs::write(layer.join(directory).join(file), "").unwrap();
        }
    }
    fs::create_dir(&middle).unwrap();
    fs::write(middle.join("replaced"), "a file").unwrap();
    // Any user may make this device: it is a whiteout.
    run(Command::new("mknod").arg(middle.join("hidden")).args(["c", "0", "0"]));
    write(&[bottom, middle, top], &setting.path("image"), &ImageLimits::default()).unwrap();
    let nodes = erofs::read(&setting.path("image"));
    let files: Vec<&[u8]> = nodes
        .iter()
        .filter(|(_, node)| node.kind() == 0o100_000)
        .map(|(name, _)| &**name)
        .collect();
    let expected: [&[u8]; 4] = [b"hidden/new", b"merged/new", b"merged/old", b"replaced/new"];
    assert_eq!(files, expected);
}

#[test]
fn links_that_a_higher_layer_hides_do_not_count() {
    let setting = Setting::new();
    let [lower, upper] = ["lower", "upper"].map(|name| setting.path(name));
    fs::create_dir(&lower).unwrap();
    fs::create_dir(&upper).unwrap();
    fs::write(lower.join("a"), "linked").unwrap();
    for name in ["b", "c"] {
        fs::hard_link(lower.join("a"), lower.join(name)).unwrap();
    }
    fs::write(upper.join("b"), "own").unwrap();
    write(&[lower, upper], &setting.path("image"), &ImageLimits::default()).unwrap();
    let nodes = erofs::read(&setting.path("image"));
    let links: Vec<u32> = nodes.values().skip(1).map(|node| node.links).collect();
    assert_eq!(links, [2, 1, 2]);
}

/// Fedora's /etc/shadow is such a file.
#[test]
fn what_even_its_owner_may_not_read_is_read_and_stays_as_it_was() {
    let setting = Setting::new();
    let root = setting.layer();
    fs::create_dir_all(root.join("closed/inner")).unwrap();
    fs::write(root.join("closed/inner/file"), "inside").unwrap();
    fs::write(root.join("shadow"), "secret").unwrap();
    let names = ["shadow", "closed/inner/file", "closed/inner", "closed"];
    for name in names {
        fs::set_permissions(root.join(name), Permissions::from_mode(0o000)).unwrap();
    }
    let nodes = erofs::read(&setting.image());
    for name in names {
        assert_eq!(nodes[name.as_bytes()].mode & 0o7777, 0, "{name} in the image");
    }
    assert_eq!(nodes[&b"closed/inner/file"[..]].content, b"inside");
    assert_eq!(nodes[&b"shadow"[..]].content, b"secret");
    for name in ["closed", "closed/inner", "closed/inner/file", "shadow"] {
        assert_eq!(support::place::mode(&root.join(name)), 0, "{name} in the layer");
        fs::set_permissions(root.join(name), Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn too_many_bytes_or_files_are_refused() {
    let setting = Setting::with_everything();
    let small = ImageLimits { max_root_image_bytes: 100_000, ..ImageLimits::default() };
    let error = write(&[setting.layer()], &setting.path("a"), &small).unwrap_err();
    assert!(matches!(error, FlattenError::TooLarge { max: 100_000 }), "{}", told(&error));
    let unpack = UnpackLimits { max_entries: 100, ..UnpackLimits::default() };
    let few = ImageLimits { unpack, ..ImageLimits::default() };
    let error = write(&[setting.layer()], &setting.path("b"), &few).unwrap_err();
    assert!(matches!(error, FlattenError::TooManyFiles { max: 100 }), "{}", told(&error));
}
