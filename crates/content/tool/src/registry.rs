//! Tools in service, replaced while calls are running.
//!
//! A call takes its tool from the registry once and keeps it to its end, so a swap is one pointer
//! written: calls that run finish on the old version, later ones begin on the new one.

mod watch;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ringwall_spec::ToolDigest;
use serde::Serialize;

pub use watch::{Reserved, WatchError, Watcher, watch};

use crate::contract::Tool;

/// Tools by name.
#[derive(Debug, Default)]
pub struct Registry {
    tools: RwLock<HashMap<String, Served>>,
}

#[derive(Debug, Clone)]
struct Served {
    tool: Arc<Tool>,
    /// The watched file that it came from.
    file: Option<String>,
}

/// What happened to the tools in service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The name stands for this content from now on.
    Swapped {
        name: String,
        version: String,
        digest: ToolDigest,
        previous: Option<ToolDigest>,
        file: String,
        /// From the first look at the file; nearly all of it is compilation.
        took_us: u64,
    },
    /// The file is gone and so is the tool.
    Removed { name: String, digest: ToolDigest, file: String },
    /// The file is no tool; whatever was in service before still is.
    Refused { file: String, reason: String, serving: Option<ToolDigest> },
    /// The folder cannot be watched any longer; all tools stay as they are.
    Blind { reason: String },
}

impl Registry {
    /// The tool that the name stands for now.
    pub fn get(&self, name: &str) -> Option<Arc<Tool>> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        tools.get(name).map(|served| Arc::clone(&served.tool))
    }

    /// Puts a tool into service that comes from no watched file.
    pub fn put(&self, name: &str, tool: Arc<Tool>) {
        self.change(|tools| drop(tools.insert(name.to_owned(), Served { tool, file: None })));
    }

    /// The name and the tool that a watched file has in service.
    fn of_file(&self, file: &str) -> Option<(String, Arc<Tool>)> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        tools
            .iter()
            .find(|(_, served)| served.file.as_deref() == Some(file))
            .map(|(name, served)| (name.clone(), Arc::clone(&served.tool)))
    }

    /// All watched files that have a tool in service.
    fn files(&self) -> Vec<String> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        tools.values().filter_map(|served| served.file.clone()).collect()
    }

    /// Takes the file's tool out of service.
    fn withdraw(&self, file: &str) -> Option<Event> {
        let (name, tool) = self.of_file(file)?;
        self.change(|tools| drop(tools.remove(&name)));
        Some(Event::Removed { name, digest: tool.digest, file: file.to_owned() })
    }

    /// Puts the file's tool into service, in place of what the name or the file stood for.
    fn swap(&self, file: &str, tool: Tool, took: Duration) -> Event {
        let (name, digest) = (tool.name().to_owned(), tool.digest);
        if let Some(other) = self.other_file_of(&name, file) {
            let reason = format!("{other} is called {name} too; give one of them another name");
            return self.refusal(file, reason);
        }
        let version = tool.manifest().version.clone();
        let served = Served { tool: Arc::new(tool), file: Some(file.to_owned()) };
        let previous = self.change(|tools| {
            // The file may have had another name before.
            tools.retain(|other, served| *other == name || served.file.as_deref() != Some(file));
            tools.insert(name.clone(), served)
        });
        Event::Swapped {
            name,
            version,
            digest,
            previous: previous.map(|served| served.tool.digest),
            file: file.to_owned(),
            took_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// Another watched file that has the name in service.
    fn other_file_of(&self, name: &str, file: &str) -> Option<String> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        tools.get(name)?.file.clone().filter(|other| other != file)
    }

    fn refusal(&self, file: &str, reason: String) -> Event {
        let serving = self.of_file(file).map(|(_, tool)| tool.digest);
        Event::Refused { file: file.to_owned(), reason, serving }
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<String, Served>) -> T) -> T {
        change(&mut self.tools.write().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests;
