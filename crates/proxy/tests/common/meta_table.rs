//! Meta commands and their replies, which are the same from memcached 1.6.18 and the embedded cache, directly and behind a proxy.

/// The bytes to send, and the exact bytes of the reply. The steps run in order on one connection, on an empty store.
pub(crate) const META_TABLE: &[(&str, &str)] = &[
    ("mn\r\n", "MN\r\n"),
    ("mg k\r\nmg k v\r\nmg k k Oabc v\r\n", "EN\r\nEN\r\nEN kk Oabc\r\n"),
    ("ms k 2\r\nhi\r\n", "HD\r\n"),
    ("mg k\r\nmg k v\n", "HD\r\nVA 2\r\nhi\r\n"),
    ("mg k s t f k Oabc v\r\n", "VA 2 s2 t-1 f0 kk Oabc\r\nhi\r\n"),
    ("  mg   k   v   Oabc   k \r\n", "VA 2 Oabc kk\r\nhi\r\n"),
    ("ms e 0 F4294967295 T100\r\n\r\nmg e v f s\r\n", "HD\r\nVA 0 f4294967295 s0\r\n\r\n"),
    ("ms p 10 O1 k\r\nEN\r\nmn\r\nVA\r\nmg p v\r\n", "HD O1 kp\r\nVA 10\r\nEN\r\nmn\r\nVA\r\n"),
    // Expiry: `t` returns the time set by the flags before it. (A second may pass between two requests, not within one.)
    ("mg e T50 t\r\nmg e T0\r\nmg e t T70\r\nmg e T0 t\r\n", "HD t50\r\nHD\r\nHD t-1\r\nHD t-1\r\n"),
    ("ms gone 1 T-1\r\nx\r\nmg gone v\r\n", "HD\r\nEN\r\n"),
    // Whether the item has been read, and requests that do not count as a read.
    ("ms h 1\r\nx\r\nmg h h u\r\nmg h h\r\nmg h h\r\n", "HD\r\nHD h0\r\nHD h0\r\nHD h1\r\n"),
    ("ms h 1\r\nx\r\nget h\r\nmg h h\r\n", "HD\r\nVALUE h 0 1\r\nx\r\nEND\r\nHD h1\r\n"),
    // Modes.
    ("ms k 1 ME\r\nx\r\nms new 1 ME\r\nx\r\n", "NS\r\nHD\r\n"),
    ("ms k 1 MA\r\n!\r\nms k 1 MP\r\n_\r\nmg k v\r\n", "HD\r\nHD\r\nVA 4\r\n_hi!\r\n"),
    ("ms zz 1 MA\r\nx\r\nms zz 1 MP k O1\r\nx\r\nms zz 1 MR\r\nx\r\n", "NS\r\nNS kzz O1\r\nNS\r\n"),
    ("ms k 2 MR\r\nab\r\nms k 2 MS\r\nhi\r\nmg k v\r\n", "HD\r\nHD\r\nVA 2\r\nhi\r\n"),
    // Tokens.
    ("ms zz 1 C5\r\nx\r\nms k 1 C18446744073709551615\r\nx\r\n", "NF\r\nEX\r\n"),
    ("ms k 1 MA C18446744073709551615 k\r\nx\r\nms k 1 ME c k\r\nx\r\n", "EX kk\r\nNS c0 kk\r\n"),
    ("md k C18446744073709551615 k\r\nma k C18446744073709551615\r\nmg k v\r\n", "EX kk\r\nEX\r\nVA 2\r\nhi\r\n"),
    // Deleting.
    ("md zz\r\nmd zz k O1\r\nmd new k O2\r\nmg new\r\n", "NF\r\nNF kzz O1\r\nHD knew O2\r\nEN\r\n"),
    // Counting.
    ("ma n\r\nma n k O1\r\nma n N0 J10\r\nma n\r\nmg n v\r\n", "NF\r\nNF kn O1\r\nHD\r\nHD\r\nVA 2\r\n11\r\n"),
    ("ma n D5 MD v\r\nma n D500 M- v k\r\nma n MI v\r\n", "VA 1\r\n6\r\nVA 1 kn\r\n0\r\nVA 1\r\n1\r\n"),
    ("ma n v t T30 O9\r\nma n T40 t v\r\n", "VA 1 t-1 O9\r\n2\r\nVA 1 t40\r\n3\r\n"),
    // (Whether memcached pads a value that became shorter depends on whether a reply with it is still being sent: not tested here.)
    ("ma n D18446744073709551615 v\r\n", "VA 1\r\n2\r\n"),
    ("ma n5 T0 N5 t v J7\r\n", "VA 1 t5\r\n7\r\n"),
    (
        "ma k\r\nma k q\r\n",
        concat!(
            "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        ),
    ),
    // Quiet: a miss of mg, success of the others; all other replies are sent, and `mn` shows that no more follow.
    ("mg zz q\r\nmg zz v k O1 q\r\nmn\r\n", "MN\r\n"),
    ("mg k q\r\nmg k v q k\r\nmn\r\n", "HD\r\nVA 2 kk\r\nhi\r\nMN\r\n"),
    ("ms k 1 q\r\n1\r\nms k 1 ME q\r\nx\r\nms k 1 q C18446744073709551615 O7\r\nx\r\nmn\r\n", "NS\r\nEX O7\r\nMN\r\n"),
    (
        "ma k q\r\nma k q v\r\nma zz q\r\nma k q C18446744073709551615\r\nmg k v\r\nmn\r\n",
        "NF\r\nEX\r\nVA 1\r\n3\r\nMN\r\n",
    ),
    ("md k q\r\nmd k q O3\r\nmn\r\n", "NF O3\r\nMN\r\n"),
    ("ms k 2 q\r\nhixx\r\nmn\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\nMN\r\n"),
    // Keys in base64: the same key as its text. The server remembers the form in which it was stored.
    (
        "ms Zm9v 2 b k\r\nhi\r\nmg Zm9v b k v\r\nmg foo k v\r\n",
        "HD kZm9v b\r\nVA 2 kZm9v b\r\nhi\r\nVA 2 kZm9v b\r\nhi\r\n",
    ),
    (
        "get foo\r\nset foo 0 0 1\r\nx\r\nmg Zm9v b k v\r\n",
        "VALUE foo 0 2\r\nhi\r\nEND\r\nSTORED\r\nVA 1 kfoo\r\nx\r\n",
    ),
    (
        "mg AAECIA0K b k\r\nms AAECIA0K 1 b O1 k\r\nx\r\nmg AAECIA0K v b\r\n",
        "EN kAAECIA0K b\r\nHD O1 kAAECIA0K b\r\nVA 1\r\nx\r\n",
    ),
    (
        "ma bm4= b N0 J4 v k\r\nma nn v\r\nmd bm4= k b\r\nmd nn k\r\n",
        "VA 1 kbm4= b\r\n4\r\nVA 1\r\n5\r\nHD kbm4= b\r\nNF knn\r\n",
    ),
    (
        "mg Zm9 b v\r\nmd Zm9 b\r\nma Zm9 b\r\nme Zm9 b\r\nms Zm9 2 b\r\nhi\r\n",
        concat!(
            "CLIENT_ERROR error decoding key\r\nCLIENT_ERROR invalid or duplicate flag\r\n",
            "CLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR bad command line format\r\n",
            "CLIENT_ERROR error decoding key\r\n",
        ),
    ),
    ("me zz\r\nme zz q\r\nme Zm9vZg== b\r\n", "EN\r\nEN\r\nEN\r\n"),
    // Stale values, and which client may refresh them. They are on the primary only.
    ("mg viv N30 t v\r\nmg viv N30 v k\r\n", "VA 0 t30 W\r\n\r\nVA 0 kviv Z\r\n\r\n"),
    ("ms r 1 T20\r\nx\r\nmg r R30\r\nmg r R30\r\nmg r R10 k\r\n", "HD\r\nHD W\r\nHD Z\r\nHD kr Z\r\n"),
    // The server reports invalid flags, and no connection is closed.
    (
        "mg k Z\r\nmg k v v\r\nmg k Tx\r\nmg k Fx\r\nmg k M\r\n",
        concat!(
            "CLIENT_ERROR invalid flag\r\nCLIENT_ERROR duplicate flag\r\nCLIENT_ERROR bad token in command line format\r\n",
            "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR incorrect length for M token\r\n",
        ),
    ),
    (
        "ms k 2 Z q\r\nhi\r\nms k 2 Fx\r\nhi\r\nms k 2 Tx q\r\nhi\r\nms k 2 MX\r\nhi\r\n",
        concat!(
            "CLIENT_ERROR invalid flag\r\nCLIENT_ERROR bad command line format\r\n",
            "CLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR invalid mode for ms M token\r\n",
        ),
    ),
    (
        "md k Z\r\nma k Z q\r\nma k MX\r\nma k Dx\r\nmg k q q\r\nmd k q q\r\n",
        concat!(
            "CLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\n",
            "CLIENT_ERROR invalid mode for ma M token\r\nCLIENT_ERROR invalid or duplicate flag\r\n",
            "CLIENT_ERROR duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\n",
        ),
    ),
    (
        "mg k Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\nmg k Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n",
        "EN Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\nCLIENT_ERROR opaque token too long\r\n",
    ),
    // Commands that cannot be forwarded are answered immediately.
    ("mg\r\nms\r\nmd\r\nma\r\nme\r\n", "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nCLIENT_ERROR bad command line format\r\n"),
    (
        "ms k\r\nms k x\r\nms k -1\r\n",
        concat!(
            "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n",
            "CLIENT_ERROR bad command line format\r\n",
        ),
    ),
    (
        "mg k a b c d e f g h i j k l m n o p r s\r\nmd k a b c d e f g h i j k l m n o p r s\r\n",
        "CLIENT_ERROR options flags are too long\r\nCLIENT_ERROR options flags too long\r\n",
    ),
    ("MG k\r\nmx k\r\nmgx k\r\n", "ERROR\r\nERROR\r\nERROR\r\n"),
    // Both protocols on one connection.
    (
        "set t 7 0 1\r\nx\r\nmg t f v\r\nms t 2 F8\r\nhi\r\nget t\r\nmd t q\r\nget t\r\nmn\r\n",
        "STORED\r\nVA 1 f7\r\nx\r\nHD\r\nVALUE t 8 2\r\nhi\r\nEND\r\nEND\r\nMN\r\n",
    ),
    (
        "ms c 1 q\r\n5\r\nincr c 1\r\nma c v\r\nset c 0 0 1 noreply\r\n1\r\nmg c v\r\nmn\r\n",
        "6\r\nVA 1\r\n7\r\nVA 1\r\n1\r\nMN\r\n",
    ),
];

/// The same for stale values. The first read wins the right to refresh a value. If a discipline has two reads in flight, either
/// may be first, so each step has one read only.
pub(crate) const STALE_TABLE: &[(&str, &str)] = &[
    ("ms s 1\r\nx\r\nmd s I T30\r\nmg s v\r\n", "HD\r\nHD\r\nVA 1 X W\r\nx\r\n"),
    ("mg s v q\r\n", "VA 1 Z X\r\nx\r\n"),
    ("ms s 1 I\r\ny\r\nmg s v\r\nms s 1 C1 I\r\nz\r\nmg s v\r\n", "HD\r\nVA 1\r\ny\r\nHD\r\nVA 1 X W\r\nz\r\n"),
    ("mg s\r\n", "HD Z X\r\n"),
];

/// The same with keys and values of every length that matters.
pub(crate) fn long_meta_table() -> Vec<(Vec<u8>, Vec<u8>)> {
    let (longest, longer) = ("k".repeat(250), "k".repeat(251));
    // For a key in base64 the encoded length is limited: 248 characters encode 186 bytes.
    let (encoded, encoded_longer) = ("Zm9v".repeat(62), "Zm9v".repeat(63));
    let bad = "CLIENT_ERROR bad command line format\r\n".to_string();
    let mut table: Vec<(Vec<u8>, Vec<u8>)> = [
        (format!("ms {longest} 1 k\r\nx\r\nmg {longest} v\r\n"), format!("HD k{longest}\r\nVA 1\r\nx\r\n")),
        (format!("mg {longer} v\r\nmd {longer}\r\nma {longer} q\r\nme {longer}\r\n"), bad.repeat(4)),
        (format!("ms {encoded} 1 b k\r\nx\r\nmg {encoded} b v k\r\n"), {
            format!("HD k{encoded} b\r\nVA 1 k{encoded} b\r\nx\r\n")
        }),
        (format!("mg {} v\r\n", "foo".repeat(62)), "VA 1\r\nx\r\n".into()),
        (format!("mg {encoded_longer} v b\r\n"), bad),
    ]
    .map(|(send, expect)| (send.into_bytes(), expect.into_bytes()))
    .into();
    let large = vec![b'x'; 900_000];
    table.push(([b"ms large 900000 k\r\n", &large[..], b"\r\n"].concat(), b"HD klarge\r\n".to_vec()));
    table.push((b"mg large v k\r\n".to_vec(), [b"VA 900000 klarge\r\n", &large[..], b"\r\n"].concat()));
    let too_large = vec![b'x'; 2_000_000];
    let refused = b"SERVER_ERROR object too large for cache\r\nEN\r\n".to_vec();
    table.push(([b"ms zz 2000000 q\r\n", &too_large[..], b"\r\nmg zz\r\n"].concat(), refused));
    table
}
