//! Memory for bodies that are read whole before anything of them is judged: counted as they come, and bounded
//! for each tenant, for all holders together, and for the owner apart.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::lanes::Whose;
use crate::problem::{Code, Problem};

/// The memory for all bodies of holders, for those of one tenant, and for those of the owner.
const MAX_HELD_OF_HOLDERS: usize = 128 << 20;
const MAX_HELD_OF_TENANT: usize = 64 << 20;
const MAX_HELD_OF_OWNER: usize = 1 << 30;

#[derive(Debug)]
pub(crate) struct Rooms {
    holders: Arc<Room>,
    owner: Arc<Room>,
}

#[derive(Debug)]
struct Room {
    most: usize,
    most_of_one: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: HashMap<String, usize>,
}

/// A part of a room, given back when it is dropped. It lasts as long as the values that were read from the
/// body.
#[derive(Debug)]
pub(crate) struct Held {
    room: Arc<Room>,
    whose: String,
    bytes: usize,
}

impl Default for Rooms {
    fn default() -> Rooms {
        Rooms {
            holders: Room::new(MAX_HELD_OF_HOLDERS, MAX_HELD_OF_TENANT),
            owner: Room::new(MAX_HELD_OF_OWNER, MAX_HELD_OF_OWNER),
        }
    }
}

impl Rooms {
    pub(crate) fn of(&self, whose: &Whose) -> Held {
        let (room, whose) = match whose {
            Whose::Owner => (&self.owner, ""),
            Whose::Holder(tenant) => (&self.holders, tenant.as_str()),
        };
        Held { room: Arc::clone(room), whose: whose.to_owned(), bytes: 0 }
    }
}

impl Room {
    fn new(most: usize, most_of_one: usize) -> Arc<Room> {
        Arc::new(Room { most, most_of_one, taken: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Takes more of the room, before the memory is used. No request waits for room: two that wait for each
    /// other would wait for good.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), Problem> {
        let mut taken = self.room.lock();
        let own = taken.of.get(&self.whose).copied().unwrap_or(0).saturating_add(more);
        let all = taken.all.saturating_add(more);
        if own > self.room.most_of_one || all > self.room.most {
            let why = "the requests under way are too large together; ask again after a moment";
            return Err(Problem::new(Code::Busy, why));
        }
        taken.all = all;
        taken.of.insert(self.whose.clone(), own);
        self.bytes += more;
        Ok(())
    }

    /// Gives all of it back.
    pub(crate) fn clear(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut taken = self.room.lock();
        taken.all = taken.all.saturating_sub(bytes);
        let left = taken.of.get(&self.whose).map_or(0, |own| own.saturating_sub(bytes));
        if left == 0 {
            taken.of.remove(&self.whose);
        } else {
            taken.of.insert(self.whose.clone(), left);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(room: &Arc<Room>, whose: &str) -> Held {
        Held { room: Arc::clone(room), whose: whose.to_owned(), bytes: 0 }
    }

    #[test]
    fn room_is_bounded_for_one_and_for_all_and_given_back() {
        let room = Room::new(100, 60);
        let (mut one, mut same) = (held(&room, "a"), held(&room, "a"));
        one.grow(60).unwrap();
        assert_eq!(same.grow(1).unwrap_err().status(), 429);
        let mut other = held(&room, "b");
        other.grow(40).unwrap();
        assert!(other.grow(1).is_err(), "all together have a hundred");
        assert!(other.grow(usize::MAX).is_err());
        drop((one, same));
        other.grow(20).unwrap();
        drop(other);
        let taken = room.lock();
        assert_eq!((taken.all, taken.of.len()), (0, 0));
    }

    #[test]
    fn the_owner_has_room_that_no_holder_takes() {
        let rooms = Rooms::default();
        let tenants = ["a", "b", "c"].map(|name| Whose::Holder(name.to_owned()));
        let mut held: Vec<Held> = tenants.iter().map(|whose| rooms.of(whose)).collect();
        held[0].grow(MAX_HELD_OF_TENANT).unwrap();
        held[1].grow(MAX_HELD_OF_TENANT).unwrap();
        held[0].clear();
        held[0].grow(MAX_HELD_OF_TENANT).unwrap();
        assert!(held[2].grow(1).is_err());
        rooms.of(&Whose::Owner).grow(MAX_HELD_OF_TENANT).unwrap();
    }
}
