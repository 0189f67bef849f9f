//! The server's storage fails: its disk is full, a file cannot be read or written, or data are damaged. The problem, the counter and
//! `/readyz` say what is wrong, and nothing is lost.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::batch::one_batch;
use common::leases::{make, receive};
use common::{Client, Database, serve};
use messages::{Config, DispatchConfig};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

const SEND: &str = "/v1/queues/q/messages";
/// A message for `fail` fails with the error code in its body.
const FAIL: &str = "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN IF NEW.receiver = 'fail' THEN RAISE EXCEPTION 'it failed' USING ERRCODE = convert_from(NEW.body, 'UTF8'); END IF; RETURN NEW; END$$;
    CREATE TRIGGER fail BEFORE INSERT ON message FOR EACH ROW EXECUTE FUNCTION fail()";
/// Each server process opens the files of tables again.
const DISCONNECT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

/// The counter of a fault.
fn errors(client: &mut Client, fault: &str) -> u64 {
    let page = client.short("GET", "/metrics").1;
    let start = format!("waystage_messages_storage_errors_total{{fault=\"{fault}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&start)).unwrap().parse().unwrap()
}

/// The file with the rows of a table.
fn file_of(database: &Database, table: &str) -> PathBuf {
    let folder = database.number("SELECT oid::bigint FROM pg_database WHERE datname = current_database()");
    let file = database.number(&format!("SELECT pg_relation_filenode('{table}')::bigint"));
    database.directory().join(format!("data/base/{folder}/{file}"))
}

/// Sends until the reply has this status.
fn send_becomes(client: &mut Client, status: u16) -> String {
    let mut last = (0, String::new());
    for _ in 0..1500 {
        last = client.short("POST", SEND);
        if last.0 == status {
            return last.1;
        }
        sleep(Duration::from_millis(20));
    }
    panic!("a send does not get {status}: {last:?}");
}

#[test]
fn every_fault_has_its_status_its_text_and_its_counter() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    database.run(FAIL);
    for (code, status, kind, fault, words) in [
        ("53100", 503, "database-error", "disk_full", "the disk of the database server is full"),
        ("53200", 503, "database-error", "memory", "no memory left"),
        ("58030", 503, "database-error", "io", "cannot read or write a file"),
        ("58000", 503, "database-error", "io", "cannot read or write a file"),
        ("58P01", 500, "database-damaged", "damaged", "damaged or missing"),
        ("XX001", 500, "database-damaged", "damaged", "damaged or missing"),
        ("XX002", 500, "database-damaged", "damaged", "damaged or missing"),
    ] {
        let before = errors(&mut client, fault);
        let reply = client.ask("POST", &format!("{SEND}?to=fail"), code);
        let text = reply.text();
        let is_clear =
            text.contains(&format!("problem:{kind}\"")) && text.contains(words) && text.contains("it failed");
        assert!(reply.status == status && is_clear, "{code}: {text}");
        assert_eq!(reply.header("retry-after").is_some(), status == 503, "{code}");
        assert_eq!(errors(&mut client, fault), before + 1, "{code}");
    }
    assert_eq!(client.short("GET", "/readyz"), (204, String::new()), "other requests can be served");
    client.send(SEND, "still works");
    running.stop().unwrap();
}

#[test]
fn damaged_data_fail_only_the_requests_that_need_them() {
    let Some(database) = Database::start() else { return };
    let running = serve(&Config { dispatch: DispatchConfig::Fused { lanes: 1 }, ..database.config() });
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    database.run(FAIL);
    let sends = [("alice", "x"), ("fail", "XX001"), ("bob", "x")].map(|(to, body)| (format!("{SEND}?to={to}"), body));
    let replies = one_batch(&database, running.address(), "q", sends);
    assert_eq!(replies.each_ref().map(|reply| reply.status), [201, 500, 201]);
    running.stop().unwrap();
}

/// The first page of the table is overwritten while the server is down.
#[test]
fn a_damaged_page_is_reported_as_such() {
    let Some(mut database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    client.send(SEND, "x");
    database.run("CHECKPOINT");
    let file = file_of(&database, "message");
    database.server.kill();
    std::fs::File::options().write(true).open(file).unwrap().write_all_at(&[7; 8192], 0).unwrap();
    database.server.restart().unwrap();
    let mut last = (0, String::new());
    for _ in 0..1500 {
        last = client.short("GET", "/v1/queues/q/messages/head");
        if last.0 == 500 {
            break;
        }
        sleep(Duration::from_millis(20));
    }
    assert!(last.0 == 500 && last.1.contains("database-damaged\"") && last.1.contains("invalid page"), "{last:?}");
    assert!(errors(&mut client, "damaged") > 0);
    running.stop().unwrap();
}

/// PostgreSQL reports a read-only file system, and files of another user, with the code of a missing privilege.
#[test]
fn files_that_cannot_be_opened_for_writing_are_no_missing_privilege() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    client.send(SEND, "x");
    receive(&mut client, "q", "lease=100ms");
    let files = ["message", "invisible_message"].map(|table| file_of(&database, table));
    let allow = |mode| files.iter().for_each(|file| set_permissions(file, Permissions::from_mode(mode)).unwrap());
    allow(0o400);
    database.run(DISCONNECT);
    let mut text = String::new();
    for _ in 0..1500 {
        text = client.short("POST", SEND).1;
        if text.contains("may not change its files") {
            break;
        }
        sleep(Duration::from_millis(20));
    }
    assert!(text.contains("database-error\"") && text.contains("Permission denied"), "{text}");
    // The redelivery fails, too, and `/readyz` has the text of the log.
    let mut ready = (0, String::new());
    for _ in 0..1500 {
        ready = client.short("GET", "/readyz");
        if ready.1.contains("redelivery") {
            break;
        }
        sleep(Duration::from_millis(20));
    }
    let has_remedy = ready.1.contains("its file system is read-only or they belong to another user");
    assert!(ready.0 == 503 && has_remedy && !ready.1.contains("GRANT") && !ready.1.contains("role"), "{ready:?}");
    assert!(errors(&mut client, "not_writable") > 1);
    let page = client.short("GET", "/metrics").1;
    assert!(page.contains("waystage_messages_table_errors_total 0\n"), "{page}");
    allow(0o600);
    send_becomes(&mut client, 201);
    assert_eq!(client.short("POST", &format!("{SEND}:pop?wait=50s")).0, 200);
    running.stop().unwrap();
}

/// A service that starts then waits until the files can be read.
#[test]
fn files_that_cannot_be_read_by_a_new_connection_are_no_missing_privilege() {
    let Some(database) = Database::start() else { return };
    let number = database.number("SELECT oid::bigint FROM pg_database WHERE datname = current_database()");
    for place in ["data/base".to_string(), format!("data/base/{number}")] {
        let folder = database.directory().join(&place);
        let allow = |mode| set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        allow(0);
        let line = messages::migrate(&database.config(), false).unwrap_err().to_string();
        let is_clear = line.contains("Permission denied") && line.contains("may not change its files");
        assert!(is_clear && !line.contains("GRANT"), "{place}: {line}");
        let running = serve(&database.config());
        assert!(!running.is_database_reachable());
        let mut client = Client::connect(running.address(), "alice");
        let text = client.short("PUT", "/v1/queues/q").1;
        assert!(text.contains("database-down\"") && text.contains("Permission denied"), "{place}: {text}");
        allow(0o700);
        for _ in 0..1500 {
            if client.short("PUT", "/v1/queues/q").0 < 300 {
                break;
            }
            sleep(Duration::from_millis(20));
        }
        send_becomes(&mut client, 201);
        running.stop().unwrap();
    }
}

#[test]
fn a_read_only_database_says_why_and_advises_no_grant() {
    let Some(database) = Database::start() else { return };
    database.run("ALTER SYSTEM SET default_transaction_read_only = on");
    database.run("SELECT pg_reload_conf()");
    database.becomes_zero("SELECT (current_setting('default_transaction_read_only') <> 'on')::integer::bigint");
    let line = messages::migrate(&database.config(), false).unwrap_err().to_string();
    assert!(line.contains("default_transaction_read_only") && !line.contains("GRANT"), "{line}");
    // There are no tables yet.
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    let mut ready = (0, String::new());
    for _ in 0..1500 {
        ready = client.short("GET", "/readyz");
        if ready.1.contains("not-ready\"") {
            break;
        }
        sleep(Duration::from_millis(20));
    }
    let has_reason = ready.1.contains("the database is read-only: default_transaction_read_only is on");
    assert!(ready.0 == 503 && has_reason && !ready.1.contains("GRANT"), "{ready:?}");
    let text = client.short("PUT", "/v1/queues/q").1;
    assert!(text.contains("database-down\"") && text.contains("read-only transaction"), "{text}");
    database.run("ALTER SYSTEM RESET default_transaction_read_only");
    database.run("SELECT pg_reload_conf()");
    for _ in 0..1500 {
        if client.short("PUT", "/v1/queues/q").0 == 201 {
            break;
        }
        sleep(Duration::from_millis(20));
    }
    client.send(SEND, "x");
    running.stop().unwrap();
}
