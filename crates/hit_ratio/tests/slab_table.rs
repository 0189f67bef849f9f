//! The slab classes are those that the installed memcached prints.

#![allow(clippy::unwrap_used, reason = "tests")]

use hit_ratio::{SlabClass, SlabClasses, SlabSettings};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// The classes that memcached prints with `-vv`.
fn printed(arguments: &[&str]) -> Vec<SlabClass> {
    let folder = std::env::temp_dir().join(format!("slab-table-{}.sock", std::process::id()));
    let mut server = Command::new("memcached")
        .args(["-u", "root", "-vv", "-s"])
        .arg(&folder)
        .args(arguments)
        .stderr(Stdio::piped())
        .spawn()
        .expect("memcached is installed; docs/testing.md lists the programs");
    let lines = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
    let classes = lines.take_while(|line| line.starts_with("slab class")).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: usize| words[word].parse().unwrap();
        assert_eq!((words[3], words[4], words[6]), ("chunk", "size", "perslab"), "{line}");
        SlabClass { chunk_bytes: number(5), chunks_per_page: number(7) }
    });
    let classes = classes.collect();
    server.kill().unwrap();
    server.wait().unwrap();
    let _ = std::fs::remove_file(folder);
    classes
}

#[test]
fn slab_classes_are_those_of_memcached() {
    let usual = SlabSettings::default();
    let cases: [(&[&str], SlabSettings); 9] = [
        (&[], usual),
        (&["-f", "1.08"], SlabSettings { growth_factor: 1.08, ..usual }),
        (&["-f", "1.07", "-n", "5"], SlabSettings { growth_factor: 1.07, smallest_bytes: 5, ..usual }),
        (&["-f", "2", "-n", "100"], SlabSettings { growth_factor: 2.0, smallest_bytes: 100, ..usual }),
        (&["-f", "1.5", "-n", "1"], SlabSettings { growth_factor: 1.5, smallest_bytes: 1, ..usual }),
        (&["-f", "1.01"], SlabSettings { growth_factor: 1.01, ..usual }),
        (&["-f", "10", "-n", "1000"], SlabSettings { growth_factor: 10.0, smallest_bytes: 1000, ..usual }),
        (&["-I", "2m", "-C"], SlabSettings { item_bytes_max: 2 << 20, has_cas: false, ..usual }),
        (&["-f", "1.3", "-n", "512"], SlabSettings { growth_factor: 1.3, smallest_bytes: 512, ..usual }),
    ];
    for (arguments, settings) in cases {
        let ours = SlabClasses::new(settings).unwrap();
        let memcached = printed(arguments);
        assert!(memcached.len() >= 3, "{arguments:?}: {memcached:?}");
        assert_eq!(ours.all(), memcached, "{arguments:?}");
    }
}

#[test]
fn memcached_refuses_item_sizes_that_are_refused_here() {
    for (argument, bytes, is_refused) in
        [("256k", 256 << 10, true), ("1536k", 1536 << 10, false), ("2m", 2 << 20, false)]
    {
        let settings = SlabSettings { item_bytes_max: bytes, ..SlabSettings::default() };
        assert_eq!(SlabClasses::new(settings).is_err(), is_refused, "{argument}");
        assert_eq!(printed(&["-I", argument]).is_empty(), is_refused, "{argument}");
    }
}
