//! twemproxy's `nutcracker.yml`: pools with their keys. twemproxy 0.5.0 and its sources are the measure (src/nc_conf.c).

mod pool;
mod server;

use crate::error::ConvertError;
use crate::output::Output;
use crate::yaml::{self, Value};

/// Converts a configuration. Each pool has a listener of its own.
pub(crate) fn convert(text: &str) -> Result<Output, ConvertError> {
    let document = yaml::parse(text)?;
    let Value::Mapping(pools) = &document.value else {
        return Err(ConvertError::at_line(
            document.line,
            "this is no mapping of pools; give the file of nutcracker --conf-file",
        ));
    };
    let mut output = Output::default();
    for (name, keys) in pools {
        let Some(text) = name.text() else {
            return Err(ConvertError::at_line(name.line, "the name of a pool is missing"));
        };
        let Value::Mapping(keys) = &keys.value else {
            return Err(ConvertError::at_line(
                keys.line,
                format!("pool {text:?} has no keys; give at least listen and servers"),
            ));
        };
        let pool = pool::convert(name.line, text, keys)?;
        if output.pools.iter().any(|other| other.name == pool.name) {
            let problem = format!("pool {:?}: another pool has this name; give each pool one of its own", pool.name);
            return Err(ConvertError::at_line(name.line, problem));
        }
        output.pools.push(pool);
    }
    if output.pools.is_empty() {
        return Err(ConvertError::new("has no pools; give at least one"));
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(text: &str) -> String {
        convert(text).unwrap_or_else(|error| panic!("{text}: {error}")).toml("nutcracker.yml")
    }

    /// A pool with these further lines.
    fn with(lines: &[&str]) -> String {
        let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
        format!("alpha:\n  listen: 127.0.0.1:22121\n{lines}  servers:\n   - 10.0.0.1:11211:1\n   - 10.0.0.2:11311:1\n")
    }

    #[test]
    fn the_smallest_pool_has_the_defaults_of_twemproxy() {
        let text = converted(&with(&[]));
        for line in [
            "name = \"alpha\"",
            "listen = \"127.0.0.1:22121\"",
            "    \"10.0.0.1:11211\",\n    \"10.0.0.2:11311\",",
            "distribution = \"ketama\"",
            "hash = \"fnv1a_64\"",
            "# timeout is missing: ",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("failures") && !text.contains("hash-tag"), "{text}");
    }

    #[test]
    fn every_key_is_converted_or_noted() {
        for (line, expected) in [
            ("hash: md5", "hash = \"md5\""),
            ("hash: crc32", "hash = \"crc32\""),
            ("hash_tag: \"{}\"", "hash-tag = \"{}\""),
            ("distribution: modula", "distribution = \"modulo\""),
            ("timeout: 400", "timeouts = { connect = \"400ms\", read = \"400ms\", write = \"400ms\" }"),
            ("timeout: 0", "# timeout: 0 is no timeout"),
            ("timeout: 7200000", "timeouts = { connect = \"1h\", read = \"1h\", write = \"1h\" }"),
            ("backlog: 512", "# backlog: 512 has no counterpart"),
            ("client_connections: 100", "# client_connections: 100 has no counterpart"),
            ("tcpkeepalive: true", "# tcpkeepalive: true is the default"),
            ("tcpkeepalive: false", "# tcpkeepalive: false has no counterpart for one pool"),
            ("reuseport: true", "# reuseport: true has no counterpart"),
            ("redis_auth: secret", "# redis_auth has no counterpart"),
            ("redis_db: 3", "# redis_db: 3 has no counterpart"),
            ("preconnect: true", "# preconnect: true is what the proxy always does"),
            ("preconnect: false", "# preconnect: false has no counterpart"),
            ("server_connections: 4", "# server_connections: 4 has no counterpart"),
            ("server_retry_timeout: 2000", "# server_retry_timeout: 2000 has no counterpart"),
            ("server_failure_limit: 5", "# server_failure_limit: 5 counts only with auto_eject_hosts: true"),
            ("auto_eject_hosts: true", "failures = 2\n# auto_eject_hosts: true means something else"),
            ("auto_eject_hosts: false", "# auto_eject_hosts: false"),
        ] {
            let text = converted(&with(&[line]));
            assert!(text.contains(expected), "{line}: {text}");
        }
        let text = converted(&with(&["redis: false", "server_connections: 1"]));
        assert!(!text.contains("redis") && !text.contains("server_connections"), "{text}");
        assert!(!converted(&with(&["redis_auth: secret"])).contains("secret"));
        let text = converted(&with(&["auto_eject_hosts: true", "server_failure_limit: 5"]));
        assert!(text.contains("failures = 5") && !text.contains("server_failure_limit: 5"), "{text}");
    }

    #[test]
    fn several_pools_become_one_file() {
        let two = with(&[]) + &with(&[]).replace("alpha", "be ta").replace("22121", "22122");
        let text = converted(&two);
        let places = ["name = \"alpha\"", "22121", "name = \"be-ta\"", "22122"].map(|part| text.find(part).unwrap());
        assert!(places.is_sorted(), "{text}");
        assert!(text.contains("# The name was \"be ta\"."), "{text}");
    }

    #[test]
    fn a_pool_of_one_server_places_keys_alike_with_any_hash() {
        for lines in ["  hash: murmur\n", "  distribution: random\n", "  distribution: modula\n  hash: jenkins\n"] {
            let text = converted(&format!("a:\n  listen: /tmp/a.sock 0666\n{lines}  servers:\n   - /tmp/m.sock:3 m\n"));
            assert!(text.contains("listen = \"unix:/tmp/a.sock\"") && !text.contains("hash ="), "{text}");
            assert!(text.contains("{ address = \"unix:/tmp/m.sock\", name = \"m\" }"), "{text}");
            assert!(text.contains("# listen: the permissions 0666"), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_converted_is_one_line_with_its_place() {
        let cases = [
            ("a: 1\n".to_string(), "1: pool \"a\" has no keys"),
            ("- a\n".into(), "1: this is no mapping of pools"),
            ("{}\n".into(), "has no pools"),
            (with(&["hash: murmur"]), "3: hash: \"murmur\" does not exist here, so keys would move"),
            (with(&["hash: md6"]), "3: hash: \"md6\" is no hash of twemproxy; did you mean md5?"),
            (with(&["distribution: random"]), "3: distribution: random sends each request to any server"),
            (
                with(&["distribution: ketma"]),
                "3: distribution: \"ketma\" is no distribution of twemproxy; did you mean ketama?",
            ),
            (with(&["redis: true"]), "3: redis: true: the proxy speaks memcached's protocol only"),
            (with(&["redis: yes"]), "3: redis: \"yes\" is neither true nor false"),
            (with(&["timeout: 4s"]), "3: timeout: \"4s\" is no number of milliseconds"),
            (with(&["timeout: -1"]), "3: timeout: \"-1\" is no number of milliseconds"),
            (with(&["server_connections: 0"]), "3: server_connections: 0: give at least 1"),
            (
                with(&["auto_eject_hosts: true", "server_failure_limit: 0"]),
                "4: server_failure_limit: 0: give at least 1",
            ),
            (with(&["hash_tag: \"{\""]), "3: hash_tag: \"{\" is not two characters"),
            (with(&["timeouts: 400"]), "3: timeouts: twemproxy has no such key; did you mean timeout?"),
            (with(&["timeout: 400", "timeout: 500"]), "4: timeout: is given twice"),
            (with(&["timeout: [1]"]), "3: timeout: give one value"),
            ("a:\n  servers:\n   - b:1:1\n".into(), "1: pool \"a\": listen is missing"),
            ("a:\n  listen: b:1\n".into(), "1: pool \"a\": servers is missing"),
            ("a:\n  listen: b:1\n  servers: b:1:1\n".into(), "3: servers: give a list"),
            ("a:\n  listen: b:1\n  servers: []\n".into(), "3: servers: give at least one"),
            ("a:\n  listen: b\n  servers:\n   - b:1:1\n".into(), "2: listen: \"b\" is not HOST:PORT"),
            ("a:\n  listen: b:99999\n  servers:\n   - b:1:1\n".into(), "2: listen: \"b:99999\" is not HOST:PORT"),
            ("a:\n  listen: b:1\n  servers:\n   - b:1\n".into(), "4: \"b:1\" is not HOST:PORT:WEIGHT"),
            ("a:\n  listen: b:1\n  servers:\n   - b:1:0\n".into(), "4: \"b:1:0\" has no weight"),
            (
                "a:\n  listen: b:1\n  servers:\n   - b:1:1\n   - c:1:1 b:1\n".into(),
                "5: \"c:1:1 b:1\": another server has the name \"b:1\"",
            ),
            (with(&[]) + &with(&[]), "6: pool \"alpha\": another pool has this name"),
        ];
        for (text, expected) in cases {
            let line = convert(&text).map(|output| output.toml("x")).unwrap_err().to_string();
            assert!(line.starts_with(expected) && !line.contains('\n'), "{text}: {line}");
        }
    }
}
