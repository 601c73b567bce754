//! Attacks on a wall, made from inside it, and what must become of them.
//!
//! A probe attacks for real. Where its effect can be seen from outside (a canary file, a listener, a
//! process), the caller of the probes looks there, and the probe's own words only tell whether
//! it could be tried: code that broke out would lie.

mod adversary;
mod attack;
mod catalogue;
mod dice;
mod kernel_objects;
mod scene;

use serde::{Deserialize, Serialize};

pub use adversary::{HELPERS, Play, Played, help, play};
pub use catalogue::{ALLOWED_NAME, OF_JOBS_ONLY, all};
pub use dice::Dice;
pub use kernel_objects::{
    Bound, KERNEL_OBJECTS, KernelObject, MAKE_NOTHING, Made, Noticed, OPTIONS, Options,
};
pub use scene::Scene;

/// What an attack is after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    ReadOutside,
    WriteOutside,
    Network,
    Spawn,
    Exhaust,
    Persist,
    Privilege,
    KernelInterface,
    InformationLeak,
    Policy,
    Gateway,
    Audit,
}

impl Class {
    pub const ALL: [Class; 12] = [
        Class::ReadOutside,
        Class::WriteOutside,
        Class::Network,
        Class::Spawn,
        Class::Exhaust,
        Class::Persist,
        Class::Privilege,
        Class::KernelInterface,
        Class::InformationLeak,
        Class::Policy,
        Class::Gateway,
        Class::Audit,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Class::ReadOutside => "read-outside",
            Class::WriteOutside => "write-outside",
            Class::Network => "network",
            Class::Spawn => "spawn",
            Class::Exhaust => "exhaust",
            Class::Persist => "persist",
            Class::Privilege => "privilege",
            Class::KernelInterface => "kernel-interface",
            Class::InformationLeak => "information-leak",
            Class::Policy => "policy",
            Class::Gateway => "gateway",
            Class::Audit => "audit",
        }
    }

    /// As a person asks it.
    pub fn question(self) -> &'static str {
        match self {
            Class::ReadOutside => "Can it read files outside the allowed paths?",
            Class::WriteOutside => "Can it write files outside the allowed paths?",
            Class::Network => "Can it make network connections?",
            Class::Spawn => "Can it spawn or touch processes outside?",
            Class::Exhaust => "Can it exhaust the machine?",
            Class::Persist => "Can it keep state across invocations?",
            Class::Privilege => "Can it gain privileges?",
            Class::KernelInterface => "Can it reach dangerous parts of the kernel?",
            Class::InformationLeak => "Can it learn about the host?",
            Class::Policy => "Can it change what decides about it?",
            Class::Gateway => "Can it get past its gateway?",
            Class::Audit => "Can it change or read the audit log?",
        }
    }
}

/// Who sees whether an attack had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Witness {
    /// The attack itself: it can only fail or succeed.
    Attack,
    /// The caller, who knows the secrets of the scene: one of them was printed.
    Secret,
    /// The files that were laid out for it.
    Canary,
    /// Sockets of the host that must not hear of it.
    Listener,
    /// A process of the host that must live on.
    Victim,
    /// The host's list of processes, when the sandbox has ended.
    Survivor,
    /// The audit log of the engine that raised the sandbox.
    Log,
}

/// Whose kernel the attack is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// What it wants is the host's, however deep the wall.
    Host,
    /// It gains something from whatever kernel or root it meets. Where that is a guest's own, its
    /// effect ends there.
    Kernel,
    /// It confuses a program that reads the files of the sandbox. No program outside reads those of a
    /// guest: changes are told by its warden, and checked.
    Layers,
}

/// How an attack went, by its own account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "tried", content = "detail", rename_all = "kebab-case")]
pub enum Tried {
    /// It did not work.
    Failed(String),
    /// It did, as far as it can see.
    Succeeded(String),
    /// There was nothing to attack.
    Impossible(String),
}

/// One attack.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    pub name: &'static str,
    pub class: Class,
    /// The vulnerability or technique that it stands for.
    pub stands_for: &'static str,
    pub witness: Witness,
    pub reach: Reach,
    attack: Attack,
}

#[derive(Debug, Clone, Copy)]
enum Attack {
    Call(fn(&Scene) -> Tried),
    Knock(&'static ringwall_linux::interface::Interface),
    On(attack::deeds::Attempt),
}

impl Probe {
    /// Attacks. In a process of its own: it may not live through it.
    pub fn attack(&self, scene: &Scene) -> Tried {
        match self.attack {
            Attack::Call(call) => call(scene),
            Attack::Knock(interface) => attack::knock(interface),
            Attack::On(attempt) => attempt.make(scene),
        }
    }
}

/// What a probe program says of one attack, as one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub probe: String,
    #[serde(flatten)]
    pub tried: Tried,
}
