//! Refuses configurations that expose a service to other hosts by mistake.

use super::Config;
use configuration::ConfigError;
use std::net::IpAddr;

/// Checks who can reach the service, and what protects it.
pub(super) fn check(config: &Config, is_insecure: bool) -> Result<(), ConfigError> {
    for host in &config.browsers.allowed_hosts {
        let is_name =
            !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        if !is_name {
            let problem = format!("{host:?} is not a host name; give names without a port, such as \"queues.example\"");
            return Err(ConfigError::at("allowed-hosts", problem));
        }
    }
    for origin in &config.browsers.cors_origins {
        let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        if host.is_none_or(|host| host.is_empty() || host.contains(['/', '*', ' ', '?', '#', '@'])) {
            let problem =
                format!("{origin:?} is not an origin; give scheme, host and port, such as \"https://app.example\"");
            return Err(ConfigError::at("cors-origins", problem));
        }
    }
    if is_insecure || is_local(&config.listen) {
        return Ok(());
    }
    let (what, remedy) = match (config.tokens.is_empty(), &config.tls) {
        (true, _) => ("there are no tokens", "add [[token]] tables"),
        (false, None) => ("tokens would cross the network in clear text", "give tls-certificate and tls-key"),
        (false, Some(_)) => return Ok(()),
    };
    let problem = format!("others can reach {}, and {what}; {remedy}, or set insecure (--insecure)", config.listen);
    Err(ConfigError::at("listen", problem))
}

/// Whether only this host can reach the address.
fn is_local(listen: &str) -> bool {
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host);
    let address = host.trim_start_matches('[').trim_end_matches(']');
    address.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
