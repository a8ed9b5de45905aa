//! Revocations that the cluster's CA has signed, passed from node to node. Gossip carries the
//! signed lists as they are: their readers verify the signature, so a lying node adds none.
//!
//! These datagrams have a kind of their own: a node of an earlier release drops them.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spillway_codec::{Wire, decode, encode};

use crate::GossipError;
use crate::time::ms_since;

/// Time between two repetitions, one list at a time, milliseconds: nodes that were away, or lost
/// the first datagram, learn of each list in turn.
const REPEAT_MS: u32 = 500;

/// State of the gossip about revocation lists.
#[derive(Debug, Default)]
pub struct RevocationGossip {
    known: Vec<Bytes>,
    /// Lists to send before all others, because they are new.
    news: VecDeque<Bytes>,
    next: usize,
    told_at: Option<Instant>,
}

impl RevocationGossip {
    /// Returns the datagram for all members that is due, if any. `lists` are those that other nodes
    /// need now. Has to be called often; a new list is sent with the next call.
    #[must_use]
    pub fn tell(&mut self, lists: &[Bytes], now: Instant) -> Option<Bytes> {
        if self.known != lists {
            let is_new = |list: &&Bytes| !self.known.contains(list);
            self.news.extend(lists.iter().filter(is_new).cloned());
            self.known = lists.to_vec();
        }
        self.news.retain(|list| lists.contains(list));
        let list = self.news.pop_front().or_else(|| self.repeated(now))?;
        self.told_at = Some(now);
        encode(&RevocationWord { list: list.to_vec() }).ok()
    }

    /// Returns the revocation list in a datagram. Its signature is not verified.
    ///
    /// # Errors
    /// Returns an error if the datagram is malformed.
    pub fn read(datagram: &[u8]) -> Result<Vec<u8>, GossipError> {
        let RevocationWord { list } = decode(datagram)?;
        Ok(list)
    }

    fn repeated(&mut self, now: Instant) -> Option<Bytes> {
        let is_due = self.told_at.is_none_or(|at| ms_since(at, now) >= REPEAT_MS);
        let list = self.known.get(self.next % self.known.len().max(1)).filter(|_| is_due)?;
        self.next = self.next.wrapping_add(1);
        Some(list.clone())
    }
}

/// Datagram with a revocation list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RevocationWord {
    /// Certificate revocation list in DER form.
    pub(crate) list: Vec<u8>,
}

impl Wire for RevocationWord {
    const KIND: u16 = 0x0105;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 1_150;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fuzz::some_moment;

    fn lists(names: &[&'static str]) -> Vec<Bytes> {
        names.iter().map(|name| Bytes::from_static(name.as_bytes())).collect()
    }

    fn told(gossip: &mut RevocationGossip, lists: &[Bytes], now: Instant) -> Option<String> {
        let datagram = gossip.tell(lists, now)?;
        Some(String::from_utf8(RevocationGossip::read(&datagram).unwrap()).unwrap())
    }

    #[test]
    fn new_lists_are_told_at_once_and_all_lists_in_turn_later() {
        let (mut gossip, start) = (RevocationGossip::default(), some_moment());
        let at = |ms| start + Duration::from_millis(ms);
        let (one, two) = (lists(&["a"]), lists(&["a", "b"]));
        assert_eq!(told(&mut gossip, &[], at(0)), None);
        assert_eq!(told(&mut gossip, &one, at(1)).as_deref(), Some("a"));
        assert_eq!(told(&mut gossip, &one, at(2)), None);
        assert_eq!(told(&mut gossip, &two, at(3)).as_deref(), Some("b"));
        assert_eq!(told(&mut gossip, &two, at(502)), None);
        let mut repeated = [503, 1_003].map(|ms| told(&mut gossip, &two, at(ms)).unwrap());
        repeated.sort();
        assert_eq!(repeated, ["a", "b"]);
    }

    #[test]
    fn a_list_that_is_not_needed_any_more_is_told_no_more() {
        let (mut gossip, start) = (RevocationGossip::default(), some_moment());
        let two = lists(&["a", "b"]);
        assert_eq!(told(&mut gossip, &two, start).as_deref(), Some("a"));
        let later = start + Duration::from_secs(5);
        assert_eq!(told(&mut gossip, &[], later), None);
        assert_eq!(told(&mut gossip, &two[1..], later).as_deref(), Some("b"));
    }

    #[test]
    fn the_longest_list_fits_a_datagram_and_no_longer_one_is_read() {
        let longest = Bytes::from(vec![7; 1_100]);
        let datagram = RevocationGossip::default().tell(&[longest], some_moment()).unwrap();
        assert!(datagram.len() <= 1_150, "{}", datagram.len());
        assert!(RevocationGossip::read(&datagram[..datagram.len() - 1]).is_err());
        let longer = Bytes::from(vec![7; 1_200]);
        assert_eq!(RevocationGossip::default().tell(&[longer], some_moment()), None);
    }
}
