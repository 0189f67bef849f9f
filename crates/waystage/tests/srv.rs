//! The servers of a pool from SRV records: the program follows a DNS server that answers as the test decides.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::Duration;
use testkit::{Client, DnsReply, DnsServer, Server};

const NAME: &str = "_memcached._tcp.cache.test";
/// Longer than any delay of a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// A reply with these servers on the loopback interface, each with its weight. A server is written as a host, and stands for itself.
fn records(servers: &[(u16, SocketAddr)]) -> DnsReply {
    let record = |&(weight, server): &(u16, SocketAddr)| (0, weight, server.port(), server.ip().to_string());
    DnsReply::Records(servers.iter().map(record).collect(), 1)
}

fn configuration(dns: &DnsServer, more: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\nresolver = \"{}\"\n[[pools]]\nname = \"main\"\nsrv = \"{NAME}\"\n{more}",
        dns.address()
    )
}

/// A configuration file, in a folder that is removed with it.
struct File {
    folder: tempfile::TempDir,
}

impl File {
    fn new(text: &str) -> File {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("proxy.toml"), text).unwrap();
        File { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("proxy.toml")
    }

    /// Runs `waystage proxy` with this file to its end.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waystage"));
        let Output { status, stdout, stderr } =
            command.arg("proxy").args(arguments).arg("--config").arg(self.path()).output().unwrap();
        (status.code(), String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap())
    }
}

/// A running proxy, which is killed at the end of the test.
struct Proxy {
    process: Child,
    address: SocketAddr,
    metrics: SocketAddr,
    log: Receiver<String>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Proxy {
    fn start(file: &File) -> Proxy {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waystage"));
        command.arg("proxy").arg("--config").arg(file.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut address_after = |text: &str| -> SocketAddr {
            let line = stdout.by_ref().map(Result::unwrap).find(|line| line.contains(text)).unwrap();
            line.split_once(text).unwrap().1.split(' ').next().unwrap().parse().unwrap()
        };
        let (metrics, address) = (address_after("metrics on "), address_after("ready on "));
        spawn(move || stdout.for_each(drop));
        let (lines, log) = channel();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
        Proxy { process, address, metrics, log }
    }

    /// Waits for a line of the log with this text.
    fn wait_for(&self, text: &str) -> String {
        loop {
            let line = self.log.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{text:?}: {error}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Its servers, in their order.
    fn servers(&self) -> Vec<String> {
        let mut client = Client::connect(self.address);
        client.send("stats backends\r\n");
        let mut servers = Vec::new();
        loop {
            let line = client.line();
            if line == "END\r\n" {
                return servers;
            }
            let word = line.split(' ').nth(1).unwrap();
            servers.extend(word.strip_suffix(":requests").map(String::from));
        }
    }

    fn wait_for_servers(&self, expected: &[SocketAddr]) {
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
            if self.servers() == expected {
                return;
            }
            sleep(PAUSE);
        }
        panic!("{:?} instead of {expected:?}", self.servers());
    }

    /// A counter of the pool.
    fn counter(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name}{{pool=\"main\"}} ")));
        line.unwrap_or_else(|| panic!("{name} is not in {page}")).parse().unwrap()
    }
}

/// Addresses in the order of the proxy: those of one host by their ports.
fn sorted(servers: &[Server]) -> Vec<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
    addresses.sort_by_key(SocketAddr::port);
    addresses
}

#[test]
fn servers_follow_the_records_and_no_request_is_lost() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    let all = sorted(&servers);
    // The order of records means nothing.
    let dns = DnsServer::start(records(&[(7, all[1]), (7, all[0])]));
    let file = File::new(&configuration(&dns, ""));
    let proxy = Proxy::start(&file);
    proxy.wait_for_servers(&all[..2]);
    let mut client = Client::connect(proxy.address);
    let mut request = |number: usize| client.ask(format!("set k{number} 0 0 1\r\nx\r\n"), "STORED\r\n");
    (0..50).for_each(&mut request);
    // The records live for a second. Other weights are another list, too.
    for (turn, (reply, expected)) in
        [(records(&[(1, all[2]), (1, all[1]), (2, all[0])]), &all[..]), (records(&[(1, all[2])]), &all[2..])]
            .into_iter()
            .enumerate()
    {
        dns.set(reply);
        (0..50).for_each(&mut request);
        proxy.wait_for("reloaded the configuration");
        proxy.wait_for_servers(expected);
        (0..50).for_each(&mut request);
        assert_eq!(proxy.counter("waystage_server_list_changes_total"), turn as u64 + 1);
    }
}

#[test]
fn an_answer_that_cannot_be_used_is_one_line_and_changes_nothing() {
    let servers: Vec<Server> = (0..2).map(|_| Server::start()).collect();
    let all = sorted(&servers);
    let good = records(&[(1, all[0]), (1, all[1])]);
    let dns = DnsServer::start(good.clone());
    let file = File::new(&format!("resolve-every = \"1s\"\n{}replicas = 2\n", configuration(&dns, "")));
    let proxy = Proxy::start(&file);
    let thousand = (0..1000u16).map(|number| (0, 1, 1 + number, format!("cache-{number}.test"))).collect();
    let bad = [
        (DnsReply::NoName, "there is no such name (NXDOMAIN)"),
        (DnsReply::Records(Vec::new(), 1), "the name has no SRV records"),
        (DnsReply::Failure, "the server failed (SERVFAIL)"),
        (DnsReply::Silence, "no reply in time"),
        (DnsReply::Bytes(b"\x81\x80garbage that is long enough".to_vec()), "sent bytes that are not a valid reply"),
        (DnsReply::CutOff, "closed the connection before the end of its reply"),
        (DnsReply::Records(thousand, 1), "1000 SRV records; at most 250 servers are supported"),
        (DnsReply::Records(vec![(0, 0, 0, ".".into())], 1), "the service is not available"),
        // It does not fit the rest of the configuration.
        (records(&[(1, all[0])]), "replicas = 2: there is 1 server; give 1"),
    ];
    for (count, (reply, expected)) in bad.into_iter().enumerate() {
        dns.set(reply);
        let line = proxy.wait_for(expected);
        assert!(line.contains("pool main keeps its previous servers"), "{line}");
        proxy.wait_for_servers(&all);
        // A machine that is slow enough adds replies that are too late.
        assert!(proxy.counter("waystage_server_list_failures_total") > count as u64);
    }
    Client::connect(proxy.address).ask("set a 0 0 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    // The first good answer is used again.
    dns.set(records(&[(1, all[1]), (3, all[0])]));
    proxy.wait_for("reloaded the configuration");
    assert_eq!(proxy.counter("waystage_server_list_changes_total"), 1);
}

/// Without lookups at intervals, only a start and SIGHUP look the records up.
#[test]
fn a_signal_looks_the_records_up() {
    let servers: Vec<Server> = (0..2).map(|_| Server::start()).collect();
    let all = sorted(&servers);
    let dns = DnsServer::start(records(&[(1, all[0])]));
    let file = File::new(&format!("resolve-every = \"0s\"\n{}", configuration(&dns, "")));
    let proxy = Proxy::start(&file);
    proxy.wait_for_servers(&all[..1]);
    dns.set(records(&[(1, all[0]), (1, all[1])]));
    let asked = dns.names().len();
    // Longer than the records live.
    sleep(Duration::from_secs(3));
    assert_eq!((dns.names().len(), proxy.servers().len()), (asked, 1));
    assert!(Command::new("kill").args(["-HUP", &proxy.process.id().to_string()]).status().unwrap().success());
    proxy.wait_for_servers(&all);
}

#[test]
fn a_long_list_comes_over_tcp_with_its_weights() {
    let dns = DnsServer::start(DnsReply::Records(
        (0..100).map(|number| (0, 10 + 20 * (number % 2), 11211, format!("127.0.1.{number}"))).collect(),
        600,
    ));
    let file = File::new(&configuration(&dns, "distribution = \"rendezvous\"\n"));
    let keys: Vec<String> = (0..2000).map(|number| format!("key-{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let (code, output) = file.run(&[&["route", "--json"], &keys[..]].concat());
    assert_eq!(code, Some(0), "{output}");
    let report: serde_json::Value = serde_json::from_str(&output).unwrap();
    let places = report["keys"].as_array().unwrap().iter();
    let is_odd = |route: &serde_json::Value| {
        let host = route["primary"].as_str().unwrap().split(':').next().unwrap().to_string();
        host.rsplit('.').next().unwrap().parse::<u32>().unwrap() % 2 == 1
    };
    // Three of four keys: 1500, within five standard deviations.
    let odd = places.filter(|route| is_odd(route)).count();
    assert!((1403..1597).contains(&odd), "{odd}");
    assert!(dns.over_tcp() > 0);
}

#[test]
fn a_start_has_no_earlier_list_and_check_looks_nothing_up() {
    let dns = DnsServer::start(DnsReply::NoName);
    let file = File::new(&configuration(&dns, ""));
    let (code, output) = file.run(&[]);
    let expected = format!(
        "waystage: {}:6: srv = \"{NAME}\": it cannot be resolved ({}: there is no such name (NXDOMAIN))\n",
        file.path().display(),
        dns.address()
    );
    assert_eq!((code, output), (Some(2), expected));
    let asked = dns.names().len();
    let file = File::new(&configuration(&dns, "resolve = \"all\"\nreplicas = 3\n"));
    let (code, output) = file.run(&["--check"]);
    assert_eq!(code, Some(0), "{output}");
    for line in [
        "pool     main: servers of SRV records, ketama (md5), 3 replicas\n",
        &format!("  servers  the SRV records of {NAME}, not looked up by --check\n"),
        "  resolve  each address of their hosts is a server\n",
    ] {
        assert!(output.contains(line), "{line}: {output}");
    }
    assert_eq!(dns.names().len(), asked);
    // A server that does not fit is named with its records.
    dns.set(DnsReply::Records(vec![(0, 1, 1, "a.test".into()), (0, 900, 1, "b.test".into())], 1));
    let (code, output) = File::new(&configuration(&dns, "")).run(&[]);
    let expected = format!("srv = \"{NAME}\": \"a.test:1\": weight = 1: below a fortieth of the average weight");
    assert!(code == Some(2) && output.contains(&expected), "{output}");
    // So is one whose host has no address.
    dns.set(DnsReply::Records(vec![(0, 1, 1, "nothing.invalid".into())], 1));
    let (code, output) = File::new(&configuration(&dns, "resolve = \"all\"\n")).run(&[]);
    let expected = format!(":6: srv = \"{NAME}\": \"nothing.invalid:1\": it cannot be resolved (");
    assert!(code == Some(2) && output.contains(&expected), "{output}");
}
