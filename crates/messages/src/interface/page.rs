//! Renders the OpenAPI description as an HTML page, which needs neither scripts nor a network.

use crate::interface::openapi::resolve;
use serde_json::{Map, Value as Json};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
const METHODS: [&str; 4] = ["get", "put", "post", "delete"];

/// The page for this description.
pub(crate) fn html(description: &Json) -> String {
    let title = escaped(&description["info"]["title"]);
    let mut page = String::with_capacity(64 << 10);
    let mut add = |text: String| page.push_str(&text);
    add(format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\
         <style>{STYLE}</style></head><body><h1>{title}</h1><p>{}</p>\
         <p class=\"soft\">Version {}. For programs: <a href=\"openapi.json\">openapi.json</a>.</p>",
        words(&description["info"]["description"]),
        escaped(&description["info"]["version"]),
    ));
    let operations = operations(description);
    let subjects: Vec<&Json> = list(&description["tags"]).map(|tag| &tag["name"]).collect();
    add("<nav>".into());
    for subject in &subjects {
        let items = operations.iter().filter(|operation| operation.has_subject(subject)).map(Operation::link);
        add(format!("<h4>{}</h4><ul>{}</ul>", escaped(subject), items.collect::<String>()));
    }
    add("<h4>documents</h4><ul>".into());
    let schemas = description["components"]["schemas"].as_object();
    for name in schemas.into_iter().flat_map(Map::keys) {
        add(format!("<li><a href=\"#{name}\">{name}</a></li>"));
    }
    add("</ul></nav>".into());
    for subject in &subjects {
        add(format!("<h2>{}</h2>", escaped(subject)));
        operations
            .iter()
            .filter(|operation| operation.has_subject(subject))
            .for_each(|operation| add(operation.html(description)));
    }
    add("<h2>documents</h2>".into());
    for (name, schema) in schemas.into_iter().flatten() {
        let text = serde_json::to_string_pretty(schema).unwrap_or_default();
        add(format!("<h3 id=\"{name}\">{name}</h3><pre>{}</pre>", escape(&text)));
    }
    add("</body></html>\n".into());
    page
}

/// One method of one path.
struct Operation<'d> {
    method: &'static str,
    path: &'d str,
    value: &'d Json,
}

fn operations(description: &Json) -> Vec<Operation<'_>> {
    let paths = description["paths"].as_object();
    let mut all = Vec::new();
    for (path, item) in paths.into_iter().flatten() {
        all.extend(METHODS.iter().filter_map(|method| Some(Operation { method, path, value: item.get(*method)? })));
    }
    all
}

impl Operation<'_> {
    fn has_subject(&self, subject: &Json) -> bool {
        list(&self.value["tags"]).any(|tag| tag == subject)
    }

    fn id(&self) -> String {
        escaped(&self.value["operationId"])
    }

    fn link(&self) -> String {
        format!("<li><a href=\"#{}\">{}</a></li>", self.id(), self.line())
    }

    fn line(&self) -> String {
        let Operation { method, path, .. } = self;
        format!("<span class=\"method {method}\">{}</span> {}", method.to_uppercase(), escape(path))
    }

    fn html(&self, description: &Json) -> String {
        let mut text = format!("<section><h3 id=\"{}\">{}</h3>", self.id(), self.line());
        // Writing into a string cannot fail.
        let _ = write!(text, "<p>{} {}</p>", words(&self.value["summary"]), words(&self.value["description"]));
        if list(&self.value["security"]).next().is_some() {
            text.push_str("<p>A bearer token is required.</p>");
        }
        let _ = write!(text, "<pre>{}</pre>", escape(&self.curl()));
        let parameters: Vec<String> = list(&self.value["parameters"]).map(parameter).collect();
        if !parameters.is_empty() {
            let _ = write!(text, "<h4>takes</h4><dl>{}</dl>", parameters.concat());
        }
        let body = &self.value["requestBody"];
        if body.is_object() {
            let _ = write!(text, "<h4>body</h4><p>{} {}</p>", contents(&body["content"]), words(&body["description"]));
        }
        text.push_str("<h4>replies</h4><dl>");
        for (status, reply) in self.value["responses"].as_object().into_iter().flatten() {
            let reply = resolve(description, reply);
            let headers: Vec<String> =
                reply["headers"].as_object().into_iter().flatten().map(|(name, _)| code(name)).collect();
            let _ = write!(
                text,
                "<dt><b>{status}</b> {}</dt><dd>{}",
                contents(&reply["content"]),
                words(&reply["description"])
            );
            if !headers.is_empty() {
                let _ = write!(text, " <span class=\"soft\">Headers: {}</span>", headers.join(", "));
            }
            text.push_str("</dd>");
        }
        text.push_str("</dl></section>");
        text
    }

    /// A command line to try the operation with.
    fn curl(&self) -> String {
        let mut path = self.path.to_string();
        let (mut query, mut more) = (Vec::new(), String::new());
        for parameter in list(&self.value["parameters"]) {
            let name = parameter["name"].as_str().unwrap_or_default();
            let example = plain(&parameter["example"]);
            match parameter["in"].as_str() {
                Some("path") => path = path.replace(&format!("{{{name}}}"), &example),
                Some("header") => more.push_str(&format!(" -H '{name}: {example}'")),
                _ if parameter["required"] == true => query.push(format!("{name}={example}")),
                _ => {}
            }
        }
        let content = &self.value["requestBody"]["content"];
        if content["application/json"].is_object() {
            more.push_str(&format!(" --json '{}'", content["application/json"]["example"]));
        } else if content.is_object() {
            more.push_str(" --data-binary 'two apples'");
        }
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        format!("curl -X {} 'http://localhost:8080{path}{query}'{more}", self.method.to_uppercase())
    }
}

fn parameter(parameter: &Json) -> String {
    let schema = &parameter["schema"];
    let mut rules = Vec::new();
    for (key, label) in [("minimum", "from"), ("maximum", "to"), ("maxLength", "characters up to"), ("pattern", "")] {
        match &schema[key] {
            Json::Null => {}
            // A description in words replaces the regular expression.
            _ if key == "pattern" && schema["description"].is_string() => {}
            rule => rules.push(format!("{label} <code>{}</code>", escape(&plain(rule)))),
        }
    }
    let is_required = if parameter["required"] == true { ", required" } else { "" };
    format!(
        "<dt>{} <span class=\"soft\">{}{is_required}</span></dt><dd>{} {} <span class=\"soft\">{}</span></dd>",
        code(&plain(&parameter["name"])),
        escaped(&parameter["in"]),
        words(&parameter["description"]),
        words(&schema["description"]),
        rules.join(" "),
    )
}

/// The media types of a body, each with a link to its document.
fn contents(content: &Json) -> String {
    let types = content.as_object().into_iter().flatten().map(|(media_type, content)| {
        let schema = content["schema"]["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
        let link = schema.map_or_else(String::new, |name| format!(" <a href=\"#{name}\">{name}</a>"));
        format!("<code>{}</code>{link}", escape(media_type))
    });
    types.collect::<Vec<String>>().join(" or ")
}

fn list(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().into_iter().flatten()
}

fn plain(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

fn code(text: &str) -> String {
    format!("<code>{}</code>", escape(text))
}

/// Text, with the parts between backticks as code.
fn words(value: &Json) -> String {
    let text = value.as_str().unwrap_or_default();
    let parts = text.split('`').enumerate();
    parts.map(|(index, part)| if index % 2 == 1 { code(part) } else { escape(part) }).collect()
}

fn escaped(value: &Json) -> String {
    escape(value.as_str().unwrap_or_default())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;
    use crate::interface::{openapi, table};

    #[test]
    fn the_page_has_every_operation_and_needs_nothing_else() {
        let description = serde_json::from_str(&openapi::text(&Limits::default(), true)).unwrap();
        let page = html(&description);
        for operation in table::operations() {
            assert!(page.contains(&format!("<h3 id=\"{}\">", operation.id)), "{}", operation.id);
        }
        for foreign in ["<script", "src=", "@import", "url(", "http://www", "https://"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(
            page.contains("curl -X POST 'http://localhost:8080/v1/queues/orders/messages' -H 'Waystage-Sender: alice'")
        );
        assert_eq!(
            page.matches("A bearer token is required.").count(),
            page.matches("http://localhost:8080/v1").count()
        );
        assert!(!page.contains(">null") && !page.contains("'null'"), "nothing is missing");
    }
}
