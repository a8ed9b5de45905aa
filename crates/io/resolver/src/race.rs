//! Order and times in which the addresses of a name are tried (RFC 8305, "happy eyeballs"). Pure.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Time after which the next address is tried while the last one has neither accepted nor refused.
pub const NEXT_AFTER: Duration = Duration::from_millis(250);
/// Most addresses that one connection tries.
const ADDRESSES_MAX: usize = 64;

/// Returns the addresses of a name in the order in which they are tried: first the one that worked
/// last, then the two families in turn, each in the order in which DNS named it.
#[must_use]
pub fn order(addresses: &[IpAddr], worked: Option<IpAddr>) -> Vec<IpAddr> {
    let first = worked.filter(|worked| addresses.contains(worked));
    let others = || addresses.iter().copied().filter(|address| Some(*address) != first);
    let mut v6: VecDeque<IpAddr> = others().filter(IpAddr::is_ipv6).collect();
    let mut v4: VecDeque<IpAddr> = others().filter(IpAddr::is_ipv4).collect();
    let mut ordered: Vec<IpAddr> = first.into_iter().collect();
    let mut is_v6_next = first.is_none_or(|first| first.is_ipv4());
    while let Some(next) = match is_v6_next {
        true => v6.pop_front().or_else(|| v4.pop_front()),
        false => v4.pop_front().or_else(|| v6.pop_front()),
    } {
        ordered.push(next);
        is_v6_next = next.is_ipv4();
    }
    ordered.truncate(ADDRESSES_MAX);
    ordered
}

/// One connection to the first of some addresses that accepts.
///
/// Call [`Race::poll`] at the start, after each failure and at the time that it returned.
#[derive(Debug)]
pub struct Race {
    waiting: VecDeque<SocketAddr>,
    running: usize,
    /// Time at which the next address is tried; `None` for at once.
    next_at: Option<Instant>,
}

/// Next step of a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Start to connect to this address, beside those that are tried already.
    Start(SocketAddr),
    /// Wait for those that are tried, and call again at this time if there is one.
    Wait(Option<Instant>),
    /// All addresses failed.
    Lost,
}

impl Race {
    /// Makes a race of addresses in this order.
    #[must_use]
    pub fn new(addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self { waiting: addresses.into_iter().collect(), running: 0, next_at: None }
    }

    /// Returns the next step. Its answer changes with [`Race::note_failure`] and with time.
    #[must_use]
    pub fn poll(&mut self, now: Instant) -> Step {
        let is_due = self.next_at.is_none_or(|at| at <= now);
        if is_due && let Some(address) = self.waiting.pop_front() {
            self.running += 1;
            self.next_at = Some(now + NEXT_AFTER);
            return Step::Start(address);
        }
        match (self.running, self.waiting.is_empty()) {
            (0, _) => Step::Lost,
            (_, true) => Step::Wait(None),
            (_, false) => Step::Wait(self.next_at),
        }
    }

    /// Notes that an address failed: the next is tried at once.
    pub fn note_failure(&mut self) {
        self.running = self.running.saturating_sub(1);
        self.next_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(addresses: &[&str]) -> Vec<IpAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    fn ordered(addresses: &[&str], worked: Option<&str>) -> Vec<String> {
        let worked = worked.map(|worked| worked.parse().unwrap());
        order(&ips(addresses), worked).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn families_take_turns_and_ipv6_begins() {
        let all = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "::1", "::2"];
        assert_eq!(ordered(&all, None), ["::1", "10.0.0.1", "::2", "10.0.0.2", "10.0.0.3"]);
        assert_eq!(ordered(&["10.0.0.1"], None), ["10.0.0.1"]);
        assert_eq!(ordered(&[], Some("::1")), Vec::<String>::new());
    }

    #[test]
    fn the_address_that_worked_last_begins_and_the_other_family_follows() {
        let all = ["10.0.0.1", "10.0.0.2", "::1", "::2"];
        assert_eq!(ordered(&all, Some("10.0.0.2")), ["10.0.0.2", "::1", "10.0.0.1", "::2"]);
        assert_eq!(ordered(&all, Some("::2")), ["::2", "10.0.0.1", "::1", "10.0.0.2"]);
        let plain = ordered(&all, None);
        assert_eq!(ordered(&all, Some("10.0.0.9")), plain, "it is no address of the name any more");
    }

    #[test]
    fn a_name_with_many_addresses_is_tried_at_some_of_them() {
        let many: Vec<IpAddr> =
            (0..1000_u16).map(|n| [10, 0, (n >> 8) as u8, n as u8].into()).collect();
        assert_eq!(order(&many, Some(many[999])).len(), ADDRESSES_MAX);
        assert_eq!(order(&many, Some(many[999]))[0], many[999]);
    }

    fn race(addresses: &[&str]) -> (Race, Vec<SocketAddr>) {
        let all: Vec<SocketAddr> = ips(addresses).into_iter().map(|ip| (ip, 80).into()).collect();
        (Race::new(all.clone()), all)
    }

    #[test]
    fn the_next_address_is_tried_while_the_last_one_is_silent() {
        let (mut race, all) = race(&["::1", "10.0.0.1", "::2"]);
        let start = Instant::now();
        assert_eq!(race.poll(start), Step::Start(all[0]));
        assert_eq!(race.poll(start), Step::Wait(Some(start + NEXT_AFTER)));
        let second = start + NEXT_AFTER;
        assert_eq!(race.poll(second), Step::Start(all[1]));
        assert_eq!(race.poll(second), Step::Wait(Some(second + NEXT_AFTER)));
        assert_eq!(race.poll(second + NEXT_AFTER), Step::Start(all[2]));
        assert_eq!(race.poll(second + NEXT_AFTER), Step::Wait(None));
    }

    #[test]
    fn a_refusal_starts_the_next_address_at_once_and_the_last_refusal_ends_the_race() {
        let (mut race, all) = race(&["::1", "10.0.0.1"]);
        let start = Instant::now();
        assert_eq!(race.poll(start), Step::Start(all[0]));
        race.note_failure();
        assert_eq!(race.poll(start), Step::Start(all[1]));
        assert_eq!(race.poll(start), Step::Wait(None));
        race.note_failure();
        assert_eq!(race.poll(start), Step::Lost);
    }

    #[test]
    fn a_silent_address_stays_in_the_race_after_the_others_refused() {
        let (mut race, all) = race(&["::1", "10.0.0.1"]);
        let start = Instant::now();
        assert_eq!(race.poll(start), Step::Start(all[0]));
        assert_eq!(race.poll(start + NEXT_AFTER), Step::Start(all[1]));
        race.note_failure();
        assert_eq!(race.poll(start + NEXT_AFTER), Step::Wait(None));
    }

    #[test]
    fn a_race_without_addresses_is_lost() {
        assert_eq!(race(&[]).0.poll(Instant::now()), Step::Lost);
    }
}
