//! Why a line is no request, and what its sender is told.

/// Why bytes are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The first word is no command.
    #[error("the command is unknown")]
    UnknownCommand,
    /// The command takes another number of words.
    #[error("the command has too few or too many words")]
    WrongWordCount,
    /// A word does not mean what its position demands.
    #[error("a word of the command line is not what belongs there")]
    BadLine,
    /// A key is longer than the limit, or holds a NUL.
    #[error("a key is too long or holds a NUL")]
    BadKey,
    /// A value does not end where its length says.
    #[error("the value does not end in \\r\\n where its announced length says")]
    BadDataChunk,
    /// A value is larger than the limit.
    #[error("the value is too large")]
    ValueTooLarge,
    /// An expiry time or a delay is no number, or less than nothing where that is meaningless.
    #[error("the expiry time or delay is not a number that can be used")]
    BadExptime,
    /// What is to be added is no number.
    #[error("the delta is not a whole number of 64 bits")]
    BadDelta,
    /// `delete` with more than a key.
    #[error("delete takes a key and perhaps noreply")]
    BadDelete,
    /// No line end for too long.
    #[error("the command line is too long")]
    LineTooLong,
    /// A flag of a meta command.
    #[error("{0}")]
    Flag(FlagError),
    /// The same as it says, in a command that asked for no reply: nothing must be answered, or replies get out of step.
    #[error("{0}, and no reply was asked for")]
    Noreply(&'static RequestError),
}

/// What is wrong with the flags of a meta command. `mg` and `ms` are told more than `md` and `ma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// More than `mg` may have.
    #[error("mg has too many flags")]
    TooManyOfGet,
    /// More than any other command may have.
    #[error("the command has too many flags")]
    TooMany,
    /// The same flag twice, or one that is no letter.
    #[error("a flag is there twice")]
    Duplicate,
    /// A flag that nobody knows.
    #[error("a flag is unknown")]
    Unknown,
    /// Anything that is wrong with a flag of `md` or `ma`.
    #[error("a flag is unknown, there twice, or has an unusable argument")]
    UnknownOrDuplicate,
    /// The key is not base64, and `b` says that it is.
    #[error("the key is not base64")]
    BadBase64,
    /// An expiry time or a cas token is no number.
    #[error("the argument of a flag is not a number that can be used")]
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
    /// The argument of `J` is no number.
    #[error("the initial value is not a whole number of 64 bits")]
    BadInitial,
    /// The argument of `D` is no number.
    #[error("the delta is not a whole number of 64 bits")]
    BadDelta,
    /// The argument of `O` is longer than 31 bytes.
    #[error("the opaque token is too long")]
    OpaqueTooLong,
}

impl FlagError {
    /// What the client is answered, word for word what memcached 1.6.18 says.
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
    /// What the client is answered, line end included; nothing for a command that asked for no reply.
    pub fn line(&self) -> &'static [u8] {
        match self {
            RequestError::UnknownCommand | RequestError::WrongWordCount => b"ERROR\r\n",
            RequestError::BadLine | RequestError::BadKey => b"CLIENT_ERROR bad command line format\r\n",
            RequestError::BadDataChunk => b"CLIENT_ERROR bad data chunk\r\n",
            RequestError::ValueTooLarge => b"SERVER_ERROR object too large for cache\r\n",
            RequestError::BadExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
            RequestError::BadDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
            RequestError::BadDelete => b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
            RequestError::LineTooLong => b"CLIENT_ERROR line too long\r\n",
            RequestError::Flag(error) => error.line(),
            RequestError::Noreply(_) => b"",
        }
    }

    /// What is wrong, whether a reply was asked for or not.
    pub fn reason(&self) -> RequestError {
        match self {
            RequestError::Noreply(reason) => **reason,
            reason => *reason,
        }
    }

    /// Whether nothing must be answered.
    pub fn noreply(&self) -> bool {
        matches!(self, RequestError::Noreply(_))
    }

    /// The error of a line that did or did not ask for a reply.
    pub(crate) fn answered_unless(noreply: bool, reason: &'static RequestError) -> RequestError {
        if noreply { RequestError::Noreply(reason) } else { *reason }
    }
}
