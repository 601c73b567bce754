//! The protocol: what is offered, what is called, and how results look.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    InitializeResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    MetaObject, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::asking::Asked;
use crate::catalogue::Own;
use crate::session::{CallError, Session};
use crate::wasm_tools::{self, KnownTools};
use crate::{asking, commands, files, resources};

/// How long a client waits for the list. Tools that are compiled for the first time take longer, and
/// are announced when they are ready.
const LIST_PATIENCE: Duration = Duration::from_secs(4);

const INSTRUCTIONS: &str = "Ringwall runs commands and code behind walls of isolation rings. Make a \
    sandbox with sandbox_create, run commands with sandbox_exec, end it with sandbox_stop, look at what \
    it changed with sandbox_fs_diff, and write that to the workspace with sandbox_fs_apply. Tools \
    without `sandbox_` in their names run as WebAssembly and see the workspace as /work. Every result \
    says behind which wall it ran. What is refused stays refused however it is asked for; only a person \
    can allow more.";

/// What came of a call that worked.
#[derive(Debug)]
pub(crate) struct Done {
    value: Value,
    wall: String,
    /// Whether it holds what somebody else wrote: a command, a file, a tool.
    untrusted: bool,
    structured: bool,
}

impl Done {
    /// All of it is Ringwall's own words.
    pub(crate) fn ours(value: Value, wall: &str) -> Done {
        Done { value, wall: wall.to_owned(), untrusted: false, structured: true }
    }

    pub(crate) fn theirs(value: Value, wall: &str) -> Done {
        Done { untrusted: true, ..Done::ours(value, wall) }
    }

    /// No schema describes it.
    pub(crate) fn plain(self) -> Done {
        Done { structured: false, ..self }
    }

    fn result(self) -> CallToolResult {
        let mut result = if self.structured {
            CallToolResult::structured(self.value)
        } else {
            CallToolResult::success(vec![ContentBlock::text(self.value.to_string())])
        };
        result.meta = Some(about(&self.wall, self.untrusted));
        result
    }
}

fn about(wall: &str, untrusted: bool) -> MetaObject {
    let mut meta = MetaObject::default();
    meta.0.insert("ringwall/wall".to_owned(), json!(wall));
    meta.0.insert("ringwall/untrusted".to_owned(), json!(untrusted));
    meta
}

/// Takes a tool's arguments apart; a field that is not known is an error, not a surprise.
pub(crate) fn arguments<T: DeserializeOwned>(given: Value) -> Result<T, CallError> {
    serde_json::from_value(given).map_err(|error| CallError::Arguments(error.to_string()))
}

/// One client.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    session: Arc<Session>,
    known: Arc<KnownTools>,
}

impl Server {
    pub(crate) fn new(session: Arc<Session>) -> Server {
        Server { session, known: Arc::default() }
    }

    fn own_tools(&self) -> Vec<Tool> {
        let settings = &self.session.settings;
        let offered = Own::ALL.into_iter().filter(|own| settings.tools.offers(own.name()));
        offered.map(|own| own.tool(settings)).collect()
    }

    async fn call(
        &self,
        name: &str,
        given: Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<Done, CallError> {
        let session = &self.session;
        match Own::named(name) {
            Some(Own::Create) => commands::create(session, given).await,
            Some(Own::Exec) => commands::exec(session, given, context).await,
            Some(Own::RunCode) => commands::run_code(session, given, context).await,
            Some(Own::Read) => files::read(session, given).await,
            Some(Own::Write) => files::write(session, given).await,
            Some(Own::List) => files::list(session, given).await,
            Some(Own::Diff) => files::diff(session, given).await,
            Some(Own::Apply) => files::apply(session, given).await,
            Some(Own::Stop) => commands::stop(session, given).await,
            None => wasm_tools::call(session, &self.known, name, given, context).await,
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> InitializeResult {
        let able = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .build();
        let us = Implementation::new("ringwall", env!("CARGO_PKG_VERSION")).with_title("Ringwall");
        InitializeResult::new(able).with_server_info(us).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut tools = self.own_tools();
        let (session, known) = (Arc::clone(&self.session), Arc::clone(&self.known));
        let mut listing = tokio::spawn(async move { known.list(&session).await });
        match tokio::time::timeout(LIST_PATIENCE, &mut listing).await {
            Ok(Ok(Ok(found))) => tools.extend(found),
            // A host without the WASM ring still has sandboxes.
            Ok(_) => {}
            Err(_) => {
                tokio::spawn(async move {
                    if let Ok(Ok(_)) = listing.await {
                        let _ = context.peer.notify_tool_list_changed().await;
                    }
                });
            }
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        if !self.session.settings.tools.offers(name) {
            let why = format!("the tool {name:?} is not offered in this session");
            return Err(ErrorData::invalid_params(why, None));
        }
        let given = Value::Object(request.arguments.unwrap_or_default());
        let mut called = self.call(name, given.clone(), &context).await;
        if let Err(CallError::Api(failure)) = &called {
            match asking::ask(&self.session, failure, &context).await {
                Asked::Allowed => called = self.call(name, given, &context).await,
                Asked::Refused(why) => called = Err(CallError::Person(why)),
                Asked::Nobody => {}
            }
        }
        match called {
            Ok(done) => Ok(done.result().into()),
            Err(error @ CallError::NoSuchTool(_)) => {
                Err(ErrorData::invalid_params(error.to_string(), None))
            }
            Err(error) => {
                Ok(CallToolResult::error(vec![ContentBlock::text(error.to_string())]).into())
            }
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list(&self.session).await))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let read = resources::read(&self.session, &request.uri).await;
        let read = read.map_err(|error| ErrorData::resource_not_found(error.to_string(), None))?;
        Ok(read.into())
    }
}
