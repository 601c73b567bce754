//! What SQL may do here: no other files, no extensions, few pragmas, bounded sizes.

use ringwall_tool_sdk::Failure;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;

use crate::failed;

/// Pragmas that only tell.
const PRAGMAS: &[&str] = &[
    "collation_list",
    "compile_options",
    "encoding",
    "foreign_key_check",
    "foreign_key_list",
    "freelist_count",
    "function_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "page_count",
    "page_size",
    "pragma_list",
    "quick_check",
    "schema_version",
    "table_info",
    "table_list",
    "table_xinfo",
    "user_version",
]; // kept in order
/// Pragmas whose argument names what to tell about; for all others an argument is a new value.
const WITH_ARGUMENT: &[&str] = &[
    "foreign_key_check",
    "foreign_key_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "quick_check",
    "table_info",
    "table_list",
    "table_xinfo",
];
const FUNCTIONS_REFUSED: &[&str] = &["load_extension", "fts3_tokenizer", "zeroblob"];
const MOST_VALUE_BYTES: i32 = 16 << 20;

pub(crate) fn enforce(connection: &mut Connection) -> Result<(), Failure> {
    apply(connection).map_err(|error| failed(&error))
}

fn apply(connection: &mut Connection) -> rusqlite::Result<()> {
    // A hostile file may hold views and triggers that call functions, or a damaged schema.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, false)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES)?;
    connection.set_limit(Limit::SQLITE_LIMIT_EXPR_DEPTH, 200)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000)?;
    // Sorting and grouping must not look for a directory for temporary files.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.authorizer(Some(authorize))
}

fn authorize(context: AuthContext<'_>) -> Authorization {
    let refused = match context.action {
        AuthAction::Attach { .. } | AuthAction::Detach { .. } | AuthAction::Unknown { .. } => true,
        AuthAction::Function { function_name } => {
            FUNCTIONS_REFUSED.iter().any(|refused| refused.eq_ignore_ascii_case(function_name))
        }
        AuthAction::Pragma { pragma_name, pragma_value } => {
            let known = PRAGMAS.iter().any(|known| known.eq_ignore_ascii_case(pragma_name));
            let may_have = WITH_ARGUMENT.iter().any(|name| name.eq_ignore_ascii_case(pragma_name));
            !known || (pragma_value.is_some() && !may_have)
        }
        _ => false,
    };
    if refused { Authorization::Deny } else { Authorization::Allow }
}
