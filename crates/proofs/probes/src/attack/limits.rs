//! More than was given: processes, memory, disk, files, time. Each stops a little beyond its bound.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::succeeded_if;
use crate::{Scene, Tried};

const MIB: u64 = 1 << 20;

pub(crate) fn processes(scene: &Scene) -> Tried {
    let wanted = scene.pids + 16;
    let mut started = 0;
    for _ in 0..wanted {
        let sleep = || std::thread::sleep(Duration::from_secs(5));
        if std::thread::Builder::new().stack_size(64 << 10).spawn(sleep).is_err() {
            break;
        }
        started += 1;
    }
    succeeded_if(
        started > scene.pids,
        format!("{started} threads run"),
        format!("{started} was the most"),
    )
}

pub(crate) fn memory(scene: &Scene) -> Tried {
    let wanted = scene.memory_bytes + 64 * MIB;
    let mut held: Vec<Vec<u8>> = Vec::new();
    for _ in 0..wanted / MIB {
        let mut block = Vec::new();
        if block.try_reserve_exact(MIB as usize).is_err() {
            return Tried::Failed(format!("{} MiB was the most", held.len()));
        }
        // Touched, with something in it: equal pages might be kept as one.
        block.resize(MIB as usize, (held.len() % 255) as u8 + 1);
        held.push(block);
    }
    let sum: u64 = held.iter().filter_map(|block| block.first()).map(|byte| u64::from(*byte)).sum();
    Tried::Succeeded(format!("{} MiB are held ({sum})", held.len()))
}

fn fill(directory: &Path, scene: &Scene) -> Tried {
    let wanted = scene.disk_bytes + 16 * MIB;
    let path = directory.join(format!("{}-fill", scene.mark));
    let block = vec![7; MIB as usize];
    let mut written = 0;
    let outcome = (|| -> std::io::Result<()> {
        let mut file = fs::File::create(&path)?;
        while written < wanted {
            file.write_all(&block)?;
            written += MIB;
        }
        Ok(())
    })();
    let _ = fs::remove_file(&path);
    match outcome {
        Ok(()) => Tried::Succeeded(format!("{} MiB were written", written / MIB)),
        Err(error) => Tried::Failed(format!("{} MiB were written, then: {error}", written / MIB)),
    }
}

pub(crate) fn disk(scene: &Scene) -> Tried {
    fill(Path::new("/tmp"), scene)
}

pub(crate) fn shared_memory(scene: &Scene) -> Tried {
    fill(Path::new("/dev/shm"), scene)
}

pub(crate) fn workspace(scene: &Scene) -> Tried {
    match &scene.workspace {
        Some(workspace) => fill(workspace, scene),
        None => Tried::Impossible("there is no workspace".to_owned()),
    }
}

pub(crate) fn open_files(scene: &Scene) -> Tried {
    let wanted = scene.open_files as usize + 16;
    let mut open = Vec::new();
    while open.len() < wanted {
        match fs::File::open("/dev/null") {
            Ok(file) => open.push(file),
            Err(error) => return Tried::Failed(format!("{} files, then: {error}", open.len())),
        }
    }
    Tried::Succeeded(format!("{} files are open", open.len()))
}

pub(crate) fn files_without_content(scene: &Scene) -> Tried {
    let directory: PathBuf = Path::new("/tmp").join(format!("{}-many", scene.mark));
    if let Err(error) = fs::create_dir(&directory) {
        return Tried::Failed(error.to_string());
    }
    // The scene keeps this low: one for every 4 KiB.
    let wanted = scene.disk_bytes / 4096 + 64;
    let made =
        (0..wanted).take_while(|at| fs::File::create(directory.join(at.to_string())).is_ok());
    let made = made.count() as u64;
    let _ = fs::remove_dir_all(&directory);
    succeeded_if(made == wanted, format!("{made} files were made"), format!("{made} was the most"))
}

/// Longer than any sandbox of the attacks may live.
pub(crate) fn time(_: &Scene) -> Tried {
    std::thread::sleep(Duration::from_secs(8));
    Tried::Succeeded("it ran for 8 seconds".to_owned())
}
