//! An ordinary request allocates nothing once buffers are warm: of one key or of several, alone or in a pipeline, in every
//! discipline, with small values and no error. A large value gets one buffer of its size. The servers and the client of this test
//! allocate nothing, so every allocation of the process counts.
//!
//! The bound was seen to fail: a proxy that joins the parts of a multi-get with a list of offsets made 301 allocations in 300
//! gets of ten keys. One that moves the list of clients away, while it adds those that may continue, made 1000 allocations in 1000
//! rounds of three meta commands with `per-backend`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use clock::Clock;
use proxy::{Config, Discipline, MultiGet, NearCache, RouteConfig, start};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{sleep, spawn};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// A request, the reply to it, and its name.
type Exchange = (&'static str, Vec<u8>, Vec<u8>);
/// The same, while they are listed.
type Named = (&'static str, (Vec<u8>, Vec<u8>));

const REPLY_TO_GET: &[u8] = b"VALUE key 0 5\r\nvalue\r\nEND\r\n";
/// The servers of the proxy, so that the keys of a get belong to several.
const SERVERS: usize = 3;
/// Room for the replies to what one read contains.
const REPLIES_BYTES: usize = 16 * 1024;
/// The bytes of the large value, and of the reply to `large`, which is sent in pieces.
const LARGE_BYTES: usize = 512 * 1024;
const LARGE_LINE: &[u8] = b"VALUE large 0 524288\r\n";
const PIECE: &[u8] = &[b'x'; 64 * 1024];
const LARGE_REPLY_BYTES: usize = LARGE_LINE.len() + LARGE_BYTES + b"\r\nEND\r\n".len();
const LARGE_MEASURED: usize = 200;
/// Warm-up covers the places of the hot keys, whose keys are copied when they first come.
const WARM_UP: usize = 500;
const MEASURED: usize = 1000;
/// Threads beside the event loop (a snapshot of hot keys, a timer) may allocate now and then.
const ALLOCATIONS_MAX: usize = MEASURED / 20;

/// A server that answers reads, writes and `version` without allocating.
fn scripted_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    spawn(move || {
        for stream in listener.incoming() {
            spawn(move || answer(stream.unwrap()));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    let (mut buffer, mut filled, mut replies) = ([0; 4096], 0, [0; REPLIES_BYTES]);
    loop {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) | Err(_) => return,
            Ok(count) => filled += count,
        }
        // One read may contain several requests: the proxy sends a client's request right behind its own `version`.
        let (mut start, mut room) = (0, &mut replies[..]);
        while let Some(length) = first_request(&buffer[start..filled]) {
            let request = &buffer[start..start + length];
            if request.starts_with(b"get large") {
                let mut pieces = 0..LARGE_BYTES / PIECE.len();
                if pieces.any(|piece| send_piece(&mut stream, piece).is_err()) {
                    return;
                }
                room.write_all(b"\r\nEND\r\n").unwrap();
            } else {
                reply_to(request, &mut room).unwrap();
            }
            start += length;
        }
        let room_left = room.len();
        if stream.write_all(&replies[..REPLIES_BYTES - room_left]).is_err() {
            return;
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
    }
}

/// Sends a piece of the large value, the first one behind its line.
fn send_piece(stream: &mut TcpStream, piece: usize) -> std::io::Result<()> {
    if piece == 0 {
        stream.write_all(LARGE_LINE)?;
    }
    stream.write_all(PIECE)
}

/// The length of the first complete request in these bytes.
fn first_request(bytes: &[u8]) -> Option<usize> {
    let line_end = |from: usize| bytes[from..].iter().position(|&byte| byte == b'\n').map(|at| from + at + 1);
    let end = line_end(0)?;
    if bytes.starts_with(b"set ") || bytes.starts_with(b"ms ") { line_end(end) } else { Some(end) }
}

/// Writes the reply to a request. Every key exists.
fn reply_to(request: &[u8], out: &mut impl Write) -> std::io::Result<()> {
    let mut words = request.trim_ascii_end().split(|&byte| byte == b' ');
    match words.next().unwrap() {
        b"get" => {
            for key in words {
                out.write_all(b"VALUE ")?;
                out.write_all(key)?;
                out.write_all(b" 0 5\r\nvalue\r\n")?;
            }
            out.write_all(b"END\r\n")
        }
        b"set" => out.write_all(b"STORED\r\n"),
        b"mg" => {
            let key = words.next().unwrap();
            out.write_all(b"VA 5")?;
            if words.any(|flag| flag == b"k") {
                out.write_all(b" k")?;
                out.write_all(key)?;
            }
            out.write_all(b"\r\nvalue\r\n")
        }
        b"ms" | b"md" => out.write_all(b"HD\r\n"),
        _ => out.write_all(b"VERSION 1.6.0\r\n"),
    }
}

/// What is counted: each request is one write of the client.
fn exchanges() -> Vec<Exchange> {
    let keys: Vec<String> = (0..10).map(|number| format!("key-{number}")).collect();
    let values: String = keys.iter().map(|key| format!("VALUE {key} 0 5\r\nvalue\r\n")).collect();
    let gets = |count: usize| (b"get key\r\n".repeat(count), REPLY_TO_GET.repeat(count));
    let sets = |count: usize| (b"set key 0 0 5\r\nvalue\r\n".repeat(count), b"STORED\r\n".repeat(count));
    let pairs: [Named; 10] = [
        ("a get", gets(1)),
        ("a set", sets(1)),
        (
            "a get whose prefix is stripped",
            (b"get client:key\r\n".into(), b"VALUE client:key 0 5\r\nvalue\r\nEND\r\n".into()),
        ),
        ("a set whose prefix is stripped", (b"set client:key 0 0 5\r\nvalue\r\n".into(), b"STORED\r\n".into())),
        ("a pipeline of 16 gets", gets(16)),
        ("a pipeline of 16 sets", sets(16)),
        ("a get of ten keys", (format!("get {}\r\n", keys.join(" ")).into(), format!("{values}END\r\n").into())),
        (
            "meta commands",
            (b"mg key v\r\nms key 5\r\nvalue\r\nmd key\r\n".into(), b"VA 5\r\nvalue\r\nHD\r\nHD\r\n".into()),
        ),
        ("a meta command that returns its key", (b"mg key v k\r\n".into(), b"VA 5 kkey\r\nvalue\r\n".into())),
        (
            "quiet meta commands",
            (b"mg key v q\r\nms key 5 q\r\nvalue\r\nmn\r\n".into(), b"VA 5\r\nvalue\r\nMN\r\n".into()),
        ),
    ];
    pairs.into_iter().map(|(name, (request, reply))| (name, request, reply)).collect()
}

/// Sends a request this many times, each after the reply to the one before.
fn exchange(client: &mut TcpStream, (name, request, reply): &Exchange, received: &mut [u8], times: usize) {
    for _ in 0..times {
        client.write_all(request).unwrap();
        let received = &mut received[..reply.len()];
        client.read_exact(received).unwrap();
        assert!(received == reply, "{name}: {}", String::from_utf8_lossy(received));
    }
}

/// A proxy with one event loop.
fn config(discipline: Discipline) -> Config {
    let servers: Vec<String> = (0..SERVERS).map(|_| scripted_server().to_string()).collect();
    let mut config = Config::new("127.0.0.1:0", &servers);
    (config.loops, config.discipline) = (1, discipline);
    // No request is as slow, but the log keeps the key of each.
    config.log.slow_requests = Some(Duration::from_secs(3600));
    // One request in four thousand million is traced.
    #[cfg(feature = "otlp")]
    {
        let traces = proxy::TracesConfig::new("http://127.0.0.1:9/v1/traces");
        config.traces = Some(proxy::TracesConfig { sample: u32::MAX, ..traces });
    }
    // The servers receive and return `key` for `client:key`.
    config.routes = vec![RouteConfig { strip_prefix: true, ..RouteConfig::new("client:", "default") }];
    config
}

/// Counts the allocations of each exchange in a discipline.
fn count_ordinary(discipline: Discipline) {
    let proxy = start(config(discipline), Clock::monotonic()).unwrap();
    let mut client = TcpStream::connect(proxy.address().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    wait_until_up(&mut client);
    let mut received = vec![0; REPLIES_BYTES];
    for counted in exchanges() {
        exchange(&mut client, &counted, &mut received, WARM_UP);
        let region = Region::new(ALLOCATOR);
        exchange(&mut client, &counted, &mut received, MEASURED);
        let change = region.change();
        let allocations = change.allocations + change.reallocations;
        assert!(allocations <= ALLOCATIONS_MAX, "{discipline:?}, {}: {allocations} allocations", counted.0);
    }
    drop(client);
    assert_eq!(proxy.stop().unwrap().lost, 0);
}

/// Waits until every server is up.
fn wait_until_up(client: &mut TcpStream) {
    let (request, mut buffer) = (b"get a b c d e f g h i j k l m n o p\r\n", [0; 4096]);
    for _ in 0..2000 {
        client.write_all(request).unwrap();
        let mut filled = 0;
        // A reply is values with their `END`, or one line with an error.
        while !(buffer[..filled].ends_with(b"END\r\n")
            || buffer[..filled].starts_with(b"SERVER_ERROR") && buffer[..filled].ends_with(b"\n"))
        {
            let count = client.read(&mut buffer[filled..]).unwrap();
            assert!(count > 0, "{:?} is no reply", String::from_utf8_lossy(&buffer[..filled]));
            filled += count;
        }
        if buffer.starts_with(b"VALUE") {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("a server stays down: {}", String::from_utf8_lossy(&buffer));
}

/// Counts the allocations of requests that the near-cache answers, of those that fill it, and of writes that empty it.
fn count_near() {
    let mut config = config(Discipline::Pipelined);
    config.pools[0].near_cache = Some(NearCache { keeps_every_key: true, ..NearCache::new(Duration::from_millis(1)) });
    let proxy = start(config, Clock::monotonic()).unwrap();
    let mut client = TcpStream::connect(proxy.address().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    wait_until_up(&mut client);
    let mut received = vec![0; REPLIES_BYTES];
    for counted in exchanges().iter().filter(|(name, ..)| !name.contains("ten keys")) {
        exchange(&mut client, counted, &mut received, WARM_UP);
        let region = Region::new(ALLOCATOR);
        exchange(&mut client, counted, &mut received, MEASURED);
        let change = region.change();
        let allocations = change.allocations + change.reallocations;
        assert!(allocations <= ALLOCATIONS_MAX, "near-cache, {}: {allocations} allocations", counted.0);
    }
    drop(client);
    assert_eq!(proxy.stop().unwrap().lost, 0);
}

/// Counts the bytes of the buffers for large values.
fn count_large() {
    let proxy = start(config(Discipline::Pipelined), Clock::monotonic()).unwrap();
    let mut client = TcpStream::connect(proxy.address().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    wait_until_up(&mut client);
    let mut reply = vec![0; LARGE_REPLY_BYTES];
    let mut read_large = |times| {
        for _ in 0..times {
            client.write_all(b"get large\r\n").unwrap();
            client.read_exact(&mut reply).unwrap();
            assert!(reply.starts_with(LARGE_LINE) && reply.ends_with(b"x\r\nEND\r\n"));
        }
    };
    // The first replies use the ordinary connection, while that for large replies opens.
    read_large(LARGE_MEASURED / 10);
    let region = Region::new(ALLOCATOR);
    read_large(LARGE_MEASURED);
    let mean_bytes = region.change().bytes_allocated / LARGE_MEASURED;
    let bytes_max = LARGE_REPLY_BYTES + LARGE_REPLY_BYTES / 20;
    assert!(mean_bytes <= bytes_max, "a value of {LARGE_BYTES} bytes took {mean_bytes} bytes of new buffers");
    drop(client);
    assert_eq!(proxy.stop().unwrap().lost, 0);
}

/// All in one test: two tests would run at the same time and count each other's allocations.
#[test]
fn ordinary_requests_allocate_nothing_and_large_values_one_buffer() {
    for discipline in [
        Discipline::Pipelined,
        Discipline::PerBackend { readers: 2, writers: 1, fault_write_poll: None },
        Discipline::Shared { workers: 4, multi_get: MultiGet::ByKey, fault_write_hold: None },
    ] {
        count_ordinary(discipline);
    }
    count_near();
    count_large();
}
