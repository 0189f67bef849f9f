//! Configuration files of the program: every invalid file is reported in one clear line, and every example is valid.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// The files of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    files
}

/// Runs `waystage proxy` in this folder.
fn proxy(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waystage"));
    command.arg("proxy").args(arguments).current_dir(folder).output().unwrap()
}

/// The one line with which the program refuses a configuration.
fn refusal(folder: &Path, arguments: &[&str]) -> String {
    let output = proxy(folder, arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
    text.trim_end().strip_prefix("waystage: ").unwrap_or_else(|| panic!("{arguments:?}: {text}")).to_string()
}

/// Each file begins with a comment that is the expected line, and has that one error.
#[test]
fn every_bad_configuration_is_one_clear_line() {
    let folder = folder("tests/bad-configs");
    let files = files(&folder);
    for path in &files {
        let bytes = fs::read(path).unwrap();
        let first = bytes.split(|&byte| byte == b'\n').next().unwrap();
        let expected = std::str::from_utf8(first).unwrap().strip_prefix("# ").unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(refusal(&folder, &["--check", "--config", name]), expected);
    }
    assert!(files.len() >= 90, "only {} files", files.len());
}

#[test]
fn a_configuration_that_check_refuses_cannot_be_run() {
    let folder = folder("tests/bad-configs");
    for name in ["key-misspelt.toml", "replicas-too-many.toml", "failover-pool-cycle.toml"] {
        let checked = refusal(&folder, &["--check", "--config", name]);
        assert_eq!(refusal(&folder, &["--config", name]), checked);
        assert_eq!(refusal(&folder, &["route", "key", "--config", name]), checked);
    }
}

#[test]
fn an_unreadable_file_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("a-folder.toml")).unwrap();
    fs::write(folder.path().join("huge.toml"), vec![b'#'; 2 << 20]).unwrap();
    fs::write(folder.path().join("long-line.toml"), format!("listen = {}", "x".repeat(500_000))).unwrap();
    for (name, expected) in [
        ("missing.toml", "missing.toml: cannot read the configuration: No such file or directory"),
        ("a-folder.toml", "a-folder.toml: this is not a file; give the file with the configuration"),
        ("/dev/zero", "/dev/zero: this is not a file; give the file with the configuration"),
        ("huge.toml", "huge.toml: larger than 1 MiB; is it a configuration file?"),
        ("long-line.toml", "long-line.toml:1: not TOML: a value is missing, or text has no quotes"),
    ] {
        let line = refusal(folder.path(), &["--check", "--config", name]);
        assert!(line.starts_with(expected) && line.len() < 500, "{line}");
    }
}

#[test]
fn an_invalid_flag_is_named_instead_of_the_file() {
    let folder = folder("examples/proxy");
    let of = |arguments: &[&str]| refusal(&folder, &[&["--check", "--config", "replicated.toml"], arguments].concat());
    assert_eq!(of(&["--replicas", "5"]), "--replicas 5: there are 4 servers; give a number from 1 to 4");
    assert_eq!(of(&["--server", "a:1", "--server", "a:1"]), "--server a:1: this server is given twice");
    assert_eq!(
        of(&["--backend-timeout", "1ms"]),
        "replicated.toml:21: hedge.delay = \"5ms\": give more than 0s and less than timeouts.read, which is 1ms"
    );
    assert_eq!(of(&["--workers", "4"]), "--workers 4: belongs to dispatch shared, not to pipelined");
    assert_eq!(
        refusal(&folder, &["--check"]),
        "there are no servers; give --server HOST:PORT for each, or --config FILE"
    );
}

#[test]
fn every_example_passes_check() {
    let folder = folder("examples/proxy");
    let names: Vec<PathBuf> = files(&folder);
    for path in &names {
        let output = proxy(&folder, &["--check", "--config", path.to_str().unwrap()]);
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
        assert!(printed.contains("pool  ") && !printed.contains("unused"), "{printed}");
    }
    assert_eq!(names.len(), 7);
}

#[test]
fn a_pool_with_a_listener_is_shown_and_its_routes_are_printed_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let pool = |name: &str, port: u16| {
        format!("[[pools]]\nname = \"{name}\"\nlisten = \"127.0.0.1:{port}\"\nservers = [\"{name}:1\", \"{name}:2\"]\n")
    };
    fs::write(folder.path().join("two.toml"), pool("a", 22121) + &pool("b", 22122)).unwrap();
    let of = |arguments: &[&str]| {
        let output = proxy(folder.path(), &[arguments, &["--config", "two.toml"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let checked = of(&["--check"]);
    let lines: Vec<&str> =
        checked.lines().filter(|line| line.starts_with("listen") || line.contains("route")).collect();
    assert_eq!(lines, ["listen   127.0.0.1:22121 for pool a", "listen   127.0.0.1:22122 for pool b"], "{checked}");
    assert!(!checked.contains("unused"), "{checked}");
    let with_own = of(&["--check", "--listen", "127.0.0.1:22120"]);
    assert!(
        with_own.starts_with("listen   127.0.0.1:22120\n") && with_own.contains("all keys to pool a"),
        "{with_own}"
    );
    let route = of(&["route", "k", "--pool", "b"]);
    assert!(route.contains("pool     b: as for clients of its listener") && route.contains("primary  b:"), "{route}");
    let refused = |arguments: &[&str]| refusal(folder.path(), &[arguments, &["--config", "two.toml"]].concat());
    assert_eq!(refused(&["route", "k"]), "every listener belongs to a pool; give --pool with one of: a, b");
    assert_eq!(refused(&["route", "k", "--pool", "c"]), "--pool c: there is no such pool; give one of: a, b");
}

#[test]
fn limits_of_listeners_and_pools_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
        listen = ["127.0.0.1:1", { address = "127.0.0.1:2", allow = ["stats", "read"] }, "127.0.0.1:3"]
        [[pools]]
        name = "a"
        servers = ["a:1"]
        rate-limit = { per-second = 500 }
        [[pools]]
        name = "b"
        listen = { address = "127.0.0.1:4", deny = ["flush"] }
        servers = ["b:1"]
    "#;
    fs::write(folder.path().join("limits.toml"), text).unwrap();
    let of = |arguments: &[&str]| {
        let output = proxy(folder.path(), &[&["--check", "--config", "limits.toml"], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8(output.stdout).unwrap();
        let shown = |line: &&str| line.starts_with("listen") || line.contains("limit");
        printed.lines().filter(shown).map(str::to_string).collect::<Vec<_>>()
    };
    let pools = [
        "listen   127.0.0.1:4 for pool b, allows read touch write delete stats",
        "  limit    500 keys per second, 500 at once",
    ];
    let own = ["listen   127.0.0.1:1 and 127.0.0.1:3", "listen   127.0.0.1:2, allows read stats"];
    assert_eq!(of(&[]), [own, pools].concat());
    // An argument replaces all listeners of the file.
    assert_eq!(of(&["--listen", "127.0.0.1:2"]), [&["listen   127.0.0.1:2"], &pools[..]].concat());
}

#[test]
fn a_server_argument_may_have_a_weight() {
    let folder = tempfile::tempdir().unwrap();
    let output = proxy(folder.path(), &["--check", "--server", "a:1:3", "--server", "b:1"]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("2 servers, ketama (md5), weights 3 1"));
    let line = refusal(folder.path(), &["--check", "--server", "a:1:2000", "--server", "b:1"]);
    assert_eq!(line, "--server 2000: give a number from 1 to 1000; leave out a server without keys");
}

/// The output of `route -` for these lines, pool by pool.
fn spread_of(folder: &Path, lines: &str) -> Vec<serde_json::Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waystage"));
    command.args(["proxy", "route", "-", "--json", "--config", "two-zones.toml"]).current_dir(folder);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    json["spread"].as_array().unwrap().clone()
}

#[test]
fn routes_are_printed_as_text_and_as_json() {
    let folder = folder("examples/proxy");
    let of = |arguments: &[&str]| {
        let output = proxy(&folder, &[&["route", "--config", "two-zones.toml"], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = of(&["session:17", "page:/"]);
    for expected in [
        "session:17\n  pool     sessions-a: the longest matching route is \"session:\"\n",
        "page:/\n  pool     pages-a: the first pool, because no route matches\n",
        "  failover pool gutter-a, where values live at most 10s: 10.1.0.9:11211\n",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&of(&["session:17", "--json"])).unwrap();
    let route = &json["keys"][0];
    assert_eq!((route["prefix"].as_str(), route["pool"].as_str()), (Some("session:"), Some("sessions-a")));
    assert_eq!(route["replicas"].as_array().unwrap().len(), 1);
    assert_eq!(route["failover_pool"]["expiry"], "15m");
    assert_eq!(route["failover_servers"].as_array().unwrap().len(), 2);
    let of_near = |arguments: &[&str]| {
        let output = proxy(&folder, &[arguments, &["--config", "near-pool.toml"]].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let json: serde_json::Value = serde_json::from_str(&of_near(&["route", "user:17", "--json"])).unwrap();
    assert_eq!(json["keys"][0]["read_pool"]["pool"], "near");
    assert_eq!(json["keys"][0]["delete_pools"][1]["pool"], "region-b");
    let checked = of_near(&["--check"]);
    let expected = "  reads    pool near; gets, gat and gats primary\n  writes   primary\n  deletes  also pool near and pool region-b\n";
    assert!(checked.contains(expected), "{checked}");
    let keys: Vec<String> = (0..3000).map(|key| format!("page:{key}\nsession:{key}\n")).collect();
    let spread = spread_of(&folder, &keys.concat());
    let counts: Vec<u64> = spread.iter().map(|pool| pool["keys"].as_u64().unwrap()).collect();
    assert_eq!(counts, [3000, 0, 3000, 0]);
    let shares = spread[0]["servers"].as_array().unwrap().iter().map(|server| server["share"].as_f64().unwrap());
    assert!((shares.sum::<f64>() - 1.0).abs() < 1e-9);
    assert_eq!(refusal(&folder, &["route", "a b", "--server", "a:1"]), "key \"a b\": no key has spaces or line ends");
}

/// The pages show the output of the program.
#[test]
fn the_pages_show_the_programs_output() {
    let pages = ["proxy-configuration.md", "routing-by-operation.md"];
    let pages = pages.map(|name| fs::read_to_string(folder("docs").join(name)).unwrap());
    let blocks = pages.iter().flat_map(|page| page.split("```\n"));
    let shown: Vec<&str> = blocks.filter(|block| block.starts_with("$ waystage proxy ")).collect();
    for block in &shown {
        let (command, expected) = block.split_once('\n').unwrap();
        let words = command.split(' ').skip(3).map(|word| word.trim_matches('\''));
        let output = proxy(&folder("."), &words.collect::<Vec<_>>());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{command}");
    }
    assert_eq!(shown.len(), 3);
}
