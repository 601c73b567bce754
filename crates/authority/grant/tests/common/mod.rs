//! A home with an authority, and grants to try.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its own part")]

use std::time::Duration;

use ringwall_grant::{Ask, Authority, Budget, Narrowing, Request, Rights, Token};

pub(crate) struct World {
    pub(crate) home: tempfile::TempDir,
    pub(crate) authority: Authority,
}

impl World {
    pub(crate) fn new() -> World {
        let home = tempfile::tempdir().unwrap();
        let authority = Authority::open(home.path()).unwrap();
        World { home, authority }
    }

    pub(crate) fn token(&self) -> Token {
        self.mint(&rights())
    }

    pub(crate) fn mint(&self, rights: &Rights) -> Token {
        self.authority.mint(rights, Duration::from_secs(3600)).unwrap().token
    }
}

pub(crate) fn rights() -> Rights {
    let name = |text: &str| text.parse().unwrap();
    let mut rights = Rights::none(name("t-1"), name("acme"), name("agent"));
    rights.tools = ["grep", "git-*"].map(|text| text.parse().unwrap()).into();
    rights.read = ["/workspace", "/tmp"].map(|text| text.parse().unwrap()).into();
    rights.write = ["/workspace/src"].map(|text| text.parse().unwrap()).into();
    rights.endpoints = ["api.example.com:443 GET,HEAD", "*.example.org:*"]
        .map(|text| text.parse().unwrap())
        .into();
    rights.secrets = ["github-ro"].map(name).into();
    rights.phases = ["plan", "implement"].map(name).into();
    rights.kinds = ["compute", "build"].map(name).into();
    rights.walls = ["container", "vm/container"].map(name).into();
    rights.budget = Budget { calls: Some(10), tokens: Some(1000), ..Budget::default() };
    rights
}

pub(crate) fn asks(ask: Ask) -> Request {
    Request::new("t-1", "acme", ask)
}

pub(crate) fn tool(name: &str) -> Request {
    asks(Ask::Tool { name: name.to_owned() })
}

pub(crate) fn read(path: &str) -> Request {
    asks(Ask::Read { path: path.to_owned() })
}

pub(crate) fn write(path: &str) -> Request {
    asks(Ask::Write { path: path.to_owned() })
}

pub(crate) fn connect(host: &str, port: u16, method: Option<&str>) -> Request {
    let method = method.map(str::to_owned);
    asks(Ask::Connect { host: host.to_owned(), port, method })
}

pub(crate) fn only_tools(names: &[&str]) -> Narrowing {
    let tools = names.iter().map(|name| name.parse().unwrap()).collect();
    Narrowing { tools: Some(tools), ..Narrowing::default() }
}
