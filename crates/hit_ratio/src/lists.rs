//! Doubly linked lists of items. Items are in one vector, by the number of their key, and an item is in at most one list.

use crate::cache::Item;

/// The number that stands for no item.
const NONE: u32 = u32::MAX;
/// The number that stands for no list.
const NO_LIST: u8 = u8::MAX;

/// All lists of a cache.
#[derive(Debug)]
pub(crate) struct Lists {
    nodes: Vec<Node>,
    lists: Vec<List>,
    /// The bytes of keys below this number count with this weight only.
    popular: u32,
    weight: f64,
}

/// The head is the item that was added last.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    next: u32,
    previous: u32,
    bytes: u32,
    expires_s: u32,
    used_s: u32,
    list: u8,
    marks: u8,
}

const ABSENT: Node = Node { next: NONE, previous: NONE, bytes: 0, expires_s: 0, used_s: 0, list: NO_LIST, marks: 0 };

impl Lists {
    /// Empty lists; at most 255.
    pub(crate) fn new(count: usize) -> Lists {
        let lists = vec![List { head: NONE, tail: NONE, bytes: 0 }; count];
        Lists { nodes: Vec::new(), lists, popular: 0, weight: 1.0 }
    }

    /// Counts the bytes of the keys below `popular` with a weight. The lists must be empty.
    pub(crate) fn weigh(&mut self, popular: u32, weight: f64) {
        (self.popular, self.weight) = (popular, weight);
    }

    /// Whether a key has a weight.
    pub(crate) fn is_popular(&self, key: u32) -> bool {
        key < self.popular
    }

    fn weighed(&self, key: u32, bytes: u32) -> u64 {
        if self.is_popular(key) { (f64::from(bytes) * self.weight).round() as u64 } else { u64::from(bytes) }
    }

    /// The item under a key.
    pub(crate) fn item(&self, key: u32) -> Option<Item> {
        let node = self.nodes.get(key as usize).filter(|node| node.list != NO_LIST)?;
        Some(Item { bytes: node.bytes, expires_s: node.expires_s })
    }

    /// The list of a key.
    pub(crate) fn list_of(&self, key: u32) -> Option<usize> {
        self.nodes.get(key as usize).map(|node| node.list).filter(|list| *list != NO_LIST).map(usize::from)
    }

    /// The oldest item of a list.
    pub(crate) fn tail(&self, list: usize) -> Option<u32> {
        Some(self.lists[list].tail).filter(|tail| *tail != NONE)
    }

    /// Bytes of the items of a list, with their weights.
    pub(crate) fn bytes(&self, list: usize) -> u64 {
        self.lists[list].bytes
    }

    /// Bytes of all items, with their weights.
    pub(crate) fn bytes_of_all(&self) -> u64 {
        self.lists.iter().map(|list| list.bytes).sum()
    }

    /// When an item was used, as given to [`Lists::use_at`].
    pub(crate) fn used_s(&self, key: u32) -> u32 {
        self.nodes[key as usize].used_s
    }

    /// Notes when an item was used.
    pub(crate) fn use_at(&mut self, key: u32, now_s: u32) {
        self.nodes[key as usize].used_s = now_s;
    }

    /// The marks of an item, which mean nothing here. A new item has none.
    pub(crate) fn marks(&self, key: u32) -> u8 {
        self.nodes[key as usize].marks
    }

    /// Sets the marks of an item.
    pub(crate) fn set_marks(&mut self, key: u32, marks: u8) {
        self.nodes[key as usize].marks = marks;
    }

    /// Adds an item that is in no list at the head of one.
    pub(crate) fn add(&mut self, key: u32, item: Item, list: usize, now_s: u32) {
        let at = key as usize;
        if at >= self.nodes.len() {
            self.nodes.resize(at + 1, ABSENT);
        }
        self.nodes[at] = Node { bytes: item.bytes, expires_s: item.expires_s, used_s: now_s, ..ABSENT };
        self.link(key, list);
    }

    /// Removes an item, if it is in a list. Returns the list.
    pub(crate) fn remove(&mut self, key: u32) -> Option<usize> {
        let list = self.list_of(key)?;
        self.unlink(key, list);
        Some(list)
    }

    /// Moves an item to the head of a list, which may be its own.
    pub(crate) fn move_to(&mut self, key: u32, list: usize) {
        if let Some(from) = self.list_of(key) {
            self.unlink(key, from);
            self.link(key, list);
        }
    }

    /// The keys of all items that have expired.
    pub(crate) fn expired(&self, now_s: u32) -> Vec<u32> {
        let is_expired = |node: &Node| node.list != NO_LIST && node.expires_s != 0 && node.expires_s <= now_s;
        (0..).zip(&self.nodes).filter(|(_, node)| is_expired(node)).map(|(key, _)| key).collect()
    }

    fn link(&mut self, key: u32, list: usize) {
        let head = self.lists[list].head;
        let node = &mut self.nodes[key as usize];
        (node.next, node.previous, node.list) = (head, NONE, list as u8);
        let bytes = node.bytes;
        self.lists[list].bytes += self.weighed(key, bytes);
        self.lists[list].head = key;
        match head {
            NONE => self.lists[list].tail = key,
            head => self.nodes[head as usize].previous = key,
        }
    }

    fn unlink(&mut self, key: u32, list: usize) {
        let Node { next, previous, bytes, .. } = self.nodes[key as usize];
        match previous {
            NONE => self.lists[list].head = next,
            previous => self.nodes[previous as usize].next = next,
        }
        match next {
            NONE => self.lists[list].tail = previous,
            next => self.nodes[next as usize].previous = previous,
        }
        self.lists[list].bytes -= self.weighed(key, bytes);
        self.nodes[key as usize].list = NO_LIST;
    }
}
