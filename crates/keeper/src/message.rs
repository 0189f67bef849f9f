//! The messages between the lab and a keeper: one JSON object per line, with one key that names the message.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The version of this protocol. The lab copies the keeper itself, so both sides always have the same one.
pub const PROTOCOL: u32 = 1;

/// A request of the lab. Relative paths are in the keeper's folder.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Which program is this, and what time is it?
    Hello {},
    /// Nothing but a sign of life, and the time.
    Clock {},
    /// Start a program.
    Start {
        /// Its output is in `logs/NAME.stdout` and `logs/NAME.stderr`.
        name: String,
        /// The program and its arguments.
        command: Vec<String>,
        /// Variables in addition to those of the keeper.
        #[serde(default)]
        environment: BTreeMap<String, String>,
    },
    /// Send a signal to the process group of a program.
    Signal {
        /// The program.
        pid: u32,
        /// The number of the signal.
        number: i32,
        /// When, on CLOCK_MONOTONIC; at once without it. The reply does not wait.
        #[serde(default)]
        at_clock_ns: Option<u64>,
    },
    /// Stop a program with SIGSTOP as soon as it has so many sockets.
    PauseConnected {
        /// The program.
        pid: u32,
        /// The number of sockets.
        sockets: usize,
        /// How long it may take to connect.
        within_ms: u64,
    },
    /// Whether a program has ended, and what it printed beyond these positions.
    Status {
        /// The program.
        pid: u32,
        /// Bytes of its standard output that the lab already has.
        stdout: u64,
        /// Bytes of its standard error that the lab already has.
        stderr: u64,
    },
    /// The content of small text files, such as those in /proc.
    Texts {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// Create a folder.
    Make {
        /// The folder.
        path: PathBuf,
    },
    /// The files in a folder.
    List {
        /// The folder.
        path: PathBuf,
    },
    /// A part of a file; its bytes follow the reply.
    Read {
        /// The file.
        path: PathBuf,
        /// Where the part begins.
        offset: u64,
    },
    /// Write a program; its bytes follow the request.
    Write {
        /// The file, which must not exist.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// Remove a file, or a folder with its content.
    Remove {
        /// The file or folder.
        path: PathBuf,
    },
    /// A free port of an address of this host.
    Port {
        /// The address.
        address: String,
    },
    /// Whether a program on this host can connect to an address.
    Connect {
        /// IP:PORT.
        address: String,
    },
    /// The free space of the file system of the keeper's folder.
    Space {},
}

/// The answer to one request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// To `hello`.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The version of waystage.
        version: &'static str,
        /// SHA-256 of this program's file, in hexadecimal digits.
        sha256: String,
        /// CLOCK_MONOTONIC.
        clock_ns: u64,
        /// The wall clock, in nanoseconds since 1970.
        unix_ns: u64,
        /// The process id of the keeper.
        pid: u32,
        /// How many threads can run at once.
        cores: usize,
    },
    /// To `clock`.
    Clock {
        /// CLOCK_MONOTONIC when the request was read.
        clock_ns: u64,
    },
    /// To `start`.
    Started {
        /// The number of the process and of its group.
        pid: u32,
    },
    /// To `status`.
    Status {
        /// Exit code, negative for the signal that ended it; null while it runs.
        ended: Option<i32>,
        /// New standard output, with replacements for bytes that are not UTF-8.
        stdout: Part,
        /// New standard error.
        stderr: Part,
    },
    /// To `texts`.
    Texts {
        /// CLOCK_MONOTONIC before the files were read.
        clock_ns: u64,
        /// Their content; null for a file that cannot be read.
        texts: Vec<Option<String>>,
    },
    /// To `list`.
    List {
        /// Names and lengths, sorted.
        files: BTreeMap<String, u64>,
    },
    /// To `read`: so many bytes follow; 0 at the end of the file.
    Read {
        /// Their number.
        bytes: u64,
    },
    /// To `port`.
    Port {
        /// The port.
        port: u16,
    },
    /// To `space`.
    Space {
        /// Bytes that this user can still write.
        free_bytes: u64,
    },
    /// The request was done.
    Done {},
    /// The request failed.
    Error {
        /// Why.
        line: String,
    },
}

/// A part of what a program printed.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Part {
    /// The text.
    pub(crate) text: String,
    /// The position after it, in bytes of the file.
    pub(crate) end: u64,
}
