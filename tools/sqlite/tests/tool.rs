//! What `sqlite` does, and what it refuses.
#![allow(clippy::expect_used, reason = "tests")]

use std::fs;
use std::path::Path;

use ringwall_tool_sdk::Failure;
use serde_json::{Value, json};
use tempfile::TempDir;
use tool_sqlite::{Output, call, run};

fn try_sql(root: &Path, input: Value) -> Result<Output, Failure> {
    run(root, &serde_json::from_value(input).expect("the input fits"))
}

fn in_memory(sql: &str) -> Result<Output, Failure> {
    try_sql(Path::new("/nowhere"), json!({ "sql": sql }))
}

fn with_database() -> TempDir {
    let root = tempfile::tempdir().expect("a directory");
    fs::write(root.path().join("a b.db"), "").expect("written");
    let sql = "CREATE TABLE t(x); INSERT INTO t VALUES (1), (2)";
    let made = try_sql(root.path(), json!({ "database": "a b.db", "write": true, "sql": sql }));
    assert_eq!(made.expect("made").changes, 2);
    root
}

#[test]
fn the_examples_give_what_the_manifest_says() {
    ringwall_tool_sdk::testing::check(env!("CARGO_MANIFEST_DIR"), call);
}

#[test]
fn a_file_is_read_but_not_written_unless_asked() {
    let root = with_database();
    let all = json!({ "database": "a b.db", "sql": "SELECT x FROM t ORDER BY x" });
    assert_eq!(try_sql(root.path(), all.clone()).expect("read").rows, [[json!(1)], [json!(2)]]);

    let delete = json!({ "database": "a b.db", "sql": "DELETE FROM t" });
    assert_eq!(try_sql(root.path(), delete).expect_err("read-only").code, "denied");
    assert_eq!(try_sql(root.path(), all).expect("read").rows.len(), 2);
}

#[test]
fn what_is_no_database_is_refused_and_none_is_made() {
    let root = tempfile::tempdir().expect("a directory");
    fs::write(root.path().join("text"), "just text, no database ".repeat(10)).expect("written");
    for (path, code) in
        [("text", "bad-input"), ("absent.db", "not-found"), ("../x.db", "bad-input")]
    {
        for write in [false, true] {
            let input = json!({ "database": path, "sql": "SELECT 1", "write": write });
            assert_eq!(try_sql(root.path(), input).expect_err(path).code, code, "{path}");
        }
    }
    assert!(!root.path().join("absent.db").exists());
}

#[test]
fn other_files_extensions_and_settings_are_out_of_reach() {
    let root = with_database();
    let beside = root.path().join("beside.db").display().to_string();
    for sql in [
        format!("ATTACH '{beside}' AS other"),
        format!("VACUUM INTO '{beside}'"),
        "SELECT load_extension('x')".to_owned(),
        "PRAGMA journal_mode = WAL".to_owned(),
        "PRAGMA user_version = 7".to_owned(),
        "PRAGMA writable_schema = ON".to_owned(),
        "PRAGMA temp_store_directory = '/tmp'".to_owned(),
    ] {
        let input = json!({ "database": "a b.db", "write": true, "sql": sql });
        try_sql(root.path(), input).expect_err(&sql);
    }
    assert!(!Path::new(&beside).exists());
    assert_eq!(in_memory("PRAGMA table_info(x)").expect("it only tells").rows.len(), 0);
}

#[test]
fn rows_end_where_the_budget_does() {
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
    let endless = try_sql(Path::new("/"), json!({ "sql": sql, "max_rows": 3 })).expect("bounded");
    assert_eq!((endless.rows.len(), endless.truncated), (3, true));

    let exact = in_memory("SELECT 1").expect("one row");
    assert!(!exact.truncated);
}

#[test]
fn statements_see_what_the_ones_before_made() {
    let output = in_memory("CREATE TABLE a(b); INSERT INTO a VALUES ('x'); SELECT * FROM a;");
    let output = output.expect("three statements");
    assert_eq!((output.rows, output.changes), (vec![vec![json!("x")]], 1));
}

#[test]
fn values_keep_their_kinds() {
    let output =
        in_memory("SELECT NULL, 9007199254740993, 1.5, 'é', x'00ff', 9e999").expect("values");
    let row = json!([null, 9007199254740993i64, 1.5, "é", { "hex": "00ff" }, "inf"]);
    assert_eq!(json!(output.rows[0]), row);
}

#[test]
fn csv_columns_become_numbers_only_where_nothing_is_lost() {
    let csv = "zip,count,part\n00123,1,1.5\n04567,,2\n";
    let sql = "SELECT typeof(zip), typeof(count), typeof(part) FROM t";
    let input = json!({ "tables": { "t": { "csv": csv } }, "sql": sql });
    let output = try_sql(Path::new("/"), input).expect("typed");
    assert_eq!(
        json!(output.rows),
        json!([["text", "integer", "real"], ["text", "null", "integer"]])
    );
}

#[test]
fn a_query_plan_is_shown_without_running() {
    let input = json!({ "sql": "SELECT * FROM t WHERE a = ?1", "params": [1], "explain": true,
        "tables": { "t": { "rows": [{ "a": 1 }] } } });
    let output = try_sql(Path::new("/"), input).expect("explained");
    assert!(output.plan[0].detail.contains("SCAN t"), "{:?}", output.plan);
    assert!(output.rows.is_empty());
}

#[test]
fn errors_name_the_place_and_what_is_missing() {
    let failure = in_memory("SELECT 1\nFROM nowhere").expect_err("no such table");
    assert_eq!(failure.code, "bad-input");
    assert!(failure.message.contains("no such table: nowhere"), "{failure}");

    let failure = in_memory("SELECT ?1").expect_err("no value");
    assert!(failure.message.contains("`params`"), "{failure}");
}
