//! Subordinate ids that the administrator gave to a user.

use super::read_text;

/// One range of /etc/subuid or /etc/subgid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRangeGiven {
    pub first: u32,
    pub count: u32,
}

/// The name of a user in /etc/passwd. Users that only a directory service knows are not found;
/// their ranges can be listed by number.
pub(super) fn user_name(uid: u32) -> Option<String> {
    name_in(&read_text("/etc/passwd")?, uid)
}

pub(super) fn ranges(path: &str, uid: u32, name: Option<&str>) -> Vec<IdRangeGiven> {
    ranges_in(&read_text(path).unwrap_or_default(), uid, name)
}

/// `user:x:1000:1000:...`
fn name_in(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// `user:100000:65536`, the user by name or by number.
fn ranges_in(table: &str, uid: u32, name: Option<&str>) -> Vec<IdRangeGiven> {
    let range = |line: &str| {
        let mut fields = line.split(':');
        let owner = fields.next()?;
        if Some(owner) != name && owner.parse() != Ok(uid) {
            return None;
        }
        let (first, count) = (fields.next()?.parse().ok()?, fields.next()?.trim().parse().ok()?);
        (count > 0).then_some(IdRangeGiven { first, count })
    };
    table.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_name_and_by_number() {
        let table = "root:1:2\nada:100000:65536\n1000:300000:1000\nadam:5:5\nada:x:y\nada:7:0\n";
        let found = ranges_in(table, 1000, Some("ada"));
        assert_eq!(
            found,
            [
                IdRangeGiven { first: 100_000, count: 65_536 },
                IdRangeGiven { first: 300_000, count: 1000 }
            ]
        );
        assert!(ranges_in(table, 1001, None).is_empty());
    }

    #[test]
    fn names_come_from_the_third_field() {
        let passwd = "root:x:0:0::/root:/bin/sh\nbroken\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(name_in(passwd, 1000).as_deref(), Some("ada"));
        assert_eq!(name_in(passwd, 7), None);
    }
}
