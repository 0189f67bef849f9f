//! Counts the clients of each address, so that one address cannot use up all connections. A connection keeps its permit; when
//! the permit is dropped, it no longer counts.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of clients of each address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// The permit of one client.
#[derive(Debug)]
pub(crate) struct Permit {
    addresses: Addresses,
    address: IpAddr,
}

impl Addresses {
    /// Counts one more client of an address.
    pub(crate) fn enter(&self, address: IpAddr) -> Permit {
        // A client can have the same address in both families.
        let address = address.to_canonical();
        *self.lock().entry(address).or_default() += 1;
        Permit { addresses: self.clone(), address }
    }

    /// Counts one more client of an address, unless it has `most` already.
    pub(crate) fn try_enter(&self, address: IpAddr, most: usize) -> Option<Permit> {
        let address = address.to_canonical();
        let mut counts = self.lock();
        let count = counts.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Permit { addresses: self.clone(), address })
    }

    /// The number of clients of an address.
    pub(crate) fn count(&self, address: IpAddr) -> usize {
        self.lock().get(&address.to_canonical()).copied().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.addresses.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_permit_no_longer_counts() {
        let addresses = Addresses::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = addresses.enter(address("10.0.0.1"));
        let second = addresses.enter(address("::ffff:10.0.0.1"));
        assert_eq!((addresses.count(address("10.0.0.1")), addresses.count(address("10.0.0.2"))), (2, 0));
        drop(first);
        assert_eq!(addresses.count(address("10.0.0.1")), 1);
        let third = addresses.try_enter(address("10.0.0.1"), 2).unwrap();
        assert!(addresses.try_enter(address("::ffff:10.0.0.1"), 2).is_none());
        drop((second, third));
        assert!(addresses.lock().is_empty());
    }
}
