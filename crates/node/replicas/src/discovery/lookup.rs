//! Look-up of one question in DNS.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use spillway_resolver::{DnsClient, LookupError, Resolver};
use tokio::task::JoinSet;

use super::DiscoveredEndpoint;
use super::dns::{DnsQuestion, DnsSource};
use super::known::DiscoveryAnswer;

/// Most endpoints that are taken from one answer. A DNS message over TCP can't hold many more.
const ENDPOINTS_MAX: usize = 1024;
/// Time for which addresses of the hosts file are used before the file is looked at again.
const HOSTS_FILE_TTL: Duration = Duration::from_secs(1);

/// DNS client of one source.
#[derive(Clone, Debug)]
pub(super) struct AddressLookup {
    /// `None` if the DNS configuration can't be used.
    client: Option<Arc<DnsClient>>,
    /// Resolver whose hosts file counts; `None` for a source with a DNS server of its own.
    system: Option<Resolver>,
}

/// Records that were found, or the answer if there are none.
type Found = Result<Vec<Record>, DiscoveryAnswer>;

impl AddressLookup {
    pub(super) fn new(source: &DnsSource) -> Self {
        match source.resolver {
            Some(server) => {
                let client = DnsClient::of_servers(&[server], source.timeout).map(Arc::new);
                Self { client, system: None }
            }
            None => {
                let system = source.system.clone();
                Self { client: system.client(), system: Some(system) }
            }
        }
    }

    /// Returns the answer to `question`. Has no time limit of its own.
    pub(super) async fn ask(&self, question: &DnsQuestion) -> DiscoveryAnswer {
        let answer = match question {
            DnsQuestion::Address { name, port } => self.ask_address(name, *port).await,
            DnsQuestion::Service { name } => self.ask_service(name).await,
        };
        answer.unwrap_or_else(|nothing| nothing)
    }

    async fn ask_address(&self, name: &str, port: u16) -> Result<DiscoveryAnswer, DiscoveryAnswer> {
        if let Ok(address) = name.trim_matches(['[', ']']).parse() {
            let only = vec![endpoint(name, port, address)];
            return Ok(DiscoveryAnswer::Endpoints(only, Duration::MAX));
        }
        let host = name.trim_end_matches('.');
        if let Some(addresses) = self.system.as_ref().and_then(|it| it.in_hosts_file(name)) {
            let endpoints = of_one_family(&addresses).map(|address| endpoint(host, port, address));
            return Ok(DiscoveryAnswer::Endpoints(endpoints.collect(), HOSTS_FILE_TTL));
        }
        let records = self.addresses(name).await?;
        let endpoints = addresses_in(host, port, &records);
        Ok(DiscoveryAnswer::Endpoints(endpoints, ttl(&records)))
    }

    async fn ask_service(&self, name: &str) -> Result<DiscoveryAnswer, DiscoveryAnswer> {
        let client = self.client()?;
        let lookup = client.records(name, RecordType::SRV).await.map_err(why)?;
        let services = services_in(lookup.answers());
        if services.is_empty() {
            return Err(DiscoveryAnswer::Empty);
        }
        let mut addresses = additional_addresses(lookup.additionals());
        let mut ttl = ttl(lookup.answers());
        for (target, records) in self.addresses_of(&services, &addresses).await {
            // The endpoints are valid as long as the record that expires first.
            ttl = ttl.min(self::ttl(&records));
            let found = records.iter().filter_map(|record| record.data.ip_addr());
            addresses.extend(found.map(|address| (target.clone(), address)));
        }
        Ok(DiscoveryAnswer::Endpoints(endpoints_of(&services, &addresses), ttl))
    }

    /// Looks up the addresses of those targets that the answer did not include. If a target has no
    /// address, the client that connects looks the name up again.
    async fn addresses_of(
        &self,
        services: &[&SRV],
        known: &[(Name, IpAddr)],
    ) -> Vec<(Name, Vec<Record>)> {
        let mut targets: Vec<&Name> = services.iter().map(|service| &service.target).collect();
        targets.sort();
        targets.dedup();
        let mut lookups = JoinSet::new();
        for target in targets.into_iter().filter(|target| address_of(target, known).is_none()) {
            let (lookup, target) = (self.clone(), target.clone());
            lookups.spawn(async move {
                let records = lookup.addresses(&target.to_ascii()).await.unwrap_or_default();
                (target, records)
            });
        }
        lookups.join_all().await
    }

    /// Looks up A records, and AAAA records only if there are none: a server with both would become
    /// two replicas.
    async fn addresses(&self, name: &str) -> Found {
        match self.records(name, RecordType::A).await {
            Err(DiscoveryAnswer::Empty) => self.records(name, RecordType::AAAA).await,
            found => found,
        }
    }

    async fn records(&self, name: &str, kind: RecordType) -> Found {
        let lookup = self.client()?.records(name, kind).await.map_err(why)?;
        let records = lookup.answers().iter().filter(|record| record.record_type() == kind);
        Ok(records.cloned().collect())
    }

    fn client(&self) -> Result<&DnsClient, DiscoveryAnswer> {
        let why = || DiscoveryAnswer::Failed("the DNS configuration can't be used".to_owned());
        self.client.as_deref().ok_or_else(why)
    }
}

/// Returns the IPv4 addresses, or all others if there are none: a server with both would become two
/// replicas.
fn of_one_family(addresses: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
    let has_v4 = addresses.iter().any(IpAddr::is_ipv4);
    addresses.iter().copied().filter(move |address| address.is_ipv4() == has_v4)
}

/// Returns `Empty` if DNS said that there are no records, and `Failed` for any other error.
fn why(error: LookupError) -> DiscoveryAnswer {
    match error {
        LookupError::NotFound(_) => DiscoveryAnswer::Empty,
        error => {
            tracing::debug!(%error, "no answer from DNS");
            DiscoveryAnswer::Failed(error.to_string())
        }
    }
}

fn ttl(records: &[Record]) -> Duration {
    let ttls = records.iter().map(|record| record.ttl);
    Duration::from_secs(u64::from(ttls.min().unwrap_or_default()))
}

/// Returns the endpoints at the addresses of a name.
pub(super) fn addresses_in(host: &str, port: u16, records: &[Record]) -> Vec<DiscoveredEndpoint> {
    let addresses = records.iter().filter_map(|record| record.data.ip_addr());
    addresses.map(|address| endpoint(host, port, address)).take(ENDPOINTS_MAX).collect()
}

fn endpoint(host: &str, port: u16, address: IpAddr) -> DiscoveredEndpoint {
    DiscoveredEndpoint { host: host.to_owned(), address: Some(address), port, weight: 1 }
}

/// Returns the services that an answer names.
pub(super) fn services_in(answers: &[Record]) -> Vec<&SRV> {
    answers
        .iter()
        .filter_map(|record| match &record.data {
            // A target that is only the root means that there is no such service.
            RData::SRV(service) if !service.target.is_root() => Some(service),
            _ => None,
        })
        .take(ENDPOINTS_MAX)
        .collect()
}

/// Returns the endpoints of these services, with the addresses that are known.
pub(super) fn endpoints_of(
    services: &[&SRV],
    addresses: &[(Name, IpAddr)],
) -> Vec<DiscoveredEndpoint> {
    let endpoint = |service: &&SRV| DiscoveredEndpoint {
        host: service.target.to_utf8().trim_end_matches('.').to_owned(),
        address: address_of(&service.target, addresses),
        port: service.port,
        // In SRV records, weight 0 means very little work, not none.
        weight: u32::from(service.weight).max(1),
    };
    services.iter().map(endpoint).collect()
}

/// Returns the addresses in the additional records of an answer.
pub(super) fn additional_addresses(additionals: &[Record]) -> Vec<(Name, IpAddr)> {
    let address = |record: &Record| Some((record.name.clone(), record.data.ip_addr()?));
    additionals.iter().filter_map(address).collect()
}

/// Returns the lowest address of a name, so that every look-up chooses the same one.
fn address_of(name: &Name, addresses: &[(Name, IpAddr)]) -> Option<IpAddr> {
    let own = addresses.iter().filter(|(owner, _)| owner == name);
    own.map(|(_, address)| *address).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_that_knows_of_nothing_makes_an_empty_answer() {
        assert_eq!(why(LookupError::NotFound("x".to_owned())), DiscoveryAnswer::Empty);
        let failed = LookupError::NoAnswer("x".to_owned());
        assert!(matches!(why(failed), DiscoveryAnswer::Failed(_)));
    }

    #[test]
    fn a_host_with_addresses_of_both_families_is_one_replica() {
        let of = |addresses: &[&str]| {
            let addresses: Vec<IpAddr> = addresses.iter().map(|it| it.parse().unwrap()).collect();
            of_one_family(&addresses).map(|it| it.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(&["::1", "127.0.0.1", "127.0.0.2"]), ["127.0.0.1", "127.0.0.2"]);
        assert_eq!(of(&["::1", "::2"]), ["::1", "::2"]);
    }
}
