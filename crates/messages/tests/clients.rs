//! Too many clients, slow clients and clients that read nothing: each costs at most its own connection, and is counted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Client, serve};
use messages::{ClientLimits, Config, DispatchConfig, Limits, RunningService};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(3000);
const PATIENT: ClientLimits = ClientLimits {
    connections_max: 100,
    idle_timeout: LONG,
    head_timeout: LONG,
    body_timeout: LONG,
    unread_timeout: LONG,
    reply_rate_min: 1,
};

fn start(clients: ClientLimits, body_bytes: Option<usize>) -> RunningService {
    serve(&config(clients, body_bytes))
}

fn config(clients: ClientLimits, body_bytes: Option<usize>) -> Config {
    Config {
        listen: "127.0.0.1:0".into(),
        dispatch: DispatchConfig::None { body_bytes },
        limits: Limits { body_bytes: 1 << 20, ..Limits::default() },
        clients,
        ..Config::default()
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Reads until the service closes the connection.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The value of a metric.
fn metric(address: SocketAddr, name: &str) -> f64 {
    let page = Client::connect(address, "me").short("GET", "/metrics").1;
    let line =
        page.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_else(|| panic!("{name}: {page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn late(address: SocketAddr, what: &str) -> f64 {
    metric(address, &format!("waystage_messages_clients_timed_out_total{{timeout=\"{what}\"}}"))
}

#[test]
fn an_incomplete_head_times_out() {
    let running = start(ClientLimits { head_timeout: SHORT, ..PATIENT }, None);
    let mut stream = connect(running.address());
    stream.write_all(b"GET /v1/queues HTTP/1.1\r\nho").unwrap();
    assert_eq!(rest(&mut stream), "");
    // The same after a complete request.
    let mut stream = connect(running.address());
    stream.write_all(b"GET /v1/queues HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    stream.write_all(b"GET").unwrap();
    rest(&mut stream);
    assert_eq!(late(running.address(), "head"), 2.0);
    // The same if it was sent together with one or two complete requests.
    let list = "GET /v1/queues HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let send = "POST /v1/queues/q/messages HTTP/1.1\r\nhost: localhost\r\nwaystage-sender: a\r\ncontent-length: 5\r\n\r\nhello";
    for requests in [list.to_string(), send.to_string(), format!("{send}{list}")] {
        let mut stream = connect(running.address());
        let before = late(running.address(), "head");
        stream.write_all(format!("{requests}GET /v1").as_bytes()).unwrap();
        assert!(rest(&mut stream).starts_with("HTTP/1.1 20"));
        assert_eq!(late(running.address(), "head"), before + 1.0, "{requests}");
    }
    running.stop().unwrap();
}

#[test]
fn an_incomplete_body_times_out() {
    let running = start(ClientLimits { body_timeout: SHORT, ..PATIENT }, None);
    let mut stream = connect(running.address());
    stream
        .write_all(
            b"POST /v1/queues/q/messages HTTP/1.1\r\nhost: localhost\r\nwaystage-sender: a\r\ncontent-length: 10\r\n\r\n12345",
        )
        .unwrap();
    let reply = rest(&mut stream);
    assert!(reply.starts_with("HTTP/1.1 408") && reply.contains("problem:request-timeout"), "{reply}");
    assert!(reply.contains("connection: close") && reply.contains("server-timing"), "{reply}");
    assert_eq!(late(running.address(), "body"), 1.0);
    running.stop().unwrap();
}

#[test]
fn a_client_that_does_not_read_times_out() {
    let running = start(ClientLimits { unread_timeout: SHORT, ..PATIENT }, Some(1 << 20));
    let mut stream = connect(running.address());
    // The replies are much larger than the socket buffers, and the client reads none of them.
    let ask = b"POST /v1/queues/q/messages:pop HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for _ in 0..40 {
        stream.write_all(ask).unwrap();
    }
    while late(running.address(), "unread") < 1.0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut client = Client::connect(running.address(), "me");
    while !client.short("GET", "/metrics").1.contains("operation=\"pop\",status=\"499\"") {
        std::thread::sleep(Duration::from_millis(20));
    }
    running.stop().unwrap();
}

/// Reads a reply in sips with these pauses for this time, then without pauses, until the service closes the connection. Returns the number
/// of bytes.
fn sip(stream: &mut TcpStream, pause: Duration, time: Duration) -> usize {
    let clock = Clock::monotonic();
    let (start, mut part, mut bytes) = (clock.now(), vec![0; 64 << 10], 0);
    while let Ok(read) = stream.read(&mut part)
        && read > 0
    {
        bytes += read;
        if clock.now().after(start) < time {
            std::thread::sleep(pause);
        }
    }
    bytes
}

#[test]
fn a_client_that_sips_its_reply_is_closed_and_one_that_reads_at_the_minimum_rate_is_not() {
    const ASK: &[u8] = b"GET /v1/queues/q/messages/head HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    const BODY_BYTES: usize = 64 << 20;
    // Far more than the client reads, and far less.
    for (reply_rate_min, window_s, is_closed) in [(1 << 30, 1, true), (1 << 10, 2, false)] {
        let unread_timeout = Duration::from_secs(window_s);
        let running = start(ClientLimits { unread_timeout, reply_rate_min, ..PATIENT }, Some(BODY_BYTES));
        let mut stream = connect(running.address());
        stream.write_all(ASK).unwrap();
        let bytes = sip(&mut stream, Duration::from_millis(5), unread_timeout + Duration::from_millis(200));
        assert_eq!(bytes < BODY_BYTES, is_closed, "{bytes} bytes at a minimum of {reply_rate_min} bytes/s");
        assert_eq!(late(running.address(), "rate"), f64::from(u8::from(is_closed)));
        wait_for_buffered(running.address(), |bytes| bytes == 0.0);
        running.stop().unwrap();
    }
}

/// The kernels take megabytes of the reply at once. The client reads 320 kB in each interval, which is far less.
#[test]
fn a_client_that_reads_less_than_the_kernel_takes_is_not_closed() {
    let unread_timeout = Duration::from_secs(2);
    let running = start(ClientLimits { unread_timeout, reply_rate_min: 1 << 10, ..PATIENT }, Some(16 << 20));
    let mut stream = connect(running.address());
    stream
        .write_all(b"GET /v1/queues/q/messages/head HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let bytes = sip(&mut stream, Duration::from_millis(400), 3 * unread_timeout);
    assert!(bytes > 16 << 20, "{bytes} bytes");
    assert_eq!(["unread", "rate"].map(|what| late(running.address(), what)), [0.0, 0.0]);
    running.stop().unwrap();
}

#[test]
fn idle_connections_time_out_and_long_polls_do_not() {
    let running = start(ClientLimits { idle_timeout: Duration::from_millis(800), ..PATIENT }, None);
    let mut silent = connect(running.address());
    let mut polling = connect(running.address());
    polling.write_all(b"POST /v1/queues/q/messages:pop?wait=1500ms HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    assert_eq!(rest(&mut silent), "");
    let reply = rest(&mut polling);
    assert!(reply.starts_with("HTTP/1.1 204"), "{reply}");
    assert!(late(running.address(), "idle") >= 2.0);
    running.stop().unwrap();
}

#[test]
fn a_connection_over_the_limit_gets_503() {
    let running = start(ClientLimits { connections_max: 3, ..PATIENT }, None);
    let address = running.address();
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(address, "me")).collect();
    for client in &mut clients {
        assert_eq!(client.short("GET", "/healthz").0, 200);
    }
    let mut stream = connect(address);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let reply = rest(&mut stream);
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 503") && head.contains("retry-after: 1"), "{reply}");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{reply}");
    let page = clients[0].short("GET", "/metrics").1;
    for line in ["clients 3", "clients_max 3", "clients_accepted_total 3", "clients_refused_total 1"] {
        assert!(page.contains(&format!("waystage_messages_{line}\n")), "{line}: {page}");
    }
    clients.pop();
    // The service frees the place when it notices the end of the connection.
    loop {
        let mut stream = connect(address);
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        if rest(&mut stream).starts_with("HTTP/1.1 200") {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    running.stop().unwrap();
}

#[test]
fn a_head_that_is_too_large_is_refused_and_requests_in_a_row_are_answered_in_order() {
    let running = start(PATIENT, None);
    let mut stream = connect(running.address());
    let long = format!("GET /v1/queues HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(1_000_000));
    let _ = stream.write_all(long.as_bytes());
    let reply = rest(&mut stream);
    assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 431"), "{reply}");
    // Request heads that the HTTP library refuses get problem documents, too.
    let many = format!("GET /v1/queues HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(101));
    let far = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(70_000));
    for (head, status, problem) in [
        (many.as_str(), "431", "head-too-large"),
        (far.as_str(), "4", "problem:"),
        ("nonsense\r\n\r\n", "400", "invalid-request"),
    ] {
        let mut stream = connect(running.address());
        let _ = stream.write_all(head.as_bytes());
        let reply = rest(&mut stream);
        if reply.is_empty() && head.len() > 60_000 {
            // The connection was reset because of the bytes that were not read.
            continue;
        }
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")) && reply.contains(problem), "{reply}");
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("application/problem+json") && head.ends_with(&format!("{}", body.len())), "{reply}");
    }
    let page = Client::connect(running.address(), "me").short("GET", "/metrics").1;
    for status in [431, 400] {
        assert!(
            page.contains(&format!("requests_total{{operation=\"other\",status=\"{status}\"}}")),
            "{status}: {page}"
        );
    }
    let mut stream = connect(running.address());
    let ask = "GET /v1/queues/a HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(3)
        + "GET /v2 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(ask.as_bytes()).unwrap();
    let reply = rest(&mut stream);
    let statuses: Vec<&str> = reply.split("HTTP/1.1 ").skip(1).map(|part| &part[..3]).collect();
    assert_eq!(statuses, ["200", "200", "200", "404"]);
    running.stop().unwrap();
}

/// Waits until the buffered bytes satisfy a condition.
fn wait_for_buffered(address: SocketAddr, is_right: impl Fn(f64) -> bool) {
    for _ in 0..2000 {
        if is_right(metric(address, "waystage_messages_buffered_bytes")) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} bytes are buffered", metric(address, "waystage_messages_buffered_bytes"));
}

#[test]
fn only_bytes_that_arrived_count_as_memory() {
    const LIMIT: usize = 1 << 20;
    let limits = Limits { body_bytes: LIMIT, memory: LIMIT, ..Limits::default() };
    let running = serve(&Config { limits, ..config(PATIENT, None) });
    let address = running.address();
    let head = format!(
        "POST /v1/queues/q/messages HTTP/1.1\r\nhost: localhost\r\nwaystage-sender: a\r\ncontent-length: {LIMIT}\r\n\r\n"
    );
    let mut announcing: Vec<TcpStream> = (0..5).map(|_| connect(address)).collect();
    announcing.iter_mut().for_each(|stream| stream.write_all(head.as_bytes()).unwrap());
    let mut other = Client::connect(address, "me");
    other.send("/v1/queues/q/messages", "room");
    let half = &mut announcing[0];
    half.write_all(&vec![b'x'; LIMIT - 1]).unwrap();
    wait_for_buffered(address, |bytes| bytes == (LIMIT - 1) as f64);
    let refused = other.ask("POST", "/v1/queues/q/messages", "more");
    assert!(refused.status == 503 && refused.text().contains("urn:waystage:problem:overloaded"), "{}", refused.text());
    let mut other = Client::connect(address, "me");
    assert_eq!(other.short("GET", "/v1/queues/q/messages/head").0, 204, "a request without a body is admitted");
    drop(announcing);
    wait_for_buffered(address, |bytes| bytes == 0.0);
    other.send("/v1/queues/q/messages", "more");
    running.stop().unwrap();
}

#[test]
fn unread_replies_occupy_memory_until_nothing_more_is_fetched() {
    // More than the kernel buffers for a client that does not read.
    const BODY_BYTES: usize = 32 << 20;
    let limits = Limits { memory: 1 << 20, ..Limits::default() };
    let running = serve(&Config { limits, ..config(PATIENT, Some(BODY_BYTES)) });
    let address = running.address();
    let mut deaf = connect(address);
    deaf.write_all(b"GET /v1/queues/q/messages/head HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    wait_for_buffered(address, |bytes| bytes > 0.0);
    let mut other = Client::connect(address, "me");
    let (status, text) = other.short("GET", "/v1/queues/q/messages/head");
    assert_eq!((status, text.contains("urn:waystage:problem:overloaded")), (503, true), "{text}");
    let mut reply = vec![0; BODY_BYTES];
    deaf.read_exact(&mut reply).unwrap();
    drop(deaf);
    wait_for_buffered(address, |bytes| bytes == 0.0);
    assert_eq!(other.short("GET", "/v1/queues/q/messages/head").0, 200);
    running.stop().unwrap();
}
