//! Slots of connections, and which connection makes room for a new one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spillway_geo::dns::ClientNetwork;

/// Most connections at a time. Few resolvers come by TCP, and each one only for a moment.
const CONNECTIONS_MAX: usize = 256;
/// Most connections of one network at a time.
const CONNECTIONS_EACH_MAX: usize = 32;

/// Open connections, each with what ends it.
#[derive(Debug)]
pub(super) struct TcpSlots<E> {
    open: Vec<TcpSlot<E>>,
    uses: Arc<AtomicU64>,
}

#[derive(Debug)]
struct TcpSlot<E> {
    network: ClientNetwork,
    used: LastUse,
    end: E,
}

/// Order of a connection's last use among all others.
#[derive(Clone, Debug)]
pub(super) struct LastUse {
    uses: Arc<AtomicU64>,
    own: Arc<AtomicU64>,
}

impl LastUse {
    fn first(uses: &Arc<AtomicU64>) -> Self {
        let new = Self { uses: Arc::clone(uses), own: Arc::default() };
        new.renew();
        new
    }

    /// Notes that the connection has just asked something.
    pub(super) fn renew(&self) {
        self.own.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    fn order(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }
}

impl<E> Default for TcpSlots<E> {
    fn default() -> Self {
        Self { open: Vec::new(), uses: Arc::default() }
    }
}

impl<E> TcpSlots<E> {
    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Gives a slot to a connection of `network`; `None` if the network has all that it may have.
    /// `open` begins the connection, and returns what ends it. If all slots are taken, the connection
    /// that has asked nothing for the longest time makes room, of those of the network with most
    /// connections; what ends it is returned.
    pub(super) fn add(
        &mut self,
        network: ClientNetwork,
        open: impl FnOnce(LastUse) -> E,
    ) -> Option<Option<E>> {
        let of_network = self.open.iter().filter(|slot| slot.network == network);
        if of_network.count() >= CONNECTIONS_EACH_MAX {
            return None;
        }
        let is_full = self.open.len() >= CONNECTIONS_MAX;
        let most_idle = if is_full { self.most_idle() } else { None };
        let ended = most_idle.map(|index| self.open.swap_remove(index).end);
        let used = LastUse::first(&self.uses);
        let end = open(used.clone());
        self.open.push(TcpSlot { network, used, end });
        Some(ended)
    }

    /// Gives the slot back of the connection that `is_it` finds, unless it had made room already.
    pub(super) fn remove(&mut self, is_it: impl Fn(&E) -> bool) {
        self.open.retain(|slot| !is_it(&slot.end));
    }

    fn most_idle(&self) -> Option<usize> {
        let mut counts: BTreeMap<ClientNetwork, usize> = BTreeMap::new();
        for slot in &self.open {
            *counts.entry(slot.network).or_default() += 1;
        }
        let most = counts.values().max().copied()?;
        let greedy = self.open.iter().enumerate().filter(|(_, it)| counts[&it.network] == most);
        greedy.min_by_key(|(_, slot)| slot.used.order()).map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn network(number: u8) -> ClientNetwork {
        ClientNetwork::of(Ipv4Addr::new(127, 9, number, 1).into())
    }

    /// Takes a slot for a connection of this number. Returns the number of the one that made room.
    fn add(slots: &mut TcpSlots<u32>, of: u8, number: u32) -> Option<Option<u32>> {
        slots.add(network(of), |_| number)
    }

    /// Takes all slots for eight networks.
    fn fill(slots: &mut TcpSlots<u32>) {
        for number in 0..256 {
            assert!(add(slots, number as u8 / 32, number).is_some());
        }
        assert_eq!(slots.len(), CONNECTIONS_MAX);
    }

    #[test]
    fn a_network_has_no_more_than_its_part() {
        let mut slots = TcpSlots::default();
        let given = (0..40).filter(|number| add(&mut slots, 1, *number).is_some()).count();
        assert_eq!(given, CONNECTIONS_EACH_MAX);
        assert_eq!(add(&mut slots, 2, 100), Some(None));
        slots.remove(|number| *number == 0);
        assert!(add(&mut slots, 1, 101).is_some());
    }

    #[test]
    fn those_that_ask_nothing_make_room_for_newcomers() {
        let mut slots = TcpSlots::default();
        fill(&mut slots);
        // Each newcomer gets a slot, and no newcomer takes that of another one.
        for number in 300..320 {
            let made_room = add(&mut slots, (number - 200) as u8, number).unwrap().unwrap();
            assert!(made_room < 256, "{made_room}");
        }
        assert_eq!(slots.len(), CONNECTIONS_MAX);
    }

    #[test]
    fn of_one_network_the_longest_idle_goes_first() {
        let mut slots = TcpSlots::default();
        let mut first = None;
        slots.add(network(0), |used| {
            first = Some(used);
            0
        });
        for number in 1..256 {
            assert!(add(&mut slots, number as u8 / 32, number).is_some());
        }
        first.unwrap().renew();
        assert_eq!(add(&mut slots, 100, 1_000), Some(Some(1)));
    }
}
