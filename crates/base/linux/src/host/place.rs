//! Where this process runs: on a host, or in a container of some kind. Used for advice only.

use std::path::Path;

use super::read_text;

/// A kind of place, by the settings that somebody would have to change there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Host,
    Docker,
    Podman,
    /// A container of a Pod.
    Pod,
    /// A job of GitHub Actions with `container:`.
    GithubActions,
    /// A container whose maker is not known.
    Container,
}

impl Place {
    pub fn detect() -> Place {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let there = |path: &str| Path::new(path).exists();
        Signs {
            docker_file: there("/.dockerenv"),
            podman_file: there("/run/.containerenv"),
            pod: set("KUBERNETES_SERVICE_HOST") || there("/var/run/secrets/kubernetes.io"),
            github: std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true"),
            named_container: set("container"),
            cgroup: read_text("/proc/self/cgroup").unwrap_or_default(),
            mounts: read_text("/proc/self/mountinfo").unwrap_or_default(),
        }
        .place()
    }

    /// As the report says it.
    pub fn name(self) -> &'static str {
        match self {
            Place::Host => "host",
            Place::Docker => "docker",
            Place::Podman => "podman",
            Place::Pod => "pod",
            Place::GithubActions => "github-actions",
            Place::Container => "container",
        }
    }
}

/// What was seen, each sign by itself.
#[derive(Debug, Default)]
struct Signs {
    docker_file: bool,
    podman_file: bool,
    pod: bool,
    github: bool,
    named_container: bool,
    cgroup: String,
    mounts: String,
}

impl Signs {
    fn place(&self) -> Place {
        let cgroup = |words: &[&str]| words.iter().any(|word| self.cgroup.contains(word));
        let in_docker = self.docker_file || cgroup(&["/docker/", "/docker-"]);
        let in_podman = self.podman_file || cgroup(&["/libpod-"]);
        let elsewhere = self.named_container
            || cgroup(&["/lxc/", "/lxc.payload", "containerd", "/crio-"])
            || self.has_masked_proc();
        if self.pod || cgroup(&["kubepods"]) {
            Place::Pod
        } else if self.github && (in_docker || in_podman || elsewhere) {
            Place::GithubActions
        } else if in_podman {
            Place::Podman
        } else if in_docker {
            Place::Docker
        } else if elsewhere {
            Place::Container
        } else {
            Place::Host
        }
    }

    /// Runtimes cover parts of /proc; nobody else does.
    fn has_masked_proc(&self) -> bool {
        let masked = ["/proc/kcore", "/proc/keys", "/proc/timer_list"];
        let at = |line: &str| line.split(' ').nth(4).map(str::to_owned);
        self.mounts.lines().filter_map(at).any(|place| masked.contains(&place.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_known_by_its_signs() {
        let none = Signs::default;
        assert_eq!(none().place(), Place::Host);
        assert_eq!(Signs { github: true, ..none() }.place(), Place::Host, "a runner's own machine");
        let docker = || Signs { docker_file: true, ..none() };
        assert_eq!(docker().place(), Place::Docker);
        assert_eq!(Signs { github: true, ..docker() }.place(), Place::GithubActions);
        assert_eq!(Signs { pod: true, ..docker() }.place(), Place::Pod);
        assert_eq!(Signs { podman_file: true, ..none() }.place(), Place::Podman);
        let of_cgroup = |text: &str| Signs { cgroup: text.to_owned(), ..none() }.place();
        assert_eq!(of_cgroup("0::/kubepods.slice/kubepods-pod1.slice/x\n"), Place::Pod);
        assert_eq!(of_cgroup("4:pids:/docker/0123\n"), Place::Docker);
        assert_eq!(of_cgroup("0::/user.slice/libpod-1.scope\n"), Place::Podman);
        assert_eq!(of_cgroup("0::/user.slice/user-1000.slice\n"), Place::Host);
        let mounts = "9 8 0:2 /null /proc/kcore rw - devtmpfs devtmpfs rw\n".to_owned();
        assert_eq!(Signs { mounts, ..none() }.place(), Place::Container);
    }
}
