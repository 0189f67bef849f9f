//! The command line of `waystage messages`: checks, migrations, signals. A configuration that `--check` accepts can be started, and what it
//! refuses is reported in one line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use testkit::Http;

/// Exit code, stdout and stderr of a check.
fn check(arguments: &[&str]) -> (i32, String, String) {
    run(&["messages", "--check"], arguments)
}

/// Exit code, stdout and stderr of a command that ends.
fn run(command: &[&str], arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_waystage")).args(command).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_string();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_valid_configuration_is_printed() {
    for arguments in [&["--database", "host=db.example user=me"][..], &["--embedded"], &["--dispatch", "none"]] {
        let (code, printed, error) = check(arguments);
        assert_eq!((code, error.as_str()), (0, ""), "{arguments:?}");
        assert!(printed.contains("listen    127.0.0.1:8080 (no TLS, at most 10000 connections)"), "{printed}");
    }
}

#[test]
fn an_invalid_configuration_is_one_line() {
    let database = ["--database", "host=db.example user=me"];
    for (arguments, expected) in [
        (&["--database", "nonsense"][..], "--database: "),
        (&["--database", "host=a sslmode=verify-full"], "give --database-authority FILE instead"),
        (&[database[0], database[1], "--database-authority", "/nowhere.pem"], "/nowhere.pem"),
        (
            &[database[0], database[1], "--tls-certificate", "/nowhere.pem", "--tls-key", "/nowhere.key"],
            "cannot read /nowhere.",
        ),
        (&["--database", "host=a channel_binding=require"], "channel_binding=require is not supported"),
        (&[database[0], database[1], "--listen", "127.0.0.1"], "--listen: \"127.0.0.1\" is not HOST:PORT"),
        (&[database[0], database[1], "--listen", "127.0.0.1:99999"], "is not HOST:PORT"),
        (&[database[0], database[1], "--lanes", "0"], "--lanes: 0 is not a number"),
        (&[], "no database is given"),
    ] {
        let (code, printed, error) = check(arguments);
        assert_eq!((code, printed.as_str()), (2, ""), "{arguments:?}: {error}");
        assert!(error.starts_with("waystage: ") && error.contains(expected) && !error.contains('\n'), "{error}");
        assert_eq!(run(&["messages"], arguments), (2, printed, error), "a start refuses what the check refuses");
    }
    for url in ["nonsense", "host=a channel_binding=require"] {
        let (code, _, error) = run(&["messages", "migrate"], &["--database", url]);
        assert_eq!((code, error.lines().count()), (2, 1), "{url}: {error}");
    }
}

/// The lines that a program prints on standard error until one of them has this text. It is killed then.
fn lines_until(mut child: Child, text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines().take(3) {
        lines.push(line.unwrap());
        if lines.last().unwrap().contains(text) {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    lines
}

/// Every user of the host can list the arguments.
#[test]
fn a_password_in_the_arguments_is_warned_about_and_not_repeated() {
    const WARNING: &str = "the password in --database is visible in the list of processes";
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (user, is_warned) in [("me:secret", true), ("me", false)] {
        let url = format!("postgres://{user}@127.0.0.1:{closed}/x");
        let mut program = Command::new(env!("CARGO_BIN_EXE_waystage"));
        program.args(["messages", "--listen", "127.0.0.1:0", "--database", &url]).stdout(Stdio::null());
        let served = lines_until(program.stderr(Stdio::piped()).spawn().unwrap(), "the database cannot be used yet");
        let (code, _, migrated) = run(&["messages", "migrate"], &["--database", &url]);
        assert_eq!(code, 1, "{migrated}");
        for printed in [served.join("\n"), migrated] {
            assert_eq!((printed.contains(WARNING), printed.contains("secret")), (is_warned, false), "{printed}");
        }
    }
}

/// Another schema's update holds the lock of updates, and then another program a table.
#[test]
fn an_update_of_the_schema_reports_what_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let server = match messages::Embedded::start(folder.path()) {
        Ok(server) => server,
        Err(messages::EmbeddedError::Missing(_)) => return testkit::skip_without("PostgreSQL", "postgresql"),
        Err(error) => panic!("{error}"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (client, connection) = runtime.block_on(tokio_postgres::connect(&server.url(), tokio_postgres::NoTls)).unwrap();
    runtime.spawn(connection);
    let hold = |statements: &str| runtime.block_on(client.batch_execute(statements)).unwrap();
    let holder: i32 = runtime.block_on(client.query_one("SELECT pg_backend_pid()", &[])).unwrap().get(0);
    for (statements, kind) in [
        (&["BEGIN; SELECT pg_advisory_xact_lock(7294011736218)"][..], "advisory"),
        (
            &["COMMIT", "CREATE TABLE waystage_schema (step integer NOT NULL)", "BEGIN; LOCK TABLE waystage_schema"],
            "relation",
        ),
    ] {
        statements.iter().for_each(|statement| hold(statement));
        for command in [&["messages", "migrate"][..], &["messages", "--listen", "127.0.0.1:0"]] {
            let mut program = Command::new(env!("CARGO_BIN_EXE_waystage"));
            program.args(command).args(["--database", &server.url()]).stdout(Stdio::null()).stderr(Stdio::piped());
            let text = format!("waits for a lock ({kind}) of the server process {holder}");
            let lines = lines_until(program.spawn().unwrap(), &text);
            let last = lines.last().unwrap();
            assert!(last.contains(&text) && last.starts_with("waystage: messages: the schema cannot be"), "{lines:?}");
        }
    }
}

#[test]
fn the_schema_can_be_checked_and_migrated_without_a_service() {
    let folder = tempfile::tempdir().unwrap();
    let server = match messages::Embedded::start(folder.path()) {
        Ok(server) => server,
        Err(messages::EmbeddedError::Missing(_)) => return testkit::skip_without("PostgreSQL", "postgresql"),
        Err(error) => panic!("{error}"),
    };
    let migrate = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waystage"));
        let output = command.args(["messages", "migrate", "--database", &server.url()]).args(more).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_string();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    let (code, printed, error) = migrate(&["--check"]);
    assert_eq!((code, printed.as_str()), (1, ""));
    assert!(
        error.starts_with("waystage: the schema is at step 0, but this program needs step ") && !error.contains('\n'),
        "{error}"
    );
    let (code, printed, error) = migrate(&[]);
    assert!(code == 0 && printed.ends_with("up to date"), "{printed} {error}");
    assert_eq!(migrate(&["--check"]), (0, printed, String::new()));
    let (code, _, error) = migrate(&["--database-authority", "/nowhere.pem"]);
    assert!(code == 2 && error.contains("--database-authority") && !error.contains('\n'), "{error}");
}

/// The connections over the limit, which are refused, must leave descriptors for the database.
#[test]
fn few_open_files_leave_room_for_refused_connections() {
    for (files, more, admitted) in [(300, "", 136), (500, "--config admin.toml", 136)] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("admin.toml"), "admin-listen = '127.0.0.1:0'\n").unwrap();
        let program = env!("CARGO_BIN_EXE_waystage");
        let script =
            format!("ulimit -n {files} && exec {program} messages {more} --dispatch none --listen 127.0.0.1:0");
        let mut command = Command::new("sh");
        let mut service = command.current_dir(&folder).args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(service.stdout.take().unwrap()).read_line(&mut line).unwrap();
        service.kill().unwrap();
        service.wait().unwrap();
        let expected = format!("admits {admitted} connections, not 10000, because open files are limited to {files}");
        assert!(line.contains(&expected), "{line}");
    }
}

/// There is nothing to read again, but the signal must not end the service.
#[test]
fn sighup_does_not_end_a_service_without_a_file() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waystage"));
    command.args(["messages", "--dispatch", "none", "--listen", "127.0.0.1:0"]);
    let mut service = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(service.stderr.take().unwrap()).lines();
    let mut line = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let signal =
        |name: &str| assert!(Command::new("kill").args([name, &service.id().to_string()]).status().unwrap().success());
    signal("-HUP");
    assert!(log.any(|line| line.unwrap().contains("read again")));
    let mut http = Http::connect(line.split(' ').nth(4).unwrap().parse().unwrap()).unwrap();
    assert_eq!(http.request("GET", "/healthz", &[], b"").unwrap().status, 200);
    signal("-TERM");
    assert_eq!(service.wait().unwrap().code(), Some(0));
}

#[test]
fn sighup_reads_the_tokens_again_and_a_mistake_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("messages.toml");
    let write = |token: &str| {
        let tokens = format!("[[token]]\ntoken = '{token}'\nsender = 'a'\npermissions = ['send']\n");
        std::fs::write(&path, format!("listen = '127.0.0.1:0'\ndispatch = 'none'\n{tokens}")).unwrap();
    };
    write("first-0123456789abcdef");
    let mut command = Command::new(env!("CARGO_BIN_EXE_waystage"));
    command.args(["messages", "--config"]).arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut service = command.spawn().unwrap();
    let mut log = BufReader::new(service.stderr.take().unwrap()).lines();
    let mut line = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split(' ').nth(4).unwrap().parse().unwrap();
    let mut http = Http::connect(address).unwrap();
    let mut status = |token: &str| {
        let header = format!("authorization: Bearer {token}");
        http.request("GET", "/v1/queues", &[&header], b"").unwrap().status
    };
    let signal =
        |name: &str| assert!(Command::new("kill").args([name, &service.id().to_string()]).status().unwrap().success());
    assert_eq!(status("first-0123456789abcdef"), 200);
    write("short");
    signal("-HUP");
    let refused = log.find(|line| line.as_ref().unwrap().contains("reload")).unwrap().unwrap();
    assert!(refused.contains("messages.toml:4: token: is too short"), "{refused}");
    assert_eq!(status("first-0123456789abcdef"), 200);
    write("second-0123456789abcdef");
    signal("-HUP");
    assert!(log.any(|line| line.unwrap().contains("read again")));
    assert_eq!((status("first-0123456789abcdef"), status("second-0123456789abcdef")), (401, 200));
    signal("-TERM");
    assert_eq!(service.wait().unwrap().code(), Some(0));
}
