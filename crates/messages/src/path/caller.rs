//! The client of a request: its socket, and its share of the memory.

use crate::path::client_socket::ClientSocket;
use crate::path::memory::Share;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The client of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    pub(crate) socket: ClientSocket,
    pub(crate) share: Arc<Share>,
}

/// The shares of the addresses that have connections.
#[derive(Debug)]
pub(crate) struct AddressShares {
    limit: usize,
    shares: Mutex<HashMap<IpAddr, Weak<Share>>>,
}

impl AddressShares {
    /// `limit` is the number of bytes for each address.
    pub(crate) fn new(limit: usize) -> AddressShares {
        AddressShares { limit, shares: Mutex::default() }
    }

    /// The share of an address, common to all its connections. All IPv6 addresses with the same first 64 bits have one share.
    pub(crate) fn of(&self, address: IpAddr) -> Arc<Share> {
        // A socket for both protocols reports IPv4 addresses inside of one network of IPv6.
        let network = match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        };
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&network).and_then(Weak::upgrade) {
            return share;
        }
        // Addresses without connections are removed when the map would otherwise grow.
        if shares.len() == shares.capacity() {
            shares.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(Share::new(self.limit));
        shares.insert(network, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_an_address_have_one_share_as_long_as_they_exist() {
        let shares = AddressShares::new(10);
        let address = |text: &str| shares.of(text.parse().unwrap());
        let first = address("10.0.0.1");
        assert!(Arc::ptr_eq(&first, &address("10.0.0.1")));
        assert!(!Arc::ptr_eq(&first, &address("10.0.0.2")));
        let network = address("2001:db8::1");
        assert!(Arc::ptr_eq(&network, &address("2001:db8::ffff:1")));
        assert!(!Arc::ptr_eq(&network, &address("2001:db8:0:1::1")));
        assert!(Arc::ptr_eq(&first, &address("::ffff:10.0.0.1")));
        assert!(!Arc::ptr_eq(&first, &address("::ffff:10.0.0.3")));
        for number in 0..1000_u32 {
            shares.of(IpAddr::V4(number.into()));
        }
        assert!(shares.shares.lock().unwrap().len() < 100, "shares without connections are removed");
    }
}
