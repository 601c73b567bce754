//! What the store and the registry need of whoever can look into a `.wasm` file.
//!
//! It is done behind a wall, never in this process: see the engine's tool host.

use ringwall_spec::{ToolDigest, ToolKind};

use crate::contract::Tool;
use crate::manifest::{Manifest, ManifestError};
use crate::synthesis::manifest_from_help;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Validates, compiles and tries out tools.
pub trait Compiler: Send + Sync {
    /// What is known of a file that was compiled before.
    fn find(&self, digest: &ToolDigest) -> Option<Described>;
    /// Validates and compiles a file.
    fn compile(&self, wasm: &[u8]) -> Result<Described, BoxError>;
    /// Instantiates a compiled tool and runs nothing of it.
    fn probe(&self, digest: &ToolDigest, wants_http: bool) -> Result<(), BoxError>;
    /// What a compiled command prints when it is asked for help.
    fn help(&self, digest: &ToolDigest, program: &str) -> Result<String, BoxError>;
}

/// What a file says about itself. Nothing of it has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    pub digest: ToolDigest,
    pub kind: ToolKind,
    pub manifest: Option<Vec<u8>>,
    pub imports: Vec<String>,
}

/// Why a file is no tool that can be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("the file cannot be compiled")]
    Compile(#[source] BoxError),
    #[error(
        "the file has no manifest; put it into the custom section `ringwall:tool`, see docs/guides/write-a-tool.md"
    )]
    NoManifest,
    #[error("the file has no manifest, and asking the program for --help failed")]
    NoHelp(#[source] BoxError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("the tool cannot be started")]
    Probe(#[source] BoxError),
}

/// A file's manifest: its own, or for a plain program one made from its `--help`. The second part
/// says whether it was made.
pub fn describe(
    compiler: &dyn Compiler,
    described: &Described,
    file: &str,
) -> Result<(Manifest, bool), LoadError> {
    match (&described.manifest, described.kind) {
        (Some(bytes), _) => Ok((Manifest::parse(bytes)?, false)),
        (None, ToolKind::Component) => Err(LoadError::NoManifest),
        (None, ToolKind::CommandComponent | ToolKind::CommandModule) => {
            let help = compiler.help(&described.digest, file).map_err(LoadError::NoHelp)?;
            Ok((manifest_from_help(file, &help)?, true))
        }
    }
}

/// Everything that is done once for a new file: compile, check, try out. The second part says
/// whether the manifest had to be made.
pub fn load(compiler: &dyn Compiler, wasm: &[u8], file: &str) -> Result<(Tool, bool), LoadError> {
    let described = compiler.compile(wasm).map_err(LoadError::Compile)?;
    let (manifest, made) = describe(compiler, &described, file)?;
    let wants_http = !manifest.wants.http.is_empty();
    let tool = Tool::new(described.digest, described.kind, manifest)?;
    tool.check_examples()?;
    compiler.probe(&tool.digest, wants_http).map_err(LoadError::Probe)?;
    Ok((tool, made))
}
