//! The hash modulo the number of servers: even and simple, but a change of their number moves nearly every key.
//! Also the list that weights become where servers are numbered: each server stands in it as often as it weighs.
//!
//! Source: twemproxy's `modula`, libmemcached's MEMCACHED_DISTRIBUTION_MODULA. Checked against placements recorded from
//! twemproxy (tests/twemproxy.rs).

/// Each server as often as it weighs, in the order of the list: as twemproxy does it, so that placements agree.
pub(crate) fn expand(weights: impl Iterator<Item = u32>) -> Box<[u16]> {
    let expanded = weights.enumerate().flat_map(|(index, weight)| std::iter::repeat_n(index as u16, weight as usize));
    expanded.collect()
}

/// The place in the list.
pub(crate) fn place(hash: u64, places: usize) -> usize {
    (hash % places as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_stand_as_often_as_they_weigh() {
        assert_eq!(*expand([1, 3, 2].into_iter()), [0, 1, 1, 1, 2, 2]);
        assert_eq!(place(13, 6), 1);
    }
}
