//! A host with the addresses that are known of its name.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::client::{FamilyAnswer, FoundAddresses};
use crate::error::LookupError;

/// Most ports of a host whose last good address is remembered.
const PORTS_MAX: usize = 16;

/// Host, with the addresses of its name.
///
/// A failed look-up keeps the known addresses: it proves nothing about the servers there. Only an
/// answer with other addresses removes any.
#[derive(Debug)]
pub struct Host {
    name: String,
    known: ArcSwap<KnownAddresses>,
    /// Number of changes that removed an address.
    removals: AtomicU32,
    /// Address that accepted last, by port.
    worked: Mutex<Vec<(u16, IpAddr)>>,
    /// Notifies when `known` has changed.
    changed: Notify,
    /// Wakes the task that looks the name up.
    wake: Arc<Notify>,
}

/// Addresses of a host, and the result of the last look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownAddresses {
    /// Addresses in the order in which the name server gave them.
    pub(crate) addresses: Vec<IpAddr>,
    /// Failure of the last look-up; `None` if it gave the addresses.
    pub(crate) error: Option<LookupError>,
}

impl Host {
    /// Returns a host whose first look-up has not ended.
    pub(crate) fn pending(name: &str) -> Self {
        Self::new(name, Vec::new(), Some(LookupError::Pending))
    }

    /// Returns a host that is never looked up.
    pub(crate) fn fixed(name: &str, known: Result<IpAddr, LookupError>) -> Self {
        match known {
            Ok(address) => Self::new(name, vec![address], None),
            Err(error) => Self::new(name, Vec::new(), Some(error)),
        }
    }

    /// Returns a host with the addresses that the hosts file has for it.
    pub(crate) fn of_file(name: &str, addresses: Vec<IpAddr>) -> Self {
        let host = Self::pending(name);
        host.take(Ok(&FoundAddresses::of_file(addresses)));
        host
    }

    fn new(name: &str, addresses: Vec<IpAddr>, error: Option<LookupError>) -> Self {
        Self {
            name: name.to_owned(),
            known: ArcSwap::from_pointee(KnownAddresses { addresses, error }),
            removals: AtomicU32::new(0),
            worked: Mutex::default(),
            changed: Notify::new(),
            wake: Arc::default(),
        }
    }

    /// Returns the name, as it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the known addresses.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.known.load().addresses.clone()
    }

    /// Returns true if an address is known, be it out of date.
    #[must_use]
    pub fn has_address(&self) -> bool {
        !self.known.load().addresses.is_empty()
    }

    /// Returns the failure of the last look-up; `None` if it gave the addresses.
    #[must_use]
    pub fn error(&self) -> Option<LookupError> {
        self.known.load().error.clone()
    }

    /// Returns when the first look-up has ended, whatever its result.
    pub async fn ready(&self) {
        self.until(|known| known.error != Some(LookupError::Pending)).await;
    }

    /// Asks for a look-up soon, because an address did not work. Never waits; look-ups of a name are
    /// at least a second apart.
    pub fn look_up_again(&self) {
        self.wake.notify_one();
    }

    pub(crate) fn wake(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }

    pub(crate) fn known(&self) -> Arc<KnownAddresses> {
        self.known.load_full()
    }

    /// Returns when the known addresses meet the condition.
    pub(crate) async fn until(&self, is_met: impl Fn(&KnownAddresses) -> bool) {
        loop {
            // Registered before the look, so that no change in between is missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if is_met(&self.known.load()) {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn removals(&self) -> u32 {
        self.removals.load(Ordering::Acquire)
    }

    /// Returns the address that accepted last at this port.
    pub(crate) fn worked(&self, port: u16) -> Option<IpAddr> {
        let worked = self.worked.lock().unwrap_or_else(PoisonError::into_inner);
        worked.iter().find(|(known, _)| *known == port).map(|(_, address)| *address)
    }

    /// Notes the address that the next connection to this port begins with.
    pub(crate) fn set_worked(&self, port: u16, address: IpAddr) {
        let mut worked = self.worked.lock().unwrap_or_else(PoisonError::into_inner);
        match worked.iter_mut().find(|(known, _)| *known == port) {
            Some((_, known)) => *known = address,
            None => {
                if worked.len() == PORTS_MAX {
                    worked.remove(0);
                }
                worked.push((port, address));
            }
        }
    }

    /// Applies the result of a look-up. Returns true if the addresses changed.
    pub(crate) fn take(&self, found: Result<&FoundAddresses, LookupError>) -> bool {
        let before = self.known.load_full();
        let after = match found {
            Ok(found) => {
                KnownAddresses { addresses: merged(&before.addresses, found), error: None }
            }
            Err(error) => {
                KnownAddresses { addresses: before.addresses.clone(), error: Some(error) }
            }
        };
        if after == *before {
            return false;
        }
        let is_removed = |address: &IpAddr| !after.addresses.contains(address);
        let has_removed = before.addresses.iter().any(is_removed);
        let has_changed = before.addresses != after.addresses;
        self.known.store(Arc::new(after));
        if has_removed {
            self.removals.fetch_add(1, Ordering::Release);
        }
        self.changed.notify_waiters();
        has_changed
    }
}

impl Drop for Host {
    /// Ends the task that looks the name up.
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

/// Returns the addresses after an answer. A family whose question failed keeps its addresses, and
/// the same addresses in another order are no change: servers rotate them with each answer.
fn merged(known: &[IpAddr], found: &FoundAddresses) -> Vec<IpAddr> {
    let family = |answer: &FamilyAnswer, is_family: fn(&IpAddr) -> bool| match answer {
        FamilyAnswer::Known(addresses) => addresses.clone(),
        FamilyAnswer::Failed => known.iter().copied().filter(is_family).collect(),
    };
    let mut addresses = family(&found.v6, IpAddr::is_ipv6);
    addresses.extend(family(&found.v4, IpAddr::is_ipv4));
    let is_same =
        addresses.len() == known.len() && addresses.iter().all(|address| known.contains(address));
    if is_same { known.to_vec() } else { addresses }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ips(addresses: &[&str]) -> Vec<IpAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    fn found(v4: Option<&[&str]>, v6: Option<&[&str]>) -> FoundAddresses {
        let answer = |addresses: Option<&[&str]>| match addresses {
            Some(addresses) => FamilyAnswer::Known(ips(addresses)),
            None => FamilyAnswer::Failed,
        };
        FoundAddresses { v4: answer(v4), v6: answer(v6), ttl: Duration::ZERO }
    }

    fn no_answer() -> LookupError {
        LookupError::NoAnswer("x".to_owned())
    }

    #[test]
    fn an_answer_replaces_the_addresses_and_a_failure_keeps_them() {
        let host = Host::pending("gpu");
        assert_eq!(host.error(), Some(LookupError::Pending));
        assert!(!host.take(Err(no_answer())), "no address yet");
        assert!(host.take(Ok(&found(Some(&["10.0.0.1"]), Some(&[])))));
        assert_eq!((host.addresses(), host.error()), (ips(&["10.0.0.1"]), None));
        assert!(!host.take(Err(no_answer())));
        assert_eq!((host.addresses(), host.error()), (ips(&["10.0.0.1"]), Some(no_answer())));
        assert!(host.take(Ok(&found(Some(&["10.0.0.2"]), Some(&[])))));
        assert_eq!(host.addresses(), ips(&["10.0.0.2"]));
    }

    #[test]
    fn only_changes_that_remove_an_address_concern_open_connections() {
        let host = Host::pending("gpu");
        host.take(Ok(&found(Some(&["10.0.0.1"]), Some(&[]))));
        host.take(Ok(&found(Some(&["10.0.0.2", "10.0.0.1"]), Some(&["::1"]))));
        assert_eq!(host.removals(), 0);
        host.take(Ok(&found(Some(&["10.0.0.2"]), Some(&["::1"]))));
        assert_eq!(host.removals(), 1);
    }

    #[test]
    fn another_order_is_no_change() {
        let host = Host::pending("gpu");
        host.take(Ok(&found(Some(&["10.0.0.1", "10.0.0.2"]), Some(&[]))));
        assert!(!host.take(Ok(&found(Some(&["10.0.0.2", "10.0.0.1"]), Some(&[])))));
        assert_eq!(host.addresses(), ips(&["10.0.0.1", "10.0.0.2"]));
    }

    #[test]
    fn a_family_that_was_not_answered_keeps_its_addresses() {
        let host = Host::pending("gpu");
        host.take(Ok(&found(Some(&["10.0.0.1"]), Some(&["::1"]))));
        host.take(Ok(&found(Some(&["10.0.0.2"]), None)));
        assert_eq!(host.addresses(), ips(&["::1", "10.0.0.2"]));
        host.take(Ok(&found(Some(&["10.0.0.2"]), Some(&[]))));
        assert_eq!(host.addresses(), ips(&["10.0.0.2"]));
    }

    #[test]
    fn each_port_has_an_address_that_worked() {
        let host = Host::pending("gpu");
        let [a, b] = [ips(&["10.0.0.1"])[0], ips(&["10.0.0.2"])[0]];
        host.set_worked(80, a);
        host.set_worked(90, b);
        host.set_worked(80, b);
        assert_eq!((host.worked(80), host.worked(90), host.worked(1)), (Some(b), Some(b), None));
        (100..200).for_each(|port| host.set_worked(port, a));
        assert_eq!(host.worked.lock().unwrap().len(), PORTS_MAX);
    }
}
