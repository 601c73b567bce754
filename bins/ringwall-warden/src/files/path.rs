//! Paths as they come from the engine: bytes, seen from the root of the ring.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use ringwall_wire::{ErrorCode, RemoteError};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::{refused, show};

/// The kernel's own bound, with the final zero.
const PATH_MAX: usize = 4096;

pub(crate) fn absolute(path: &[u8]) -> Result<CString, RemoteError> {
    let invalid = |why: &str| refused(ErrorCode::Invalid, &format!("path {}: {why}", show(path)));
    if path.is_empty() {
        return Err(refused(ErrorCode::Invalid, "the path is empty"));
    }
    if path.len() + 1 >= PATH_MAX {
        return Err(refused(ErrorCode::Invalid, "the path is longer than 4095 bytes"));
    }
    let root: &[u8] = if path[0] == b'/' { b"" } else { b"/" };
    CString::new([root, path].concat()).map_err(|_| invalid("contains a zero byte"))
}

/// The directory and the name in it; refused where the name is not one that can be removed.
pub(crate) fn split(path: &[u8]) -> Result<(CString, CString), RemoteError> {
    let whole = absolute(path)?;
    let bytes = whole.to_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let start = bytes[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let name = &bytes[start..end];
    if matches!(name, b"" | b"." | b"..") {
        let why = format!("{} names no entry of a directory; give its real name", show(path));
        return Err(refused(ErrorCode::Invalid, &why));
    }
    let zero = |_| refused(ErrorCode::Invalid, "the path contains a zero byte");
    let parent = CString::new(&bytes[..start.max(1)]).map_err(zero)?;
    Ok((parent, CString::new(name).map_err(zero)?))
}

/// Opens without ever following a link of /proc such as `/proc/self/fd/3`: a job could plant a
/// symbolic link to our own descriptors.
pub(crate) fn open(path: &CStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    loop {
        let flags = flags | OFlags::CLOEXEC;
        match rustix::fs::openat2(CWD, path, flags, mode, ResolveFlags::NO_MAGICLINKS) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (parent, name) = split(path).ok()?;
        Some((parent.into_bytes(), name.into_bytes()))
    }

    #[test]
    fn paths_start_at_the_root_of_the_ring() {
        assert_eq!(absolute(b"a/b").unwrap().as_bytes(), b"/a/b");
        assert_eq!(absolute(b"/a\xff").unwrap().as_bytes(), b"/a\xff");
        for bad in [&b""[..], b"a\0b", &[b'a'; 5000]] {
            assert_eq!(absolute(bad).unwrap_err().code, ErrorCode::Invalid);
        }
    }

    #[test]
    fn only_a_real_name_can_be_removed() {
        assert_eq!(parts(b"/a/b//"), Some((b"/a/".to_vec(), b"b".to_vec())));
        assert_eq!(parts(b"/a"), Some((b"/".to_vec(), b"a".to_vec())));
        for bad in [&b"/"[..], b"//", b".", b"/a/..", b"/a/./", b""] {
            assert_eq!(parts(bad), None, "{bad:?}");
        }
    }
}
