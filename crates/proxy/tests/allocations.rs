//! An ordinary request allocates nothing once buffers are warm: one key, one server, a small value, and no error. A large value gets one
//! buffer of its size. The server and the client of this test allocate nothing, so every allocation of the process counts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use clock::Clock;
use proxy::{Config, start};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{sleep, spawn};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const REPLY_TO_GET: &[u8] = b"VALUE key 0 5\r\nvalue\r\nEND\r\n";
/// The bytes of the large value, and of the reply to `large`, which is sent in pieces.
const LARGE_BYTES: usize = 512 * 1024;
const LARGE_LINE: &[u8] = b"VALUE large 0 524288\r\n";
const PIECE: &[u8] = &[b'x'; 64 * 1024];
const LARGE_REPLY_BYTES: usize = LARGE_LINE.len() + LARGE_BYTES + b"\r\nEND\r\n".len();
const LARGE_MEASURED: usize = 200;
const WARM_UP: usize = 2000;
const MEASURED: usize = 5000;
/// Threads beside the event loop (a snapshot of hot keys, a timer) may allocate now and then.
const ALLOCATIONS_MAX: usize = MEASURED / 100;

/// A server that answers `version`, `get` and `set` without allocating.
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
    let (mut buffer, mut filled) = ([0; 4096], 0);
    loop {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) | Err(_) => return,
            Ok(count) => filled += count,
        }
        // One read may contain several requests: the proxy sends a client's request right behind its own `version`.
        let mut start = 0;
        while let Some((length, reply)) = first_request(&buffer[start..filled]) {
            let is_large = buffer[start..].starts_with(b"get large");
            if is_large && (0..LARGE_BYTES / PIECE.len()).any(|piece| send_piece(&mut stream, piece).is_err()) {
                return;
            }
            if stream.write_all(if is_large { b"\r\nEND\r\n" } else { reply }).is_err() {
                return;
            }
            start += length;
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

/// The length of the first complete request in these bytes, and the reply to it.
fn first_request(bytes: &[u8]) -> Option<(usize, &'static [u8])> {
    let line_end = |from: usize| bytes[from..].iter().position(|&byte| byte == b'\n').map(|at| from + at + 1);
    let end = line_end(0)?;
    match bytes[0] {
        b'g' => Some((end, REPLY_TO_GET)),
        b's' => Some((line_end(end)?, b"STORED\r\n")),
        _ => Some((end, b"VERSION 1.6.0\r\n")),
    }
}

/// Sends a request this many times, each after the reply to the one before.
fn exchange(client: &mut TcpStream, request: &[u8], reply: &[u8], times: usize) {
    let mut buffer = [0; 64];
    for _ in 0..times {
        client.write_all(request).unwrap();
        client.read_exact(&mut buffer[..reply.len()]).unwrap();
        assert_eq!(&buffer[..reply.len()], reply);
    }
}

/// Waits until the backend's connection is open.
fn wait_until_up(client: &mut TcpStream) {
    let mut buffer = [0; 256];
    for _ in 0..2000 {
        client.write_all(b"get key\r\n").unwrap();
        let mut filled = 0;
        // A reply is a value with its `END`, or one line with an error.
        while !(buffer[..filled].ends_with(REPLY_TO_GET)
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
    panic!("the backend stays down: {}", String::from_utf8_lossy(&buffer));
}

/// Both in one test: two tests would run at the same time and count each other's allocations.
#[test]
fn ordinary_requests_allocate_nothing_and_large_values_one_buffer() {
    let mut config = Config::new("127.0.0.1:0", &[scripted_server().to_string()]);
    config.loops = 1;
    // No request is as slow, but the log keeps the key of each.
    config.log.slow_requests = Some(Duration::from_secs(3600));
    let proxy = start(config, Clock::monotonic()).unwrap();
    let mut client = TcpStream::connect(proxy.address().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    wait_until_up(&mut client);
    for (request, reply) in [(&b"get key\r\n"[..], REPLY_TO_GET), (b"set key 0 0 5\r\nvalue\r\n", b"STORED\r\n")] {
        exchange(&mut client, request, reply, WARM_UP);
        let region = Region::new(ALLOCATOR);
        exchange(&mut client, request, reply, MEASURED);
        let change = region.change();
        let allocations = change.allocations + change.reallocations;
        assert!(allocations <= ALLOCATIONS_MAX, "{MEASURED} requests made {allocations} allocations");
    }
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
