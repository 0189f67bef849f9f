//! Refuses requests that a web page of another origin makes a browser send. A service without tokens permits every request, and a browser
//! can reach the services of its own host and network. Without this check, any web page could pop messages.

use crate::config::BrowserConfig;
use crate::http::problem::Problem;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, header, request::Parts};
use std::net::IpAddr;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Which hosts and origins a service accepts.
#[derive(Clone, Debug)]
pub(crate) struct Browsers {
    /// None if requests need tokens, which no foreign page knows.
    hosts: Option<Vec<String>>,
    cors_origins: Vec<String>,
    /// The scheme of the service's own origin.
    scheme: &'static str,
}

impl Browsers {
    /// A service that listens at these addresses.
    pub(crate) fn new<'a>(
        config: &BrowserConfig,
        listen: impl IntoIterator<Item = &'a String>,
        has_tokens: bool,
        has_tls: bool,
    ) -> Browsers {
        let own = listen.into_iter().filter_map(|address| address.parse::<Authority>().ok());
        let own = own.map(|authority| authority.host().to_ascii_lowercase());
        let hosts = config.allowed_hosts.iter().map(|host| host.to_ascii_lowercase());
        let hosts = hosts.chain(own).chain(["localhost".into()]).collect();
        let scheme = if has_tls { "https" } else { "http" };
        Browsers { hosts: (!has_tokens).then_some(hosts), cors_origins: config.cors_origins.clone(), scheme }
    }

    /// The origins whose pages may use the service.
    pub(crate) fn cors_origins(&self) -> &[String] {
        &self.cors_origins
    }

    /// Checks the head of a request.
    pub(crate) fn check(&self, head: &Parts) -> Result<(), Problem> {
        let Some(hosts) = &self.hosts else { return Ok(()) };
        if !has_known_name(head, hosts)
            && let Some(host) = host(head)
            && !is_allowed(&host, hosts)
        {
            // DNS rebinding: if a name of the attacker resolves to this service, the attacker's page has the same origin as
            // the service.
            return Err(Problem::foreign_origin(format!(
                "the host {:?} is not a name of this service; add it to allowed-hosts",
                host.host()
            )));
        }
        let origin = text(&head.headers, &header::ORIGIN);
        if origin.is_some_and(|origin| self.cors_origins.iter().any(|allowed| allowed == origin)) {
            return Ok(());
        }
        if let Some(origin) = origin
            && !host(head).is_some_and(|host| is_origin_of(self.scheme, &host, origin))
        {
            return Err(Problem::foreign_origin(format!(
                "pages of {origin:?} may not use this service; see cors-origins"
            )));
        }
        match text(&head.headers, &SEC_FETCH_SITE) {
            None | Some("same-origin" | "none") => Ok(()),
            Some(site) => {
                Err(Problem::foreign_origin(format!("a page of another origin ({site}) may not use this service")))
            }
        }
    }
}

/// Whether the host is written as one of these names, with or without a port. Most requests pass this check, which is cheap.
fn has_known_name(head: &Parts, hosts: &[String]) -> bool {
    let Some(host) = text(&head.headers, &header::HOST) else { return false };
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let name = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
    hosts.iter().any(|known| known == name)
}

/// Whether a page that this host serves with this scheme has this origin. With the other scheme it is another origin, which another program
/// may serve.
fn is_origin_of(scheme: &str, host: &Authority, origin: &str) -> bool {
    format!("{scheme}://{host}").eq_ignore_ascii_case(origin)
}

/// The host in the request; none if there is none, which browsers never send.
fn host(head: &Parts) -> Option<Authority> {
    let given = text(&head.headers, &header::HOST).map(|host| host.parse::<Authority>());
    match given {
        // `x@localhost` is not a host: browsers send no user name.
        Some(Ok(host)) if !host.as_str().contains('@') => Some(host),
        // A text that is not a host is not allowed.
        Some(_) => Some(Authority::from_static("invalid")),
        None => head.uri.authority().cloned(),
    }
}

/// Addresses are always allowed, because a page can have an address as its origin only if that address served it.
fn is_allowed(host: &Authority, hosts: &[String]) -> bool {
    let name = host.host().trim_end_matches('.').to_ascii_lowercase();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    address.parse::<IpAddr>().is_ok() || hosts.contains(&name)
}

/// A header as text. A value that is not text becomes "?", so that it does not count as a missing header. So do several values, of which
/// another program may use another one.
fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    Some(if values.next().is_none() { first.to_str().unwrap_or("?") } else { "?" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn status(browsers: &Browsers, headers: &[(&str, &str)]) -> u16 {
        let request = headers
            .iter()
            .fold(Request::builder().uri("/v1/queues"), |request, (name, value)| request.header(*name, *value));
        let (head, ()) = request.body(()).unwrap().into_parts();
        browsers.check(&head).map_or_else(|problem| problem.status.as_u16(), |()| 200)
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let config = BrowserConfig {
            allowed_hosts: vec!["queues.example".into()],
            cors_origins: vec!["https://app.example".into()],
        };
        let listen = ["127.0.0.1:8080".to_owned(), "admin.internal:9000".to_owned()];
        let browsers = Browsers::new(&config, &listen, false, false);
        let host = ("host", "localhost:8080");
        for (expected, headers) in [
            (200, &[][..]),
            (200, &[host]),
            (200, &[("host", "127.0.0.1")]),
            (200, &[("host", "[::1]:80")]),
            (200, &[("host", "admin.internal:9000")]),
            (200, &[("host", "Queues.Example.:8080")]),
            (403, &[("host", "evil.example:8080")]),
            (403, &[("host", "127.0.0.1.evil.example")]),
            (403, &[("host", "not a host")]),
            (200, &[host, ("origin", "http://localhost:8080")]),
            (403, &[host, ("origin", "http://localhost:8081")]),
            (403, &[host, ("origin", "https://localhost:8080")]),
            (403, &[host, ("origin", "https://evil.example")]),
            (403, &[host, ("origin", "null")]),
            (200, &[host, ("origin", "https://app.example"), ("sec-fetch-site", "cross-site")]),
            (403, &[host, ("sec-fetch-site", "cross-site")]),
            (403, &[host, ("sec-fetch-site", "same-site")]),
            (200, &[host, ("sec-fetch-site", "same-origin")]),
            (200, &[host, ("sec-fetch-site", "none")]),
            // No browser sends these, but a program between may read them in another way than the service.
            (403, &[host, ("host", "evil.example")]),
            (403, &[("host", "evil@localhost:8080")]),
            (403, &[host, ("origin", "http://localhost:8080"), ("origin", "https://evil.example")]),
            (403, &[host, ("sec-fetch-site", "Cross-Site")]),
            (403, &[host, ("sec-fetch-site", "something-new")]),
            (403, &[host, ("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")]),
        ] {
            assert_eq!(status(&browsers, headers), expected, "{headers:?}");
        }
        let with_tls = Browsers::new(&config, &listen, false, true);
        assert_eq!(status(&with_tls, &[host, ("origin", "https://localhost:8080")]), 200);
        assert_eq!(status(&with_tls, &[host, ("origin", "http://localhost:8080")]), 403);
        let with_tokens = Browsers::new(&config, &listen, true, false);
        assert_eq!(status(&with_tokens, &[("host", "evil.example"), ("origin", "https://evil.example")]), 200);
    }
}
