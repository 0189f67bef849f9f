//! The description of the interface in OpenAPI 3.1, made from its table, the types of its documents and the list of problems.

mod schemas;

use crate::config::Limits;
use crate::interface::documents::{Messages, NotAcknowledged, Queue, Queues, Stored, StoredBatch};
use crate::interface::operation::{Body, Content, Method, Operation, Parameter, Place, Value};
use crate::interface::problem_types::{self, Kind};
use crate::interface::rules::{KEY_BYTES_MAX, KEY_PATTERN};
use crate::interface::table;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{OperationBuilder, ParameterBuilder, ParameterIn, PathItemBuilder};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ComponentsBuilder, ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    HttpMethod, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, PathsBuilder, Ref, RefOr, Required, Response,
    ResponseBuilder,
};

const ABOUT: &str = "Queues of messages over HTTP, held by PostgreSQL. What is acknowledged is committed. \
    Every reply under /v1, and every problem, says in `Server-Timing` how long each stage took, in milliseconds.";
const BEARER: &str = "bearer";

/// Everything that the description says, with these limits. With tokens, operations under /v1 ask for one.
pub(crate) fn description(limits: &Limits, has_tokens: bool) -> OpenApi {
    let license = LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build();
    let info = InfoBuilder::new()
        .title("Waystage messages")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(ABOUT))
        .license(Some(license));
    let mut components = components(limits);
    if has_tokens {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("A token from the service's configuration; it says who sends."));
        components = components.security_scheme(BEARER, SecurityScheme::Http(scheme.build()));
    }
    let mut items: BTreeMap<&str, PathItemBuilder> = BTreeMap::new();
    let mut tags = Vec::new();
    for (subject, operations) in table::SUBJECTS {
        tags.push(TagBuilder::new().name(*subject).build());
        for operation in *operations {
            let is_guarded = has_tokens && operation.path.starts_with("/v1");
            for (name, response) in problems(operation, is_guarded) {
                components = components.response(name, response);
            }
            let described = described(operation, subject, limits, is_guarded);
            let item = items.remove(operation.path).unwrap_or_default();
            items.insert(operation.path, item.operation(http_method(operation.method), described));
        }
    }
    let paths = items.into_iter().fold(PathsBuilder::new(), |paths, (path, item)| paths.path(path, item.build()));
    OpenApiBuilder::new().info(info).paths(paths).components(Some(components.build())).tags(Some(tags)).build()
}

/// The description as text, as it is served and kept.
pub(crate) fn text(limits: &Limits, has_tokens: bool) -> String {
    // It is made of strings and numbers: there is nothing that could fail.
    let mut text = description(limits, has_tokens).to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

fn components(limits: &Limits) -> ComponentsBuilder {
    let mut schemas = Vec::new();
    Messages::schemas(&mut schemas);
    let timing = HeaderBuilder::new()
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .description(Some("The time of each stage and in all, in milliseconds."))
        .example(Some("parse;dur=0.004, admit;dur=0.001, queue;dur=0.012, send;dur=0.080, backend;dur=1.204, reply;dur=0.007, total;dur=1.308".into()));
    ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .schemas_from_iter(schemas::documents(limits))
        .schema_from::<Messages>()
        .schema_from::<Queue>()
        .schema_from::<NotAcknowledged>()
        .schema_from::<Stored>()
        .schema_from::<StoredBatch>()
        .schema_from::<Queues>()
        .header("ServerTiming", timing.build())
}

fn described(operation: &Operation, subject: &str, limits: &Limits, is_guarded: bool) -> OperationBuilder {
    let mut builder = OperationBuilder::new()
        .operation_id(Some(operation.id))
        .tag(subject)
        .summary(Some(operation.says))
        .description(Some(operation.more).filter(|text| !text.is_empty()));
    for taken in operation.takes {
        builder = builder.parameter(parameter(taken, limits));
    }
    builder = builder.request_body(match operation.body {
        Body::Nothing => None,
        Body::Bytes => Some(
            RequestBodyBuilder::new()
                .description(Some(format!("Up to {} bytes.", limits.body_bytes)))
                .content("application/octet-stream", ContentBuilder::new().schema(Some(schemas::bytes())).build())
                .build(),
        ),
        Body::Json(schema, example) | Body::JsonOrNothing(schema, example) => Some(
            RequestBodyBuilder::new()
                .required(matches!(operation.body, Body::Json(..)).then_some(Required::True))
                .content("application/json", document(schema).example(serde_json::from_str(example).ok()).build())
                .build(),
        ),
    });
    let has_timing = !operation.problems().is_empty();
    for reply in operation.replies {
        let mut response = ResponseBuilder::new().description(reply.says);
        if operation.takes.iter().any(|taken| matches!(taken.value, Value::Key)) {
            let truth = schemas::text().enum_values(Some(["true"]));
            let says = "It had been done before; nothing was stored now.";
            let header = HeaderBuilder::new().schema(Some(truth)).description(Some(says));
            response = response.header("Idempotency-Replayed", header.build());
        }
        if has_timing {
            response = response.header_ref("Server-Timing", Ref::new("#/components/headers/ServerTiming"));
        }
        builder = builder.response(reply.status.to_string(), carrying(response, reply.content).build());
    }
    for (name, _) in problems(operation, is_guarded) {
        let status = name.split('-').next().unwrap_or_default().to_string();
        builder = builder.response(status, RefOr::<Response>::Ref(Ref::from_response_name(name)));
    }
    if is_guarded {
        builder = builder.security(SecurityRequirement::new(BEARER, [] as [&str; 0]));
    }
    builder
}

fn parameter(parameter: &Parameter, limits: &Limits) -> ParameterBuilder {
    let (schema, example) = match parameter.value {
        Value::Name => (schemas::name(), json!(parameter.example)),
        Value::Word => (schemas::text().min_length(Some(1)), json!(parameter.example)),
        Value::Key => {
            let key = schemas::text().min_length(Some(1)).max_length(Some(KEY_BYTES_MAX)).pattern(Some(KEY_PATTERN));
            (key, json!(parameter.example))
        }
        Value::Count(most) => {
            let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(most(limits)));
            (number, json!(parameter.example.parse::<u64>().unwrap_or(1)))
        }
        Value::Time(longest, may_be_nothing) => {
            (schemas::time(longest(limits), may_be_nothing), json!(parameter.example))
        }
    };
    let place = match parameter.place {
        Place::Path => ParameterIn::Path,
        Place::Query => ParameterIn::Query,
        Place::Header => ParameterIn::Header,
    };
    ParameterBuilder::new()
        .name(parameter.name)
        .parameter_in(place)
        .required(if parameter.is_required { Required::True } else { Required::False })
        .description(Some(parameter.says))
        .schema(Some(schema))
        .example(Some(example))
}

fn carrying(response: ResponseBuilder, content: Content) -> ResponseBuilder {
    match content {
        Content::Nothing => response,
        Content::Json(schema) => response.content("application/json", document(schema).build()),
        Content::Text("application/json") => {
            let object = ObjectBuilder::new().schema_type(Type::Object);
            response.content("application/json", ContentBuilder::new().schema(Some(object)).build())
        }
        Content::Text(media_type) => {
            let text = ObjectBuilder::new().schema_type(Type::String);
            response.content(media_type, ContentBuilder::new().schema(Some(text)).build())
        }
        Content::MessageOr(schema) | Content::LeasedOr(schema) => {
            let number = || ObjectBuilder::new().schema_type(Type::Integer);
            let headers = [
                ("Waystage-Message", number(), "Its id."),
                ("Waystage-Queue", schemas::name(), "Its queue."),
                ("Waystage-Sender", schemas::name(), "Who sent it."),
                ("Waystage-Receiver", schemas::name(), "For whom it is; missing: for anyone."),
                ("Waystage-Sent-Unix-Us", number(), "When it was sent: microseconds since 1970."),
            ];
            let body = ContentBuilder::new().schema(Some(schemas::bytes())).build();
            let response = response.content("application/octet-stream", body);
            let response = response.content("application/json", document(schema).build());
            let of_lease = [
                ("Waystage-Lease", schemas::text(), "The word with which it is acknowledged."),
                ("Waystage-Attempt", number(), "How often it was received; the first is 1."),
            ];
            let is_leased = matches!(content, Content::LeasedOr(_));
            let of_lease = of_lease.into_iter().filter(|_| is_leased);
            headers.into_iter().chain(of_lease).fold(response, |response, (name, schema, says)| {
                response.header(name, HeaderBuilder::new().schema(Some(schema)).description(Some(says)).build())
            })
        }
    }
}

/// The problems of an operation as responses, one for each status; each has a name that begins with its status.
fn problems(operation: &Operation, is_guarded: bool) -> Vec<(String, Response)> {
    let mut by_status: BTreeMap<u16, Vec<&Kind>> = BTreeMap::new();
    let guarded = if is_guarded { problem_types::GUARDED } else { &[] };
    for kind in operation.problems().into_iter().chain(guarded.iter().copied()).filter_map(problem_types::find) {
        by_status.entry(kind.status).or_default().push(kind);
    }
    by_status.into_iter().map(|(status, kinds)| problem(status, &kinds)).collect()
}

fn problem(status: u16, kinds: &[&Kind]) -> (String, Response) {
    let types = kinds.iter().map(|kind| format!("urn:waystage:problem:{}", kind.name));
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let schema = ObjectBuilder::new()
        .property("type", text().enum_values(Some(types)))
        .property("title", text())
        .property("status", ObjectBuilder::new().schema_type(Type::Integer).enum_values(Some([status])))
        .property("detail", text());
    let schema = ["type", "title", "status", "detail"].into_iter().fold(schema, ObjectBuilder::required);
    let says: Vec<String> = kinds.iter().map(|kind| format!("`{}`: {}", kind.name, kind.says)).collect();
    let mut response = ResponseBuilder::new()
        .description(format!("{}.", says.join("; ")))
        .header_ref("Server-Timing", Ref::new("#/components/headers/ServerTiming"))
        .content("application/problem+json", ContentBuilder::new().schema(Some(schema)).build());
    if status == 503 {
        let seconds = ObjectBuilder::new().schema_type(Type::Integer);
        let header =
            HeaderBuilder::new().schema(Some(seconds)).description(Some("Seconds until it may be worth trying."));
        response = response.header("Retry-After", header.build());
    }
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    (format!("{status}-{}", names.join("-")), response.build())
}

fn document(schema: &str) -> ContentBuilder {
    ContentBuilder::new().schema(Some(Ref::from_schema_name(schema)))
}

fn http_method(method: Method) -> HttpMethod {
    match method {
        Method::Get => HttpMethod::Get,
        Method::Put => HttpMethod::Put,
        Method::Post => HttpMethod::Post,
        Method::Delete => HttpMethod::Delete,
    }
}

/// What a reference in the description points to.
pub(crate) fn resolve<'d>(description: &'d Json, value: &'d Json) -> &'d Json {
    let target = value.get("$ref").and_then(Json::as_str).and_then(|target| target.strip_prefix('#'));
    target.and_then(|pointer| description.pointer(pointer)).unwrap_or(value)
}

#[cfg(test)]
mod tests;
