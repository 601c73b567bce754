//! Agents from end to end: the built programs, the real gateway and real walls, with a model server on
//! loopback that answers by a script.

#[cfg(test)]
mod background;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod granted;
#[cfg(test)]
mod hostile_brain;
#[cfg(test)]
mod injection;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod many;
#[cfg(test)]
mod people;
#[cfg(test)]
mod providers;
#[cfg(test)]
mod sub_agents;
#[cfg(test)]
mod support;
#[cfg(test)]
mod taint;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod view;
#[cfg(test)]
mod walls;
