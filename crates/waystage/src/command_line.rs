//! The command line of this process, and addresses in it.

/// The arguments, the program first. What is not UTF-8 is replaced, because the text is only shown and stored.
#[cfg(feature = "load")]
pub(crate) fn command_line() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// Parses HOST:PORT. The name is resolved later.
pub(crate) fn host_port(text: &str) -> Result<String, String> {
    let refuse = |fault: &str| Err(format!("{fault}; give HOST:PORT, for example 127.0.0.1:11211"));
    if text.contains('/') {
        return refuse("this is a URL or a path");
    }
    match text.rsplit_once(':') {
        None => refuse("it has no port"),
        Some(("", _)) => refuse("it has no host"),
        Some((_, port)) if port.parse::<u16>().is_err() => refuse("the port is not a number from 0 to 65535"),
        Some(_) => Ok(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for text in ["127.0.0.1:1", "localhost:65535", "[::1]:80", "a:0"] {
            assert_eq!(host_port(text), Ok(text.into()));
        }
        for (text, fault) in [
            ("127.0.0.1", "no port"),
            (":80", "no host"),
            ("a:65536", "65535"),
            ("a:x", "65535"),
            ("http://a:80", "URL"),
            ("", "no port"),
        ] {
            assert!(host_port(text).is_err_and(|line| line.contains(fault)), "{text}");
        }
    }
}
