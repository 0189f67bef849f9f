//! The hosts of a database URL. Each host has its own configuration and attempt. In one attempt for all hosts, a host that accepts the
//! connection but does not answer would use up the time of the others.

use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

/// The configuration of each host, in the order of the URL.
pub(super) fn each(config: &Config) -> Result<Vec<Config>, String> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    if hosts.is_empty() && addresses.is_empty() {
        return Err("it has no host".into());
    }
    let number = hosts.len().max(addresses.len());
    for (what, found) in [("host", hosts.len()), ("hostaddr", addresses.len()), ("port", ports.len())] {
        if found != number && found != 0 && !(what == "port" && found == 1) {
            return Err(format!("it has {number} hosts but {found} values of {what}; give one for each host"));
        }
    }
    let session = match (config.get_target_session_attrs(), number) {
        (TargetSessionAttrs::ReadOnly, _) => {
            return Err("target_session_attrs=read-only: the service writes; give read-write".into());
        }
        // Any of several hosts could be a standby, which refuses every statement of the service.
        (TargetSessionAttrs::Any, 2..) => TargetSessionAttrs::ReadWrite,
        (attributes, _) => attributes,
    };
    let one = |place: usize| {
        let mut one = without_hosts(config);
        one.target_session_attrs(session);
        match hosts.get(place) {
            Some(Host::Tcp(name)) => drop(one.host(name)),
            Some(Host::Unix(directory)) => drop(one.host_path(directory)),
            None => {}
        }
        if let Some(address) = addresses.get(place) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(place).or(ports.first()) {
            one.port(*port);
        }
        one
    };
    Ok((0..number).map(one).collect())
}

/// A copy of all other settings.
fn without_hosts(config: &Config) -> Config {
    let mut copy = Config::new();
    if let Some(user) = config.get_user() {
        copy.user(user);
    }
    if let Some(password) = config.get_password() {
        copy.password(password);
    }
    if let Some(name) = config.get_dbname() {
        copy.dbname(name);
    }
    if let Some(options) = config.get_options() {
        copy.options(options);
    }
    if let Some(name) = config.get_application_name() {
        copy.application_name(name);
    }
    if let Some(time) = config.get_connect_timeout() {
        copy.connect_timeout(*time);
    }
    if let Some(time) = config.get_tcp_user_timeout() {
        copy.tcp_user_timeout(*time);
    }
    if let Some(time) = config.get_keepalives_interval() {
        copy.keepalives_interval(time);
    }
    if let Some(number) = config.get_keepalives_retries() {
        copy.keepalives_retries(number);
    }
    copy.keepalives(config.get_keepalives()).keepalives_idle(config.get_keepalives_idle());
    copy.ssl_mode(config.get_ssl_mode()).ssl_negotiation(config.get_ssl_negotiation());
    copy.channel_binding(config.get_channel_binding());
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Config>, String> {
        each(&text.parse().unwrap())
    }

    #[test]
    fn each_host_has_its_port_and_all_other_settings() {
        let hosts =
            parsed("host=a,/b port=1,2 user=me password=secret dbname=d options='-c x=y' sslmode=disable").unwrap();
        let shown: Vec<_> = hosts.iter().map(|host| (host.get_hosts().to_vec(), host.get_ports().to_vec())).collect();
        assert_eq!(shown, [(vec![Host::Tcp("a".into())], vec![1]), (vec![Host::Unix("/b".into())], vec![2])]);
        for host in &hosts {
            assert_eq!(
                (host.get_user(), host.get_password(), host.get_dbname()),
                (Some("me"), Some(&b"secret"[..]), Some("d"))
            );
            assert_eq!(host.get_options(), Some("-c x=y"));
            assert_eq!(host.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        }
        assert_eq!(parsed("host=a port=7").unwrap()[0].get_target_session_attrs(), TargetSessionAttrs::Any);
        assert_eq!(
            parsed("postgres://a,b/d").unwrap()[1].get_ports(),
            parsed("postgres://a/d").unwrap()[0].get_ports()
        );
    }

    #[test]
    fn contradictions_are_refused() {
        for text in ["user=me", "host=a,b,c port=1,2", "host=a target_session_attrs=read-only"] {
            assert!(!parsed(text).unwrap_err().is_empty(), "{text}");
        }
    }
}
