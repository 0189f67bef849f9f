//! Checks the routes: their prefixes, their pools, and what they make of keys.

use crate::config::ConfigError;
use crate::config::check::quoted;
use crate::config::pool::RouteConfig;
use crate::config::proxy::Config;

const ROUTES_MAX: usize = 250;
/// The length of the longest key: no longer prefix can match, and nothing longer can take its place.
const PREFIX_BYTES_MAX: usize = 250;

impl Config {
    pub(super) fn check_routes(&self) -> Result<(), ConfigError> {
        if self.routes.len() > ROUTES_MAX {
            let problem = format!("{} routes; at most {ROUTES_MAX} are supported", self.routes.len());
            return Err(ConfigError::at("routes", problem));
        }
        for (index, route) in self.routes.iter().enumerate() {
            let (key, prefix) = (format!("routes.{index}.prefix"), &route.prefix);
            if prefix.is_empty() {
                let problem = "every key begins with the empty prefix; leave this route out: the first pool serves the keys without a route";
                return Err(ConfigError::value(key, quoted(prefix), problem));
            }
            check_part_of_keys(&key, prefix)?;
            if self.routes[..index].iter().any(|other| other.prefix == *prefix) {
                let problem = "another route has this prefix; leave one of them out";
                return Err(ConfigError::value(key, quoted(prefix), problem));
            }
            check_replacement(index, route)?;
            self.check_name(format!("routes.{index}.pool"), &route.pool)?;
        }
        Ok(())
    }
}

/// Checks what a route puts in the place of the prefix.
fn check_replacement(index: usize, route: &RouteConfig) -> Result<(), ConfigError> {
    let Some(replacement) = &route.replace_prefix else { return Ok(()) };
    let key = format!("routes.{index}.replace-prefix");
    let problem = match () {
        () if route.strip_prefix => {
            "strip-prefix removes the prefix, and replace-prefix replaces it; give only one of them"
        }
        () if replacement.is_empty() => "an empty text would only remove the prefix; give strip-prefix = true instead",
        () if *replacement == route.prefix => "this is the prefix itself; leave the setting out to keep the keys",
        () => return check_part_of_keys(&key, replacement),
    };
    Err(ConfigError::value(key, quoted(replacement), problem))
}

/// Checks that keys can begin with this text.
fn check_part_of_keys(key: &str, text: &str) -> Result<(), ConfigError> {
    if text.len() > PREFIX_BYTES_MAX {
        let problem = format!("{} bytes, and no key has more than {PREFIX_BYTES_MAX}", text.len());
        return Err(ConfigError::at(key, problem));
    }
    if text.bytes().any(|byte| matches!(byte, b' ' | b'\r' | b'\n' | 0)) {
        return Err(ConfigError::value(key, quoted(text), "no key has spaces or line ends"));
    }
    Ok(())
}
