//! What a client says to fetch from a git server, read as git writes it: nothing else passes a rule that
//! allows fetching only.

use std::io::Read;

use flate2::bufread::GzDecoder;

use crate::git::BadGit;

/// Of a request to fetch, also when it is unpacked: some hundred thousand objects that the client has.
pub const LONGEST_FETCH: usize = 8 * 1024 * 1024;
/// Of one line with words of the client's own: names of references, filters, capabilities.
const LONGEST_WORDS: usize = 1024;

/// Lines that are one word.
const WORDS: [&str; 12] = [
    "done",
    "thin-pack",
    "no-progress",
    "include-tag",
    "ofs-delta",
    "deepen-relative",
    "sideband-all",
    "wait-for-done",
    "peel",
    "symrefs",
    "unborn",
    "size",
];
/// Lines with the id of an object behind them.
const WITH_ID: [&str; 4] = ["have ", "shallow ", "want ", "oid "];
/// Lines with a number behind them.
const WITH_NUMBER: [&str; 2] = ["deepen ", "deepen-since "];
/// Lines with a name or words behind them.
const WITH_WORDS: [&str; 7] = [
    "deepen-not ",
    "filter ",
    "want-ref ",
    "ref-prefix ",
    "packfile-uris ",
    "agent=",
    "session-id=",
];
const WHOLE: [&str; 6] = [
    "command=ls-refs",
    "command=fetch",
    "command=object-info",
    "command=bundle-uri",
    "object-format=sha1",
    "object-format=sha256",
];

/// Undoes gzip, as git packs longer requests with it.
pub fn unpacked(bytes: &[u8]) -> Result<Vec<u8>, BadGit> {
    let mut plain = Vec::new();
    let mut decoder = GzDecoder::new(bytes);
    let most = LONGEST_FETCH as u64 + 1;
    Read::take(&mut decoder, most).read_to_end(&mut plain).map_err(|_| BadGit::Request)?;
    // What follows the packed bytes could be read by somebody else.
    let rest = decoder.into_inner();
    if plain.len() > LONGEST_FETCH || !rest.is_empty() { Err(BadGit::Request) } else { Ok(plain) }
}

/// Whether this is a request to fetch, and nothing besides.
pub fn check_request(bytes: &[u8]) -> Result<(), BadGit> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let digits = rest.get(..4).ok_or(BadGit::Request)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(BadGit::Request);
        }
        let digits = std::str::from_utf8(digits).map_err(|_| BadGit::Request)?;
        let length = usize::from_str_radix(digits, 16).map_err(|_| BadGit::Request)?;
        // 0 ends a part, 1 stands between two.
        let length = if length <= 1 { 4 } else { length };
        let (line, after) = rest.split_at_checked(length).ok_or(BadGit::Request)?;
        let line = line.get(4..).ok_or(BadGit::Request)?;
        rest = after;
        let ends_part = digits == "0000" || digits == "0001";
        if !ends_part && !is_known(line.strip_suffix(b"\n").unwrap_or(line)) {
            return Err(BadGit::Request);
        }
    }
    if bytes.is_empty() { Err(BadGit::Request) } else { Ok(()) }
}

fn is_known(line: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(line) else {
        return false;
    };
    let after = |known: &[&str]| known.iter().find_map(|name| line.strip_prefix(name));
    let plain = |words: &str| words.len() <= LONGEST_WORDS && !words.chars().any(char::is_control);
    if WORDS.contains(&line) || WHOLE.contains(&line) {
        return true;
    }
    if let Some(rest) = after(&WITH_ID) {
        // The first `want` has the client's capabilities behind it.
        let (id, words) = rest.split_once(' ').unwrap_or((rest, ""));
        return crate::git::is_id(id)
            && plain(words)
            && (words.is_empty() || line.starts_with("want "));
    }
    if let Some(number) = after(&WITH_NUMBER) {
        return (1..=20).contains(&number.len())
            && number.bytes().all(|byte| byte.is_ascii_digit());
    }
    after(&WITH_WORDS).is_some_and(|words| !words.is_empty() && plain(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    const ID: &str = "1111111111111111111111111111111111111111";

    fn line(text: &str) -> String {
        format!("{:04x}{text}", text.len() + 4)
    }

    #[test]
    fn requests_of_every_version_of_the_protocol_pass() {
        let first =
            line(&format!("want {ID} multi_ack_detailed no-done side-band-64k agent=git/2\n"))
                + &line(&format!("want {ID}\n"))
                + &line("deepen 1\n")
                + "0000"
                + &line(&format!("have {ID}\n"))
                + &line("done\n");
        let second = line("command=fetch")
            + &line("agent=git/2.50")
            + &line("object-format=sha1")
            + "0001"
            + &line("thin-pack")
            + &line("filter blob:none")
            + &line(&format!("want {ID}\n"))
            + &line("done\n")
            + "0000";
        let list = line("command=ls-refs\n") + "0001" + &line("ref-prefix refs/heads/\n") + "0000";
        for request in [first.as_str(), &second, &list, "0000"] {
            assert_eq!(check_request(request.as_bytes()), Ok(()), "{request}");
        }
    }

    #[test]
    fn what_is_no_request_to_fetch_is_refused() {
        let long = line(&format!("agent={}", "x".repeat(2000)));
        for request in [
            "",
            "the secrets of the workspace",
            "0000the secrets of the workspace",
            "0003",
            "0002",
            "zzzz",
            "+004",
            "ffff",
            &line("push everything\n"),
            &line("server-option=x\n"),
            &line("want abc\n"),
            &line(&format!("have {ID} and the secrets\n")),
            &line("agent=a\nb"),
            &line("deepen 1e3"),
            &long,
        ] {
            assert_eq!(check_request(request.as_bytes()), Err(BadGit::Request), "{request}");
        }
    }

    #[test]
    fn gzip_is_undone_within_bounds() {
        let pack = |plain: &[u8]| {
            let mut packed = GzEncoder::new(Vec::new(), Compression::best());
            packed.write_all(plain).unwrap();
            packed.finish().unwrap()
        };
        assert_eq!(unpacked(&pack(b"0000")), Ok(b"0000".to_vec()));
        let bomb = pack(&vec![b'0'; LONGEST_FETCH + 1]);
        assert!(bomb.len() < 64 * 1024);
        assert_eq!(unpacked(&bomb), Err(BadGit::Request));
        let behind = [pack(b"0000"), b"the secrets".to_vec()].concat();
        assert_eq!(unpacked(&behind), Err(BadGit::Request));
        assert_eq!(unpacked(b"0000"), Err(BadGit::Request));
    }
}
