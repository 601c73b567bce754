//! Layers written by hand, so that they can be as hostile as bytes allow.

use tar::{EntryType, Header};

/// An archive under construction.
#[derive(Default)]
pub(crate) struct Layer {
    bytes: Vec<u8>,
}

/// One entry; every field can be set to something no sane tool would write.
pub(crate) struct Item<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) kind: EntryType,
    pub(crate) link: &'a [u8],
    pub(crate) content: &'a [u8],
    pub(crate) mode: u32,
    pub(crate) owner: (u64, u64),
}

impl<'a> Item<'a> {
    pub(crate) fn new(name: &'a str, kind: EntryType) -> Item<'a> {
        let mode = if kind == EntryType::Directory { 0o755 } else { 0o644 };
        let (link, content): (&[u8], &[u8]) = (b"", b"");
        Item { name: name.as_bytes(), kind, link, content, mode, owner: (0, 0) }
    }
}

impl Layer {
    pub(crate) fn item(self, item: &Item<'_>) -> Self {
        let mut header = Header::new_gnu();
        let old = header.as_old_mut();
        old.name[..item.name.len()].copy_from_slice(item.name);
        old.linkname[..item.link.len()].copy_from_slice(item.link);
        header.set_entry_type(item.kind);
        header.set_size(item.content.len() as u64);
        header.set_mode(item.mode);
        header.set_uid(item.owner.0);
        header.set_gid(item.owner.1);
        header.set_mtime(1_700_000_000);
        header.set_cksum();
        self.raw(header.as_bytes()).content(item.content)
    }

    pub(crate) fn file(self, name: &str, content: &str) -> Self {
        let content = content.as_bytes();
        self.item(&Item { content, ..Item::new(name, EntryType::Regular) })
    }

    pub(crate) fn directory(self, name: &str) -> Self {
        self.item(&Item::new(name, EntryType::Directory))
    }

    pub(crate) fn symlink(self, name: &str, target: &str) -> Self {
        let link = target.as_bytes();
        self.item(&Item { link, mode: 0o777, ..Item::new(name, EntryType::Symlink) })
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.item(&Item { link: target.as_bytes(), ..Item::new(name, EntryType::Link) })
    }

    /// A PAX header for the next entry.
    pub(crate) fn pax(self, key: &str, value: &[u8]) -> Self {
        let mut record = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
        let mut length = record.len();
        while length.to_string().len() + record.len() != length {
            length = length.to_string().len() + record.len();
        }
        record.splice(0..0, length.to_string().into_bytes());
        self.item(&Item { content: &record, ..Item::new("pax", EntryType::XHeader) })
    }

    /// A GNU long name for the next entry.
    pub(crate) fn long_name(self, name: &[u8]) -> Self {
        let content = [name, b"\0"].concat();
        self.item(&Item { content: &content, ..Item::new("././@LongLink", EntryType::GNULongName) })
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn content(mut self, content: &[u8]) -> Self {
        self.bytes.extend_from_slice(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn done(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 1024, 0);
        self.bytes
    }
}
