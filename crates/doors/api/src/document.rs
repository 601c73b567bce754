//! The API as a document, made from the code: OpenAPI for programs, a table for people.

use std::fmt::Write;

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContactBuilder, InfoBuilder, OpenApi};

use crate::routes;

fn described() -> OpenApi {
    let mut api = routes::all().split_for_parts().1;
    let about = "Sandboxes, commands, files and tools behind Ringwall's walls. Over the daemon's unix \
                 socket the owner needs no token; over TCP every request carries the token of a grant.";
    api.info = InfoBuilder::new()
        .title("Ringwall")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(about))
        .contact(Some(ContactBuilder::new().name(Some("Ringwall")).build()))
        .build();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    let components = api.components.get_or_insert_default();
    components.add_security_scheme("grant", SecurityScheme::Http(bearer));
    api
}

/// OpenAPI 3.1, as `docs/openapi.json` has it.
pub fn openapi() -> Result<String, serde_json::Error> {
    Ok(described().to_pretty_json()? + "\n")
}

/// All routes as Markdown, as `docs/reference/api-routes.md` has it.
pub fn reference() -> String {
    let mut text = String::from(
        "# Routes of the API\n\nMade from the code by `ringwall-daemon reference`; a test fails where it differs. \
         The fields of requests and answers are in [openapi.json](../openapi.json), how to use them in [The daemon](../guides/daemon.md).\n\n\
         | route | what it does |\n|---|---|\n",
    );
    for (path, item) in &described().paths.paths {
        let methods = [
            ("GET", &item.get),
            ("POST", &item.post),
            ("PUT", &item.put),
            ("DELETE", &item.delete),
        ];
        for (method, operation) in methods {
            let Some(operation) = operation else { continue };
            let words = [&operation.summary, &operation.description];
            let words: Vec<String> =
                words.into_iter().flatten().map(|text| text.replace('\n', " ")).collect();
            // Writing to a string does not fail.
            let _ = writeln!(text, "| `{method} {path}` | {} |", words.join(" "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(name: &str) -> String {
        let path = format!("{}/../../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap_or_default()
    }

    #[test]
    fn the_document_in_the_repository_is_that_of_the_code() {
        let same = kept("openapi.json") == openapi().unwrap();
        assert!(same, "run: ringwall-daemon openapi > docs/openapi.json");
    }

    #[test]
    fn the_table_in_the_repository_is_that_of_the_code() {
        assert!(
            kept("reference/api-routes.md") == reference(),
            "run: ringwall-daemon reference > docs/reference/api-routes.md"
        );
    }

    #[test]
    fn every_operation_tells_what_its_errors_look_like() {
        let api: serde_json::Value = serde_json::from_str(&openapi().unwrap()).unwrap();
        for (path, item) in api["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let problem =
                    &operation["responses"]["default"]["content"]["application/problem+json"];
                assert!(problem.is_object(), "{method} {path}");
                assert!(operation["summary"].is_string(), "{method} {path}");
            }
        }
    }
}
