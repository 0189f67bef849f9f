//! Configurations of other proxies, written as one for `waystage proxy`: twemproxy's YAML and mcrouter's JSON. Every key is at the
//! same server afterwards, or the conversion is refused. Does no I/O.

mod error;
mod mcrouter;
mod output;
mod twemproxy;
mod yaml;

pub use error::ConvertError;

/// The proxy that a configuration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// twemproxy, also called nutcracker.
    Twemproxy,
    /// mcrouter.
    Mcrouter,
}

/// What the text alone does not say.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The name of the file, for errors and for the first line of the result.
    pub file: String,
    /// The proxy. By default, a text that begins with a brace, after comments, is for mcrouter.
    pub origin: Option<Origin>,
    /// For mcrouter: the routing prefix whose route is converted, as mcrouter's own argument `--route-prefix`.
    pub route_prefix: Option<String>,
}

/// The longest text that is converted: as long as the longest configuration that the proxy reads.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// The configuration of `waystage proxy`, as TOML.
///
/// # Errors
/// In one line: what cannot be read or has no counterpart, where it is, and what to do.
pub fn convert(text: &str, options: &Options) -> Result<String, ConvertError> {
    let fail = |error: ConvertError| error.in_file(&options.file);
    if text.len() > TEXT_BYTES_MAX {
        return Err(fail(ConvertError::new("larger than 1 MiB; is it a configuration file?")));
    }
    let origin = options.origin.unwrap_or_else(|| match mcrouter::is_json(text) {
        true => Origin::Mcrouter,
        false => Origin::Twemproxy,
    });
    if origin == Origin::Twemproxy && options.route_prefix.is_some() {
        return Err(fail(ConvertError::new(
            "a configuration of twemproxy has no routing prefixes; leave --route-prefix out",
        )));
    }
    let output = match origin {
        Origin::Twemproxy => twemproxy::convert(text),
        Origin::Mcrouter => mcrouter::convert(text, options.route_prefix.as_deref()),
    };
    output.map(|output| output.toml(&options.file)).map_err(fail)
}
