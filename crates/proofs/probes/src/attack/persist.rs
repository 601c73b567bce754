//! State that the next invocation finds. Every attack looks first, and leaves something if it found
//! nothing: run in two sandboxes, one after the other, the second one's answer counts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{Scene, Tried};

/// Two attacks may mean the same directory, so each has a name of its own.
fn leave(directory: &Path, scene: &Scene, name: &str) -> Tried {
    let path = directory.join(format!("{}-kept-{name}", scene.mark));
    if path.exists() {
        return Tried::Succeeded(format!("{} is still there", path.display()));
    }
    match fs::write(&path, "kept\n") {
        Ok(()) => Tried::Failed("nothing was found".to_owned()),
        Err(error) => Tried::Failed(error.to_string()),
    }
}

pub(crate) fn in_tmp(scene: &Scene) -> Tried {
    leave(Path::new("/tmp"), scene, "tmp")
}

pub(crate) fn in_var_tmp(scene: &Scene) -> Tried {
    leave(Path::new("/var/tmp"), scene, "var-tmp")
}

pub(crate) fn in_shared_memory(scene: &Scene) -> Tried {
    leave(Path::new("/dev/shm"), scene, "shared-memory")
}

pub(crate) fn in_run(scene: &Scene) -> Tried {
    leave(Path::new("/run"), scene, "run")
}

pub(crate) fn at_root(scene: &Scene) -> Tried {
    leave(Path::new("/"), scene, "root")
}

pub(crate) fn in_etc(scene: &Scene) -> Tried {
    leave(Path::new("/etc"), scene, "etc")
}

pub(crate) fn at_home(scene: &Scene) -> Tried {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
    leave(&home, scene, "home")
}

pub(crate) fn in_workspace(scene: &Scene) -> Tried {
    match &scene.workspace {
        Some(workspace) => leave(workspace, scene, "workspace"),
        None => Tried::Impossible("there is no workspace".to_owned()),
    }
}

/// Files that editors, shells and git run by themselves when a person opens the workspace.
pub(crate) fn in_hooks(scene: &Scene) -> Tried {
    let Some(workspace) = &scene.workspace else {
        return Tried::Impossible("there is no workspace".to_owned());
    };
    let places =
        [".git/hooks/post-checkout", ".vscode/tasks.json", ".envrc", ".claude/settings.json"];
    let found = places
        .iter()
        .map(|name| workspace.join(name))
        .find(|path| fs::read_to_string(path).is_ok_and(|text| text.contains(&scene.mark)));
    if let Some(path) = found {
        return Tried::Succeeded(format!("{} is still there", path.display()));
    }
    let plant = |name: &&str| -> io::Result<()> {
        let path = workspace.join(name);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(path, &scene.mark)
    };
    let planted = places.iter().filter(|name| plant(name).is_ok()).count();
    Tried::Failed(format!("{planted} were written, and nothing was found"))
}
