//! A daemon of its own for every test, and a client that speaks plain HTTP/1.1.

pub(crate) use ringwall_testkit::{
    Answer, Client, Daemon, Finished, User, World, eventually, is_root, tool,
};
