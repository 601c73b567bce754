//! Writes cpio archives in the `newc` format, the one that Linux unpacks into its first root.
//!
//! The same entries give the same bytes: no times, no owners, inodes counted from one.

use std::io::{self, Read, Write};

const MAGIC: &str = "070701";
const TRAILER: &str = "TRAILER!!!";

const DIRECTORY: u32 = 0o040_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const REGULAR: u32 = 0o100_000;

/// An archive in the making. Parents go before what is in them.
#[derive(Debug)]
pub(crate) struct Archive<W> {
    out: W,
    inode: u32,
    /// For the padding.
    written: u64,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W) -> Archive<W> {
        Archive { out, inode: 0, written: 0 }
    }

    pub(crate) fn directory(&mut self, path: &str, mode: u32) -> io::Result<()> {
        self.header(path, DIRECTORY | mode, 0, (0, 0))
    }

    pub(crate) fn character_device(
        &mut self,
        path: &str,
        mode: u32,
        device: (u32, u32),
    ) -> io::Result<()> {
        self.header(path, CHARACTER_DEVICE | mode, 0, device)
    }

    /// `content` must have `size` bytes.
    pub(crate) fn file(
        &mut self,
        path: &str,
        mode: u32,
        size: u64,
        content: impl Read,
    ) -> io::Result<()> {
        let short = u32::try_from(size)
            .map_err(|_| io::Error::new(io::ErrorKind::FileTooLarge, "a file of 4 GiB or more"))?;
        self.header(path, REGULAR | mode, short, (0, 0))?;
        // One byte more shows that the file has grown.
        let copied = io::copy(&mut content.take(size + 1), &mut self.out)?;
        if copied != size {
            return Err(io::Error::other("the file changed while it was read"));
        }
        self.written += size;
        self.pad()
    }

    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.inode = 0;
        self.entry(TRAILER, 0, 0, (0, 0), 0)?;
        Ok(self.out)
    }

    fn header(&mut self, path: &str, mode: u32, size: u32, device: (u32, u32)) -> io::Result<()> {
        let path = path.trim_start_matches('/');
        if path.is_empty() || path.contains('\0') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no name in the archive"));
        }
        self.inode += 1;
        self.entry(path, mode, size, device, self.inode)
    }

    fn entry(
        &mut self,
        name: &str,
        mode: u32,
        size: u32,
        (major, minor): (u32, u32),
        inode: u32,
    ) -> io::Result<()> {
        let links = 1;
        let name_size = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        // In order: inode, mode, uid, gid, links, time, size, device of the file system, device,
        // length of the name, checksum (of another format).
        let fields = [inode, mode, 0, 0, links, 0, size, 0, 0, major, minor, name_size, 0];
        let mut header = MAGIC.to_owned();
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        header.push_str(name);
        header.push('\0');
        self.out.write_all(header.as_bytes())?;
        self.written += header.len() as u64;
        self.pad()
    }

    /// Headers and contents begin at multiples of four.
    fn pad(&mut self) -> io::Result<()> {
        let missing = self.written.next_multiple_of(4) - self.written;
        self.out.write_all(&[0; 3][..missing as usize])?;
        self.written += missing;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
