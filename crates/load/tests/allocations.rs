//! A request of the load generator allocates nothing once buffers are warm, whatever the run: single requests and pipelines, several
//! keys and several servers, both protocols, the open loop and think times. A run that is longer by many requests makes no more
//! allocations, apart from some for each second. The servers of this test allocate nothing.
//!
//! The bound was seen to fail: with one more allocation of ten bytes in `answer` below and runs of 500 and 3000 requests, the longer
//! run made 6689 allocations instead of 1923 at most (single requests), and 4021 instead of 1390 (pipelines).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use clock::Clock;
use load::{Arrivals, Config, Protocol, ThinkTime, fixed_bytes};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::spawn;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const KEYS: usize = 64;
const VALUE_BYTES: usize = 100;
/// Requests of the shorter run, which warms up everything, and those by which the other one is longer.
const WARM_UP: u64 = 5_000;
const MEASURED: u64 = 20_000;
/// The threads may allocate now and then, and each second of a run has histograms and a part of the summary. On a slow machine the
/// measured requests take many seconds.
const ALLOCATIONS_MAX: u64 = MEASURED / 20;
const EACH_SECOND: u64 = 60;
/// Room for the requests of one read, and for the replies to them.
const BUFFER_BYTES: usize = 64 * 1024;

/// The values of a server by the numbers of their keys, if they were set.
type Values = Mutex<[Option<[u8; VALUE_BYTES]>; KEYS]>;

/// Starts a server that allocates nothing for a request.
fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let values: Arc<Values> = Arc::new(Mutex::new([None; KEYS]));
    spawn(move || {
        for stream in listener.incoming() {
            let (stream, values) = (stream.unwrap(), values.clone());
            spawn(move || serve(stream, &values));
        }
    });
    address
}

fn serve(mut stream: TcpStream, values: &Values) {
    let (mut buffer, mut filled, mut replies) = (vec![0; BUFFER_BYTES], 0, vec![0; BUFFER_BYTES]);
    loop {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) | Err(_) => return,
            Ok(count) => filled += count,
        }
        let (mut start, mut room) = (0, &mut replies[..]);
        while let Some(consumed) = answer(&buffer[start..filled], values, &mut room) {
            start += consumed;
        }
        let unused = room.len();
        if stream.write_all(&replies[..BUFFER_BYTES - unused]).is_err() {
            return;
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
    }
}

/// Answers the first request, and returns its length; none if it is not complete.
fn answer(bytes: &[u8], values: &Values, out: &mut impl Write) -> Option<usize> {
    let line_bytes = bytes.iter().position(|&byte| byte == b'\n')? + 1;
    let mut words = bytes[..line_bytes].trim_ascii_end().split(|&byte| byte == b' ');
    let name = words.next().unwrap();
    let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
    match name {
        b"set" | b"ms" => {
            let value = bytes.get(line_bytes..line_bytes + VALUE_BYTES + 2)?;
            values[number(words.next().unwrap())] = Some(value[..VALUE_BYTES].try_into().unwrap());
            out.write_all(if name == b"set" { b"STORED\r\n" } else { b"HD\r\n" }).unwrap();
            return Some(line_bytes + value.len());
        }
        b"get" => {
            for key in words {
                if let Some(value) = values[number(key)] {
                    write!(out, "VALUE key-{} 0 {VALUE_BYTES}\r\n", number(key)).unwrap();
                    out.write_all(&value).unwrap();
                    out.write_all(b"\r\n").unwrap();
                }
            }
            out.write_all(b"END\r\n").unwrap();
        }
        b"mg" => {
            let key = words.next().unwrap();
            match values[number(key)] {
                Some(value) => {
                    write!(out, "VA {VALUE_BYTES} kkey-{} f0\r\n", number(key)).unwrap();
                    out.write_all(&value).unwrap();
                    out.write_all(b"\r\n").unwrap();
                }
                None if words.any(|flag| flag == b"q") => {}
                None => out.write_all(b"EN\r\n").unwrap(),
            }
        }
        name => {
            assert_eq!(name, b"mn");
            out.write_all(b"MN\r\n").unwrap();
        }
    }
    Some(line_bytes)
}

/// The number of a key, as in `key-12`.
fn number(key: &[u8]) -> usize {
    key[b"key-".len()..].iter().fold(0, |number, digit| 10 * number + usize::from(digit - b'0'))
}

/// The allocations of a run with this many requests, and its seconds.
fn allocations(config: &Config, requests: u64) -> (u64, u64) {
    let config = Config { requests: Some(requests), ..config.clone() };
    let region = Region::new(ALLOCATOR);
    let summary = load::run(&config, &Clock::monotonic(), &AtomicBool::new(false), &mut |_| ()).unwrap();
    let change = region.change();
    assert_eq!(summary.totals.requests_answered, requests);
    assert!(summary.errors.is_empty(), "{:?}", summary.errors);
    let verified = &summary.verification;
    assert!(verified.checked > 0 && (verified.wrong, verified.torn, verified.stale) == (0, 0, 0), "{verified:?}");
    ((change.allocations + change.reallocations) as u64, summary.seconds.len() as u64)
}

#[test]
fn a_request_allocates_nothing() {
    let servers: Vec<String> = (0..3).map(|_| server()).collect();
    let single = Config {
        servers: servers[..1].to_vec(),
        clients: 4,
        ratio_set: 1,
        ratio_get: 3,
        data_size: fixed_bytes(VALUE_BYTES),
        key_maximum: KEYS as u64 - 1,
        warm_up: Duration::ZERO,
        reply_timeout: Duration::from_secs(120),
        ..Config::default()
    };
    let pipelined = Config { pipeline: 8, ..single.clone() };
    let several = Config { multi_key_get: 5, ..pipelined.clone() };
    let meta = |config: &Config| Config { protocol: Protocol::Meta, ..config.clone() };
    let think_time = ThinkTime::exponential(Duration::from_micros(50));
    let runs = [
        ("single requests", single.clone()),
        ("pipelines", pipelined.clone()),
        ("several keys", several.clone()),
        ("several keys of several servers", Config { servers, ..several.clone() }),
        ("meta commands", meta(&pipelined)),
        ("meta commands of several keys", meta(&several)),
        ("an open loop", Config { arrivals: Arrivals::Poisson { per_s: 20_000.0 }, ..pipelined.clone() }),
        ("think times", Config { think_time, clients: 16, ..single }),
    ];
    for (name, config) in runs {
        let ((short, _), (long, seconds)) = (allocations(&config, WARM_UP), allocations(&config, WARM_UP + MEASURED));
        println!("{name}: {short} and {long} allocations, {seconds} seconds");
        let most = short + ALLOCATIONS_MAX + EACH_SECOND * seconds;
        assert!(long <= most, "{name}: {long} allocations instead of {short}");
    }
}
