//! Where the files lie whose text taints a task, by the policy's `path:` sources.

use std::path::{Path, PathBuf};

use ringwall_policy::{Anchors, PathPattern};

/// The place at or below which all files of one source lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaintingPath {
    /// As the policy writes it.
    pub pattern: String,
    pub top: Top,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Top {
    /// In the workspace. An empty path is all of it.
    Workspace(PathBuf),
    /// Outside of the workspace, where the host has it.
    Host(PathBuf),
}

/// The places of these sources, with where links of the host lead to.
pub(crate) fn places<'a>(
    sources: impl Iterator<Item = &'a PathPattern>,
    anchors: &Anchors,
) -> Vec<TaintingPath> {
    let workspace = anchors.workspace.as_deref().map(Path::new);
    let mut places = Vec::new();
    for source in sources {
        let Some(top) = source.top(anchors).map(PathBuf::from) else { continue };
        let resolved = resolved(&top);
        for top in [Some(top), resolved].into_iter().flatten() {
            let place = TaintingPath {
                pattern: source.as_str().to_owned(),
                top: seen_from(&top, workspace),
            };
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places
}

fn seen_from(top: &Path, workspace: Option<&Path>) -> Top {
    let Some(workspace) = workspace else { return Top::Host(top.to_owned()) };
    match top.strip_prefix(workspace) {
        Ok(inside) => Top::Workspace(inside.to_owned()),
        Err(_) if workspace.starts_with(top) => Top::Workspace(PathBuf::new()),
        Err(_) => Top::Host(top.to_owned()),
    }
}

/// Resolves the links of a path, as far as it exists.
fn resolved(top: &Path) -> Option<PathBuf> {
    top.ancestors().find_map(|above| {
        let below = top.strip_prefix(above).ok()?;
        Some(std::fs::canonicalize(above).ok()?.join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places_of(sources: &[&str], workspace: Option<&str>) -> Vec<Top> {
        let anchors = Anchors {
            home: Some("/nowhere/u".to_owned()),
            workspace: workspace.map(str::to_owned),
        };
        let sources: Vec<PathPattern> =
            sources.iter().map(|text| PathPattern::try_from((*text).to_owned()).unwrap()).collect();
        places(sources.iter(), &anchors).into_iter().map(|place| place.top).collect()
    }

    #[test]
    fn a_source_is_in_the_workspace_or_at_its_place_on_the_host() {
        let inside = |path: &str| vec![Top::Workspace(path.into())];
        let outside = |path: &str| vec![Top::Host(path.into())];
        let at = Some("/nowhere/u/w");
        assert_eq!(places_of(&["./inbox/**"], at), inside("inbox"));
        assert_eq!(places_of(&["~/w/inbox/**"], at), inside("inbox"));
        assert_eq!(places_of(&["./**/*.eml"], at), inside(""));
        assert_eq!(places_of(&["~/**"], at), inside(""), "the workspace is below it");
        assert_eq!(places_of(&["~/mail/**"], at), outside("/nowhere/u/mail"));
        assert_eq!(places_of(&["~/mail/**"], None), outside("/nowhere/u/mail"));
        assert_eq!(places_of(&["./inbox/**"], None), [], "without a workspace it names nothing");
    }

    #[test]
    fn a_source_below_a_link_is_also_where_the_link_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap().join("real");
        std::fs::create_dir_all(real.join("w")).unwrap();
        let link = real.with_file_name("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let source = format!("{}/w/inbox/**", link.display());
        assert_eq!(
            places_of(&[&source], real.join("w").to_str()),
            [Top::Host(link.join("w/inbox")), Top::Workspace("inbox".into())]
        );
    }
}
