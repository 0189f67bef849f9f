//! The hash modulo the number of servers: even and simple, but a change of that number moves nearly every key.
//! Also the expansion of weights for algorithms that number servers: the list contains each server as often as its weight.
//!
//! Source: twemproxy's `modula`, libmemcached's MEMCACHED_DISTRIBUTION_MODULA. Checked against the servers that twemproxy
//! chose (tests/twemproxy.rs).

/// Repeats each server as often as its weight, in the order of the list, as twemproxy does.
pub(crate) fn expand(weights: impl Iterator<Item = u32>) -> Box<[u16]> {
    let expanded = weights.enumerate().flat_map(|(index, weight)| std::iter::repeat_n(index as u16, weight as usize));
    expanded.collect()
}

/// The index of the server in the list.
pub(crate) fn place(hash: u64, places: usize) -> usize {
    (hash % places as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_appears_as_often_as_its_weight() {
        assert_eq!(*expand([1, 3, 2].into_iter()), [0, 1, 1, 1, 2, 2]);
        assert_eq!(place(13, 6), 1);
    }
}
