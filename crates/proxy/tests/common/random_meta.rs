//! Random meta commands, valid and invalid.

use super::random::Random;

pub(crate) const KEYS: &[&str] = &["k0", "k1", "k2", "foo", "Zm9v", "fo!o", "zz", "noreply", "q", "b", "\u{e9}"];
const ENCODED_KEYS: &[&str] = &["Zm9v", "azA=", "AAECIA0K", "Zm9vZm9v", "Z!m9v", "a+b/", "Zg==Zm9v"];
const WITH_LINE_END: &str = "AAECIA0K";
const NOT_BASE64: &[&str] = &["Zm9", "====", "Z===", "!"];
pub(crate) const COUNTERS: &[&str] = &["n0", "n1", "n2"];
/// None of them is a number, because the state of a counter in memcached depends on whether a reply with it is still being sent.
pub(crate) const BODIES: &[&str] = &["", "x", "hi", "EN\r\nHD\r\n", "mn\r\n", "mg k0 v\r\n", "VA 2\r\nhi\r\n"];

/// The flags of each command. No expiry time is so short that it could expire between the two servers.
const GET_FLAGS: &[&str] =
    &["v", "k", "O7", "s", "t", "f", "c", "h", "l", "u", "q", "T300", "T0", "T-1", "N400", "R30", "R5000", "L9", "P"];
const SET_FLAGS: &[&str] = &[
    "k",
    "O8",
    "c",
    "q",
    "F5",
    "F4294967295",
    "T300",
    "T0",
    "T-1",
    "I",
    "C3",
    "C{cas0}",
    "MS",
    "ME",
    "MA",
    "MP",
    "MR",
];
const DELETE_FLAGS: &[&str] = &["k", "O9", "q", "I", "T300", "C3", "C{cas1}", "L"];
const COUNT_FLAGS: &[&str] = &["k", "Oa", "t", "c", "q", "D1", "D7", "MI", "M+", "C3", "C{cas2}"];
/// Flags that every command, or some command, refuses.
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

/// One command, with its value if it has one.
pub(crate) fn command(random: &mut Random) -> String {
    let end = if random.one_in(15) { "\n" } else { "\r\n" };
    let (key, base64) = key(random);
    match random.below(92) {
        // For a key with a line end, memcached may return bytes that look like several replies. The proxy never does.
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
        _ => wrong(random),
    }
}

/// Commands on counters use no flag whose reply depends on whether memcached is still sending the item.
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
