//! The model of memcached: pages, segments, expired items and large values.

#![allow(clippy::unwrap_used, reason = "tests")]

use hit_ratio::{Cache, Item, SegmentedLru, SlabClasses, SlabSettings};

const MIB: u64 = 1 << 20;

fn server(memory: u64) -> SegmentedLru {
    SegmentedLru::new(SlabClasses::new(SlabSettings::default()).unwrap(), memory, 1.0)
}

fn item(bytes: u32) -> Item {
    Item { bytes, expires_s: 0 }
}

fn stored(server: &mut SegmentedLru, keys: std::ops::Range<u32>) -> usize {
    keys.filter(|key| server.find(*key, 0).is_some()).count()
}

#[test]
fn a_class_holds_the_chunks_of_its_pages() {
    let mut server = server(2 * MIB);
    for key in 0..30_000 {
        assert!(server.store(key, item(96), 0));
    }
    // Chunks of 96 bytes: 10922 in a page.
    assert_eq!((stored(&mut server, 0..30_000), server.taken_bytes()), (2 * 10_922, 2 * MIB));
    assert_eq!(server.evictions(), 30_000 - 2 * 10_922);
}

#[test]
fn pages_stay_with_the_class_that_took_them_first() {
    let mut server = server(2 * MIB);
    (0..30_000).for_each(|key| assert!(server.store(key, item(96), 0)));
    // The other class gets one page, beyond the memory, and no second.
    (30_000..60_000).for_each(|key| assert!(server.store(key, item(120), 0)));
    assert_eq!((stored(&mut server, 30_000..60_000), server.taken_bytes()), (8738, 3 * MIB));
    assert_eq!(stored(&mut server, 0..30_000), 2 * 10_922);
}

#[test]
fn items_that_were_read_twice_survive_a_scan() {
    let mut server = server(2 * MIB);
    // In a cache with few items, WARM would have room for few of them.
    (100_000..130_000).for_each(|key| assert!(server.store(key, item(96), 0)));
    for key in 0..1000 {
        server.store(key, item(96), 0);
        (0..2).for_each(|_| server.hit(key, 0));
    }
    // Read once only: these are as new items.
    for key in 1000..2000 {
        server.store(key, item(96), 0);
        server.hit(key, 0);
    }
    (2000..100_000).for_each(|key| assert!(server.store(key, item(96), 0)));
    assert_eq!((stored(&mut server, 0..1000), stored(&mut server, 1000..2000)), (1000, 0));
}

#[test]
fn expired_items_are_removed_and_their_chunks_used_again() {
    let mut server = server(2 * MIB);
    (0..20_000).for_each(|key| assert!(server.store(key, Item { bytes: 96, expires_s: 5 }, 0)));
    assert_eq!((server.find(0, 4).is_some(), server.find(0, 5)), (true, None));
    server.reclaim(5);
    assert_eq!(server.stored_bytes(), 0);
    (20_000..40_000).for_each(|key| assert!(server.store(key, item(96), 5)));
    assert_eq!(server.evictions(), 0);
}

#[test]
fn a_value_that_is_too_large_is_refused_and_the_old_one_stays() {
    let mut server = server(8 * MIB);
    assert!(server.store(1, item(100), 0));
    assert!(!server.store(1, item((1 << 20) + 1), 0));
    assert_eq!((server.find(1, 0).is_some(), server.stored_bytes()), (true, 100));
    // The largest item has several chunks of 512 KiB.
    assert!(server.store(1, item(1 << 20), 0));
    assert_eq!(server.taken_bytes(), 3 * MIB, "a page of the class of 100 bytes, and three chunks");
    server.remove(1);
    assert_eq!(server.stored_bytes(), 0);
}
