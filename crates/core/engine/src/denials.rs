//! Denials that nothing would keep where a job writes straight to its workspace.
//!
//! A copy-on-write workspace is judged twice: by mounts while the job runs, and path by path when its
//! changes are taken over. With `--workspace-rw` there are only mounts, and a mount keeps one path or
//! a directory with all below it. What denies more than that refuses the run.

use std::path::{Path, PathBuf};

use ringwall_policy::{Anchors, PathRights, Stack};
use ringwall_spec::{WorkspaceMode, WorkspaceSpec};

use crate::admit::{AdmitError, anchors, place};

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
    let anchors = anchors(workspace);
    let denials = paths.iter().flat_map(|rights| &rights.phase_deny).map(|it| it.as_str());
    let mut unplaced = denials.filter(|pattern| place(pattern, &anchors).is_none());
    if let Some(denial) = unplaced.find(|pattern| may_match(pattern, workspace, &anchors)) {
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
