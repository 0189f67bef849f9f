//! The configuration that is written: pools and routes, with notes where the other proxy does something else.

use crate::error::{ConvertError, one_line};
use toml::Value;

/// The most characters of a pool's name.
const NAME_CHARACTERS_MAX: usize = 64;

/// The whole configuration.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Notes about the whole file.
    pub(crate) notes: Vec<String>,
    /// The first one has the keys without a route.
    pub(crate) pools: Vec<Pool>,
    pub(crate) routes: Vec<Route>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) items: Vec<Item>,
}

/// A route by prefix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    pub(crate) prefix: String,
    pub(crate) pool: String,
    /// What the servers receive in the place of the prefix, if the route changes keys. It may be empty.
    pub(crate) replacement: Option<String>,
}

/// A line of a pool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item {
    /// A comment.
    Note(String),
    /// A key with its value in TOML.
    Key(&'static str, String),
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) name: Option<String>,
    pub(crate) weight: u32,
}

impl Pool {
    /// A pool without keys. Letters that a name of a pool cannot have are replaced, which is noted.
    pub(crate) fn named(name: &str) -> Pool {
        let is_plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
        let plain = name.chars().map(|character| if is_plain(character) { character } else { '-' });
        let plain: String = plain.take(NAME_CHARACTERS_MAX).collect();
        let plain = if plain.is_empty() { "pool".into() } else { plain };
        let mut pool = Pool { name: plain, items: Vec::new() };
        if pool.name != name {
            pool.note(format!("The name was {name:?}. A name has letters, digits and - _ . only."));
        }
        pool
    }

    /// Adds a comment.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.items.push(Item::Note(text.into()));
    }

    /// Sets a key to a value that is TOML.
    pub(crate) fn set(&mut self, key: &'static str, value: impl Into<String>) {
        self.items.retain(|item| !matches!(item, Item::Key(known, _) if *known == key));
        self.items.push(Item::Key(key, value.into()));
    }

    /// Sets a key to a text.
    pub(crate) fn set_text(&mut self, key: &'static str, value: &str) {
        self.set(key, quoted(value));
    }

    /// Sets the servers. One without a name and with weight 1 is only an address.
    pub(crate) fn set_servers(&mut self, servers: &[Server]) {
        let lines = servers.iter().map(|server| format!("    {},\n", server.toml()));
        self.set("servers", format!("[\n{}]", lines.collect::<String>()));
    }
}

impl Server {
    fn toml(&self) -> String {
        let name = self.name.as_ref().map(|name| format!(", name = {}", quoted(name))).unwrap_or_default();
        let weight = if self.weight == 1 { String::new() } else { format!(", weight = {}", self.weight) };
        match name.is_empty() && weight.is_empty() {
            true => quoted(&self.address),
            false => format!("{{ address = {}{name}{weight} }}", quoted(&self.address)),
        }
    }
}

impl Output {
    /// Adds a pool. If another pool has its name, it gets a number behind it; an equal pool is used again. Returns the name.
    pub(crate) fn add(&mut self, pool: Pool) -> Result<String, ConvertError> {
        let base = pool.name.clone();
        for number in 1..1000 {
            let suffix = if number == 1 { String::new() } else { format!("-{number}") };
            let kept = base.chars().take(NAME_CHARACTERS_MAX - suffix.len()).collect::<String>();
            let pool = Pool { name: kept + &suffix, ..pool.clone() };
            match self.pools.iter().find(|other| other.name == pool.name) {
                Some(other) if *other == pool => return Ok(pool.name),
                Some(_) => {}
                None => {
                    self.pools.push(pool.clone());
                    return Ok(pool.name);
                }
            }
        }
        Err(ConvertError::new(format!("more than 999 different pools are made from {base:?}")))
    }

    /// The file. `source` is the name of the file that it was made from.
    pub(crate) fn toml(&self, source: &str) -> String {
        let mut text = comment(&format!(
            "Converted from {source} by waystage proxy convert. Read the comments, and check it with --check."
        ));
        self.notes.iter().for_each(|note| text += &comment(note));
        for pool in &self.pools {
            text += &format!("\n[[pools]]\nname = {}\n", quoted(&pool.name));
            for item in &pool.items {
                text += &match item {
                    Item::Note(note) => comment(note),
                    Item::Key(key, value) => format!("{key} = {value}\n"),
                };
            }
        }
        for Route { prefix, pool, replacement } in &self.routes {
            text += &format!("\n[[routes]]\nprefix = {}\npool = {}\n", quoted(prefix), quoted(pool));
            text += &match replacement.as_deref() {
                None => String::new(),
                Some("") => "strip-prefix = true\n".into(),
                Some(replacement) => format!("replace-prefix = {}\n", quoted(replacement)),
            };
        }
        text
    }
}

/// A comment on one line, whatever the text contains.
fn comment(text: &str) -> String {
    format!("# {}\n", one_line(text))
}

/// A text in TOML.
pub(crate) fn quoted(text: &str) -> String {
    Value::String(text.into()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_a_file_can_add_a_line() {
        let mut pool = Pool::named("a\nb");
        pool.note("first\nloops = 3\u{2028}x");
        pool.set_text("hash-tag", "\"\n");
        let mut output = Output { notes: vec!["a\r\nb".into()], ..Output::default() };
        output.add(pool).unwrap();
        output.routes.push(Route {
            prefix: "a\"\n[[pools]]".into(),
            pool: "a-b".into(),
            replacement: Some("b\"\n[[pools]]".into()),
        });
        let text = output.toml("a\nloops = 4");
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table.keys().collect::<Vec<_>>(), ["pools", "routes"], "{text}");
        assert_eq!(table["routes"][0]["prefix"].as_str(), Some("a\"\n[[pools]]"));
        assert_eq!(table["routes"][0]["replace-prefix"].as_str(), Some("b\"\n[[pools]]"));
        assert_eq!(table["pools"][0]["name"].as_str(), Some("a-b"));
    }

    #[test]
    fn an_equal_pool_is_used_again_and_another_one_gets_a_number() {
        let mut output = Output::default();
        let with = |replicas: &str| {
            let mut pool = Pool::named("a");
            pool.set("replicas", replicas);
            pool
        };
        let mut add = |replicas| output.add(with(replicas)).unwrap();
        assert_eq!([add("1"), add("2"), add("1"), add("2"), add("3")], ["a", "a-2", "a", "a-2", "a-3"]);
    }
}
