//! One whole session: a client sends any bytes, and a server sends any bytes as replies. The proxy must answer each request
//! exactly once with a valid reply, close the connection in time, and leave no request or descriptor.
//!
//! The first byte of the input selects the configuration. The rest is pieces that 0xff separates. The first byte of a piece says
//! who sends it: `s` the server, as the answer to what it received; `x` too, and then it closes the connection; any other the client.
#![no_main]

use clock::Clock;
use libfuzzer_sys::fuzz_target;
use proxy::{Config, Discipline, LogOutput, MultiGet, PartFailure, Timeouts, start};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::{FirstBytes, Limits, ParsedReply, ParsedRequest, Reply, Request, first_bytes, parse_reply, parse_request};

/// The timeout of the servers, so that a session takes little time.
const TIMEOUT: Duration = Duration::from_millis(25);
const PAUSE: Duration = Duration::from_micros(50);
/// After this time without a byte, the proxy hangs.
const PATIENCE: Duration = Duration::from_secs(40);
const PIECES_MAX: usize = 24;
const REQUESTS_MAX: u64 = 200;

/// A piece of a server's answer.
struct Piece<'a> {
    bytes: &'a [u8],
    closes: bool,
}

fuzz_target!(|input: &[u8]| {
    let Some((&choice, text)) = input.split_first() else { return };
    let (mut client, mut server) = (Vec::new(), VecDeque::new());
    for piece in text.split(|&byte| byte == 0xff).take(PIECES_MAX) {
        match piece.split_first() {
            Some((b's', bytes)) => server.push_back(Piece { bytes, closes: false }),
            Some((b'x', bytes)) => server.push_back(Piece { bytes, closes: true }),
            Some((_, bytes)) => client.push(bytes),
            None => {}
        }
    }
    let expected = Expected::of(&client.concat());
    // Each request can take several timeouts.
    if expected.total <= REQUESTS_MAX {
        play(choice, &client, server, &expected);
    }
});

fn play(choice: u8, client: &[&[u8]], server: VecDeque<Piece<'_>>, expected: &Expected) {
    let before = open_descriptors();
    let listeners = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
    let names = listeners.each_ref().map(|listener| listener.local_addr().unwrap().to_string());
    let running = start(config(choice, &names), Clock::monotonic()).unwrap();
    let address = running.address().unwrap();
    let is_over = AtomicBool::new(false);
    let (replies, totals) = std::thread::scope(|scope| {
        let served = scope.spawn(|| serve(listeners, server, &is_over));
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        for piece in client {
            // The proxy may have closed the connection already.
            let _ = stream.write_all(piece);
            std::thread::sleep(PAUSE);
        }
        let _ = stream.shutdown(Shutdown::Write);
        let mut replies = Vec::new();
        if let Err(error) = stream.read_to_end(&mut replies) {
            assert!(error.kind() == ErrorKind::ConnectionReset, "no end of the connection: {error}");
        }
        drop(stream);
        let totals = running.stop().unwrap();
        is_over.store(true, Ordering::SeqCst);
        served.join().unwrap();
        (replies, totals)
    });
    expected.check(&replies);
    assert_eq!(totals.lost, 0);
    assert_eq!(open_descriptors(), before, "no descriptor is left");
}

fn config(choice: u8, names: &[String; 2]) -> Config {
    let mut config = Config::new("127.0.0.1:0", names);
    config.loops = 1;
    config.operations.hot_keys = 0;
    // Every request is slow, and no bytes of it make a second line.
    config.log.slow_requests = Some(Duration::from_nanos(1));
    config.log.output = LogOutput::new(|line| {
        assert_eq!(line.iter().position(|byte| byte.is_ascii_control()), Some(line.len() - 1), "{line:?}");
        Ok(())
    });
    config.discipline = match choice % 4 {
        0 | 1 => Discipline::Pipelined,
        2 => Discipline::PerBackend { readers: 2, writers: 1, fault_write_poll: None },
        _ => Discipline::Shared { workers: 2, multi_get: MultiGet::ByKey, fault_write_hold: None },
    };
    config.part_failure = [PartFailure::Miss, PartFailure::Partial, PartFailure::Error][usize::from(choice >> 2) % 3];
    config.client_window = if choice & 0x10 == 0 { 1024 } else { 1 };
    config.pools[0].timeouts = Timeouts::all(TIMEOUT);
    if choice & 0x20 != 0 {
        config.pools[0].replicas = 2;
    }
    config
}

/// Answers requests with the pieces, in order, until they are used up. Then each request ends its connection.
fn serve(listeners: [TcpListener; 2], mut pieces: VecDeque<Piece<'_>>, is_over: &AtomicBool) {
    listeners.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
    let mut open: Vec<TcpStream> = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while !is_over.load(Ordering::SeqCst) {
        for (stream, _) in listeners.iter().filter_map(|listener| listener.accept().ok()) {
            stream.set_nonblocking(true).unwrap();
            open.push(stream);
        }
        open.retain_mut(|stream| match stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) if buffer[..count] == *b"version\r\n" => stream.write_all(b"VERSION 1.6.18\r\n").is_ok(),
            Ok(_) => match pieces.pop_front() {
                Some(piece) => stream.write_all(piece.bytes).is_ok() && !piece.closes,
                None => false,
            },
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        std::thread::sleep(PAUSE);
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The number of replies that a client must receive at least and at most, and of requests.
struct Expected {
    least: u64,
    most: u64,
    total: u64,
    /// The beginning of the only reply, if the client speaks the binary protocol.
    refusal: Option<Vec<u8>>,
}

impl Expected {
    /// What the requests in these bytes need.
    fn of(mut bytes: &[u8]) -> Expected {
        let limits = Limits::default();
        let mut expected = Expected { least: 0, most: 0, total: 0, refusal: None };
        match first_bytes(bytes, "") {
            FirstBytes::Text => {}
            FirstBytes::Incomplete => return expected,
            FirstBytes::Binary { refusal } => return Expected { refusal: Some(refusal), ..expected },
        }
        let mut add = |least: bool, most: bool| {
            expected.least += u64::from(least);
            expected.most += u64::from(most);
            expected.total += 1;
        };
        loop {
            match parse_request(bytes, &limits) {
                ParsedRequest::Incomplete => break,
                ParsedRequest::Request { request: Request::Quit, .. } => {
                    add(false, false);
                    break;
                }
                ParsedRequest::Request { request, consumed } => {
                    // A quiet meta command has some of its replies.
                    add(!request.noreply() && !request.is_quiet(), !request.noreply());
                    bytes = &bytes[consumed..];
                }
                ParsedRequest::Invalid { error, consumed, swallow } => {
                    add(!error.noreply(), !error.noreply());
                    let rest = bytes.len() - consumed;
                    bytes = &bytes[consumed + usize::try_from(swallow).map_or(rest, |swallow| swallow.min(rest))..];
                }
                ParsedRequest::Close { error } => {
                    add(error.is_some(), error.is_some());
                    break;
                }
            }
        }
        expected
    }

    /// Checks that these bytes are as many replies, and nothing else.
    fn check(&self, mut bytes: &[u8]) {
        if let Some(refusal) = &self.refusal {
            // The length of the text is the last byte of bytes 8 to 11.
            assert!(bytes.len() > 24 && bytes[..8] == refusal[..8] && bytes[12..24] == refusal[12..24]);
            assert_eq!(bytes.len(), 24 + usize::from(bytes[11]));
            return;
        }
        let limits = Limits { line_bytes: 1 << 20, value_bytes: 1 << 30, ..Limits::default() };
        let mut count = 0;
        while !bytes.is_empty() {
            let ParsedReply::Reply { reply, consumed } = parse_reply(bytes, &limits) else {
                panic!("not a reply: {}", bytes.escape_ascii());
            };
            bytes = &bytes[consumed..];
            count += u64::from(!matches!(reply, Reply::Value(_) | Reply::Stat { .. }));
        }
        assert!((self.least..=self.most).contains(&count), "{count} replies, not {} to {}", self.least, self.most);
    }
}
