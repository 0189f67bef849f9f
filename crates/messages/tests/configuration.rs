//! The example configuration has every key with its default, and every mistake is reported in one clear line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use messages::{Config, Discipline, Document, Permission, ServiceFile, TokenFile};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use toml::Table;

const REFERENCE: &str = include_str!("../../../examples/messages/reference.toml");
const TABLE: &str = include_str!("../../../docs/test-coverage.md");
const TOKENS: &str = include_str!("../../../examples/messages/tokens.toml");

/// A file with every key. A new key does not compile until it is added here.
fn everything() -> ServiceFile {
    let second = Some(Duration::from_secs(1));
    ServiceFile {
        listen: Some("a:1".into()),
        admin_listen: Some("a:2".into()),
        database: Some("host=a".into()),
        database_file: Some("a".into()),
        database_authority: Some("a".into()),
        replication_timeout: second,
        dispatch: Some(Discipline::Fused),
        lanes: Some(1),
        connections: Some(1),
        threads: Some(1),
        null_body: Some(1),
        records: Some("a".into()),
        sample: Some(1),
        tls_certificate: Some("a".into()),
        tls_key: Some("a".into()),
        connections_max: Some(1),
        idle_timeout: second,
        head_timeout: second,
        body_timeout: second,
        unread_timeout: second,
        reply_rate_min: Some(1),
        body_limit: Some(1),
        batch_limit: Some(1),
        queue: Some(1),
        queue_bytes: Some(1),
        queue_per_sender: Some(1),
        memory: Some(1),
        memory_per_client: Some(1),
        long_polls: Some(1),
        long_poll_limit: second,
        poll_interval: second,
        statement_messages: Some(1),
        statement_bytes: Some(1),
        delay_limit: second,
        expiry_limit: second,
        lease_limit: second,
        key_retention: second,
        low_water_marks: Some(1),
        shutdown_timeout: second,
        metrics_need_token: Some(true),
        insecure: Some(true),
        allowed_hosts: Some(vec!["a".into()]),
        cors_origins: Some(vec!["http://a".into()]),
        tokens: vec![TokenFile {
            token: Some("0123456789abcdef".into()),
            token_file: Some("a".into()),
            sender: "a".into(),
            permissions: vec![Permission::Send],
            queue_prefixes: Some(vec!["a".into()]),
        }],
    }
}

/// The keys of a table and of the tables in its lists.
fn keys(table: &Table) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (name, value) in table {
        found.insert(name.clone());
        for inner in value.as_array().into_iter().flatten().filter_map(|value| value.as_table()) {
            found.extend(inner.keys().map(|key| format!("{name}.{key}")));
        }
    }
    found
}

/// The file with its commented keys enabled.
fn uncommented() -> String {
    let is_key = |line: &&str| line.starts_with('#') && !line.starts_with("# ") && line.len() > 1;
    REFERENCE
        .lines()
        .map(|line| if is_key(&line) { format!("{}\n", &line[1..]) } else { format!("{line}\n") })
        .collect()
}

#[test]
fn the_reference_is_the_defaults() {
    let config = Document::new("reference.toml", REFERENCE).settings::<ServiceFile>().unwrap().config().unwrap();
    assert_eq!(config, Config::default());
}

#[test]
fn the_reference_has_every_key_and_no_other() {
    let shown = uncommented();
    assert_eq!(keys(&shown.parse().unwrap()), keys(&Table::try_from(everything()).unwrap()));
    // Their values have the right types.
    Document::new("reference.toml", &shown).settings::<ServiceFile>().unwrap();
}

#[test]
fn a_written_file_is_read_again() {
    let text = toml::to_string(&everything()).unwrap();
    assert_eq!(Document::new("everything", &text).settings::<ServiceFile>().unwrap(), everything(), "{text}");
}

#[test]
fn the_example_with_tokens_is_valid() {
    let config = Document::new("tokens.toml", TOKENS).settings::<ServiceFile>().unwrap().config().unwrap();
    assert_eq!(config.tokens.len(), 5);
    let text = format!("{config:?}");
    assert!(text.contains("kitchen") && !text.contains("example-only"), "tokens are not for logs: {text}");
}

#[test]
fn every_mistake_is_one_clear_line() {
    let token = |rest: &str| format!("listen = \"[::1]:1\"\n[[token]]\n{rest}");
    let cases = [
        ("listn = 'a:1'".into(), "x.toml:1: listn: there is no such key; did you mean listen?"),
        (
            "\n\nfrobnicate = 1".into(),
            "x.toml:3: frobnicate: there is no such key; give one of: listen, admin-listen, database,",
        ),
        ("lanes = 'two'".into(), "x.toml:1: lanes: give a whole number of at least 0, not the text \"two\""),
        ("lanes = 0".into(), "x.toml:1: lanes: 0 is not a number from 1 to 1000"),
        ("lanes = -1".into(), "x.toml:1: lanes: give a whole number"),
        ("dispatch = 'fast'".into(), "x.toml:1: dispatch: \"fast\" is not known; give one of: fused, pool, none"),
        ("dispatch = 'pool'\nlanes = 2".into(), "x.toml:2: lanes: 2 has an effect with dispatch fused only"),
        ("idle-timeout = '3 fortnights'".into(), "x.toml:1: idle-timeout: "),
        ("idle-timeout = '0s'".into(), "x.toml:1: idle-timeout: is 0; give a duration such as 10s"),
        ("body-limit = '1g'".into(), "x.toml:1: body-limit: 1073741824 is not a number from 1 to 67108864"),
        ("queue-per-sender = 0".into(), "x.toml:1: queue-per-sender: 0 is not a number from 1 to 10000000"),
        ("memory-per-client = '0'".into(), "x.toml:1: memory-per-client: "),
        ("sample = 3".into(), "x.toml:1: sample: 3 has no effect without records; give records, a directory"),
        ("tls-key = 'a'".into(), "x.toml:1: tls-key: has no certificate; give tls-certificate"),
        ("listen = ".into(), "x.toml:1: "),
        (
            "listen = '0.0.0.0:1'".into(),
            "x.toml:1: listen: others can reach 0.0.0.0:1, and there are no tokens; add [[token]] tables, or set insecure",
        ),
        (
            "listen = '0.0.0.0:1'\n[[token]]\ntoken = '0123456789abcdef'\nsender = 'a'\npermissions = ['send']".into(),
            "x.toml:1: listen: others can reach 0.0.0.0:1, and tokens would cross the network in clear text; give tls-cert",
        ),
        (
            "allowed-hosts = ['a:1']".into(),
            "x.toml:1: allowed-hosts: \"a:1\" is not a host name; give names without a port",
        ),
        ("cors-origins = ['*']".into(), "x.toml:1: cors-origins: \"*\" is not an origin; give scheme, host and port"),
        ("insecure = 'yes'".into(), "x.toml:1: insecure: "),
        (token("sender = 'a'\npermissions = ['send']"), "x.toml:2: token: is missing; give token or token-file"),
        (
            token("token = 'short'\nsender = 'a'\npermissions = ['send']"),
            "x.toml:3: token: is too short; give at least 16 characters",
        ),
        (
            token("token = '0123456789abcdef'\nsender = 'a b'\npermissions = ['send']"),
            "x.toml:4: sender: \"a b\" is not a valid name",
        ),
        (
            "database = 'host=a'\ndatabase-file = '/nowhere'".into(),
            "x.toml:2: database-file: database is also given; give only one of the two",
        ),
        ("database-file = '/nowhere'".into(), "x.toml:1: database-file: /nowhere: cannot read it: "),
        ("database-file = '/dev/null'".into(), "x.toml:1: database-file: /dev/null: is empty; it must contain the URL"),
        ("listen = '127.0.0.1'".into(), "x.toml:1: listen: \"127.0.0.1\" is not HOST:PORT"),
        ("listen = 'localhost:99999'".into(), "x.toml:1: listen: \"localhost:99999\" is not HOST:PORT"),
        ("listen = ':8080'".into(), "x.toml:1: listen: \":8080\" is not HOST:PORT"),
        ("admin-listen = 'here'".into(), "x.toml:1: admin-listen: \"here\" is not HOST:PORT"),
        ("reply-rate-min = 0".into(), "x.toml:1: reply-rate-min: 0 is not a number from 1 to 1073741824"),
        ("replication-timeout = '0s'".into(), "x.toml:1: replication-timeout: is 0; give a duration such as 10s"),
        (
            "key-retention = '119s'".into(),
            "x.toml:1: key-retention: 119s is too short; give at least 2m, because clients repeat a send in doubt after up to a minute",
        ),
        (
            "key-retention = '99999999h'".into(),
            "x.toml:1: key-retention: 99999999h is too long; give at most 876000h (100 years)",
        ),
        (
            "expiry-limit = '876001h'".into(),
            "x.toml:1: expiry-limit: 876001h is too long; give at most 876000h (100 years)",
        ),
        (
            token("token = '0123456789abcdef'\nsender = 'a'\npermissions = ['fly']"),
            "x.toml:5: permissions: \"fly\" is not known; give one of: send, receive, admin, all",
        ),
        (
            token("token = '0123456789abcdef'\nsender = 'a'\npermissions = []"),
            "x.toml:5: permissions: is empty; give some of send, receive, admin, all",
        ),
        (
            token("token-file = '/nowhere'\nsender = 'a'\npermissions = ['send']"),
            "x.toml:3: token-file: /nowhere: cannot read it: ",
        ),
        (token("token = '0123456789abcdef'\npermissions = ['send']"), "x.toml:2: token: sender is missing"),
        (token("token = '0123456789 bcdef'\nsender = 'a'\npermissions = ['send']"), "x.toml:3: token: has characters"),
    ];
    for (text, expected) in cases {
        let document = Document::new("x.toml", &text);
        let line = match document.settings().map(ServiceFile::config) {
            Err(error) => error.to_string(),
            Ok(Err(error)) => document.locate(&error).to_string(),
            Ok(Ok(_)) => panic!("{text}: is not refused"),
        };
        assert!(line.starts_with(expected) && !line.contains('\n'), "{text}\n{line}\n{expected}");
    }
    let twice = token(
        "token = '0123456789abcdef'\nsender = 'a'\npermissions = ['send']\n[[token]]\ntoken = '0123456789abcdef'\nsender = 'b'\npermissions = ['send']",
    );
    let document = Document::new("x.toml", &twice);
    let error = document.settings::<ServiceFile>().unwrap().config().unwrap_err();
    assert_eq!(document.locate(&error).to_string(), "x.toml:7: token: is the same as that of number 1");
}

/// Each file begins with a comment that is the expected line, and its name is the key with the mistake.
#[test]
fn every_key_has_a_file_with_a_mistake_and_a_row_in_the_table_of_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/bad-configs/messages");
    let mut mistaken = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = text.lines().next().unwrap().strip_prefix("# ").unwrap();
        let document = Document::new(name, &text);
        let line = match document.settings().map(ServiceFile::config) {
            Err(error) => error.to_string(),
            Ok(Err(error)) => document.locate(&error).to_string(),
            Ok(Ok(_)) => panic!("{name}: is not refused"),
        };
        assert_eq!(line, expected, "{name}");
        let key = name.trim_end_matches(".toml").replacen("token-", "token.", 1);
        assert!(expected.contains(&format!(" {}: ", key.trim_start_matches("token."))), "{name}: {expected}");
        mistaken.insert(key);
    }
    let rows = TABLE.split_once("| key of the message service |").unwrap().1.lines().skip(2);
    let cell = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_string());
    let every = keys(&Table::try_from(everything()).unwrap());
    assert_eq!(rows.map_while(cell).collect::<BTreeSet<_>>(), every, "docs/test-coverage.md");
    assert_eq!(mistaken, every, "tests/bad-configs/messages");
}

#[test]
fn arguments_override_the_file() {
    let file = ServiceFile { lanes: Some(3), queue: Some(7), ..ServiceFile::default() };
    let flags = ServiceFile { lanes: Some(4), ..ServiceFile::default() };
    let config = file.overridden_by(flags).config().unwrap();
    assert_eq!((config.dispatch, config.limits.waiting_requests), (messages::DispatchConfig::Fused { lanes: 4 }, 7));
}
