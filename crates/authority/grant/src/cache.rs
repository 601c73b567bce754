//! Tokens that were verified before. Only what is true of the bytes for ever is kept: whether a grant
//! has expired or was revoked is found out at every check.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Two generations: when the young one is full it becomes the old one, and the old one goes.
#[derive(Debug)]
pub(crate) struct Cache<T> {
    generations: Mutex<Generations<T>>,
    most: usize,
}

#[derive(Debug)]
struct Generations<T> {
    young: HashMap<[u8; 32], Arc<T>>,
    old: HashMap<[u8; 32], Arc<T>>,
}

impl<T> Cache<T> {
    /// Holds at most twice as many.
    pub(crate) fn new(most: usize) -> Cache<T> {
        let generations = Generations { young: HashMap::new(), old: HashMap::new() };
        Cache { generations: Mutex::new(generations), most }
    }

    /// What was made of these bytes; made now if it is not known. What fails is not kept, so nobody
    /// fills the cache with rubbish.
    pub(crate) fn get_or<E>(
        &self,
        bytes: &[u8],
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let key = *blake3::hash(bytes).as_bytes();
        if let Some(known) = self.find(&key) {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        self.keep(key, Arc::clone(&made));
        Ok(made)
    }

    fn find(&self, key: &[u8; 32]) -> Option<Arc<T>> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = generations.young.get(key) {
            return Some(Arc::clone(known));
        }
        let known = generations.old.remove(key)?;
        drop(generations);
        self.keep(*key, Arc::clone(&known));
        Some(known)
    }

    fn keep(&self, key: [u8; 32], value: Arc<T>) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if generations.young.len() >= self.most {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_small_and_keeps_what_is_used() {
        let cache = Cache::new(4);
        let number = |number: u32| {
            cache.get_or(&number.to_le_bytes(), || Ok::<_, ()>(number)).map(|found| *found)
        };
        for other in 0..100 {
            assert_eq!(number(other), Ok(other));
            assert_eq!(number(1000), Ok(1000));
        }
        let generations = cache.generations.lock().unwrap();
        assert!(generations.young.len() + generations.old.len() <= 8);
    }

    #[test]
    fn what_fails_is_tried_again() {
        let cache = Cache::new(4);
        assert!(cache.get_or(b"x", || Err::<u8, _>("no")).is_err());
        assert_eq!(cache.get_or(b"x", || Ok::<_, &str>(1)).map(|found| *found), Ok(1));
        assert_eq!(cache.get_or(b"x", || Err::<u8, _>("unused")).map(|found| *found), Ok(1));
    }
}
