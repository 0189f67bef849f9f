//! The intended differences between a server behind the proxy and one without it. All other replies must be the
//! same, byte for byte. memcached is 1.6.18. docs/decisions gives the reasons where memcached is not at fault.
//!
//! | what | memcached | the proxy | why |
//! |---|---|---|---|
//! | `version` | its own | its own | two programs |
//! | `stats` other than `reset` | its own | its own | two programs |
//! | `get` with a key that is too long | also drops the replies before it that are not written yet | keeps them | a fault: sent only as the first command of a round |
//! | storing with a key that is too long, or a wrong word before the length | reads the value as commands | drops the value | a fault; later versions drop it, too |
//! | a line of more than 1024 bytes | closes | replies with an error, and closes | the client learns the reason; nothing else differs |
//! | `watch`, `slabs`, `lru`, `shutdown` ... | obeys, or refuses the arguments | refuses the arguments alike, otherwise `ERROR` | they concern one server: not sent |
//! | `bget` | as `get` | `ERROR` | later versions do not have it: not sent |
//! | flags, or a verbosity, of more than 32 bits | cuts them | refuses them | clients would not read what they stored: not sent |
//! | a length of more than 32 bits | cuts it | refuses it | decision 0012: not sent |
//! | `flush_all` with a time before now | treats it as now | refuses it | the protocol does not define it: not sent |
//! | `gat` with a time and no key | finds nothing | `ERROR` | as `get` without a key: not sent |
//! | a NUL in a key | ends the line there | refuses the key | would be another key: not sent |
//! | `flush_all` in some seconds | by its own clock | by its server's clock | the clocks differ: sent without a delay only, and nothing expires soon |
//! | seconds that are left or have passed | of its own clock | of its server's clock | the clocks differ |
//! | state of a counter: padding, whether it was read | depends on whether a reply with it is still being sent | the same | not repeatable: counters keep their length, and no command reads the rest |

use super::random::Random;
use super::random_text::Command;

/// This number of `mn` commands completes a value that is still being read.
pub(crate) const ENDING: usize = 17;

/// A `get` of several keys, one of them too long. memcached 1.6.18 drops all replies that it has not written yet, including those to other commands.
/// It marks the keys before the long one as read, so these names occur in no other command.
pub(crate) fn get_with_long_key(random: &mut Random) -> Command {
    let long = "k".repeat(251);
    Command::new(
        random
            .choose(&[
                "get nothing L\r\n",
                "get L nothing\r\n",
                "gets nothing none L nothing\r\n",
                "gat 0 nothing L\r\n",
            ])
            .replace('L', &long),
    )
}

/// Storing under a key that is too long. memcached 1.6.18 refuses it and reads the value as the next command, so the value is
/// not sent to the server.
pub(crate) fn store_with_long_key(random: &mut Random) -> Command {
    let long = "k".repeat(251);
    let line = random.choose(&[
        "set L 0 0 2\r\n",
        "add L 0 0 2 noreply\r\n",
        "cas L 0 0 2 1\r\n",
        "ms L 2 q\r\n",
        "ms L 2\r\n",
    ]);
    let line = line.replace('L', &long);
    store_with_wrong_line(&line, b"hi")
}

/// Storing with another error before a value of the right length: the value is not sent to the server either.
pub(crate) fn store_with_wrong_line(line: &str, body: &[u8]) -> Command {
    let to_server = ["mn\r\n".repeat(ENDING).as_bytes(), line.as_bytes()].concat();
    Command { to_proxy: [&to_server, body, b"\r\n"].concat(), to_server }
}

/// Changes a line of random words so that it is none of these cases.
pub(crate) fn avoid(words: &mut [&str]) {
    let is_store = matches!(words[0], "set" | "add" | "replace" | "append" | "prepend" | "cas");
    let replaced: &[(usize, &str)] = match words[0] {
        "verbosity" if words.get(1).is_some_and(|word| word.parse::<i128>().is_ok()) => &[(1, "5")],
        "flush_all" if words.get(1).is_some_and(|word| word.parse::<i128>().is_ok()) => &[(1, "0")],
        "gat" | "gats" if words.len() < 3 => &[(0, "bogus")],
        "gat" | "gats" if words[1].parse::<i128>().is_ok_and(|number| number > 0) => &[(1, "300")],
        "touch" if words.get(2).is_some_and(|word| word.parse::<i128>().is_ok_and(|number| number > 0)) => {
            &[(2, "300")]
        }
        "cas" => &[(2, "5"), (3, "0"), (5, "1")],
        _ if is_store => &[(2, "5"), (3, "0")],
        _ => &[],
    };
    for &(place, word) in replaced {
        if let Some(replaced) = words.get_mut(place) {
            *replaced = word;
        }
    }
}

/// A reply without the parts that may differ.
pub(crate) fn normalised(reply: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(reply.len());
    let mut rest = reply;
    while let Some((&byte, after)) = rest.split_first() {
        kept.push(byte);
        rest = after;
        let is_seconds = matches!(byte, b't' | b'l' | b'-' | b'=')
            && [&b" t"[..], b" l", b" exp=", b" exp=-", b" la="].iter().any(|name| kept.ends_with(name));
        if is_seconds {
            rest = &rest[rest.iter().take_while(|byte| byte.is_ascii_digit()).count()..];
        } else if byte == b' ' && kept.ends_with(b"VERSION ") {
            rest = &rest[rest.iter().take_while(|&&byte| byte != b'\r').count()..];
        }
    }
    kept
}

/// The reply to an endless line.
pub(crate) const LINE_TOO_LONG: &[u8] = b"CLIENT_ERROR line too long\r\n";
