//! What to change, in the words of the place where Ringwall runs.

use ringwall_linux::host::Place;

/// Something that the place round us keeps from a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// To make user namespaces and to mount in them.
    Namespaces,
    /// A /proc of which nothing is covered.
    WholeProc,
    /// System calls that a seccomp profile refuses.
    SystemCalls,
    /// Not to be a root that may not mount.
    OrdinaryUser,
    /// A state directory on a file system of its own.
    OwnVolume,
}

const DOCKER_FLAGS: &str = "--security-opt seccomp=unconfined --security-opt \
                            apparmor=unconfined --security-opt systempaths=unconfined";

/// The setting to change, if the place is one that has settings.
pub(super) fn setting(place: Place, need: Need) -> Option<String> {
    let told = match (place, need) {
        (Place::Host, _) => return None,
        (Place::Docker, Need::OrdinaryUser) => "docker run --user 1000:1000 ...".to_owned(),
        (Place::Docker, Need::OwnVolume) => {
            "docker run --tmpfs /scratch:exec -e RINGWALL_HOME=/scratch/ringwall ...".to_owned()
        }
        (Place::Docker, _) => format!("docker run {DOCKER_FLAGS} ..."),
        (Place::Podman, Need::OrdinaryUser) => "podman run --user 1000:1000 ...".to_owned(),
        (Place::Podman, Need::OwnVolume) => {
            "podman run --tmpfs /scratch -e RINGWALL_HOME=/scratch/ringwall ...".to_owned()
        }
        (Place::Podman, Need::WholeProc) => "podman run --security-opt unmask=ALL ...".to_owned(),
        (Place::Podman, _) => {
            "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL ...".to_owned()
        }
        (Place::Pod, need) => in_a_pod(need).to_owned(),
        (Place::GithubActions, Need::OrdinaryUser) => {
            "in the workflow, below container: options: --user 1000:1000".to_owned()
        }
        (Place::GithubActions, Need::OwnVolume) => {
            "in the workflow, below container: options: --tmpfs /scratch:exec, and below env: \
             RINGWALL_HOME: /scratch/ringwall"
                .to_owned()
        }
        (Place::GithubActions, _) => {
            format!("in the workflow, below container: options: {DOCKER_FLAGS}")
        }
        (Place::Container, Need::OrdinaryUser) => {
            "start the container as an ordinary user, such as 1000:1000".to_owned()
        }
        (Place::Container, Need::OwnVolume) => {
            "mount a tmpfs or a volume in the container and set RINGWALL_HOME to a directory on it"
                .to_owned()
        }
        (Place::Container, Need::WholeProc) => {
            "start the container without masked and read-only paths below /proc".to_owned()
        }
        (Place::Container, _) => {
            "start the container with a seccomp profile that allows clone3, unshare and mounts, \
             and without masked paths below /proc"
                .to_owned()
        }
    };
    Some(told)
}

fn in_a_pod(need: Need) -> &'static str {
    match need {
        Need::Namespaces | Need::SystemCalls => {
            "in the Pod, set hostUsers: false, and in the container's securityContext set \
             procMount: Unmasked, runAsUser: 1000 and no seccompProfile (or one that allows \
             clone3, unshare and mounts)"
        }
        Need::WholeProc => {
            "in the Pod, set hostUsers: false, and procMount: Unmasked in the container's \
             securityContext"
        }
        Need::OrdinaryUser => {
            "in the container's securityContext, set runAsUser: 1000 and runAsGroup: 1000"
        }
        Need::OwnVolume => {
            "in the Pod, mount an emptyDir (with fsGroup: 1000), and set RINGWALL_HOME to a \
             directory on it"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_a_setting_of_the_place_and_of_no_other() {
        let needs = [
            Need::Namespaces,
            Need::WholeProc,
            Need::SystemCalls,
            Need::OrdinaryUser,
            Need::OwnVolume,
        ];
        for need in needs {
            assert_eq!(setting(Place::Host, need), None);
            let told = |place| setting(place, need).unwrap();
            assert!(told(Place::Docker).starts_with("docker run --"));
            assert!(told(Place::Podman).starts_with("podman run --"));
            assert!(told(Place::GithubActions).contains("options: --"));
            let pod = told(Place::Pod);
            assert!(!pod.contains("--security-opt") && pod.contains(": "), "{pod}");
            assert!(!told(Place::Container).contains("--"));
        }
    }
}
