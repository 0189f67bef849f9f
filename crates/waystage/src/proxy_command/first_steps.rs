//! What a person at a terminal reads after `waystage proxy --server ...`: what the proxy does, and what to try next.

use proxy::{ProxyFile, Running};

/// The most servers that are listed.
const SERVERS_MAX: usize = 3;

/// The lines for a proxy that was started without a file. No line is longer than a terminal of 80 columns, unless an address is.
pub(super) fn first_steps(running: &Running, flags: &ProxyFile) -> Vec<String> {
    let servers: Vec<String> = flags
        .pools
        .iter()
        .flat_map(|pool| pool.servers.iter().flatten())
        .map(|server| server.address.clone())
        .collect();
    let address = running.listening.first().map(ToString::to_string).unwrap_or_default();
    lines(&servers, &address, running.metrics_address.map(|address| address.to_string()).as_deref())
}

fn lines(servers: &[String], address: &str, metrics: Option<&str>) -> Vec<String> {
    let more = servers.len().saturating_sub(SERVERS_MAX);
    let mut listed = servers[..servers.len().min(SERVERS_MAX)].join(", ");
    if more > 0 {
        listed += &format!(" and {more} more");
    }
    let metrics = match metrics {
        Some(address) => format!("http://{address}/metrics"),
        None => "none; start with --metrics 127.0.0.1:9150".into(),
    };
    let mut lines = vec![format!("  forwards  to {listed}"), format!("  metrics   {metrics}")];
    // `nc` needs host and port apart. Sockets of the file system and IPv6 would need other options.
    if let Some((host, port)) = address.rsplit_once(':').filter(|(host, _)| *host != "unix" && !host.contains(':')) {
        let host = if host == "0.0.0.0" { "127.0.0.1" } else { host };
        lines.push(format!("  try       printf 'stats\\r\\nquit\\r\\n' | nc {host} {port}"));
    }
    lines.push("  and       waystage proxy route --server ... KEY: the server of a key".into());
    lines.push("  stop      Ctrl-C; --help has all settings".into());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_steps_name_servers_metrics_and_the_next_command() {
        let servers: Vec<String> = (1..=5).map(|number| format!("10.0.0.{number}:11211")).collect();
        let text = lines(&servers, "0.0.0.0:11311", None).join("\n");
        assert!(text.contains("10.0.0.3:11211 and 2 more") && text.contains("--metrics 127.0.0.1:9150"), "{text}");
        assert!(text.contains("nc 127.0.0.1 11311"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let text = lines(&servers[..1], "unix:/run/a.sock", Some("127.0.0.1:9150")).join("\n");
        assert!(text.contains("http://127.0.0.1:9150/metrics") && !text.contains("| nc"), "{text}");
    }
}
