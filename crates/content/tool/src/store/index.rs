//! The index of what is installed.

use ringwall_safekeeping::Lock;
use serde::{Deserialize, Serialize};

use super::files::read_json;
use super::{Entry, StoreError, ToolStore};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    schema: u32,
    tools: Vec<Entry>,
}

impl ToolStore {
    /// What is installed, in order of installation.
    pub fn installed(&self) -> Result<Vec<Entry>, StoreError> {
        let path = self.root.join("index.json");
        let mut tools = match read_json::<Index>(&path)? {
            None => Vec::new(),
            Some(index) if index.schema == 1 => index.tools,
            Some(_) => return Err(StoreError::Damaged(path)),
        };
        for entry in &mut tools {
            entry.file = self.wasm_path(&entry.digest);
        }
        Ok(tools)
    }

    pub(super) fn write_index(&self, tools: Vec<Entry>, lock: &Lock) -> Result<(), StoreError> {
        self.write_json(&self.root.join("index.json"), &Index { schema: 1, tools }, lock)
    }
}
