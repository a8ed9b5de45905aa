//! Check of the search tree of a database.

use maxminddb::Metadata;

use super::LocatorError;

/// Number of zero bits before the IPv4 addresses in a tree of IPv6 addresses.
const IPV4_DEPTH: u32 = 96;

/// Checks in one pass that no two branches of the search tree lead to the same node.
///
/// `Reader::verify` follows every path from the root. Where branches meet again and again, there
/// are more paths than it could follow in a lifetime. The root of the IPv4 addresses may have
/// several parents, because databases have aliases to it.
///
/// # Errors
/// Returns an error if two branches lead to the same node.
pub(super) fn check(bytes: &[u8], metadata: &Metadata) -> Result<(), LocatorError> {
    let tree = Tree { bytes, record_bits: metadata.record_size };
    let count = metadata.node_count;
    let ipv4_root = if metadata.ip_version == 6 { tree.leftmost(count) } else { None };
    let mut is_led_to = vec![false; count as usize];
    // The root has no parent.
    is_led_to[..1].fill(true);
    for child in (0..count).flat_map(|node| [tree.child(node, 0), tree.child(node, 1)]) {
        let Some(is_led_to) = is_led_to.get_mut(child as usize) else { continue };
        if std::mem::replace(is_led_to, true) && ipv4_root != Some(child) {
            return Err(LocatorError::Tangled(child));
        }
    }
    Ok(())
}

struct Tree<'a> {
    bytes: &'a [u8],
    record_bits: u16,
}

impl Tree<'_> {
    /// Returns a node's left (0) or right (1) record: a node, or other data if the value is at
    /// least the number of nodes.
    fn child(&self, node: u32, side: usize) -> u32 {
        let length = usize::from(self.record_bits / 4);
        let start = node as usize * length;
        // The library has checked that the whole tree lies in the file.
        let byte = |index: usize| self.bytes.get(start + index).map_or(0, |byte| u32::from(*byte));
        let word = |from: usize, count: usize| {
            (from..from + count).fold(0, |word, index| word << 8 | byte(index))
        };
        match (self.record_bits, side) {
            (24, _) => word(side * 3, 3),
            (28, 0) => (byte(3) & 0xf0) << 20 | word(0, 3),
            (28, _) => (byte(3) & 0x0f) << 24 | word(4, 3),
            _ => word(side * 4, 4),
        }
    }

    /// Returns the node below the path of 96 zero bits, the root of the IPv4 addresses; `None` if
    /// the path ends before.
    fn leftmost(&self, count: u32) -> Option<u32> {
        let leftmost = (0..IPV4_DEPTH)
            .try_fold(0, |node, _| Some(self.child(node, 0)).filter(|child| *child < count));
        leftmost.filter(|node| *node != 0)
    }
}
