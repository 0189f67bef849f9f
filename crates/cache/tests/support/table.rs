//! The table of transcripts: requests and the exact bytes of the replies.

/// A name, and the bytes sent and expected in each step.
pub(crate) type Transcript = (&'static str, &'static [(&'static str, &'static str)]);

/// Each starts with an empty store. Keys that start with `n` contain numbers.
pub(crate) const TRANSCRIPTS: [Transcript; 20] = [
    (
        "set and get",
        &[
            ("get k\r\n", "END\r\n"),
            ("set k 7 0 5\r\nvalue\r\n", "STORED\r\n"),
            ("get k\r\n", "VALUE k 7 5\r\nvalue\r\nEND\r\n"),
            ("set k 4294967295 0 0\r\n\r\n", "STORED\r\n"),
            ("get k\r\n", "VALUE k 4294967295 0\r\n\r\nEND\r\n"),
        ],
    ),
    (
        "several keys, in the order of the request, repeated if the key is repeated",
        &[
            ("set a 0 0 1\r\nx\r\n", "STORED\r\n"),
            ("set b 0 0 2\r\nyy\r\n", "STORED\r\n"),
            ("get b none a b\r\n", "VALUE b 0 2\r\nyy\r\nVALUE a 0 1\r\nx\r\nVALUE b 0 2\r\nyy\r\nEND\r\n"),
        ],
    ),
    (
        "a value may contain any bytes",
        &[
            ("set k 0 0 13\r\nget k\r\nEND\r\n\0\r\n", "STORED\r\n"),
            ("get k\r\n", "VALUE k 0 13\r\nget k\r\nEND\r\n\0\r\nEND\r\n"),
        ],
    ),
    (
        "add",
        &[
            ("add k 0 0 1\r\na\r\n", "STORED\r\n"),
            ("add k 0 0 1\r\nb\r\n", "NOT_STORED\r\n"),
            ("get k\r\n", "VALUE k 0 1\r\na\r\nEND\r\n"),
        ],
    ),
    (
        "replace",
        &[
            ("replace k 0 0 1\r\na\r\n", "NOT_STORED\r\n"),
            ("set k 0 0 1\r\na\r\n", "STORED\r\n"),
            ("replace k 3 0 2\r\nbb\r\n", "STORED\r\n"),
            ("get k\r\n", "VALUE k 3 2\r\nbb\r\nEND\r\n"),
        ],
    ),
    (
        "append and prepend keep the flags",
        &[
            ("append k 0 0 1\r\na\r\n", "NOT_STORED\r\n"),
            ("prepend k 0 0 1\r\na\r\n", "NOT_STORED\r\n"),
            ("set k 5 0 1\r\nb\r\n", "STORED\r\n"),
            ("append k 9 0 1\r\nc\r\n", "STORED\r\n"),
            ("prepend k 9 0 1\r\na\r\n", "STORED\r\n"),
            ("get k\r\n", "VALUE k 5 3\r\nabc\r\nEND\r\n"),
        ],
    ),
    (
        "cas of a missing or changed item",
        &[
            ("cas k 0 0 1 1\r\na\r\n", "NOT_FOUND\r\n"),
            ("set k 0 0 1\r\na\r\n", "STORED\r\n"),
            ("cas k 0 0 1 18446744073709551615\r\nb\r\n", "EXISTS\r\n"),
            ("get k\r\n", "VALUE k 0 1\r\na\r\nEND\r\n"),
        ],
    ),
    (
        "delete",
        &[
            ("delete k\r\n", "NOT_FOUND\r\n"),
            ("set k 0 0 1\r\na\r\n", "STORED\r\n"),
            ("delete k\r\n", "DELETED\r\n"),
            ("get k\r\n", "END\r\n"),
        ],
    ),
    (
        "numbers",
        &[
            ("incr n 1\r\n", "NOT_FOUND\r\n"),
            ("decr n 1\r\n", "NOT_FOUND\r\n"),
            ("set n 3 0 2\r\n10\r\n", "STORED\r\n"),
            ("decr n 1\r\n", "9\r\n"),
            ("get n\r\n", "VALUE n 3 2\r\n9 \r\nEND\r\n"),
            ("incr n 999\r\n", "1008\r\n"),
            ("get n\r\n", "VALUE n 3 4\r\n1008\r\nEND\r\n"),
            ("decr n 99999\r\n", "0\r\n"),
            ("get n\r\n", "VALUE n 3 4\r\n0   \r\nEND\r\n"),
        ],
    ),
    (
        "numbers end at 2^64",
        &[
            ("set n 0 0 20\r\n18446744073709551615\r\n", "STORED\r\n"),
            ("incr n 2\r\n", "1\r\n"),
            ("get n\r\n", "VALUE n 0 20\r\n1                   \r\nEND\r\n"),
            ("incr n 18446744073709551615\r\n", "0\r\n"),
            ("incr n 18446744073709551616\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"),
            ("incr n x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"),
        ],
    ),
    (
        "valid numbers",
        &[
            ("set n 0 0 5\r\n 12 x\r\n", "STORED\r\n"),
            ("incr n 1\r\n", "13\r\n"),
            ("get n\r\n", "VALUE n 0 5\r\n13   \r\nEND\r\n"),
            ("set n 0 0 3\r\n-0 \r\n", "STORED\r\n"),
            ("incr n 1\r\n", "1\r\n"),
            ("set n 0 0 2\r\n+5\r\n", "STORED\r\n"),
            ("incr n 1\r\n", "6\r\n"),
        ],
    ),
    (
        "invalid numbers",
        &[
            ("set n 0 0 3\r\nabc\r\n", "STORED\r\n"),
            ("incr n 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
            ("set n 0 0 0\r\n\r\n", "STORED\r\n"),
            ("decr n 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
            ("set n 0 0 2\r\n-5\r\n", "STORED\r\n"),
            ("incr n 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
            ("set n 0 0 20\r\n18446744073709551616\r\n", "STORED\r\n"),
            ("incr n 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        ],
    ),
    (
        "expired items are misses",
        &[
            ("set k 0 -1 1\r\na\r\n", "STORED\r\n"),
            ("get k\r\n", "END\r\n"),
            ("set k 0 1000000000 1\r\na\r\n", "STORED\r\n"),
            ("get k\r\n", "END\r\n"),
            ("set k 0 4000000 1\r\na\r\n", "STORED\r\n"),
            ("add k 0 0 1\r\nb\r\n", "STORED\r\n"),
            ("touch k -1\r\n", "TOUCHED\r\n"),
            ("delete k\r\n", "NOT_FOUND\r\n"),
        ],
    ),
    (
        "touch and get-and-touch",
        &[
            ("touch k 0\r\n", "NOT_FOUND\r\n"),
            ("gat 0 k\r\n", "END\r\n"),
            ("set k 1 100 1\r\na\r\n", "STORED\r\n"),
            ("touch k 100\r\n", "TOUCHED\r\n"),
            ("gat 100 k none\r\n", "VALUE k 1 1\r\na\r\nEND\r\n"),
            ("get k\r\n", "VALUE k 1 1\r\na\r\nEND\r\n"),
        ],
    ),
    (
        "flush",
        &[
            ("set k 0 0 1\r\na\r\n", "STORED\r\n"),
            ("flush_all 100\r\n", "OK\r\n"),
            ("get k\r\n", "VALUE k 0 1\r\na\r\nEND\r\n"),
            ("flush_all 0\r\n", "OK\r\n"),
            ("get k\r\n", "END\r\n"),
        ],
    ),
    (
        "no reply",
        &[
            ("set n 0 0 1 noreply\r\n5\r\n", ""),
            ("incr n 1 noreply\r\n", ""),
            ("get n\r\n", "VALUE n 0 1\r\n6\r\nEND\r\n"),
            ("add n 0 0 1 noreply\r\n9\r\n", ""),
            ("append n 0 0 1 noreply\r\n0\r\n", ""),
            ("prepend n 0 0 1 noreply\r\n1\r\n", ""),
            ("decr n 10 noreply\r\n", ""),
            ("touch n 0 noreply\r\n", ""),
            ("cas n 0 0 1 1 noreply\r\nx\r\n", ""),
            ("get n\r\n", "VALUE n 0 3\r\n150\r\nEND\r\n"),
            ("delete n noreply\r\n", ""),
            ("get n\r\n", "END\r\n"),
            ("replace n 0 0 1 noreply\r\nx\r\n", ""),
            ("set n 0 0 1\r\nx\r\n", "STORED\r\n"),
            ("incr n 1 noreply\r\n", ""),
            ("flush_all noreply\r\n", ""),
            ("verbosity 1 noreply\r\n", ""),
            ("get n\r\n", "END\r\n"),
        ],
    ),
    (
        "about the server",
        &[("verbosity 1\r\n", "OK\r\n"), ("stats reset\r\n", "RESET\r\n"), ("stats nonsense\r\n", "ERROR\r\n")],
    ),
    (
        "invalid requests",
        &[
            ("nonsense\r\n", "ERROR\r\n"),
            ("\r\n", "ERROR\r\n"),
            ("get\r\n", "ERROR\r\n"),
            ("set k 0 0 x\r\n", "CLIENT_ERROR bad command line format\r\n"),
            ("set k 0 0 -1\r\n", "CLIENT_ERROR bad command line format\r\n"),
            ("delete k 1\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"),
            ("flush_all x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
            ("touch k x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
        ],
    ),
    (
        "a value longer than announced does not replace the old one",
        &[
            ("set k 0 0 1\r\na\r\n", "STORED\r\n"),
            ("set k 0 0 1\r\nxyz\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
            ("get k\r\n", "VALUE k 0 1\r\na\r\nEND\r\n"),
        ],
    ),
    (
        "lines may end in a line feed alone",
        &[("set k 0 0 1\na\r\n", "STORED\r\n"), ("get k\n", "VALUE k 0 1\r\na\r\nEND\r\n")],
    ),
];
