//! What every attack needs: walls to attack, a place outside to defend, and a way to tell.

mod arena;
mod image;
mod outcome;
mod outside;

pub(crate) use arena::{Arena, Wall, at_every_wall, built_programs};
pub(crate) use image::{fill as fill_image, pack as pack_image, umoci};
pub(crate) use outcome::Outcome;
pub(crate) use outside::{Planted, eventually, processes_marked, token};

/// Error numbers as an attack reports them; 0 is success.
pub(crate) mod errno {
    pub(crate) const EPERM: i32 = 1;
    pub(crate) const ENOENT: i32 = 2;
    pub(crate) const ENOSYS: i32 = 38;
    pub(crate) const EPROTONOSUPPORT: i32 = 93;
    pub(crate) const ESOCKTNOSUPPORT: i32 = 94;
    pub(crate) const EAFNOSUPPORT: i32 = 97;
}
