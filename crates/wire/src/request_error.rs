//! The errors of a malformed request, and the reply to each.

/// The reason why bytes are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The first word is not a command.
    #[error("the command is unknown")]
    UnknownCommand,
    /// The command takes another number of words.
    #[error("the command has too few or too many words")]
    WrongWordCount,
    /// A word has the wrong form for its position.
    #[error("a word of the command line does not have the expected form")]
    BadLine,
    /// A key is longer than the limit, or contains a NUL.
    #[error("a key is too long or contains a NUL")]
    BadKey,
    /// A value does not end at its announced length.
    #[error("the value does not end in \\r\\n at its announced length")]
    BadDataChunk,
    /// A value is larger than the limit.
    #[error("the value is too large")]
    ValueTooLarge,
    /// The receiver has no memory for the value.
    #[error("there is no memory for the value")]
    OutOfMemory,
    /// An expiry time or a delay is not a number, or is negative where it must not be.
    #[error("the expiry time or delay is not a valid number")]
    BadExptime,
    /// The amount to add is not a number.
    #[error("the delta is not a whole number of 64 bits")]
    BadDelta,
    /// `delete` with more arguments than a key.
    #[error("delete takes a key and an optional noreply")]
    BadDelete,
    /// The line is longer than the limit.
    #[error("the command line is too long")]
    LineTooLong,
    /// An invalid flag of a meta command.
    #[error("{0}")]
    Flag(FlagError),
    /// The same error in a command with `noreply`: a reply would be matched to another request.
    #[error("{0}, and the command has noreply")]
    Noreply(&'static RequestError),
}

/// The errors in the flags of a meta command. memcached distinguishes more of them for `mg` and `ms` than for `md` and `ma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// More flags than `mg` may have.
    #[error("mg has too many flags")]
    TooManyOfGet,
    /// More flags than any other command may have.
    #[error("the command has too many flags")]
    TooMany,
    /// A repeated flag, or one that is not a letter.
    #[error("a flag is repeated")]
    Duplicate,
    /// An unknown flag.
    #[error("a flag is unknown")]
    Unknown,
    /// Any error in a flag of `md` or `ma`.
    #[error("a flag is unknown, repeated, or has an invalid argument")]
    UnknownOrDuplicate,
    /// The flag `b` is present but the key is not base64.
    #[error("the key is not base64")]
    BadBase64,
    /// An expiry time or a cas token is not a number.
    #[error("the argument of a flag is not a valid number")]
    BadToken,
    /// The argument of `M` is not one letter.
    #[error("a mode is one letter")]
    BadModeLength,
    /// A mode that `ms` does not have.
    #[error("ms has no such mode")]
    BadStoreMode,
    /// A mode that `ma` does not have.
    #[error("ma has no such mode")]
    BadArithmeticMode,
    /// The argument of `J` is not a number.
    #[error("the initial value is not a whole number of 64 bits")]
    BadInitial,
    /// The argument of `D` is not a number.
    #[error("the delta is not a whole number of 64 bits")]
    BadDelta,
    /// The argument of `O` is longer than 31 bytes.
    #[error("the opaque token is too long")]
    OpaqueTooLong,
}

impl FlagError {
    /// The text of the reply, word for word that of memcached 1.6.18.
    pub fn line(&self) -> &'static [u8] {
        match self {
            FlagError::TooManyOfGet => b"CLIENT_ERROR options flags are too long\r\n",
            FlagError::TooMany => b"CLIENT_ERROR options flags too long\r\n",
            FlagError::Duplicate => b"CLIENT_ERROR duplicate flag\r\n",
            FlagError::Unknown => b"CLIENT_ERROR invalid flag\r\n",
            FlagError::UnknownOrDuplicate => b"CLIENT_ERROR invalid or duplicate flag\r\n",
            FlagError::BadBase64 => b"CLIENT_ERROR error decoding key\r\n",
            FlagError::BadToken => b"CLIENT_ERROR bad token in command line format\r\n",
            FlagError::BadModeLength => b"CLIENT_ERROR incorrect length for M token\r\n",
            FlagError::BadStoreMode => b"CLIENT_ERROR invalid mode for ms M token\r\n",
            FlagError::BadArithmeticMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
            FlagError::BadInitial => b"CLIENT_ERROR invalid numeric initial value\r\n",
            FlagError::BadDelta => b"CLIENT_ERROR invalid numeric delta value\r\n",
            FlagError::OpaqueTooLong => b"CLIENT_ERROR opaque token too long\r\n",
        }
    }
}

impl RequestError {
    /// The reply including the line end; empty for a command with `noreply`.
    pub fn line(&self) -> &'static [u8] {
        match self {
            RequestError::UnknownCommand | RequestError::WrongWordCount => b"ERROR\r\n",
            RequestError::BadLine | RequestError::BadKey => b"CLIENT_ERROR bad command line format\r\n",
            RequestError::BadDataChunk => b"CLIENT_ERROR bad data chunk\r\n",
            RequestError::ValueTooLarge => b"SERVER_ERROR object too large for cache\r\n",
            RequestError::OutOfMemory => b"SERVER_ERROR out of memory storing object\r\n",
            RequestError::BadExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
            RequestError::BadDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
            RequestError::BadDelete => b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
            RequestError::LineTooLong => b"CLIENT_ERROR line too long\r\n",
            RequestError::Flag(error) => error.line(),
            RequestError::Noreply(_) => b"",
        }
    }

    /// The error without regard to `noreply`.
    pub fn reason(&self) -> RequestError {
        match self {
            RequestError::Noreply(reason) => **reason,
            reason => *reason,
        }
    }

    /// Whether no reply must be sent.
    pub fn noreply(&self) -> bool {
        matches!(self, RequestError::Noreply(_))
    }

    /// The error of a line with or without `noreply`.
    pub(crate) fn answered_unless(noreply: bool, reason: &'static RequestError) -> RequestError {
        if noreply { RequestError::Noreply(reason) } else { *reason }
    }
}
