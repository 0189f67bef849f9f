//! Random commands of the text protocol, valid and invalid, and the last bytes of a connection.

use super::deviations;
use super::random::Random;
use super::random_meta::{BODIES, COUNTERS, KEYS};

/// One command as it is sent to the proxy, and as it is sent directly to the server. They are equal except for known deviations.
/// `{cas0}` to `{cas3}` stand for tokens that the client received in earlier rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) to_proxy: Vec<u8>,
    pub(crate) to_server: Vec<u8>,
}

/// How a client disconnects after all replies. Its last bytes are sent in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It closes the connection.
    Gone,
    /// It sends `quit`; the server reads nothing after it.
    Quit,
    /// It sends a web request, which gets no reply.
    Browser,
    /// It sends a line without an end that exceeds the limit of its command.
    EndlessLine,
    /// It half-closes in the middle of a command; the commands before it are answered.
    HalfClosed,
}

impl Command {
    /// The same command for both.
    pub(crate) fn new(bytes: impl Into<Vec<u8>>) -> Command {
        let bytes = bytes.into();
        Command { to_proxy: bytes.clone(), to_server: bytes }
    }
}

impl Ending {
    pub(crate) fn any(random: &mut Random) -> Ending {
        if random.one_in(2) {
            return Ending::Gone;
        }
        random.choose(&[Ending::Quit, Ending::Browser, Ending::EndlessLine, Ending::HalfClosed])
    }

    /// The last bytes, and whether the client half-closes after them.
    pub(crate) fn bytes(self) -> (Vec<u8>, bool) {
        match self {
            Ending::Gone => (Vec::new(), true),
            Ending::Quit => (b"get k0\r\nquit\r\nget k0\r\n".to_vec(), false),
            Ending::Browser => (b"get k0\r\nPOST / HTTP/1.1\r\n".to_vec(), false),
            Ending::EndlessLine => (b"get k0\r\nincr ".iter().copied().chain([b'k'; 2100]).collect(), false),
            Ending::HalfClosed => (b"get k0 k1\r\nset k0 0 0 100\r\nhalf".to_vec(), true),
        }
    }
}

const STORES: &[&str] = &["set", "set", "set", "add", "replace", "append", "prepend"];
const EXPTIMES: &[&str] = &["0", "0", "0", "300", "-1", "4102444800", "2592001"];
/// Words for lines that are mostly wrong. None of them is a valid length above 60.
const WORDS: &[&str] = &[
    "get",
    "gets",
    "gat",
    "gats",
    "set",
    "add",
    "replace",
    "append",
    "prepend",
    "cas",
    "delete",
    "incr",
    "decr",
    "touch",
    "flush_all",
    "verbosity",
    "version",
    "mn",
    "bogus",
    "GET",
    "k0",
    "k1",
    "foo",
    "noreply",
    "noreply",
    "0",
    "1",
    "2",
    "-1",
    "-0",
    "+2",
    "02",
    "60",
    "1x",
    "x",
    "2147483646",
    "2147483647",
    "4294967295",
    "-2147483648",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999",
    "\t",
    "\r",
    "\u{e9}",
];

fn line_end(random: &mut Random) -> &'static str {
    if random.one_in(15) { "\n" } else { "\r\n" }
}

fn space(random: &mut Random) -> &'static str {
    if random.one_in(30) { "   " } else { " " }
}

fn noreply(random: &mut Random) -> &'static str {
    if random.one_in(5) { " noreply" } else { "" }
}

fn key(random: &mut Random) -> String {
    match random.below(25) {
        0 => "k".repeat(250),
        1 => random.choose(COUNTERS).into(),
        _ => random.choose(KEYS).into(),
    }
}

/// Bytes for a value: small, or split into lines, so that a value that is read as commands is no endless line.
fn body(random: &mut Random) -> Vec<u8> {
    match random.below(60) {
        0 => b"0123456789012345678901234567890123456789\r\n".repeat(1 + random.below(400)),
        1 => std::iter::once(b'r').chain((0..random.below(300)).map(|_| (1 + random.below(255)) as u8)).collect(),
        _ => random.choose(BODIES).into(),
    }
}

/// One command, with its value if it has one. Some invalid commands may only be the first of a round (`is_first`).
pub(crate) fn command(random: &mut Random, is_first: bool) -> Command {
    if is_first && random.one_in(10) {
        return deviations::get_with_long_key(random);
    }
    let end = line_end(random);
    match random.below(100) {
        0..=24 => Command::new(retrieval(random, end)),
        25..=54 => storage(random, end),
        55..=61 => {
            let time = random.choose(&["", "", "", "", " 0", " 10", " x", " 0 noreply", " 1 noreply"]);
            Command::new(format!("delete {}{time}{}{end}", key(random), noreply(random)))
        }
        62..=69 => {
            let delta = random.choose(&["1", "2", "9", "0", "007", "-1", "x", "", "18446744073709551616"]);
            let (verb, counter) = (random.choose(&["incr", "decr"]), random.choose(COUNTERS));
            let key = if random.one_in(4) { random.choose(KEYS) } else { counter };
            Command::new(format!("{verb} {key} {delta}{}{end}", noreply(random)))
        }
        70..=73 => Command::new(format!("set {} 0 0 7{end}5000000\r\n", random.choose(COUNTERS))),
        74..=78 => {
            let exptime = random.choose(&["0", "300", "300", "-1", "x", "", "300 2"]);
            Command::new(format!("touch {} {exptime}{}{end}", key(random), noreply(random)))
        }
        79..=84 => Command::new(local(random).to_string() + end),
        85 => Command::new(huge(random)),
        _ => wrong(random),
    }
}

fn retrieval(random: &mut Random, end: &str) -> String {
    let verb = random.choose(&["get", "get", "get", "gets", "gets", "gat", "gats"]);
    let mut line = verb.to_string();
    if verb.starts_with("gat") {
        line += space(random);
        line += random.choose(&["0", "300", "300", "-1", "4102444800", "x"]);
    }
    let count = match random.below(100) {
        0 if !verb.starts_with("gat") => 1 + random.below(3000),
        1..=4 => 1 + random.below(60),
        _ => 1 + random.below(4),
    };
    for _ in 0..count {
        line += space(random);
        // Long keys would make a line that `gat` may not have.
        line += if count > 4 || verb.starts_with("gat") { random.choose(KEYS).into() } else { key(random) }.as_str();
    }
    if count > 60 {
        // Without its beginning it would be a line that is too long.
        line = "mn\r\n".repeat(deviations::ENDING) + &line;
    }
    line + if random.one_in(20) { " " } else { "" } + end
}

fn storage(random: &mut Random, end: &str) -> Command {
    let body = body(random);
    let claimed = if random.one_in(15) { random.below(12) } else { body.len() };
    let (key, exptime) = (key(random), random.choose(EXPTIMES));
    let flags = random.choose(&["0", "0", "5", "4294967295", "-1", "x"]);
    let flags = if random.one_in(3) { flags } else { "0" };
    let (verb, token) = if random.one_in(6) {
        (
            "cas",
            random.choose(&[
                " {cas0}",
                " {cas0}",
                " {cas1}",
                " {cas2}",
                " {cas3}",
                " 0",
                " 18446744073709551615",
                " x",
            ]),
        )
    } else {
        (random.choose(STORES), "")
    };
    let is_wrong = flags == "-1" || [flags, token.trim()].contains(&"x");
    let claimed = if is_wrong { body.len() } else { claimed };
    let line = format!("{verb} {key} {flags} {exptime} {claimed}{token}{}{end}", noreply(random));
    if is_wrong {
        return deviations::store_with_wrong_line(&line, &body);
    }
    Command::new([line.as_bytes(), &body, b"\r\n"].concat())
}

/// Commands that the proxy answers itself or sends to all servers.
fn local(random: &mut Random) -> &'static str {
    random.choose(&[
        "mn",
        "mn",
        "version",
        "version",
        "verbosity 1",
        "verbosity 1 noreply",
        "verbosity x",
        "verbosity",
        "stats reset",
        "flush_all",
        "flush_all 0",
        "flush_all noreply",
        "flush_all 0 noreply",
        "flush_all x",
        "flush_all 1 2 3",
        "version x",
        "verbosity 1 2 3",
    ])
}

/// Rarely, values that the server refuses because of their size, but reads.
fn huge(random: &mut Random) -> Vec<u8> {
    if !random.one_in(20) {
        return b"get k0\r\n".to_vec();
    }
    let body = b"01234567890123456789012345678901234567890123456789012345678\r\n".repeat(18_000);
    let line = format!("{} {} 0 0 {}{}\r\n", random.choose(STORES), key(random), body.len(), noreply(random));
    [line.as_bytes(), &body, b"\r\n"].concat()
}

/// Lines that no server accepts, and lines with a valid beginning.
fn wrong(random: &mut Random) -> Command {
    let long = "k".repeat(251);
    match random.below(10) {
        0 => {
            let words =
                ["delete", "touch", "incr", "decr"].map(|verb| format!("{verb} {long} 1{}\r\n", noreply(random)));
            Command::new(words[random.below(4)].clone())
        }
        1 => deviations::store_with_long_key(random),
        2 => {
            let length =
                random.choose(&["-1", "2147483646", "2147483647", "4294967295", "99999999999999999999", "x", ""]);
            Command::new(format!("set k0 0 0 {length}{}\r\n", noreply(random)))
        }
        3 => Command::new(format!("set k0 0 0 2{}\r\nhixx\r\n", noreply(random))),
        4 => Command::new(random.choose(&["get\r\n", "gets \r\n", "gat\r\n", "set\r\n", "\r\n", "\n", " \r\n"])),
        _ => {
            let mut words: Vec<&str> = (0..1 + random.below(7)).map(|_| random.choose(WORDS)).collect();
            deviations::avoid(&mut words);
            let value = if random.one_in(2) { "" } else { "hi\r\n" };
            Command::new("mn\r\n".repeat(deviations::ENDING) + &words.join(" ") + "\r\n" + value)
        }
    }
}
