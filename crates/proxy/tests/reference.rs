//! The commented example of the configuration equals the defaults, and has every key.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "common/reference_keys.rs"]
mod reference_keys;

use proptest::prelude::*;
use proxy::{
    CertificateFiles, CommandGroup, Config, DispatchConfig, Distribution, Document, Failover, FailoverPool, Hash,
    Hedge, ListenerConfig, LogFormat, LogLevel, LoggedKeys, MultiGet, NearCache, PartFailure, PoolFile, ProxyFile,
    RateLimit, Reads, Resolve, RouteConfig, ServerConfig, Shadow, Stamps, Timeouts, WarmUp, Writes,
};
use reference_keys::{REFERENCE, keys_of, uncommented};
use std::time::Duration;
use toml::Table;

/// A file that sets every key. A new key does not compile until it is added here.
fn everything() -> ProxyFile {
    let (name, second) = (String::from("a"), Duration::from_secs(1));
    let server = ServerConfig { address: "a:1".into(), name: Some(name.clone()), weight: 1, is_drained: true };
    let (allow, deny) = (Some(vec![CommandGroup::Read, CommandGroup::Stats]), Some(vec![CommandGroup::Stats]));
    let listener = ListenerConfig { address: name.clone(), allow, deny };
    let pool = PoolFile {
        name: Some(name.clone()),
        listen: Some(vec![listener.clone()]),
        servers: Some(vec![server]),
        servers_file: Some("a".into()),
        srv: Some("a".into()),
        resolve: Some(Resolve::All),
        distribution: Some(Distribution::Ketama),
        hash: Some(Hash::Md5),
        hash_tag: Some(*b"{}"),
        replicas: Some(1),
        writes: Some(Writes::All),
        reads: Some(Reads::Primary),
        failover: Some(Failover::Never),
        hedge: Some(Hedge { delay: second, budget: 0.5 }),
        failover_pool: Some(FailoverPool { pool: name.clone(), expiry: second }),
        warm_up: Some(WarmUp { from: name.clone(), expiry: second }),
        shadow: Some(Shadow { to: name.clone(), share: 0.5, reads: true }),
        read_pool: Some(name.clone()),
        delete_pools: Some(vec![name.clone()]),
        flush: Some(true),
        rate_limit: Some(RateLimit { per_second: 1, burst: Some(1) }),
        near_cache: Some(NearCache { memory: Some(4096), ..NearCache::new(second) }),
        timeouts: Some(Timeouts::default()),
        failures: Some(1),
        ready_servers: Some(1),
        server_auth_file: Some("a".into()),
    };
    ProxyFile {
        listen: Some(vec![listener]),
        is_given_sockets: false,
        loops: Some(1),
        slow_down: Some(2.0),
        dispatch: Some(DispatchConfig::Pipelined),
        readers: Some(1),
        writers: Some(1),
        fault_write_poll: Some(Duration::from_millis(1)),
        workers: Some(1),
        multi_get: Some(MultiGet::ByKey),
        fault_write_hold: Some(Duration::from_millis(1)),
        queue: Some(1),
        part_failure: Some(PartFailure::Miss),
        metrics: Some(name.clone()),
        metrics_timeout: Some(second),
        metrics_connections: Some(1),
        stamps: Some(Stamps::All),
        records: Some("a".into()),
        sample: Some(1),
        backend_window: Some(1),
        backend_buffer: Some(1),
        client_window: Some(1),
        client_buffer: Some(1),
        memory: Some(1),
        value_max: Some(1),
        reply_max: Some(1),
        clients_max: Some(1),
        clients_per_address: Some(1),
        client_idle_timeout: Some(second),
        client_request_timeout: Some(second),
        client_unread_timeout: Some(second),
        tcp_keepalive: Some(second),
        client_auth_file: Some("a".into()),
        hot_keys: Some(1),
        hot_keys_metrics: Some(true),
        log_level: Some(LogLevel::Warn),
        log_format: Some(LogFormat::Json),
        log_keys: Some(LoggedKeys::Hashed),
        slow_requests: Some(second),
        slow_requests_per_second: Some(1),
        traces: Some("a".into()),
        traces_sample: Some(1),
        traces_queue: Some(1),
        traces_keys: Some(LoggedKeys::Hidden),
        traces_service: Some("a".into()),
        resolve_every: Some(second),
        resolver: Some("127.0.0.1:53".into()),
        control: Some("a".into()),
        hand_over_wait: Some(second),
        tls_certificate: Some("a".into()),
        tls_key: Some("a".into()),
        tls_certificates: Some(vec![CertificateFiles { certificate: "a".into(), key: "a".into() }]),
        tls_client_authority: Some("a".into()),
        tls_handshake_timeout: Some(second),
        tls_backend_authority: Some("a".into()),
        tls_backend_certificate: Some("a".into()),
        tls_backend_key: Some("a".into()),
        proxy_protocol: Some(vec![name.clone()]),
        proxy_protocol_from: Some(vec![name.clone()]),
        proxy_protocol_timeout: Some(second),
        pools: vec![pool],
        routes: vec![RouteConfig {
            strip_prefix: true,
            replace_prefix: Some("a".into()),
            ..RouteConfig::new(&name, &name)
        }],
    }
}

#[test]
fn the_reference_is_the_defaults() {
    let config = Document::new("reference.toml", REFERENCE).settings::<ProxyFile>().unwrap().config().unwrap();
    assert_eq!(config, Config::new("127.0.0.1:11211", &["10.0.0.1:11211".into(), "10.0.0.2:11211".into()]));
    assert_eq!(config.check(), Ok(()));
}

#[test]
fn the_reference_has_every_key_and_no_other() {
    let shown = uncommented();
    assert_eq!(keys_of(&shown.parse().unwrap()), keys_of(&Table::try_from(everything()).unwrap()));
    // Their values have the right types, too.
    Document::new("reference.toml", &shown).settings::<ProxyFile>().unwrap();
}

#[test]
fn a_written_file_is_read_again() {
    let settings = everything();
    let text = toml::to_string(&settings).unwrap();
    assert_eq!(Document::new("everything", &text).settings::<ProxyFile>().unwrap(), settings, "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// A valid file with any change is either read or rejected with one short line.
    #[test]
    fn a_damaged_file_is_parsed_or_reported_in_one_line(
        has_every_key in any::<bool>(),
        at in any::<prop::sample::Index>(),
        removed in 0usize..40,
        inserted in prop_oneof!["[ -~\n]{0,6}", "\\PC{0,3}", "(\"|'|#|\\[\\[|\\{|=|nan|-1|99999999999999999999){1,2}"],
    ) {
        let text = if has_every_key { uncommented() } else { REFERENCE.to_string() };
        let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
        let start = at.index(places.len());
        let end = places.get(start + removed).copied().unwrap_or(text.len());
        let damaged = format!("{}{inserted}{}", &text[..places[start]], &text[end..]);
        let document = Document::new("damaged.toml", &damaged);
        let line = match document.settings().map(ProxyFile::config) {
            Err(error) => error.to_string(),
            Ok(Err(error)) => document.locate(&error).to_string(),
            Ok(Ok(config)) => config.check().map_or_else(|error| document.locate(&error).to_string(), |()| "fine".into()),
        };
        prop_assert!(line == "fine" || line.starts_with("damaged.toml:"), "{}", line);
        prop_assert!(!line.contains('\n') && line.len() < 1100, "{}", line);
    }
}
