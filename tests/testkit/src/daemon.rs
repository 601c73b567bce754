//! `ringwall serve` in a world of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::{Client, World};

/// The policy that is shipped, for work that needs no image.
const SHIPPED: &str = include_str!("../../../crates/authority/policy/src/default.toml");

pub struct Daemon {
    pub world: World,
    flags: Vec<String>,
    env: Vec<(String, String)>,
    process: Child,
    tcp: Option<SocketAddr>,
}

impl Daemon {
    pub fn start() -> Daemon {
        Daemon::start_with(&[])
    }

    pub fn start_with(flags: &[&str]) -> Daemon {
        Daemon::serving(World::new(), flags)
    }

    /// In a world that was made ready for it.
    pub fn start_in(world: World) -> Daemon {
        Daemon::serving(world, &[])
    }

    /// With these variables in its environment.
    pub fn start_with_env(env: &[(&str, &str)]) -> Daemon {
        let world = World::new();
        let env: Vec<_> =
            env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let process = serve(&world, &[], &env);
        Daemon { world, flags: Vec::new(), env, process, tcp: None }
    }

    fn serving(world: World, flags: &[&str]) -> Daemon {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let process = serve(&world, &flags, &[]);
        Daemon { world, flags, env: Vec::new(), process, tcp: None }
    }

    /// Listens on loopback, too, with a policy that lets grants have a process ring.
    pub fn for_tenants(flags: &[&str]) -> Daemon {
        Daemon::for_tenants_with_env(flags, &[])
    }

    pub fn for_tenants_with_env(flags: &[&str], env: &[(&str, &str)]) -> Daemon {
        let world = World::new();
        let env: Vec<(String, String)> =
            env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let config = world.path("nobody-home/.config/ringwall");
        fs::create_dir_all(&config).expect("a directory");
        for directory in ["nobody-home", "nobody-home/.config", "nobody-home/.config/ringwall"] {
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(world.path(directory), mode).expect("a mode");
        }
        let policy = SHIPPED.replace("risk = \"medium\"", "risk = \"low\"");
        let tools = "\n[[tool]]\nnames = [\"yes\", \"no\"]\nkind = \"compute\"\napproved = true\n";
        fs::write(config.join("ringwall.toml"), policy + tools).expect("a policy");
        let address = free_address();
        let mut flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        flags.extend(["--listen".to_owned(), address.to_string()]);
        let process = serve(&world, &flags, &env);
        Daemon { world, flags, env, process, tcp: Some(address) }
    }

    /// The owner's connection.
    pub fn client(&self) -> Client {
        Client::unix(&self.world.home().join("api.sock"))
    }

    pub fn address(&self) -> SocketAddr {
        self.tcp.expect("it listens on TCP")
    }

    pub fn holder(&self, token: &str) -> Client {
        Client::tcp(self.address(), Some(token))
    }

    /// The token of a new grant with these rights on top of the usual ones.
    pub fn grant(&self, tenant: &str, more: &Value) -> String {
        let mut fields = json!({
            "task": "t-1", "tenant": tenant, "holder": "an agent", "kinds": ["files"],
            "walls": ["process"],
        });
        for (name, value) in more.as_object().expect("fields") {
            fields[name] = value.clone();
        }
        self.client().post("/v1/grants", &fields).is(201).field("token")
    }

    /// What tenants may spend from now on.
    pub fn tenants_may_spend(&self, budgets: &Value) {
        let path = self.world.home().join("tenants.json");
        fs::write(path, budgets.to_string()).expect("a file");
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn kill(&mut self) {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it has ended");
    }

    pub fn start_again(&mut self) {
        self.process = serve(&self.world, &self.flags, &self.env);
    }

    /// Ends it in order, and gives its exit code.
    pub fn end(&mut self) -> Option<i32> {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).expect("a number");
        rustix::process::kill_process(pid, Signal::TERM).expect("it can be ended");
        self.process.wait().expect("it has ended").code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // What it had under way ends with it; groups of the kernel are swept by whoever comes next.
        let _ = self.world.command(["gc"]).output();
    }
}

/// Until it says that it serves.
fn serve(world: &World, flags: &[String], env: &[(String, String)]) -> Child {
    let line = ["serve".to_owned()].into_iter().chain(flags.iter().cloned());
    let mut command = world.command(line);
    command.stdout(Stdio::piped()).envs(env.iter().cloned());
    let mut process = command.spawn().expect("ringwall can be started");
    let mut line = String::new();
    let output = process.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert!(line.starts_with("serving on "), "{line:?}");
    process
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address")
}
