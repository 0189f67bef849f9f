//! A network of IP addresses, such as `10.0.0.0/8`, or a single address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// A text that is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a network ({fault}): give an address such as 10.0.0.1, or a network such as 10.0.0.0/8")]
pub struct NetworkError {
    text: String,
    fault: Fault,
}

/// What is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("it does not begin with an IP address")]
    Address,
    #[error("behind / is not a number from 0 to {0}")]
    Prefix(u8),
    #[error("the address has bits behind the first {0}; the network is {1}")]
    HostBits(u8, Network),
}

impl Network {
    /// Whether an address is in the network. An IPv4 address can also be written in IPv6 (`::ffff:10.0.0.1`).
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && first_bits(address, self.prefix_bits) == self.address
    }
}

/// The address with zeros behind its first bits.
fn first_bits(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        parse(text).map_err(|fault| NetworkError { text: text.into(), fault })
    }
}

fn parse(text: &str) -> Result<Network, Fault> {
    let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let address = address.parse::<IpAddr>().map_err(|_| Fault::Address)?.to_canonical();
    let most = if address.is_ipv4() { 32 } else { 128 };
    let prefix_bits = match prefix {
        None => most,
        Some(prefix) => {
            let bits = prefix.parse::<u8>().ok().filter(|bits| *bits <= most && bits.to_string() == prefix);
            bits.ok_or(Fault::Prefix(most))?
        }
    };
    let network = Network { address: first_bits(address, prefix_bits), prefix_bits };
    if network.address == address { Ok(network) } else { Err(Fault::HostBits(prefix_bits, network)) }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_the_addresses_with_its_first_bits() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.0.0.1", "10.0.0.1", "10.0.0.2"),
            ("10.0.0.0/31", "10.0.0.1", "10.0.0.2"),
            ("0.0.0.0/0", "255.1.1.1", "::1"),
            ("10.0.0.0/8", "::ffff:10.1.1.1", "::10.1.1.1"),
            ("::ffff:10.0.0.1", "10.0.0.1", "10.0.0.2"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::"),
            ("::1/128", "::1", "::2"),
        ] {
            let read: Network = network.parse().unwrap();
            assert!(read.contains(inside.parse().unwrap()) && !read.contains(outside.parse().unwrap()), "{network}");
        }
    }

    #[test]
    fn every_bad_text_is_one_clear_line() {
        for (text, fault) in [
            ("", "it does not begin with an IP address"),
            ("cache.example.com", "it does not begin with an IP address"),
            ("10.0.0/8", "it does not begin with an IP address"),
            ("fe80::1%eth0", "it does not begin with an IP address"),
            ("10.0.0.0/", "behind / is not a number from 0 to 32"),
            ("10.0.0.0/33", "behind / is not a number from 0 to 32"),
            ("10.0.0.0/08", "behind / is not a number from 0 to 32"),
            ("10.0.0.0/255.0.0.0", "behind / is not a number from 0 to 32"),
            ("::/129", "behind / is not a number from 0 to 128"),
            ("10.0.0.1/8", "the address has bits behind the first 8; the network is 10.0.0.0/8"),
        ] {
            let line = text.parse::<Network>().unwrap_err().to_string();
            assert!(line.contains(fault) && !line.contains('\n'), "{line}");
        }
    }
}
