//! The OpenAPI 3.1 description of the interface, made from the table of operations, the types of its documents and the problem types.

mod schemas;

use crate::config::Limits;
use crate::interface::documents::{Messages, NotAcknowledged, QueueDocument, Queues, Stored, StoredBatch};
use crate::interface::operation::{Body, Content, Location, Method, Operation, Parameter, Value};
use crate::interface::problem_types::{self, ProblemType};
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

const ABOUT: &str = "Queues of messages over HTTP, stored in PostgreSQL. A successful reply means that the change is committed. \
    Every reply under /v1, and every problem, has the time of each stage in `Server-Timing`, in milliseconds.";
const BEARER: &str = "bearer";

/// The description with these limits. With tokens, operations under /v1 require one.
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
            .description(Some("A token from the service's configuration, which determines the sender."));
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

/// The description as text, as it is served and stored in the repository.
pub(crate) fn text(limits: &Limits, has_tokens: bool) -> String {
    // A description of strings and numbers always serializes.
    let mut text = description(limits, has_tokens).to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

fn components(limits: &Limits) -> ComponentsBuilder {
    let mut schemas = Vec::new();
    Messages::schemas(&mut schemas);
    let timing = HeaderBuilder::new()
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .description(Some("The time of each stage and the total time, in milliseconds."))
        .example(Some("parse;dur=0.004, admit;dur=0.001, queue;dur=0.012, send;dur=0.080, backend;dur=1.204, reply;dur=0.007, total;dur=1.308".into()));
    ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .schemas_from_iter(schemas::documents(limits))
        .schema_from::<Messages>()
        .schema_from::<QueueDocument>()
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
        .summary(Some(operation.summary))
        .description(Some(operation.details).filter(|text| !text.is_empty()));
    for taken in operation.parameters {
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
        let mut response = ResponseBuilder::new().description(reply.description);
        if operation.parameters.iter().any(|taken| matches!(taken.value, Value::Key)) {
            let truth = schemas::text().enum_values(Some(["true"]));
            let text = "An earlier send with this key stored the messages; this one stored nothing.";
            let header = HeaderBuilder::new().schema(Some(truth)).description(Some(text));
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
        Value::Text => (schemas::text().min_length(Some(1)), json!(parameter.example)),
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
    let place = match parameter.location {
        Location::Path => ParameterIn::Path,
        Location::Query => ParameterIn::Query,
        Location::Header => ParameterIn::Header,
    };
    ParameterBuilder::new()
        .name(parameter.name)
        .parameter_in(place)
        .required(if parameter.is_required { Required::True } else { Required::False })
        .description(Some(parameter.description))
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
        Content::MessageOrJson(schema) | Content::LeasedMessageOrJson(schema) => {
            let number = || ObjectBuilder::new().schema_type(Type::Integer);
            let headers = [
                ("Waystage-Message", number(), "Its id."),
                ("Waystage-Queue", schemas::name(), "Its queue."),
                ("Waystage-Sender", schemas::name(), "Its sender."),
                ("Waystage-Receiver", schemas::name(), "Its receiver. Missing: anyone."),
                ("Waystage-Sent-Unix-Us", number(), "When it was sent, in microseconds since 1970."),
            ];
            let body = ContentBuilder::new().schema(Some(schemas::bytes())).build();
            let response = response.content("application/octet-stream", body);
            let response = response.content("application/json", document(schema).build());
            let dead = schemas::text();
            let response = response.header(
                "Waystage-Dead-Letter",
                HeaderBuilder::new()
                    .schema(Some(dead))
                    .description(Some("The document `DeadLetter`. Messages that are not dead letters do not have it."))
                    .build(),
            );
            let of_lease = [
                ("Waystage-Lease-Token", schemas::text(), "The lease token, which acknowledges, extends or nacks it."),
                ("Waystage-Attempt", number(), "How often it was received; the first time is 1."),
            ];
            let is_leased = matches!(content, Content::LeasedMessageOrJson(_));
            let of_lease = of_lease.into_iter().filter(|_| is_leased);
            headers.into_iter().chain(of_lease).fold(response, |response, (name, schema, text)| {
                response.header(name, HeaderBuilder::new().schema(Some(schema)).description(Some(text)).build())
            })
        }
    }
}

/// The problems of an operation as responses, one for each status. Each response has a name that starts with its status.
fn problems(operation: &Operation, is_guarded: bool) -> Vec<(String, Response)> {
    let mut by_status: BTreeMap<u16, Vec<&ProblemType>> = BTreeMap::new();
    let guarded = if is_guarded { problem_types::TOKEN_PROBLEMS } else { &[] };
    for problem_type in operation.problems().into_iter().chain(guarded.iter().copied()).filter_map(problem_types::find)
    {
        by_status.entry(problem_type.status).or_default().push(problem_type);
    }
    by_status.into_iter().map(|(status, types)| problem(status, &types)).collect()
}

fn problem(status: u16, types: &[&ProblemType]) -> (String, Response) {
    let urns = types.iter().map(|problem_type| format!("urn:waystage:problem:{}", problem_type.name));
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let schema = ObjectBuilder::new()
        .property("type", text().enum_values(Some(urns)))
        .property("title", text())
        .property("status", ObjectBuilder::new().schema_type(Type::Integer).enum_values(Some([status])))
        .property("detail", text());
    let schema = match status {
        400 => schema.property("longest_wait_ms", ObjectBuilder::new().schema_type(Type::Integer)),
        _ => schema,
    };
    let schema = ["type", "title", "status", "detail"].into_iter().fold(schema, ObjectBuilder::required);
    let descriptions: Vec<String> =
        types.iter().map(|problem_type| format!("`{}`: {}", problem_type.name, problem_type.description)).collect();
    let mut response = ResponseBuilder::new()
        .description(format!("{}.", descriptions.join("; ")))
        .header_ref("Server-Timing", Ref::new("#/components/headers/ServerTiming"))
        .content("application/problem+json", ContentBuilder::new().schema(Some(schema)).build());
    if status == 503 {
        let seconds = ObjectBuilder::new().schema_type(Type::Integer);
        let header = HeaderBuilder::new().schema(Some(seconds)).description(Some("Seconds after which to retry."));
        response = response.header("Retry-After", header.build());
    }
    let names: Vec<&str> = types.iter().map(|problem_type| problem_type.name).collect();
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

/// The target of a reference in the description.
pub(crate) fn resolve<'d>(description: &'d Json, value: &'d Json) -> &'d Json {
    let target = value.get("$ref").and_then(Json::as_str).and_then(|target| target.strip_prefix('#'));
    target.and_then(|pointer| description.pointer(pointer)).unwrap_or(value)
}

#[cfg(test)]
mod tests;
