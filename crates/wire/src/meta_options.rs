//! The meaning of the flags of a meta command, and the errors that memcached 1.6.18 returns for invalid flags. For a server
//! that executes the command. A proxy forwards flags unchanged and uses this only to name the error of a command it refuses.

use crate::base64::decode_base64;
use crate::limits::KEY_BYTES_MAXIMUM;
use crate::meta::Meta;
use crate::number::{parse_i64, parse_u64};
use crate::request_error::{FlagError, RequestError};
use crate::verb::Verb;

/// The mode in which `ms` stores or `ma` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// `ms`: store. `ma`: count up.
    #[default]
    Ordinary,
    /// `ms`: only if the key is absent.
    Add,
    /// `ms`: append to the present value.
    Append,
    /// `ms`: prepend to the present value.
    Prepend,
    /// `ms`: only if the key is present.
    Replace,
    /// `ma`: count down.
    Down,
}

/// The options in the flags, apart from those that only select fields of the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `C`: only if the item has this cas token.
    pub cas: Option<u64>,
    /// `F`: the client flags.
    pub client_flags: u32,
    /// `T`: a new expiry time.
    pub exptime: Option<i64>,
    /// `N`: create a missing item, with this expiry time.
    pub vivify: Option<i64>,
    /// `R`: a client that finds less than this time to live wins the right to refresh the value.
    pub recache: Option<i64>,
    /// `I`: mark as stale.
    pub invalidates: bool,
    /// `M`: the mode.
    pub mode: Mode,
    /// `D`: the amount to count by.
    pub delta: u64,
    /// `J`: the initial value of a counter.
    pub initial: u64,
}

/// The length limit of the opaque flag, its letter included.
const OPAQUE_BYTES_MAXIMUM: usize = 32;

impl Options {
    /// Reads the flags of any command but `me`, which has no options.
    ///
    /// # Errors
    /// The error that memcached returns. Reading stops at an unknown or repeated flag; of several invalid arguments the last one
    /// determines the error.
    pub fn parse(meta: &Meta<'_>) -> Result<Options, RequestError> {
        let is_terse = matches!(meta.verb, Verb::Md | Verb::Ma);
        let (options, mode) = read(meta).map_err(|error| match error {
            _ if is_terse => RequestError::Flag(FlagError::UnknownOrDuplicate),
            error => error,
        })?;
        let mode = match meta.verb {
            Verb::Ms => store_mode(mode).ok_or(RequestError::Flag(FlagError::BadStoreMode))?,
            Verb::Ma => arithmetic_mode(mode).ok_or(RequestError::Flag(FlagError::BadArithmeticMode))?,
            _ => Mode::Ordinary,
        };
        if meta.flags.argument(b'O').is_some_and(|opaque| opaque.len() >= OPAQUE_BYTES_MAXIMUM) {
            return Err(RequestError::Flag(FlagError::OpaqueTooLong));
        }
        Ok(Options { mode, ..options })
    }
}

/// Reads all flags; returns the letter of the mode.
fn read(meta: &Meta<'_>) -> Result<(Options, Option<u8>), RequestError> {
    let mut options = Options { delta: 1, ..Options::default() };
    let (mut mode, mut wrong, mut seen) = (None, None, 0u128);
    for flag in meta.flags.iter() {
        let (letter, argument) = (flag[0], &flag[1..]);
        if letter >= 127 || seen >> letter & 1 == 1 {
            return Err(RequestError::Flag(FlagError::Duplicate));
        }
        seen |= 1 << letter;
        let is_usable = match letter {
            b'k' | b's' | b't' | b'c' | b'f' | b'v' | b'h' | b'l' | b'u' | b'q' | b'O' | b'P' | b'L' => true,
            b'b' => decode_base64(meta.key, &mut [0; KEY_BYTES_MAXIMUM]).is_some(),
            b'I' => {
                options.invalidates = true;
                true
            }
            b'N' => keep(&mut options.vivify, parse_i64(argument)),
            b'T' => keep(&mut options.exptime, parse_i64(argument)),
            b'R' => keep(&mut options.recache, parse_i64(argument)),
            b'C' => keep(&mut options.cas, parse_u64(argument)),
            // More than 32 bits are cut to 32, as memcached does.
            b'F' => parse_u64(argument).map(|flags| options.client_flags = flags as u32).is_some(),
            b'J' => parse_u64(argument).map(|initial| options.initial = initial).is_some(),
            b'D' => parse_u64(argument).map(|delta| options.delta = delta).is_some(),
            b'M' => keep(&mut mode, (argument.len() == 1).then(|| argument[0])),
            _ => return Err(RequestError::Flag(FlagError::Unknown)),
        };
        if !is_usable {
            wrong = wrong_argument(letter).or(wrong).or(Some(RequestError::BadLine));
        }
    }
    wrong.map_or(Ok((options, mode)), Err)
}

/// Stores a parsed number; returns whether there was one.
fn keep<T>(place: &mut Option<T>, read: Option<T>) -> bool {
    *place = read;
    place.is_some()
}

/// The error of an unusable argument; `F` has no error of its own.
fn wrong_argument(letter: u8) -> Option<RequestError> {
    Some(RequestError::Flag(match letter {
        b'F' => return None,
        b'b' => FlagError::BadBase64,
        b'M' => FlagError::BadModeLength,
        b'J' => FlagError::BadInitial,
        b'D' => FlagError::BadDelta,
        _ => FlagError::BadToken,
    }))
}

fn store_mode(letter: Option<u8>) -> Option<Mode> {
    Some(match letter {
        None | Some(b'S') => Mode::Ordinary,
        Some(b'E') => Mode::Add,
        Some(b'A') => Mode::Append,
        Some(b'P') => Mode::Prepend,
        Some(b'R') => Mode::Replace,
        Some(_) => return None,
    })
}

fn arithmetic_mode(letter: Option<u8>) -> Option<Mode> {
    Some(match letter {
        None | Some(b'I' | b'+') => Mode::Ordinary,
        Some(b'D' | b'-') => Mode::Down,
        Some(_) => return None,
    })
}
