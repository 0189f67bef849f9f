//! The database refuses to store a message, because another program has changed the tables. Sends of the same batch are stored.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::batch::one_batch;
use common::leases::make;
use common::{Client, Database, serve};
use messages::{Config, DispatchConfig};

const REFUSE: &str = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN IF NEW.receiver = 'mallory' THEN RAISE EXCEPTION 'nothing for mallory'; END IF; RETURN NEW; END$$;
    CREATE TRIGGER refuse BEFORE INSERT ON message FOR EACH ROW EXECUTE FUNCTION refuse()";

#[test]
fn a_message_that_cannot_be_stored_does_not_fail_others() {
    let Some(database) = Database::start() else { return };
    let running = serve(&Config { dispatch: DispatchConfig::Fused { lanes: 1 }, ..database.config() });
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    database.run(REFUSE);
    for parameters in ["", "&expiry=1h"] {
        let sends = ["alice", "mallory", "bob"].map(|to| (format!("/v1/queues/q/messages?to={to}{parameters}"), "x"));
        let replies = one_batch(&database, running.address(), "q", sends);
        assert_eq!(replies.each_ref().map(|reply| reply.status), [201, 500, 201], "{parameters}");
        assert!(replies[1].text().contains("nothing for mallory"), "{}", replies[1].text());
        for name in ["alice", "bob"] {
            let path = format!("/v1/queues/q/messages:pop?for={name}");
            assert_eq!(client.short("POST", &path), (200, "x".into()));
        }
    }
    running.stop().unwrap();
}
