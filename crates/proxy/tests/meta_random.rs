//! Random meta commands, right and wrong, in random pieces: a server behind the proxy answers, byte for byte, as one without it.
//! In every discipline. `WAYSTAGE_RANDOM_COMMANDS` says how many are sent; `WAYSTAGE_RANDOM_SEED` where the random numbers begin.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, disciplines};
use proxy::Discipline;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use testkit::{Server, memcached_is_here};

const COMMANDS: usize = 10_000;
const COMMANDS_PER_STREAM: usize = 100;

/// SplitMix64: enough to choose words.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn choose<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

const KEYS: &[&str] = &["k0", "k1", "k2", "foo", "Zm9v", "fo!o", "zz", "noreply", "q", "b", "\u{e9}"];
const ENCODED_KEYS: &[&str] = &["Zm9v", "azA=", "AAECIA0K", "Zm9vZm9v", "Z!m9v", "a+b/", "Zg==Zm9v"];
const WITH_LINE_END: &str = "AAECIA0K";
const NOT_BASE64: &[&str] = &["Zm9", "====", "Z===", "!"];
const COUNTERS: &[&str] = &["n0", "n1", "n2"];
const BODIES: &[&str] = &["", "x", "hi", "5000000", "EN\r\nHD\r\n", "mn\r\n", "mg k0 v\r\n", "VA 2\r\nhi\r\n"];

/// What each command may have; no expiry time, here or anywhere, is near enough to end between the two servers.
const GET_FLAGS: &[&str] =
    &["v", "k", "O7", "s", "t", "f", "c", "h", "l", "u", "q", "T300", "T0", "T-1", "N400", "R30", "R5000", "L9", "P"];
const SET_FLAGS: &[&str] =
    &["k", "O8", "c", "q", "F5", "F4294967295", "T300", "T0", "T-1", "I", "C3", "C99999", "MS", "ME", "MA", "MP", "MR"];
const DELETE_FLAGS: &[&str] = &["k", "O9", "q", "I", "T300", "C3", "C99999", "L"];
const COUNT_FLAGS: &[&str] = &["k", "Oa", "t", "c", "q", "D1", "D7", "MI", "M+", "C3", "C99999"];
/// What nobody takes, or not there.
const WRONG_FLAGS: &[&str] = &[
    "Z",
    "k",
    "v",
    "q",
    "q",
    "Tx",
    "T",
    "Nx",
    "Rx",
    "Cx",
    "C-1",
    "Fx",
    "F-1",
    "M",
    "MX",
    "MSS",
    "Dx",
    "Jx",
    "J-1",
    "\x7f",
    "\u{e9}",
    "\t",
    "S5",
    "E1",
    "x",
    "noreply",
    "Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "vfoo",
    "qfoo",
];

/// Some of these flags, no letter twice, unless something is to be wrong.
fn flags(random: &mut Random, known: &[&str], more: &[&str]) -> String {
    let mut text = String::new();
    let mut letters: Vec<u8> = more.iter().map(|flag| flag.as_bytes()[0]).collect();
    let mut chosen: Vec<&str> = more.to_vec();
    for _ in 0..random.below(6) {
        let flag = random.choose(known);
        if !letters.contains(&flag.as_bytes()[0]) {
            letters.push(flag.as_bytes()[0]);
            chosen.insert(random.below(chosen.len() + 1), flag);
        }
    }
    if random.one_in(12) {
        for _ in 0..=random.below(2) {
            chosen.insert(random.below(chosen.len() + 1), random.choose(WRONG_FLAGS));
        }
    }
    for flag in chosen {
        text += if random.one_in(20) { "   " } else { " " };
        text += flag;
    }
    text
}

/// A key, and `b` if it is in base64.
fn key(random: &mut Random) -> (String, &'static [&'static str]) {
    match random.below(20) {
        0..=3 => (random.choose(ENCODED_KEYS).into(), &["b"]),
        4 if random.one_in(3) => (random.choose(NOT_BASE64).into(), &["b"]),
        5 => ("k".repeat(250), &[]),
        _ => (random.choose(KEYS).into(), &[]),
    }
}

fn command(random: &mut Random) -> String {
    let end = if random.one_in(15) { "\n" } else { "\r\n" };
    let (key, base64) = key(random);
    match random.below(100) {
        // Of a key with a line end, memcached may tell what looks like several replies; the proxy never does.
        0..=34 if key == WITH_LINE_END => format!("mg {key} b s O4 v{end}"),
        83..=86 if key == WITH_LINE_END => format!("mg {key} b c f{end}"),
        0..=34 => format!("mg {key}{}{end}", flags(random, GET_FLAGS, base64)),
        35..=59 => {
            let body = random.choose(BODIES);
            let claimed = if random.one_in(15) { random.below(12) } else { body.len() };
            format!("ms {key} {claimed}{}{end}{body}\r\n", flags(random, SET_FLAGS, base64))
        }
        60..=67 => format!("md {key}{}{end}", flags(random, DELETE_FLAGS, base64)),
        68..=77 => count(random, end),
        78..=82 => format!("mn{end}"),
        83..=86 => format!("me {key}{}{end}", if base64.is_empty() { "" } else { " b" }),
        87..=94 => text(random),
        _ => wrong(random),
    }
}

/// Counters are used without what memcached keeps or loses with the item: which it does depends on who is still being sent it.
fn count(random: &mut Random, end: &str) -> String {
    let counter = random.choose(COUNTERS);
    match random.below(6) {
        0 => format!("mg {counter} v k{end}"),
        1 => format!("ms {counter} 7 q{end}5000000\r\n"),
        // When it creates the value, memcached is not quiet.
        2 => format!("ma {counter} v{}{end}", flags(random, COUNT_FLAGS, &["N400", "J5000000"]).replace(" q", "")),
        3 => format!("ma {counter} N0 J5000000{}{end}", flags(random, COUNT_FLAGS, &[]).replace(" q", "")),
        4 => format!("ma {counter}{}{end}", flags(random, COUNT_FLAGS, &["v"])),
        _ => format!("ma {counter}{}{end}", flags(random, COUNT_FLAGS, &[])),
    }
}

fn text(random: &mut Random) -> String {
    let commands = [
        "get k0\r\n",
        "get k0 zz foo k1\r\n",
        "gets k1\r\n",
        "set k1 3 0 2\r\nhi\r\n",
        "set foo 0 0 1 noreply\r\nx\r\n",
        "delete k0\r\n",
        "add k2 0 0 1\r\nx\r\n",
        "append k0 0 0 1\r\ny\r\n",
        "incr n0 1\r\n",
        "touch k0 300\r\n",
        "gat 300 k0 k1\r\n",
    ];
    random.choose(&commands).into()
}

fn wrong(random: &mut Random) -> String {
    let long = "k".repeat(251);
    let many = " a b c d e f g h i j k l m n o p q r s";
    match random.below(12) {
        0 => random.choose(&["mg\r\n", "ms\r\n", "md\r\n", "ma\r\n", "me\r\n", "ms k0\r\n", "  \r\n", "m\r\n"]).into(),
        1 => format!("{} {long} v k\r\n", random.choose(&["mg", "md", "ma", "me"])),
        2 => format!("{} k0{many}\r\n", random.choose(&["mg", "md", "ma"])),
        3 => format!("ms k0 {} q\r\n", random.choose(&["x", "-1", "2147483646", "4294967295", "1x", "v"])),
        4 => "mx k0\r\nMG k0 v\r\nmgk v\r\n".into(),
        5 => "ms k0 2 q\r\nhixx\r\n".into(),
        6 => "ms k0 2 Z Tx\r\nhi\nxx\r\n".into(),
        7 => "ms k0 +2 k\r\nhi\r\nms k0 -0\r\n\r\nms k0 02 c\r\nhi\r\n".into(),
        8 => "mg k0 q q\r\nms k0 2 q k q\r\nhi\r\nmd k0 q q\r\nma n0 Z q q\r\n".into(),
        9 => format!("mg {} v b\r\n", "Zm9v".repeat(63)),
        10 => "mn x y\r\n".into(),
        _ => "bogus x\r\n".into(),
    }
}

/// Sends a stream in pieces, and reads until the answer to `mark`, the last command, has come.
fn exchange(address: SocketAddr, stream: &[u8], mark: &str, pieces: &mut Random) -> Vec<u8> {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_nodelay(true).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let largest = [1, 7, 60, 1000, 100_000][pieces.below(5)];
    let mut rest = stream;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((1 + pieces.below(largest)).min(rest.len()));
        connection.write_all(piece).unwrap();
        rest = after;
        if pieces.one_in(50) {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let (mut got, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while !got.ends_with(format!("EN O{mark}\r\n").as_bytes()) {
        let count = connection.read(&mut buffer).unwrap_or_else(|error| {
            panic!("{error} after {:?}", String::from_utf8_lossy(&got[got.len().saturating_sub(300)..]))
        });
        assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&got[got.len().saturating_sub(300)..]));
        got.extend_from_slice(&buffer[..count]);
    }
    got
}

/// Without the seconds that are left or have passed: they may change between the two servers.
fn without_seconds(reply: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(reply.len());
    let mut rest = reply;
    while let Some((&byte, after)) = rest.split_first() {
        kept.push(byte);
        rest = after;
        if [&b" t"[..], b" l", b" exp=-", b" la="].iter().any(|name| kept.ends_with(name)) {
            rest = &rest[rest.iter().take_while(|byte| byte.is_ascii_digit()).count()..];
        }
    }
    kept
}

/// Shows the first difference between two replies to one stream.
fn compare(plain: &[u8], proxied: &[u8], context: &str) {
    let (plain, proxied) = (without_seconds(plain), without_seconds(proxied));
    if plain == proxied {
        return;
    }
    let at = plain.iter().zip(&proxied).take_while(|(left, right)| left == right).count();
    let near = |bytes: &[u8]| {
        String::from_utf8_lossy(&bytes[at.saturating_sub(200)..(at + 100).min(bytes.len())]).into_owned()
    };
    panic!("{context}: at byte {at} of the replies\n server {:?}\n  proxy {:?}", near(&plain), near(&proxied));
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// In every discipline, with one slot and with several.
fn run(start: fn() -> Server, who: &str) {
    for slots in [1, 3] {
        // The first one has no slots.
        for discipline in disciplines(slots, true).into_iter().skip(usize::from(slots > 1)) {
            run_in(discipline, slots, start, &format!("{who}, {discipline:?}"));
        }
    }
}

/// Sends the same to a server and to a proxy before another one.
fn run_in(discipline: Discipline, slots: usize, start: fn() -> Server, who: &str) {
    let commands = number("WAYSTAGE_RANDOM_COMMANDS", COMMANDS as u64) as usize;
    let seed = number("WAYSTAGE_RANDOM_SEED", 1);
    let server = start();
    let proxy = Proxy::before(vec![start()], |config| (config.loops, config.discipline) = (1, discipline));
    let mut random = Random(seed);
    for stream_number in 0..commands.div_ceil(COMMANDS_PER_STREAM) {
        let mut stream: String = (0..COMMANDS_PER_STREAM).map(|_| command(&mut random)).collect();
        if slots > 1 {
            // Which of the reads that are under way together wins the right to renew a stale value is not promised.
            stream = stream.replace(" I", "");
        }
        let mark = format!("end{stream_number}");
        // Whatever was begun ends here.
        stream += &"mn\r\n".repeat(20);
        stream += &format!("mg {} O{mark}\r\n", "z".repeat(40));
        let plain = exchange(server.address(), stream.as_bytes(), &mark, &mut random);
        let proxied = exchange(proxy.address, stream.as_bytes(), &mark, &mut random);
        compare(&plain, &proxied, &format!("{who}, seed {seed}, stream {stream_number}"));
    }
    eprintln!("{who}: {commands} random commands were answered alike with and without the proxy");
}

#[test]
fn the_embedded_cache_answers_alike_with_and_without_the_proxy() {
    run(Server::embedded, "the embedded cache");
}

#[test]
fn memcached_answers_alike_with_and_without_the_proxy() {
    if memcached_is_here() {
        run(Server::memcached, "memcached");
    }
}
