//! Which modules a script may import: those given with the call, and those in `/modules` where
//! that directory is granted. Nothing else has a name.

use std::path::Path;

use ringwall_tool_sdk::files;
use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::{Ctx, Error, Module, Result};

use crate::state;

const DIRECTORY: &str = "/modules";
const MOST_BYTES: u64 = 4 << 20;

pub(crate) struct Granted;

impl Resolver for Granted {
    /// A name is what it is, from wherever it is imported; `./name` is the same as `name`.
    fn resolve<'js>(
        &mut self,
        _: &Ctx<'js>,
        base: &str,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> Result<String> {
        let name = name.strip_prefix("./").unwrap_or(name);
        if state::module(name).is_some() || file(name).is_some() {
            return Ok(name.to_owned());
        }
        Err(Error::new_resolving_message(
            base,
            name,
            "no such module was granted; give its source in `modules`",
        ))
    }
}

impl Loader for Granted {
    fn load<'js>(
        &mut self,
        context: &Ctx<'js>,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>> {
        let source = state::module(name).or_else(|| file(name));
        let source = source.ok_or_else(|| Error::new_loading(name))?;
        Module::declare(context.clone(), name, source)
    }
}

fn file(name: &str) -> Option<String> {
    let name = if name.ends_with(".js") { name.to_owned() } else { format!("{name}.js") };
    files::read_text(Path::new(DIRECTORY), &name, MOST_BYTES).ok()
}
