//! OCI image layouts.

use serde::Deserialize;

use super::files::Files;
use super::{Import, ImportError, Offer, blob_name, copy_blob};
use crate::artifact::{Artifact, ArtifactKind};
use crate::digest::Digest;
use crate::limits::MAX_IMPORTED_NAMES;
use crate::manifest::{
    Choose, Descriptor, Document, Index, IndexEntry, Manifest, ManifestError, check_size,
    parse_document, parse_index,
};
use crate::progress::Piece;
use crate::reference::{Reference, ReferenceError};
use crate::store::{BlobError, BlobSource, BlobWriter, Image};

const MAX_INDEX_DEPTH: usize = 2;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutFile {
    image_layout_version: String,
}

impl Import<'_> {
    pub(super) fn layout(&self, files: &Files) -> Result<Vec<Image>, ImportError> {
        self.check_layout_version(files)?;
        let max_bytes = self.store.limits().max_document_bytes;
        let index = parse_index(&files.read("index.json", "index", max_bytes)?)?;
        let mut offers = Vec::new();
        for entry in self.chosen(&index)? {
            let names = vec![self.name_of(entry)?];
            let (manifest_bytes, manifest) =
                self.read_manifest(files, entry, Index::for_this_platform)?;
            offers.push(Offer { names, manifest_bytes, manifest, blobs: LayoutBlobs(files) });
        }
        self.take(&offers)
    }

    fn check_layout_version(&self, files: &Files) -> Result<(), ImportError> {
        let bytes = files.read("oci-layout", "layout file", 4096)?;
        let malformed = |source| ImportError::Malformed { name: "oci-layout".to_owned(), source };
        let layout: LayoutFile = serde_json::from_slice(&bytes).map_err(malformed)?;
        if layout.image_layout_version.starts_with("1.") {
            Ok(())
        } else {
            Err(ImportError::LayoutVersion(layout.image_layout_version.chars().take(40).collect()))
        }
    }

    /// The entries to import: one with the tag asked for, or all that fit this machine.
    fn chosen<'i>(&self, index: &'i Index) -> Result<Vec<&'i IndexEntry>, ImportError> {
        let fitting: Vec<&IndexEntry> =
            index.manifests.iter().filter(|entry| !entry.is_for_another_platform()).collect();
        let there = || {
            let names = fitting.iter().filter_map(|entry| tag_of(entry)).take(20);
            names.collect::<Vec<&str>>().join(", ")
        };
        if let Some(tag) = &self.source.tag {
            let found: Vec<&IndexEntry> =
                fitting.iter().copied().filter(|entry| tag_of(entry) == Some(tag)).collect();
            if found.is_empty() {
                return Err(ImportError::NoSuchTag { wanted: tag.clone(), there: there() });
            }
            return Ok(found.into_iter().take(1).collect());
        }
        if fitting.is_empty() {
            return Err(ImportError::NoImage(self.source.path.clone()));
        }
        if self.name.is_some() && fitting.len() > 1 {
            return Err(ImportError::SeveralImages(there()));
        }
        if fitting.len() > MAX_IMPORTED_NAMES {
            return Err(ImportError::TooManyImages(MAX_IMPORTED_NAMES));
        }
        Ok(fitting)
    }

    fn name_of(&self, entry: &IndexEntry) -> Result<Reference, ReferenceError> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        if let Some(full) = &entry.annotations.full_name {
            return full.parse();
        }
        // Most tools write a bare tag here, some a whole reference.
        let repository = self.source.default_repository();
        match entry.annotations.ref_name.as_deref() {
            Some(name) if name.contains([':', '/']) => name.parse(),
            Some(tag) => format!("{repository}:{tag}").parse(),
            None => repository.parse(),
        }
    }

    /// Reads the layout's one artefact, or the one with the tag asked for.
    pub(super) fn artifact(
        &self,
        files: &Files,
        kind: &ArtifactKind,
    ) -> Result<Artifact, ImportError> {
        self.check_layout_version(files)?;
        let max_bytes = self.store.limits().max_document_bytes;
        let index = parse_index(&files.read("index.json", "index", max_bytes)?)?;
        let entry = match &self.source.tag {
            None => index.only()?,
            Some(tag) => index
                .manifests
                .iter()
                .find(|entry| tag_of(entry) == Some(tag))
                .ok_or_else(|| self.no_such_tag(tag, &index.manifests))?,
        };
        let (manifest_bytes, manifest) = self.read_manifest(files, entry, Index::only)?;
        let content = self.store.fetch_content(&LayoutBlobs(files), &manifest, kind, self.progress);
        Ok(Artifact { manifest: Digest::of(&manifest_bytes), content: content? })
    }

    fn no_such_tag(&self, tag: &str, entries: &[IndexEntry]) -> ImportError {
        let names = entries.iter().filter_map(tag_of).take(20);
        let there = names.collect::<Vec<&str>>().join(", ");
        ImportError::NoSuchTag { wanted: tag.to_owned(), there }
    }

    /// Follows an index to the manifest that `choose` takes.
    fn read_manifest(
        &self,
        files: &Files,
        entry: &IndexEntry,
        choose: Choose,
    ) -> Result<(Vec<u8>, Manifest), ImportError> {
        let mut blob = entry.descriptor.clone();
        for _ in 0..=MAX_INDEX_DEPTH {
            let bytes = self.read_document(files, &blob)?;
            match parse_document(&bytes, Some(&blob.media_type))? {
                Document::Manifest(manifest) => return Ok((bytes, manifest)),
                Document::Index(index) => blob = choose(&index)?.descriptor.clone(),
            }
        }
        Err(ManifestError::NestedIndex.into())
    }

    fn read_document(&self, files: &Files, blob: &Descriptor) -> Result<Vec<u8>, ImportError> {
        check_size("manifest", blob.size, self.store.limits().max_document_bytes)?;
        self.budget.count_document(blob.size)?;
        let bytes = files.read(&blob_name(blob), "manifest", blob.size)?;
        let found = Digest::of(&bytes);
        if found != blob.digest {
            return Err(BlobError::WrongDigest { expected: blob.digest.clone(), found }.into());
        }
        Ok(bytes)
    }
}

fn tag_of(entry: &IndexEntry) -> Option<&str> {
    entry.annotations.ref_name.as_deref().or(entry.annotations.full_name.as_deref())
}

struct LayoutBlobs<'a>(&'a Files);

impl BlobSource for LayoutBlobs<'_> {
    type Error = ImportError;

    fn fetch(
        &self,
        blob: &Descriptor,
        into: &mut BlobWriter,
        piece: &Piece<'_>,
    ) -> Result<(), ImportError> {
        copy_blob(self.0, &blob_name(blob), into, piece)
    }
}
