//! Which requests git makes over HTTP under the rights of a rule. The gateway looks closer at each of them.

use ringwall_spec::GitRights;

pub const REFERENCES: &str = "/info/refs";
pub const FETCH: &str = "/git-upload-pack";
pub const PUSH: &str = "/git-receive-pack";

/// Methods, and what the path ends with behind the repository's.
pub fn requests(rights: &GitRights) -> impl Iterator<Item = (&'static str, &'static str)> {
    let fetches = rights.fetch;
    let pushes = !rights.push.is_empty() || !rights.tags.is_empty();
    [(fetches || pushes, ("GET", REFERENCES)), (fetches, ("POST", FETCH)), (pushes, ("POST", PUSH))]
        .into_iter()
        .filter_map(|(given, request)| given.then_some(request))
}

pub(crate) fn may_serve(rights: &GitRights, method: &str, path: &str) -> bool {
    let of_repository =
        |end: &str| path.strip_suffix(end).is_some_and(|repository| repository.len() > 1);
    requests(rights).any(|(needed, end)| needed == method && of_repository(end))
}
