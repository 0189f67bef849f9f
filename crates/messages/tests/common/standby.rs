//! Streaming replication: a second PostgreSQL that follows the first one through a relay, and can be promoted.

use crate::common::Database;
use crate::common::relay::Relay;
use std::os::unix::fs::{MetadataExt, chown};

/// A primary and its standby.
pub struct Pair {
    pub primary: Database,
    pub standby: Database,
    /// The network between the two.
    pub relay: Relay,
}

/// The standby connects again soon after the relay has stopped forwarding.
const SETTINGS: [&str; 2] = ["wal_receiver_timeout=1s", "wal_retrieve_retry_interval=100ms"];

impl Pair {
    /// Starts both. None if PostgreSQL is not installed.
    pub fn start() -> Option<Pair> {
        let primary = Database::start()?;
        let relay = Relay::start(primary.directory());
        let folder = tempfile::tempdir().unwrap();
        let owner = std::fs::metadata(primary.directory()).unwrap();
        chown(folder.path(), Some(owner.uid()), Some(owner.gid())).unwrap();
        let data = folder.path().join("data");
        let copied = primary
            .server
            .command("pg_basebackup")
            .args(["--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync", "-d"])
            .arg(format!("{} application_name=standby", primary.server.url()))
            .arg("-D")
            .arg(&data)
            .output()
            .unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        let through = format!("primary_conninfo={} application_name=standby", relay.url());
        let standby = Database::start_in(folder, &[&through, SETTINGS[0], SETTINGS[1]])?;
        let pair = Pair { primary, standby, relay };
        pair.primary.becomes_zero("SELECT 1 - count(*) FROM pg_stat_replication WHERE state = 'streaming'");
        Some(pair)
    }

    /// From now on, commits wait for the standby.
    pub fn synchronous(self) -> Pair {
        self.primary.run("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
        // By default, commits would wait a minute for the lost connection of a standby that has connected again.
        self.primary.run("ALTER SYSTEM SET wal_sender_timeout = '3s'");
        self.primary.run("SELECT pg_reload_conf()");
        self.primary.becomes_zero("SELECT 1 - count(*) FROM pg_stat_replication WHERE sync_state = 'sync'");
        self
    }

    /// Restores the network. A walreceiver that was connecting meanwhile would wait for ever, so it is terminated; the server starts
    /// another one.
    pub fn reconnect(&self) {
        self.relay.restore();
        let receiver = "SELECT coalesce(max(pid), 0)::bigint FROM pg_stat_activity WHERE backend_type = 'walreceiver'";
        let process = self.standby.number(receiver);
        if process > 0 {
            // It may have ended by itself.
            let _ = std::process::Command::new("kill").arg(process.to_string()).status();
        }
    }

    /// The connection string with both hosts.
    pub fn url(&self) -> String {
        let [primary, standby] = [&self.primary, &self.standby].map(|host| host.directory().display());
        format!("host='{primary},{standby}' user=waystage dbname=postgres target_session_attrs=read-write")
    }

    /// Makes the standby the primary.
    pub fn promote(&self) {
        let data = self.standby.directory().join("data");
        let promoted = self.standby.server.command("pg_ctl").args(["promote", "-w", "-D"]).arg(data).output().unwrap();
        assert!(promoted.status.success(), "{}", String::from_utf8_lossy(&promoted.stderr));
    }
}
