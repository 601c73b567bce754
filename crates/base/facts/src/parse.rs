//! The texts of /proc as facts. Every list is cut to a bound.

use ringwall_spec::{Capabilities, IdMapLine, MountFact};

const MAX_MAP_LINES: usize = 16;
const MAX_MOUNTS: usize = 64;
const MAX_DEVICES: usize = 16;
const MAX_TEXT: usize = 256;

/// The lines of /proc/self/status that matter.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) capabilities: Capabilities,
    pub(super) no_new_privs: bool,
    pub(super) seccomp_mode: u8,
    pub(super) seccomp_filters: u32,
}

pub(super) fn status(text: &str) -> Status {
    let mut status = Status::default();
    // What cannot be read counts as "everything allowed", which no check accepts.
    let mask = |value: &str| u64::from_str_radix(value, 16).unwrap_or(u64::MAX);
    let all = u64::MAX;
    status.capabilities = Capabilities {
        inheritable: all,
        permitted: all,
        effective: all,
        bounding: all,
        ambient: all,
    };
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        match key {
            "CapInh" => status.capabilities.inheritable = mask(value),
            "CapPrm" => status.capabilities.permitted = mask(value),
            "CapEff" => status.capabilities.effective = mask(value),
            "CapBnd" => status.capabilities.bounding = mask(value),
            "CapAmb" => status.capabilities.ambient = mask(value),
            "NoNewPrivs" => status.no_new_privs = value == "1",
            "Seccomp" => status.seccomp_mode = value.parse().unwrap_or(0),
            "Seccomp_filters" => status.seccomp_filters = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    status
}

/// `inside outside count` per line.
pub(super) fn id_map(text: &str) -> Vec<IdMapLine> {
    let line = |line: &str| {
        let mut numbers = line.split_ascii_whitespace().map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(IdMapLine { inside: next()?, outside: next()?, count: next()? })
    };
    text.lines().filter_map(line).take(MAX_MAP_LINES).collect()
}

/// Two lines of headings, then `name: numbers` per device.
pub(super) fn network_devices(text: &str) -> Vec<String> {
    let name = |line: &str| line.split_once(':').map(|(name, _)| cut(name.trim()));
    text.lines().skip(2).filter_map(name).take(MAX_DEVICES).collect()
}

/// proc(5): `id parent major:minor root path options [tags...] - type source super-options`.
pub(super) fn mounts(text: &str) -> Vec<MountFact> {
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(4);
        let path = unescape(before.next()?);
        let options = before.next()?;
        let mut after = after.split(' ');
        let file_system = cut(after.next()?);
        let super_options = after.nth(1)?;
        let read_only = |list: &str| list.split(',').any(|option| option == "ro");
        let read_only = read_only(options) || read_only(super_options);
        Some(MountFact { path: cut(&path), file_system, read_only })
    };
    text.lines().filter_map(mount).take(MAX_MOUNTS).collect()
}

/// `unconfined`, or the name of a profile with its mode.
pub(super) fn apparmor(text: &str) -> Option<String> {
    let label = text.trim_end_matches(['\n', '\0']);
    (!label.is_empty()).then(|| cut(label))
}

/// The kernel writes space, tab, newline and backslash as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines_are_read() {
        let text = "Name:\tx\nCapInh:\t0\nCapPrm:\t00000000000000ff\nCapEff:\t0\nCapBnd:\t0\n\
                    CapAmb:\t0\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        let status = status(text);
        assert_eq!(status.capabilities, Capabilities { permitted: 0xff, ..Default::default() });
        assert!(status.no_new_privs);
        assert_eq!((status.seccomp_mode, status.seccomp_filters), (2, 3));
    }

    #[test]
    fn a_status_that_cannot_be_read_looks_like_a_missing_wall() {
        let unread = status("");
        assert!(!unread.no_new_privs);
        assert_eq!(unread.capabilities.effective, u64::MAX);
        assert_eq!(status("CapEff:\tnonsense").capabilities.effective, u64::MAX);
    }

    #[test]
    fn id_maps_keep_whole_lines_only() {
        let maps = id_map("         0 1073741824      65536\n broken\n 1 2\n");
        assert_eq!(maps, [IdMapLine { inside: 0, outside: 1_073_741_824, count: 65_536 }]);
    }

    #[test]
    fn devices_follow_the_headings() {
        let text = "Inter-|   Receive\n face |bytes\n    lo:  1 2 3\n  eth0: 1\n";
        assert_eq!(network_devices(text), ["lo", "eth0"]);
    }

    #[test]
    fn mounts_know_both_ways_of_being_read_only() {
        let text = "22 1 0:2 / / ro,nosuid - overlay overlay rw,lowerdir=x\n\
                    23 22 0:3 / /with\\040space rw shared:1 master:2 - tmpfs none ro,size=1\n\
                    24 22 0:4 / /rw rw,nosuid - proc proc rw\n\
                    broken line\n";
        let seen: Vec<_> = mounts(text).into_iter().map(|m| (m.path, m.read_only)).collect();
        let expected = [("/", true), ("/with space", true), ("/rw", false)];
        assert_eq!(seen, expected.map(|(path, ro)| (path.to_owned(), ro)));
    }

    #[test]
    fn every_list_is_cut() {
        let long = "x".repeat(5000);
        let mount = format!("1 1 0:1 / /{long} rw - {long} none rw\n");
        let mounts = mounts(&mount.repeat(100));
        assert_eq!(mounts.len(), MAX_MOUNTS);
        assert_eq!((mounts[0].path.len(), mounts[0].file_system.len()), (MAX_TEXT, MAX_TEXT));
        assert_eq!(id_map(&"0 0 1\n".repeat(100)).len(), MAX_MAP_LINES);
        assert_eq!(network_devices(&format!("{long}:\n").repeat(100)).len(), MAX_DEVICES);
    }

    #[test]
    fn a_backslash_that_escapes_nothing_stays() {
        assert_eq!(unescape("a\\"), "a\\");
        assert_eq!(unescape("a\\04"), "a\\04");
        assert_eq!(unescape("a\\134b"), "a\\b");
        assert_eq!(unescape("\\999"), "\\999");
    }
}
