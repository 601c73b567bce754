//! Images made by real tools: umoci writes the layouts, skopeo converts them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{is_root, run, tool};

/// An OCI layout with one image that grows by a layer at a time.
pub(crate) struct Layout {
    pub(crate) path: PathBuf,
    bundle: PathBuf,
}

impl Layout {
    /// A layout in `directory` whose image has no layers yet.
    pub(crate) fn new(directory: &Path) -> Layout {
        let path = directory.join("layout");
        let bundle = directory.join("bundle");
        umoci(&["init", "--layout"], &[path.as_os_str().to_str().unwrap()]);
        let layout = Layout { path, bundle };
        umoci(&["new", "--image"], &[&layout.tagged("base")]);
        let mode: &[&str] = if is_root() { &[] } else { &["--rootless"] };
        let bundle = layout.bundle.to_str().unwrap();
        umoci(&["unpack"], &[mode, &["--image", &layout.tagged("base"), bundle]].concat());
        umoci(&["rm", "--image"], &[&layout.tagged("base")]);
        layout
    }

    /// A layout with one image `v1`: a busybox and a few files, in one layer.
    pub(crate) fn with_busybox(directory: &Path) -> Layout {
        let layout = Layout::new(directory);
        layout.change("v1", |root| {
            fs::create_dir_all(root.join("bin")).unwrap();
            fs::create_dir_all(root.join("etc/old/deep")).unwrap();
            fs::copy(tool("busybox"), root.join("bin/busybox")).unwrap();
            std::os::unix::fs::symlink("busybox", root.join("bin/sh")).unwrap();
            fs::write(root.join("etc/motd"), "hello\n").unwrap();
            fs::write(root.join("etc/old/deep/file"), "old\n").unwrap();
        });
        layout
    }

    /// Changes the root file system and commits the difference as a new layer, tagged `tag`.
    pub(crate) fn change(&self, tag: &str, change: impl FnOnce(&Path)) {
        change(&self.bundle.join("rootfs"));
        let bundle = self.bundle.to_str().unwrap();
        umoci(&["repack", "--refresh-bundle", "--image"], &[&self.tagged(tag), bundle]);
    }

    /// Sets parts of the image's configuration: arguments for `umoci config`.
    pub(crate) fn configure(&self, tag: &str, arguments: &[&str]) {
        umoci(&["config", "--image", &self.tagged(tag)], arguments);
    }

    pub(crate) fn tagged(&self, tag: &str) -> String {
        format!("{}:{tag}", self.path.display())
    }

    /// As skopeo and `Store::import` name it.
    pub(crate) fn source(&self, tag: &str) -> String {
        format!("oci:{}", self.tagged(tag))
    }

    pub(crate) fn manifest_digest(&self, tag: &str) -> String {
        let index = self.json("index.json");
        let manifests = index["manifests"].as_array().unwrap();
        let name = "org.opencontainers.image.ref.name";
        let entry = manifests.iter().find(|entry| entry["annotations"][name] == tag).unwrap();
        entry["digest"].as_str().unwrap().to_owned()
    }

    pub(crate) fn manifest(&self, tag: &str) -> Value {
        self.json(&self.manifest_digest(tag).replace("sha256:", "blobs/sha256/"))
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path.join(name)).unwrap()).unwrap()
    }
}

fn umoci(command: &[&str], arguments: &[&str]) {
    run(Command::new(tool("umoci")).args(command).args(arguments));
}

/// Converts an image with skopeo, such as from `oci:` to `docker-archive:`.
pub(crate) fn convert(from: &str, to: &str, options: &[&str]) {
    let mut command = Command::new(tool("skopeo"));
    command.args(["--insecure-policy", "copy", "-q"]).args(options);
    run(command.args([from, to]));
}

impl Layout {
    /// The root file system as umoci sees it.
    pub(crate) fn root(&self) -> PathBuf {
        self.bundle.join("rootfs")
    }

    /// Adds an index that has the image `tag` for this machine, and for another one.
    pub(crate) fn add_index(&self, name: &str, tag: &str) {
        let manifest = self.manifest_digest(tag);
        let path = self.path.join(manifest.replace("sha256:", "blobs/sha256/"));
        let size = fs::metadata(path).unwrap().len();
        let entry = |architecture: &str| {
            serde_json::json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": manifest, "size": size,
                "platform": { "os": "linux", "architecture": architecture },
            })
        };
        let here = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let index = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [entry("s390x"), entry(here)],
        });
        let bytes = serde_json::to_vec(&index).unwrap();
        let digest = ringwall_image::Digest::of(&bytes);
        fs::write(self.path.join("blobs/sha256").join(digest.hex()), &bytes).unwrap();
        let mut top = self.json("index.json");
        top["manifests"].as_array_mut().unwrap().push(serde_json::json!({
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "digest": digest.to_string(), "size": bytes.len(),
            "annotations": { "org.opencontainers.image.ref.name": name },
        }));
        fs::write(self.path.join("index.json"), top.to_string()).unwrap();
    }
}

const LIST_TREE: &str = "find . -mindepth 1 \\( -type l -printf '%P -> %l\\n' \\) -o \\( -type d -printf '%P/ %m\\n' \\) \
     -o \\( -type f -printf '%P %m ' -exec sha256sum {} \\; \\) | sed 's,  \\./.*,,' | sort";

/// All names below a directory, with modes and content.
pub(crate) fn tree_of(directory: &Path) -> String {
    let output = run(Command::new("sh").args(["-c", LIST_TREE]).current_dir(directory));
    String::from_utf8(output.stdout).unwrap()
}

/// What [`tree_of`] says about the layers when the kernel stacks them, as a ring would.
pub(crate) fn mounted(layers: &[PathBuf], scratch: &Path) -> String {
    let top_first: Vec<String> =
        layers.iter().rev().map(|layer| layer.to_str().unwrap().to_owned()).collect();
    let options = format!("ro,userxattr,lowerdir={}", top_first.join(":"));
    let mount = "mount -t overlay overlay -o \"$0\" \"$1\" && cd \"$1\" && ";
    let mount_point = scratch.join("mounted");
    fs::create_dir_all(&mount_point).unwrap();
    let mut command = Command::new(tool("unshare"));
    if !is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "sh", "-c", &format!("{mount}{LIST_TREE}")]);
    let output = run(command.arg(options).arg(mount_point));
    String::from_utf8(output.stdout).unwrap()
}
