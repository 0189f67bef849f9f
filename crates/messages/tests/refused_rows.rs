//! The database refuses to store a message, because another program has changed the tables. Sends of the same batch are stored.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::leases::make;
use common::{Client, Database, Session, serve};
use messages::{Config, DispatchConfig};
use std::thread::{sleep, spawn};
use std::time::Duration;

const REFUSE: &str = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN IF NEW.receiver = 'mallory' THEN RAISE EXCEPTION 'nothing for mallory'; END IF; RETURN NEW; END$$;
    CREATE TRIGGER refuse BEFORE INSERT ON message FOR EACH ROW EXECUTE FUNCTION refuse()";
const WAITERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";

#[test]
fn a_message_that_cannot_be_stored_does_not_fail_others() {
    let Some(database) = Database::start() else { return };
    let running = serve(&Config { dispatch: DispatchConfig::Fused { lanes: 1 }, ..database.config() });
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    make(&mut client, "q", "");
    database.run(REFUSE);
    let ask = |path: String| spawn(move || Client::connect(address, "alice").ask("POST", &path, "x"));
    for parameters in ["", "&expiry=1h"] {
        // A pop waits for this lock, so the sends that follow wait for the lane and are one batch.
        let blocker = Session::connect(&database);
        blocker.run("BEGIN; LOCK TABLE message");
        let pop = ask("/v1/queues/q/messages:pop?for=nobody".into());
        while database.number(WAITERS) == 0 {
            sleep(Duration::from_millis(10));
        }
        let sends = ["alice", "mallory", "bob"].map(|to| ask(format!("/v1/queues/q/messages?to={to}{parameters}")));
        sleep(Duration::from_millis(300));
        blocker.run("ROLLBACK");
        assert_eq!(pop.join().unwrap().status, 204);
        let replies = sends.map(|send| send.join().unwrap());
        assert_eq!(replies.each_ref().map(|reply| reply.status), [201, 500, 201], "{parameters}");
        assert!(replies[1].text().contains("nothing for mallory"), "{}", replies[1].text());
        for name in ["alice", "bob"] {
            let path = format!("/v1/queues/q/messages:pop?for={name}");
            assert_eq!(client.short("POST", &path), (200, "x".into()));
        }
    }
    running.stop().unwrap();
}
