//! The mini-language of random variates: `KIND:PARAMETER:...`, a bare value, or the name of a preset.

use crate::VariateError;
use crate::kind::Kind;
use crate::tails::Tail;
use crate::unit::{Unit, number};
use crate::variate::Variate;
use crate::weighted::Weighted;
use std::fmt;

/// The type of a parameter.
#[derive(Clone, Copy, Debug)]
enum Parameter {
    /// A value in the unit of the variate, with a smaller or a larger example.
    Small(&'static str),
    Large(&'static str),
    /// A number without a unit, with an example.
    Number(&'static str, &'static str),
}

use Parameter::{Large, Number, Small};

/// Every kind with parameters, except the list.
const KINDS: [(&str, &[Parameter]); 8] = [
    ("fixed", &[Small("VALUE")]),
    ("uniform", &[Small("LOW"), Large("HIGH")]),
    ("normal", &[Large("MEAN"), Small("DEVIATION")]),
    ("lognormal", &[Large("MEDIAN"), Number("SIGMA", "0.5")]),
    ("exponential", &[Large("MEAN")]),
    ("exp", &[Large("MEAN")]),
    ("pareto", &[Small("LOCATION"), Large("SCALE"), Number("SHAPE", "0.3")]),
    ("gev", &[Large("LOCATION"), Small("SCALE"), Number("SHAPE", "0.1")]),
];

const NAMES: &str = "fixed, uniform, normal, lognormal, exp, pareto, gev, list, fb_key, fb_value, fb_ia";

impl Variate {
    /// Reads a variate; its values have this unit.
    ///
    /// # Errors
    /// One line with the part that is wrong and an example. The mean may be infinite: see [`Variate::finite_mean`].
    pub fn parse(text: &str, unit: Unit) -> Result<Variate, VariateError> {
        let kind = match text.split_once(':') {
            Some((name, parameters)) => with_parameters(text, name, parameters, unit)?,
            None => alone(text, unit)?,
        };
        Ok(Variate { unit, kind })
    }
}

/// A bare value, a preset, or `none`.
fn alone(text: &str, unit: Unit) -> Result<Kind, VariateError> {
    let refuse = |problem: &str| Err(VariateError::new(text, problem, format!("exp:{}", unit.examples().1)));
    match (text, unit) {
        ("none", Unit::Time) => Ok(Kind::Fixed(0.0)),
        ("fb_key", Unit::Bytes | Unit::Plain) => Ok(Kind::FbKey),
        ("fb_value", Unit::Bytes | Unit::Plain) => Ok(Kind::FbValue),
        ("fb_ia", Unit::Time) => Ok(Kind::FbIa { microsecond: 1000.0 }),
        ("fb_ia", Unit::Plain) => Ok(Kind::FbIa { microsecond: 1.0 }),
        ("fb_key" | "fb_value", Unit::Time) => refuse("it draws sizes, and times are required"),
        ("fb_ia", Unit::Bytes) => refuse("it draws times, and sizes are required"),
        _ => match KINDS.iter().find(|(name, _)| *name == text) {
            Some((name, parameters)) => {
                Err(VariateError::new(text, "the parameters are missing", example(name, parameters, unit)))
            }
            None if text == "list" => Err(VariateError::new(text, "the list is empty", list_example(unit))),
            None => unit
                .read(text)
                .map(Kind::Fixed)
                .or_else(|line| refuse(&format!("neither a random variate ({NAMES}) nor a value: {line}"))),
        },
    }
}

fn with_parameters(text: &str, name: &str, rest: &str, unit: Unit) -> Result<Kind, VariateError> {
    if name == "list" {
        return list(rest, unit).map_err(|problem| VariateError::new(text, problem, list_example(unit)));
    }
    let Some((_, parameters)) = KINDS.iter().find(|(known, _)| *known == name) else {
        let problem = format!("{name:?} is none of {NAMES}");
        return Err(VariateError::new(text, problem, format!("exp:{}", unit.examples().1)));
    };
    values(rest, parameters, unit)
        .and_then(|values| kind(name, &values))
        .map_err(|problem| VariateError::new(text, problem, example(name, parameters, unit)))
}

/// Reads one value for each parameter.
fn values(rest: &str, parameters: &[Parameter], unit: Unit) -> Result<[f64; 3], String> {
    let parts: Vec<&str> = rest.split(':').collect();
    if parts.len() != parameters.len() {
        let names: Vec<&str> = parameters.iter().map(|parameter| parameter.name()).collect();
        return Err(format!("wanted {}, not {} values", names.join(":"), parts.len()));
    }
    let mut values = [0.0; 3];
    for ((value, part), parameter) in values.iter_mut().zip(parts).zip(parameters) {
        let read = match parameter {
            Small(_) | Large(_) => unit.read(part),
            Number(..) => number(part),
        };
        *value = read.map_err(|line| format!("{}: {line}", parameter.name()))?;
    }
    Ok(values)
}

fn kind(name: &str, values: &[f64; 3]) -> Result<Kind, String> {
    let [one, two, three] = *values;
    let at_least_zero = |name: &str, value: f64| {
        if value >= 0.0 { Ok(value) } else { Err(format!("{name} {value} is below 0")) }
    };
    let tail = || Ok::<_, String>(Tail { location: one, scale: at_least_zero("SCALE", two)?, shape: three });
    Ok(match name {
        "fixed" => Kind::Fixed(one),
        "uniform" if one > two => return Err(format!("LOW {one} is above HIGH {two}")),
        "uniform" => Kind::Uniform { low: one, high: two },
        "normal" => Kind::Normal { mean: one, deviation: at_least_zero("DEVIATION", two)? },
        "lognormal" => Kind::Lognormal { median: at_least_zero("MEDIAN", one)?, sigma: at_least_zero("SIGMA", two)? },
        "pareto" => Kind::Pareto(tail()?),
        "gev" => Kind::Extreme(tail()?),
        "exponential" | "exp" => Kind::Exponential { mean: at_least_zero("MEAN", one)? },
        _ => return Err(format!("{name} is not a random variate; give {NAMES}")),
    })
}

/// `VALUE:WEIGHT,VALUE:WEIGHT,...`; the default weight is 1.
fn list(rest: &str, unit: Unit) -> Result<Kind, String> {
    let mut pairs = Vec::new();
    for part in rest.split(',').filter(|part| !part.is_empty()) {
        let (value, weight) = part.split_once(':').unwrap_or((part, "1"));
        let weight = number(weight).map_err(|line| format!("weight in {part:?}: {line}"))?;
        if weight < 0.0 {
            return Err(format!("weight in {part:?} is below 0"));
        }
        pairs.push((unit.read(value).map_err(|line| format!("value in {part:?}: {line}"))?, weight));
    }
    if pairs.is_empty() {
        return Err("the list is empty".into());
    }
    Weighted::new(pairs).map(Kind::List).ok_or_else(|| "the weights add up to nothing, or to infinity".into())
}

fn list_example(unit: Unit) -> String {
    let (small, large) = unit.examples();
    format!("list:{small}:0.9,{large}:0.1")
}

fn example(name: &str, parameters: &[Parameter], unit: Unit) -> String {
    let (small, large) = unit.examples();
    let values = parameters.iter().map(|parameter| match parameter {
        Small(_) => small,
        Large(_) => large,
        Number(_, example) => example,
    });
    [name].into_iter().chain(values).collect::<Vec<_>>().join(":")
}

impl Parameter {
    fn name(&self) -> &'static str {
        match self {
            Small(name) | Large(name) | Number(name, _) => name,
        }
    }
}

/// The text that is read as the same variate again.
impl fmt::Display for Variate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |value: &f64| self.unit.write(*value);
        let tail = |tail: &Tail| format!("{}:{}:{}", value(&tail.location), value(&tail.scale), tail.shape);
        match &self.kind {
            Kind::Fixed(0.0) if self.unit == Unit::Time => formatter.write_str("none"),
            Kind::Fixed(fixed) => write!(formatter, "fixed:{}", value(fixed)),
            Kind::Uniform { low, high } => write!(formatter, "uniform:{}:{}", value(low), value(high)),
            Kind::Normal { mean, deviation } => write!(formatter, "normal:{}:{}", value(mean), value(deviation)),
            Kind::Lognormal { median, sigma } => write!(formatter, "lognormal:{}:{sigma}", value(median)),
            Kind::Exponential { mean } => write!(formatter, "exp:{}", value(mean)),
            Kind::Pareto(parameters) => write!(formatter, "pareto:{}", tail(parameters)),
            Kind::Extreme(parameters) => write!(formatter, "gev:{}", tail(parameters)),
            Kind::List(list) => {
                let pairs: Vec<String> =
                    list.pairs().map(|(entry, weight)| format!("{}:{weight}", value(&entry))).collect();
                write!(formatter, "list:{}", pairs.join(","))
            }
            Kind::FbKey => formatter.write_str("fb_key"),
            Kind::FbValue => formatter.write_str("fb_value"),
            Kind::FbIa { .. } => formatter.write_str("fb_ia"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(text: &str, unit: Unit) -> String {
        Variate::parse(text, unit).map_or_else(|error| panic!("{error}"), |read| read.to_string())
    }

    fn refusal(text: &str, unit: Unit) -> String {
        Variate::parse(text, unit).unwrap_err().to_string()
    }

    #[test]
    fn a_bare_value_is_fixed() {
        assert_eq!(text("128", Unit::Bytes), "fixed:128");
        assert_eq!(text("4k", Unit::Bytes), "fixed:4k");
        assert_eq!(text("1ms", Unit::Time), "fixed:1ms");
        assert_eq!(text("-0.5", Unit::Plain), "fixed:-0.5");
    }

    #[test]
    fn think_times_print_as_they_were_typed() {
        for time in ["none", "fixed:1ms", "fixed:1500us", "exp:1ms", "exp:2s", "uniform:100us:300us", "fb_ia"] {
            assert_eq!(text(time, Unit::Time), time);
        }
        assert_eq!(text("exponential:1.5ms", Unit::Time), "exp:1500us");
        assert_eq!(text("fixed:0ms", Unit::Time), "none");
        assert_eq!(text("exp:0.3ns", Unit::Time), "exp:0.3ns");
        assert_eq!(text("pareto:0ns:16.0292us:0.154971", Unit::Time), "pareto:0s:16.0292us:0.154971");
    }

    #[test]
    fn lists_are_put_in_order() {
        assert_eq!(text("list:4k:0.2,100:0.5,1000:0.3", Unit::Bytes), "list:100:0.5,1000:0.3,4k:0.2");
        assert_eq!(text("list:7,3", Unit::Plain), "list:3:1,7:1");
    }

    #[test]
    fn a_refusal_names_the_part_and_gives_an_example_that_works() {
        let cases = [
            ("pareto:1:2", "wanted LOCATION:SCALE:SHAPE, not 2 values"),
            ("pareto:0:-1:0.5", "SCALE -1 is below 0"),
            ("gev:0:1:nan", "SHAPE: \"nan\" is not a finite number"),
            ("normal:1:inf", "DEVIATION: \"inf\" is not a finite number"),
            ("normal:1:-2", "DEVIATION -2 is below 0"),
            ("lognormal:-1:2", "MEDIAN -1 is below 0"),
            ("exp:-1", "MEAN -1 is below 0"),
            ("exp", "the parameters are missing"),
            ("exp:", "MEAN: \"\" is not"),
            ("exp:1:2", "wanted MEAN, not 2 values"),
            ("uniform:3:2", "LOW 3 is above HIGH 2"),
            ("list:", "the list is empty"),
            ("list", "the list is empty"),
            ("list:,", "the list is empty"),
            ("list:1:0,2:0", "add up to nothing"),
            ("list:1:-1", "weight in \"1:-1\" is below 0"),
            ("list:x:1", "value in \"x:1\""),
            ("list:1:1:1", "weight in \"1:1:1\""),
            ("weibull:1:2", "\"weibull\" is none of fixed,"),
            ("foo", "neither a random variate"),
            ("", "neither a random variate"),
            ("none", "neither a random variate"),
        ];
        for unit in [Unit::Plain, Unit::Bytes, Unit::Time] {
            for (bad, part) in cases {
                if unit == Unit::Time && bad == "none" {
                    continue;
                }
                let line = refusal(bad, unit);
                assert!(unit != Unit::Plain || line.contains(part), "{line}");
                assert!(!line.contains('\n') && line.starts_with(&format!("{bad:?}: ")), "{line}");
                let (_, example) = line.rsplit_once("for example ").unwrap();
                assert!(Variate::parse(example, unit).is_ok(), "{example} in {line}");
            }
        }
    }

    #[test]
    fn the_unit_must_fit() {
        assert!(refusal("fixed:1", Unit::Time).contains("VALUE: \"1\" is not a duration"));
        assert!(refusal("1ms", Unit::Bytes).contains("is not a size"));
        assert!(refusal("fb_key", Unit::Time).contains("it draws sizes"));
        assert!(refusal("fb_ia", Unit::Bytes).contains("it draws times"));
        assert!(refusal("normal:10:-5", Unit::Bytes).contains("DEVIATION: \"-5\" is not a size"));
    }

    fn unit() -> impl Strategy<Value = Unit> {
        prop_oneof![Just(Unit::Bytes), Just(Unit::Time), Just(Unit::Plain)]
    }

    proptest! {
        #[test]
        fn printed_text_parses_to_the_same_value(
            unit in unit(),
            kind in 0usize..9,
            values in proptest::array::uniform3(prop_oneof![0.0..1e9f64, (0u32..100_000).prop_map(f64::from)]),
            shape in -2.0..2.0f64,
        ) {
            let [one, two, three] = values.map(|value| unit.write(value));
            let text = match kind {
                0 => one,
                1 => format!("uniform:0{}:{one}", if unit == Unit::Time { "s" } else { "" }),
                2 => format!("normal:{one}:{two}"),
                3 => format!("lognormal:{one}:{}", shape.abs()),
                4 => format!("exponential:{one}"),
                5 => format!("pareto:{one}:{two}:{shape}"),
                6 => format!("gev:{one}:{two}:{shape}"),
                7 => format!("list:{one}:{},{two},{three}:3", shape.abs() + 0.1),
                _ => format!("fixed:{one}"),
            };
            let read = Variate::parse(&text, unit).unwrap();
            prop_assert_eq!(&Variate::parse(&read.to_string(), unit).unwrap(), &read, "{}", text);
        }

        #[test]
        fn no_text_causes_a_panic(text in "(fixed|uniform|list|gev|exp|fb_|none)?[:,0-9a-z.-]{0,12}", unit in unit()) {
            if let Ok(read) = Variate::parse(&text, unit) {
                prop_assert_eq!(&Variate::parse(&read.to_string(), unit).unwrap(), &read);
                prop_assert!(!read.quantile(0.5).is_nan() && !read.mean().is_nan(), "{}", text);
            }
        }
    }
}
