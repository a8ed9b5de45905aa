//! Routes, replies and bodies that several topics share.

use bytes::Bytes;
use spillway_node::Node;

use crate::Client;

/// Sends everything below /raw on as it is.
pub const RAW_ROUTE: &str = "[[route]]\nname = \"raw\"\npath_prefix = \"/raw\"\n";
/// A short reply.
pub const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A connection of each version.
///
/// # Panics
/// If the node takes none.
pub async fn both(node: &Node) -> [Client; 2] {
    let address = node.addresses()[0];
    [Client::http1(address).await, Client::http2(address).await]
}

/// Resident memory of this process, bytes.
///
/// # Panics
/// If this is not Linux.
pub fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split(' ').nth(1).expect("a second field");
    pages.parse::<usize>().expect("a number") * 4096
}

/// `length` bytes that no compression or shift leaves alike.
pub fn noise(length: usize) -> Bytes {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}
