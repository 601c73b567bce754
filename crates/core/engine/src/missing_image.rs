//! Images that a sandbox needs and the store does not have.

use std::sync::PoisonError;

use ringwall_image::{Image, Progress, PullError, ResolveError, RootImageError, StoreError};
use ringwall_policy::LoadError;
use ringwall_spec::{RingKind, SandboxSpec};

use crate::config::{Engine, Serves};
use crate::place::PlaceError;
use crate::policy_files::PolicySearch;

#[derive(Debug, thiserror::Error)]
pub enum MissingImageError {
    #[error(transparent)]
    Policy(#[from] LoadError),
    #[error(
        "the image {image} is not in the store, and {policy} forbids to pull it (images.pull = false); ask the owner of the policy, or use an image of `ringwall image ls`"
    )]
    Forbidden { image: String, policy: String },
    #[error(
        "the image {image} is not in the store and cannot be pulled (`ringwall image import PATH` reads one from a file)"
    )]
    Pull { image: String, source: PullError },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error(transparent)]
    Root(#[from] RootImageError),
}

impl Engine {
    /// Whether the store has an image of this name.
    pub fn has_image(&self, reference: &str) -> Result<bool, MissingImageError> {
        match self.images()?.resolve(reference) {
            Ok(_) => Ok(true),
            Err(ResolveError::NotFound(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Pulls the image of a permitted sandbox if it is missing and no policy forbids that, and makes
    /// what a guest boots of it: what takes long is done here, where it can be watched.
    pub fn get_image(
        &self,
        spec: &SandboxSpec,
        search: &PolicySearch,
        progress: &dyn Fn() -> Box<dyn Progress>,
    ) -> Result<Option<Image>, MissingImageError> {
        let Some(reference) = &spec.image else { return Ok(None) };
        let store = self.images()?;
        let image = match store.resolve(reference) {
            Err(ResolveError::NotFound(image)) => {
                allow_pull(&image, search)?;
                let pulled = store.pull(reference, &*progress());
                pulled.map_err(|source| MissingImageError::Pull { image, source })?
            }
            found => found?,
        };
        if spec.wall.outermost() == RingKind::Vm {
            store.root_image(&image, &*progress())?;
        }
        if self.serves == Serves::OneRun {
            let mut found = self.found_image.lock().unwrap_or_else(PoisonError::into_inner);
            *found = Some((reference.clone(), image.clone()));
        }
        Ok(Some(image))
    }

    /// The image of a permitted sandbox: the one that was got for it, or else the one that the store has now.
    pub(crate) fn image_of(&self, spec: &SandboxSpec) -> Result<Option<Image>, PlaceError> {
        let Some(reference) = &spec.image else { return Ok(None) };
        let found = self.found_image.lock().unwrap_or_else(PoisonError::into_inner).take();
        match found.filter(|(got_for, _)| got_for == reference) {
            Some((_, image)) => Ok(Some(image)),
            None => Ok(Some(self.images()?.resolve(reference)?)),
        }
    }
}

fn allow_pull(image: &str, search: &PolicySearch) -> Result<(), MissingImageError> {
    let layers = search.read()?;
    if layers.is_empty() {
        return Ok(());
    }
    let stack = crate::admit::deciding(|| PolicySearch::stack(layers))?;
    match stack.forbids_pull() {
        Some(policy) => {
            let (image, policy) = (image.to_owned(), policy.to_owned());
            Err(MissingImageError::Forbidden { image, policy })
        }
        None => Ok(()),
    }
}
