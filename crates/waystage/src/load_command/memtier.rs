//! Flags of memtier_benchmark that `waystage load` does not have, and what to write instead. They are not accepted as they
//! are, because some of them count per thread or per connection.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A flag of memtier_benchmark in its short and its long form, and the text that replaces it.
type Replacement = (&'static str, &'static str, &'static str);

const REPLACEMENTS: [Replacement; 10] = [
    ("-s", "--host", "--server HOST:PORT for -s HOST -p PORT"),
    ("-p", "--port", "--server HOST:PORT for -s HOST -p PORT"),
    ("-P", "", "--protocol text for -P memcache_text"),
    ("-c", "", "--clients, the total over all threads, for -c"),
    ("-t", "", "--threads for -t"),
    ("-n", "", "--requests, the total over all clients, for -n"),
    ("-d", "", "--data-size for -d"),
    ("-x", "--run-count", "`waylab run` for -x, several runs"),
    ("-o", "--out-file", "a redirection of standard output for -o"),
    ("", "--rate-limiting", "--rate, the total over all connections, for --rate-limiting"),
];

/// The line for arguments of memtier_benchmark, if the mistake is one of them.
pub(crate) fn hint(error: &clap::Error, arguments: impl Iterator<Item = String>) -> Option<String> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(unknown))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    replacement(unknown)?;
    let mut texts: Vec<&str> = Vec::new();
    for text in arguments.filter_map(|argument| replacement(&argument)) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    Some(format!(
        "{unknown} is a flag of memtier_benchmark; write {} (docs/migration-from-memtier.md has all flags)",
        texts.join("; ")
    ))
}

/// The text for an argument such as `-s`, `-c50` or `--port=11211`.
fn replacement(argument: &str) -> Option<&'static str> {
    let is_long = argument.starts_with("--");
    let name = if is_long { argument.split('=').next() } else { argument.get(..2) };
    let name = name.filter(|name| !name.is_empty())?;
    let found = REPLACEMENTS.iter().find(|(short, long, _)| if is_long { *long == name } else { *short == name });
    found.map(|(_, _, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    fn line(text: &str) -> Option<String> {
        let error = Command::new("load").no_binary_name(true).try_get_matches_from(text.split(' ')).unwrap_err();
        hint(&error, text.split(' ').map(String::from))
    }

    #[test]
    fn flags_of_memtier_are_translated_in_one_line() {
        let found = line("-s 127.0.0.1 -p 11211 -c50 -t 4 --rate-limiting=10").unwrap();
        assert!(
            found.starts_with("-s is a flag of memtier_benchmark; write --server HOST:PORT for -s HOST"),
            "{found}"
        );
        for words in ["--clients, the total over all threads, for -c;", "--threads for -t;", "--rate, the total"] {
            assert!(found.contains(words), "{found}");
        }
        assert_eq!(found.matches("-s HOST -p PORT").count(), 1, "{found}");
    }

    #[test]
    fn other_mistakes_have_no_hint() {
        assert_eq!([line("--bananas"), line("-z"), line("orange")].into_iter().flatten().count(), 0);
    }
}
