//! What a seed gives, without doing any of it: the actions are for the inside of a wall.

use std::collections::BTreeSet;

use super::*;

fn scene() -> Scene {
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let scene = serde_json::json!({
        "secrets": paths(&["/var/tmp/a/secret.txt"]), "canaries": paths(&["/tmp/b/canary.txt"]),
        "tcp": [], "udp": [], "abstract_socket": "x", "sockets": [], "victim": 1,
        "greeting": "x", "mark": "x", "workspace": null, "policies": [], "approvals": [],
        "keys": [], "records": [], "logs": [], "engine_sockets": [], "pids": 1,
        "memory_bytes": 1, "disk_bytes": 1, "open_files": 1,
        "shown": paths(&["/tmp/shown/file"]), "hidden": paths(&["docs/.env"]),
    });
    serde_json::from_value(scene).unwrap()
}

/// The actions of a seed, each with two paths that it would choose.
fn chosen(seed: u64, scene: &Scene) -> Vec<(&'static str, PathBuf, PathBuf)> {
    let mut player = Player {
        dice: Dice::new(seed),
        scene,
        stamp: "x",
        program: "none",
        workspace: PathBuf::from("/tmp/deep/project"),
        kept: Vec::new(),
        children: Vec::new(),
        with: String::new(),
    };
    let one = |player: &mut Player<'_>| {
        let (name, _) = player.choose().unwrap();
        (name, player.anything(), player.above())
    };
    (0..600).map(|_| one(&mut player)).collect()
}

#[test]
fn a_seed_gives_the_same_actions_again_and_all_of_them_have_their_turn() {
    let scene = scene();
    let all = chosen(3, &scene);
    assert_eq!(all, chosen(3, &scene));
    assert_ne!(all, chosen(4, &scene));
    let names: BTreeSet<_> = all.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names.len(), ACTIONS.len(), "{names:?}");
    let any = |text: &str| all.iter().any(|(_, path, _)| path.to_string_lossy().contains(text));
    for text in ["secret.txt", "canary.txt", "shown/file", "docs/.env", "/proc/1/root"] {
        assert!(any(text), "{text}");
    }
    assert!(all.iter().all(|(_, _, above)| above.parent().is_some()));
}

#[test]
fn nothing_is_played_outside_a_wall() {
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    let (seed, stamp, steps) = (1, "x".to_owned(), 5);
    let mut said = Vec::new();
    let played = play(&Play { scene: scene(), seed, stamp, steps }, "none", &mut said);
    assert!(played.is_err() && said.is_empty());
}
