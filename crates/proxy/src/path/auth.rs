//! Users and passwords: those of clients, and the one with which the proxy authenticates to the servers of a pool. A file has lines
//! `user:password`, as for memcached. None of this can be printed.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;
use wire::encode_auth;

/// The longest line: memcached reads so many bytes of a line.
const LINE_BYTES_MAX: usize = 254;
/// The most lines. Each attempt is compared with all of them.
const USERS_MAX: usize = 1000;
/// Longer than any user or password.
const WORD_BYTES: usize = 256;

/// A user or a password, with zeros behind it. None contains a zero.
type Word = [u8; WORD_BYTES];

/// The users whose clients are served.
#[derive(PartialEq, Eq)]
pub(crate) struct Users(Vec<(Word, Word)>);

/// The request with which the proxy authenticates to a server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login(Arc<[u8]>);

/// What is wrong with a file of users. It never contains a part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsersFault {
    #[error("it has no user; write user:password in a line")]
    None,
    #[error("it has more than {USERS_MAX} users; remove some")]
    TooMany,
    #[error("it has several users; write the one with which the proxy authenticates")]
    Several,
    #[error("line {0} has no colon; write user:password")]
    NoColon(usize),
    #[error("line {0} has no user; write user:password")]
    NoUser(usize),
    #[error("line {0} has no password; write user:password")]
    NoPassword(usize),
    #[error("line {0} has a space in the user, which ends there when a client sends it; use another user")]
    SpaceInUser(usize),
    #[error("line {0} has a control character; use others")]
    Control(usize),
    #[error("line {0} is longer than {LINE_BYTES_MAX} bytes; use a shorter user or password")]
    TooLong(usize),
}

impl Users {
    /// Reads the text of a file. A user can have several lines, and then several passwords.
    pub(crate) fn parse(text: &[u8]) -> Result<Users, UsersFault> {
        let mut users = Vec::new();
        for (index, line) in lines(text).enumerate() {
            let (user, password) = split(line, index + 1)?;
            if users.len() == USERS_MAX {
                return Err(UsersFault::TooMany);
            }
            users.extend(padded(user).zip(padded(password)));
        }
        if users.is_empty() { Err(UsersFault::None) } else { Ok(Users(users)) }
    }

    /// Whether a user has this password. The time for that does not depend on which user or which bytes differ.
    pub(crate) fn permits(&self, user: &[u8], password: &[u8]) -> bool {
        let Some((user, password)) = padded(user).zip(padded(password)) else { return false };
        let is_known = |known: &(Word, Word)| is_same(&known.0, &user) & is_same(&known.1, &password);
        self.0.iter().fold(false, |found, known| found | is_known(known))
    }
}

impl Login {
    /// Reads the text of a file with one user.
    pub(crate) fn parse(text: &[u8]) -> Result<Login, UsersFault> {
        let mut lines = lines(text);
        let (user, password) = split(lines.next().ok_or(UsersFault::None)?, 1)?;
        match lines.next() {
            Some(_) => Err(UsersFault::Several),
            None => Ok(Login(encode_auth(user, password).into())),
        }
    }

    /// The bytes of the request.
    pub(crate) fn request(&self) -> &[u8] {
        &self.0
    }
}

/// The lines of a file, with or without an end of the last one.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let lines = text.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(move |_| !text.is_empty())
}

/// The user and the password of a line.
fn split(line: &[u8], number: usize) -> Result<(&[u8], &[u8]), UsersFault> {
    let colon = line.iter().position(|&byte| byte == b':').ok_or(UsersFault::NoColon(number))?;
    let (user, password) = (&line[..colon], &line[colon + 1..]);
    let faults = [
        (line.len() > LINE_BYTES_MAX, UsersFault::TooLong(number)),
        (user.is_empty(), UsersFault::NoUser(number)),
        (password.is_empty(), UsersFault::NoPassword(number)),
        (line.iter().any(u8::is_ascii_control), UsersFault::Control(number)),
        (user.contains(&b' '), UsersFault::SpaceInUser(number)),
    ];
    match faults.into_iter().find(|(is_so, _)| *is_so) {
        Some((_, fault)) => Err(fault),
        None => Ok((user, password)),
    }
}

/// A word with zeros behind it, if it can be a user or a password.
fn padded(word: &[u8]) -> Option<Word> {
    let mut padded = [0; WORD_BYTES];
    if word.contains(&0) {
        return None;
    }
    padded.get_mut(..word.len())?.copy_from_slice(word);
    Some(padded)
}

/// Compares two words in a time that depends on neither.
fn is_same(left: &Word, right: &Word) -> bool {
    black_box(left.iter().zip(right).fold(0, |differs, (left, right)| differs | (left ^ right))) == 0
}

impl fmt::Debug for Users {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Users({})", self.0.len())
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Login")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_user_with_its_own_password_is_permitted() {
        let longest = format!("{}:{}", "u".repeat(100), "p".repeat(153));
        let text = format!("alice:secret\r\nbob:a b:c\nalice:new\n{longest}\n");
        let users = Users::parse(text.as_bytes()).unwrap();
        let (user, password) = longest.split_once(':').unwrap();
        for (user, password) in [("alice", "secret"), ("alice", "new"), ("bob", "a b:c"), (user, password)] {
            assert!(users.permits(user.as_bytes(), password.as_bytes()), "{user}");
        }
        let long = "x".repeat(1000);
        for (user, password) in [
            ("alice", ""),
            ("alice", "secre"),
            ("alice", "secret\0"),
            ("alice", "secretx"),
            ("Alice", "secret"),
            ("bob", "secret"),
            ("bob", "a b"),
            ("", "secret"),
            ("", ""),
            (&long, "secret"),
            ("alice", &long),
        ] {
            assert!(!users.permits(user.as_bytes(), password.as_bytes()), "{user:?} {password:?}");
        }
        assert_eq!(format!("{users:?}"), "Users(4)");
    }

    #[test]
    fn every_bad_file_is_one_clear_line_without_a_part_of_it() {
        let many = "u:p\n".repeat(USERS_MAX + 1);
        let long = format!("secret:{}", "x".repeat(248));
        for (text, fault) in [
            ("", UsersFault::None),
            ("\n", UsersFault::None),
            ("a:b\nsecret", UsersFault::NoColon(2)),
            ("a:b\n\nc:d\n", UsersFault::NoColon(2)),
            (":secret\n", UsersFault::NoUser(1)),
            ("secret:\n", UsersFault::NoPassword(1)),
            ("sec ret:b\n", UsersFault::SpaceInUser(1)),
            ("a:sec\tret\n", UsersFault::Control(1)),
            ("a:sec\0ret\n", UsersFault::Control(1)),
            (&long, UsersFault::TooLong(1)),
            (&many, UsersFault::TooMany),
        ] {
            assert_eq!(Users::parse(text.as_bytes()), Err(fault));
            assert!(!fault.to_string().contains("secret") && !fault.to_string().contains('\n'));
        }
        assert_eq!(Users::parse(&long.as_bytes()[1..]).map(|users| users.0.len()), Ok(1));
    }

    #[test]
    fn a_login_is_one_user() {
        for text in ["user:pass:word", "user:pass:word\n", "user:pass:word\r\n"] {
            let login = Login::parse(text.as_bytes()).unwrap();
            assert_eq!(login.request(), b"set auth 0 -1 14\r\nuser pass:word\r\n");
            assert_eq!(format!("{login:?}"), "Login");
        }
        assert_eq!(Login::parse(b"a:b\nc:d\n"), Err(UsersFault::Several));
        assert_eq!(Login::parse(b"a:b\n\n"), Err(UsersFault::Several));
        assert_eq!(Login::parse(b""), Err(UsersFault::None));
        assert_eq!(Login::parse(b"a\n"), Err(UsersFault::NoColon(1)));
    }
}
