//! The events of a model that stamp the stages of the proxy, so that its records can be written.

use crate::description::Network;
use crate::description::checks::refuse;
use crate::error::ModelError;
use clock::{STAGES, Stage};

/// For each place, a bit for each stage that is stamped there.
#[derive(Clone, Debug)]
pub(crate) struct Stamps {
    /// By node.
    pub(crate) enter: Vec<u8>,
    /// By station.
    pub(crate) start: Vec<u8>,
    /// By node.
    pub(crate) leave: Vec<u8>,
    /// By pool.
    pub(crate) acquire: Vec<u8>,
    /// By pool.
    pub(crate) release: Vec<u8>,
}

const _: () = assert!(STAGES <= 8, "a stage is one bit of eight");

impl Stamps {
    /// `None` if the description has no stamps.
    pub(crate) fn compile(network: &Network) -> Result<Option<Stamps>, ModelError> {
        if network.stamps.is_empty() {
            return Ok(None);
        }
        let nodes = network.node_names().count();
        let (stations, pools) = (network.stations.len(), network.pools.len());
        let mut stamps = Stamps {
            enter: vec![0; nodes],
            start: vec![0; stations],
            leave: vec![0; nodes],
            acquire: vec![0; pools],
            release: vec![0; pools],
        };
        for (stage, event) in &network.stamps {
            let place = format!("stamps.{stage}");
            let Some(bit) = Stage::all().iter().position(|known| known.name() == stage) else {
                let names = Stage::all().map(Stage::name).join(", ");
                return refuse(place, format!("is no stage; there are {names}"));
            };
            let Some((verb, name)) = event.split_once(' ') else {
                return refuse(place, format!("'{event}' is no event such as 'enter NODE' or 'acquire POOL'"));
            };
            let (marks, index) = match verb {
                "enter" => (&mut stamps.enter, network.node_index(name)),
                "leave" => (&mut stamps.leave, network.node_index(name)),
                "start" => (&mut stamps.start, network.station_index(name)),
                "acquire" => (&mut stamps.acquire, pool_index(network, name)),
                "release" => (&mut stamps.release, pool_index(network, name)),
                _ => {
                    return refuse(place, format!("'{verb}' is none of enter, start, leave, acquire, release"));
                }
            };
            match index {
                Some(index) => marks[index] |= 1 << bit,
                None => return refuse(place, format!("there is nothing called '{name}' to {verb}")),
            }
        }
        Ok(Some(stamps))
    }
}

fn pool_index(network: &Network, name: &str) -> Option<usize> {
    network.pools.iter().position(|pool| pool.name == name)
}
