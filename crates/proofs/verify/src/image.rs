//! The image of the attacks: the probe program, and the directories that programs expect.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringwall_image::Digest;

/// Where the program is in the image.
pub(crate) const PROGRAM: &str = "/usr/bin/ringwall-probe";
pub(crate) const NAME: &str = "localhost/ringwall-verify:latest";

/// Writes the image into `directory`, as `docker save` would.
pub(crate) fn write(directory: &Path, program: &Path) -> io::Result<PathBuf> {
    let mut layer = tar::Builder::new(Vec::new());
    for name in
        ["dev", "etc", "home", "proc", "run", "sys", "tmp", "usr", "usr/bin", "var", "var/tmp"]
    {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(if name.ends_with("tmp") { 0o1777 } else { 0o755 });
        header.set_size(0);
        layer.append_data(&mut header, format!("{name}/"), io::empty())?;
    }
    let mut header = tar::Header::new_gnu();
    let content = fs::read(program)?;
    header.set_mode(0o755);
    header.set_size(content.len() as u64);
    layer.append_data(&mut header, PROGRAM.trim_start_matches('/'), content.as_slice())?;
    let layer = layer.into_inner()?;
    let digest = Digest::of(&layer);
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux",
        "config": {"Cmd": [PROGRAM]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", digest.hex())]},
    });
    let manifest = serde_json::json!([
        {"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]},
    ]);
    let image = directory.join("image");
    fs::create_dir(&image)?;
    fs::write(image.join("layer.tar"), layer)?;
    fs::write(image.join("config.json"), config.to_string())?;
    fs::write(image.join("manifest.json"), manifest.to_string())?;
    Ok(image)
}
