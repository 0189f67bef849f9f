//! Tests that the stored description is current, has every route, and contains no duplicate or dangling name.

use super::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/messages-openapi.json");

fn fresh(has_tokens: bool) -> Json {
    serde_json::from_str(&text(&Limits::default(), has_tokens)).unwrap()
}

#[test]
fn the_kept_description_is_that_of_the_code() {
    let fresh = text(&Limits::default(), false);
    if std::env::var_os("WAYSTAGE_UPDATE_OPENAPI").is_some() {
        std::fs::write(KEPT, &fresh).unwrap();
    }
    let kept = std::fs::read_to_string(KEPT).unwrap_or_default();
    let place = kept.lines().zip(fresh.lines()).position(|(kept, fresh)| kept != fresh);
    let line = place.unwrap_or_else(|| kept.lines().count().min(fresh.lines().count())) + 1;
    assert!(
        kept == fresh,
        "docs/messages-openapi.json differs from what the code makes, from line {line}: \
         review the difference and renew the file with WAYSTAGE_UPDATE_OPENAPI=1 cargo test -p messages openapi"
    );
}

#[test]
fn every_route_is_a_row_of_the_table() {
    let mut routers = Vec::new();
    for file in rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = std::fs::read_to_string(&file).unwrap();
        // Concatenated, so that this file does not match its own search.
        for method in ["route", "route_service", "nest", "nest_service"] {
            let calls = text.matches(&format!(".{method}{}", '(')).count();
            routers.extend((0..calls).map(|_| format!("{} {method}", file.file_name().unwrap().display())));
        }
    }
    assert_eq!(routers, ["router.rs route"], "routes are made from the table in interface/table.rs alone");
    let described = fresh(false);
    for operation in table::operations() {
        let method = format!("{:?}", operation.method).to_lowercase();
        let found = &described["paths"][operation.path][&method];
        assert_eq!(found["operationId"], operation.id, "{method} {}", operation.path);
    }
}

fn rust_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

#[test]
fn names_are_unique_and_known() {
    let ids: BTreeSet<&str> = table::operations().map(|operation| operation.id).collect();
    assert_eq!(ids.len(), table::operations().count());
    let paths: BTreeSet<(&str, String)> =
        table::operations().map(|operation| (operation.path, format!("{:?}", operation.method))).collect();
    assert_eq!(paths.len(), ids.len());
    let all: BTreeSet<&str> = problem_types::PROBLEM_TYPES.iter().map(|problem_type| problem_type.name).collect();
    assert_eq!(all.len(), problem_types::PROBLEM_TYPES.len());
    for operation in table::operations() {
        for name in operation.problems() {
            assert!(all.contains(name), "{}: {name}", operation.id);
        }
        let in_path = operation.parameters.iter().filter(|taken| taken.location == Location::Path);
        for taken in in_path.clone() {
            assert!(operation.path.contains(&format!("{{{}}}", taken.name)), "{}: {}", operation.id, taken.name);
        }
        assert_eq!(operation.path.matches('{').count(), in_path.count(), "{}", operation.id);
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn check(description: &Json, value: &Json) -> usize {
        let inside: usize = match value {
            Json::Object(fields) => fields.values().map(|field| check(description, field)).sum(),
            Json::Array(items) => items.iter().map(|item| check(description, item)).sum(),
            _ => 0,
        };
        assert!(value.get("$ref").is_none() || resolve(description, value) != value, "{value} leads nowhere");
        inside + usize::from(value.get("$ref").is_some())
    }
    let description = fresh(true);
    assert!(check(&description, &description) > 50);
    assert_eq!(description["openapi"], "3.1.0");
}

#[test]
fn with_tokens_only_the_operations_on_messages_and_queues_ask_for_one() {
    let description = fresh(true);
    assert_eq!(description["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
    assert!(description["paths"]["/v1/queues"]["get"]["security"][0]["bearer"].is_array());
    assert!(description["paths"]["/healthz"]["get"]["security"].is_null());
    assert!(fresh(false)["components"]["securitySchemes"].is_null());
}

#[test]
fn limits_are_those_of_the_service() {
    let limits = Limits { batch_messages: 7, body_bytes: 1234, long_poll: Duration::from_secs(5), ..Limits::default() };
    let text = text(&limits, false);
    let description: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(description["components"]["schemas"]["Batch"]["properties"]["messages"]["maxItems"], 7);
    assert!(text.contains("Up to 1234 bytes.") && text.contains("at most 5s."));
}

#[test]
fn the_example_of_a_lease_token_parses() {
    let description = fresh(false);
    let example = &description["paths"]["/v1/leases/{lease_token}/acknowledge"]["post"]["parameters"][0]["example"];
    let token = crate::path::lease::LeaseToken::read(example.as_str().unwrap());
    assert!(token.queue_id > 0 && token.id > 0, "{example}");
    assert_eq!(token.to_string(), *example);
}
