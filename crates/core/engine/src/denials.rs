//! Denials of a policy: from where they hold, and which of them nothing would keep.
//!
//! A rule says `./infra/**` of the project that its author had in mind. A workspace that is a directory of
//! the project must not take that away, so a denial holds from each directory above the workspace, too, up
//! to that of the policy's file, or to the top of the repository.
//!
//! A copy-on-write workspace is judged twice: by mounts while the job runs, and path by path when its
//! changes are taken over. With `--workspace-rw` there are only mounts, and a mount keeps one path or
//! a directory with all below it. What denies more than that refuses the run.

use std::path::{Path, PathBuf};

use ringwall_policy::{Action, Anchors, Decision, FilePath, OriginKind, PathRights, Stack, Task};
use ringwall_spec::{WorkspaceMode, WorkspaceSpec};

use crate::admit::{AdmitError, anchors, place};

/// What `./` means in a denial besides the workspace: each directory above it that counts.
pub fn anchors_above(stack: &Stack, workspace: &Path) -> Vec<Anchors> {
    let layers = stack.layer_refs().into_iter();
    let of_files = layers
        .filter(|layer| layer.origin == OriginKind::Workspace)
        .filter_map(|layer| Path::new(&layer.path).parent().map(Path::to_owned));
    let is_top = |directory: &&Path| [".git", ".hg"].iter().any(|it| directory.join(it).exists());
    let repository = workspace.ancestors().find(is_top).map(Path::to_owned);
    let tops = of_files.chain(repository).filter(|top| workspace.starts_with(top));
    // All of them are above the workspace, so the shortest is above the others.
    let Some(top) = tops.min_by_key(|top| top.components().count()) else { return Vec::new() };
    let above = workspace.ancestors().skip(1).take_while(|above| above.starts_with(&top));
    above.map(anchors).collect()
}

/// The first denial of doing this to a path of the host, seen from one of these directories.
pub fn denied_above(
    stack: &Stack,
    (above, task): (&[Anchors], &Task),
    (action, path): (fn(FilePath) -> Action, &Path),
) -> Option<Decision> {
    let path = path.display().to_string();
    let mut seen = above.iter().filter_map(|anchors| FilePath::new(&path, anchors).ok());
    let rules = seen.find_map(|path| {
        Some(stack.denials(task, &action(path))).filter(|denials| !denials.is_empty())
    })?;
    let names: Vec<String> = rules.iter().map(ToString::to_string).collect();
    let why = format!("forbidden by {}", names.join(", "));
    Some(Decision { allowed: false, rules, why, elevations: Vec::new() })
}

/// The first denial of these rights that would be lost in the workspace.
pub(crate) fn unkept(
    stack: &Stack,
    paths: &[PathRights],
    phase: &str,
    workspace: Option<&WorkspaceSpec>,
) -> Option<AdmitError> {
    let workspace = &workspace.filter(|it| it.mode == WorkspaceMode::ReadWrite)?.path;
    let lost = |rule: String, denial: String| {
        Some(AdmitError::UnkeptDenial { workspace: workspace.clone(), rule, denial })
    };
    let mut all = vec![anchors(workspace)];
    all.extend(anchors_above(stack, workspace));
    let denials = paths.iter().flat_map(|rights| &rights.phase_deny).map(|it| it.as_str());
    let mut unplaced = denials.filter(|pattern| place(pattern, &all[0]).is_none());
    let matches = |pattern: &&str| all.iter().any(|it| may_match(pattern, workspace, it));
    if let Some(denial) = unplaced.find(matches) {
        return lost(format!("phases.{phase}.deny"), denial.to_owned());
    }
    let rail = stack.write_guard_rail()?;
    lost(rail.to_string(), "a condition of its own".to_owned())
}

/// Whether a pattern could mean anything in a directory: one of the two begins with the other, as far
/// as the pattern is plain.
fn may_match(pattern: &str, directory: &Path, anchors: &Anchors) -> bool {
    let plain = pattern.split('*').next().unwrap_or(pattern);
    let up_to = plain.rfind('/').map_or("", |end| plain.get(..end).unwrap_or(plain));
    let begin: Option<PathBuf> = place(&format!("{up_to}/**"), anchors);
    begin.is_some_and(|begin| directory.starts_with(&begin) || begin.starts_with(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_looked_for_only_where_it_can_lead() {
        let anchors = Anchors {
            home: Some("/home/me".to_owned()),
            workspace: Some("/home/me/project".to_owned()),
        };
        let matches = |pattern| may_match(pattern, Path::new("/home/me/project"), &anchors);
        for inside in ["./**/.git/**", "./src/**/*.lock", "~/**/.env", "/**/x", "/home/**/x"] {
            assert!(matches(inside), "{inside}");
        }
        for elsewhere in ["/etc/**/x", "~/other/**/x", "/home/you/**/x"] {
            assert!(!matches(elsewhere), "{elsewhere}");
        }
    }
}
