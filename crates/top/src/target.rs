//! The address of a metrics page.

use std::str::FromStr;

const PATH: &str = "/metrics";
const HINT: &str = "give HOST:PORT or http://HOST:PORT/PATH, for example 127.0.0.1:9150";

/// The address of a metrics page, as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// HOST:PORT. The name is resolved before each request.
    pub(crate) address: String,
    pub(crate) path: String,
}

impl Target {
    /// The text that identifies the target in the view.
    pub fn name(&self) -> String {
        if self.path == PATH { self.address.clone() } else { format!("{}{}", self.address, self.path) }
    }
}

impl FromStr for Target {
    type Err = String;

    /// Parses HOST:PORT or http://HOST:PORT/PATH. The path is /metrics unless another one is given.
    fn from_str(text: &str) -> Result<Target, String> {
        let refuse = |fault: &str| Err(format!("{fault}; {HINT}"));
        let rest = match text.split_once("://") {
            None => text,
            Some(("http", rest)) => rest,
            Some(_) => return refuse("only http:// is supported"),
        };
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return refuse("only visible ASCII characters are allowed");
        }
        let (address, path) = match rest.find('/') {
            Some(at) if &rest[at..] != "/" => rest.split_at(at),
            Some(at) => (&rest[..at], PATH),
            None => (rest, PATH),
        };
        let Some((host, port)) = address.rsplit_once(':') else { return refuse("it has no port") };
        if host.is_empty() || host.contains(['@', '?', '#']) {
            return refuse("it has no valid host");
        }
        match port.parse::<u16>() {
            Ok(1..) => Ok(Target { address: address.into(), path: path.into() }),
            _ => refuse("the port is not a number from 1 to 65535"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_an_address_or_a_url() {
        for (text, name) in [
            ("127.0.0.1:9150", "127.0.0.1:9150"),
            ("http://a:80", "a:80"),
            ("http://[::1]:80/", "[::1]:80"),
            ("http://a:80/metrics", "a:80"),
            ("a:80/proxy/metrics?x=1", "a:80/proxy/metrics?x=1"),
        ] {
            assert_eq!(text.parse::<Target>().map(|target| target.name()), Ok(name.into()));
        }
    }

    #[test]
    fn other_texts_are_refused_with_a_hint() {
        for (text, fault) in [
            ("", "no port"),
            ("a", "no port"),
            (":80", "no valid host"),
            ("u@a:80", "no valid host"),
            ("a:0", "1 to 65535"),
            ("a:65536", "1 to 65535"),
            ("https://a:80", "only http://"),
            ("a b:80", "visible ASCII"),
            ("http://a:80/\r\nx: y", "visible ASCII"),
        ] {
            let error = text.parse::<Target>().unwrap_err();
            assert!(error.contains(fault) && error.contains("127.0.0.1:9150"), "{text:?}: {error}");
        }
    }
}
