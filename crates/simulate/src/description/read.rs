//! Reads the JSON file `waystage-model/1` into a description. Knows types and fields; the rules are in `checks`.

use crate::description::json;
use crate::description::read_time::read_time;
use crate::description::{Discipline, Fork, JobClass, Join, Network, Pool, Route, Station};
use crate::error::ModelError;
use serde_json::Value;
use std::path::Path;

/// Name and version of the format.
const FORMAT: &str = "waystage-model/1";
const INFINITE: &str = "infinite";
const NETWORK: [&str; 10] =
    ["format", "name", "classes", "stations", "visits", "routes", "switching", "forks", "pools", "stamps"];
const CLASS: [&str; 6] = ["name", "population", "think", "arrivals_per_s", "arrival_squared_variation", "priority"];
const STATION: [&str; 8] = ["name", "service", "servers", "discipline", "rates", "capacity", "when_full", "batch"];
const ROUTE: [&str; 5] = ["class", "from", "to", "probability", "to_class"];
const FORK: [&str; 4] = ["name", "branches", "join", "send_s"];
const POOL: [&str; 3] = ["name", "slots", "inside"];

type Outcome<T> = Result<T, ModelError>;

/// Reads a description. Paths of files with measured times are relative to `folder`.
pub(crate) fn read_network(text: &str, folder: &Path) -> Outcome<Network> {
    let content: Value =
        serde_json::from_str(text).map_err(|error| ModelError::new("the model", format!("is not JSON: {error}")))?;
    let map = json::object("the model", &content, &NETWORK, &["format", "classes", "stations"])?;
    let format = json::text("format", &map["format"])?;
    if format != FORMAT {
        return Err(ModelError::new("format", format!("is '{format}', not '{FORMAT}'")));
    }
    Ok(Network {
        name: map.get("name").map_or(Ok("model".into()), |name| json::text("name", name))?,
        classes: parts(map, "classes", |place, part| read_class(place, part, folder))?,
        stations: parts(map, "stations", |place, part| read_station(place, part, folder))?,
        visits: json::table(map, "visits")?,
        routes: parts(map, "routes", read_route)?,
        switching: json::table(map, "switching")?,
        forks: parts(map, "forks", read_fork)?,
        pools: parts(map, "pools", read_pool)?,
        stamps: match map.get("stamps") {
            None => Vec::new(),
            Some(Value::Object(stamps)) => stamps
                .iter()
                .map(|(stage, event)| Ok((stage.clone(), json::text(&format!("stamps.{stage}"), event)?)))
                .collect::<Outcome<_>>()?,
            Some(_) => return Err(ModelError::new("stamps", "must be an object: stage to event")),
        },
    })
}

/// Reads each element of a list.
fn parts<T>(
    map: &serde_json::Map<String, Value>,
    name: &str,
    read: impl Fn(&str, &Value) -> Outcome<T>,
) -> Outcome<Vec<T>> {
    let list = json::list("", map, name)?;
    list.iter().enumerate().map(|(index, part)| read(&format!("{name}[{index}]"), part)).collect()
}

fn read_class(place: &str, part: &Value, folder: &Path) -> Outcome<JobClass> {
    let map = json::object(place, part, &CLASS, &["name"])?;
    let nothing = Value::from(0.0);
    Ok(JobClass {
        name: json::text(&format!("{place}.name"), &map["name"])?,
        population: json::whole_or(place, map, "population", 0)?,
        think: read_time(&format!("{place}.think"), map.get("think").unwrap_or(&nothing), folder)?,
        arrivals_per_s: json::number_or(place, map, "arrivals_per_s", 0.0)?,
        arrival_squared_variation: json::number_or(place, map, "arrival_squared_variation", 1.0)?,
        priority: json::whole_or(place, map, "priority", 0)?,
    })
}

fn read_station(place: &str, part: &Value, folder: &Path) -> Outcome<Station> {
    let map = json::object(place, part, &STATION, &["name", "service"])?;
    let times = map["service"]
        .as_object()
        .filter(|times| !times.is_empty())
        .ok_or_else(|| ModelError::new(format!("{place}.service"), "must be an object: class to service time"))?;
    let service = times
        .iter()
        .map(|(class, time)| Ok((class.clone(), read_time(&format!("{place}.service.{class}"), time, folder)?)))
        .collect::<Outcome<_>>()?;
    let rates = json::list(place, map, "rates")?;
    Ok(Station {
        name: json::text(&format!("{place}.name"), &map["name"])?,
        service,
        servers: servers(place, map.get("servers"))?,
        discipline: discipline(place, &json::text_or(place, map, "discipline", "fcfs")?)?,
        rates: rates
            .iter()
            .enumerate()
            .map(|(index, rate)| json::number(&format!("{place}.rates[{index}]"), rate))
            .collect::<Outcome<_>>()?,
        capacity: match map.get("capacity") {
            None | Some(Value::Null) => None,
            Some(_) => Some(json::whole_or(place, map, "capacity", 1)?),
        },
        blocks_when_full: match json::text_or(place, map, "when_full", "lose")?.as_str() {
            "lose" => false,
            "block" => true,
            other => return Err(none_of(format!("{place}.when_full"), other, "lose, block")),
        },
        batch: json::whole_or(place, map, "batch", 1)?,
    })
}

fn servers(place: &str, value: Option<&Value>) -> Outcome<Option<i64>> {
    match value {
        None => Ok(Some(1)),
        Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text == INFINITE => Ok(None),
        Some(value) => match value.as_i64() {
            Some(servers) => Ok(Some(servers)),
            None => Err(json::wrong(&format!("{place}.servers"), "must be a whole number >= 1 or infinite", value)),
        },
    }
}

fn discipline(place: &str, text: &str) -> Outcome<Discipline> {
    match text {
        "fcfs" => Ok(Discipline::Fcfs),
        "ps" => Ok(Discipline::Sharing),
        "priority" => Ok(Discipline::Priority),
        "preemptive" => Ok(Discipline::Preemptive),
        other => Err(none_of(format!("{place}.discipline"), other, "fcfs, ps, priority, preemptive")),
    }
}

fn read_route(place: &str, part: &Value) -> Outcome<Route> {
    let map = json::object(place, part, &ROUTE, &["class", "from", "to"])?;
    let text = |name: &str| json::text(&format!("{place}.{name}"), &map[name]);
    let class = text("class")?;
    Ok(Route {
        from: text("from")?,
        to: text("to")?,
        probability: json::number_or(place, map, "probability", 1.0)?,
        to_class: match map.get("to_class") {
            None | Some(Value::Null) => class.clone(),
            Some(_) => text("to_class")?,
        },
        class,
    })
}

fn read_fork(place: &str, part: &Value) -> Outcome<Fork> {
    let map = json::object(place, part, &FORK, &["name", "branches"])?;
    Ok(Fork {
        name: json::text(&format!("{place}.name"), &map["name"])?,
        branches: json::texts(place, map, "branches")?,
        join: match json::text_or(place, map, "join", "all")?.as_str() {
            "all" => Join::All,
            "majority" => Join::Majority,
            "first" => Join::First,
            other => return Err(none_of(format!("{place}.join"), other, "all, majority, first")),
        },
        send_s: json::number_or(place, map, "send_s", 0.0)?,
    })
}

fn read_pool(place: &str, part: &Value) -> Outcome<Pool> {
    let map = json::object(place, part, &POOL, &["name", "slots", "inside"])?;
    Ok(Pool {
        name: json::text(&format!("{place}.name"), &map["name"])?,
        slots: json::whole_or(place, map, "slots", 1)?,
        inside: json::texts(place, map, "inside")?,
    })
}

fn none_of(place: String, found: &str, all: &str) -> ModelError {
    ModelError::new(place, format!("'{found}' is none of {all}"))
}
