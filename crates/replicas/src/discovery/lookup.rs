//! Look-up of one question in DNS.

use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::task::JoinSet;

use super::DiscoveredEndpoint;
use super::dns::{DnsQuestion, DnsSource};
use super::known::DiscoveryAnswer;

/// Most endpoints that are taken from one answer. A DNS message over TCP can't hold many more.
const ENDPOINTS_MAX: usize = 1024;
/// Tries within one look-up: a lost packet is no outage.
const ATTEMPTS: u32 = 2;

/// DNS client of one source.
#[derive(Debug)]
pub(super) struct AddressLookup {
    /// `None` if the system's configuration can't be read.
    resolver: Option<Resolver>,
}

/// Resolver of hickory, with the `Debug` that it lacks.
#[derive(Clone)]
struct Resolver(TokioResolver);

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

/// Records that were found, or the answer if there are none.
type Found = Result<Vec<Record>, DiscoveryAnswer>;

impl AddressLookup {
    pub(super) fn new(source: &DnsSource) -> Self {
        let resolver = build(source).inspect_err(|error| {
            tracing::warn!(%error, "the system's DNS configuration can't be used");
        });
        Self { resolver: resolver.ok().map(Resolver) }
    }

    /// Returns the answer to `question`. Has no time limit of its own.
    pub(super) async fn ask(&self, question: &DnsQuestion) -> DiscoveryAnswer {
        let Some(resolver) = &self.resolver else { return DiscoveryAnswer::Failed };
        let answer = match question {
            DnsQuestion::Address { name, port } => resolver.ask_address(name, *port).await,
            DnsQuestion::Service { name } => resolver.ask_service(name).await,
        };
        answer.unwrap_or_else(|nothing| nothing)
    }
}

impl Resolver {
    async fn ask_address(&self, name: &str, port: u16) -> Result<DiscoveryAnswer, DiscoveryAnswer> {
        let parsed = Name::from_utf8(name).map_err(|_| DiscoveryAnswer::Failed)?;
        let records = self.addresses(parsed).await?;
        let endpoints = addresses_in(name.trim_end_matches('.'), port, &records);
        Ok(DiscoveryAnswer::Endpoints(endpoints, ttl(&records)))
    }

    async fn ask_service(&self, name: &str) -> Result<DiscoveryAnswer, DiscoveryAnswer> {
        let name = Name::from_utf8(name).map_err(|_| DiscoveryAnswer::Failed)?;
        let lookup = self.0.lookup(name, RecordType::SRV).await.map_err(|error| why(&error))?;
        let services = services_in(lookup.answers());
        if services.is_empty() {
            return Err(DiscoveryAnswer::Empty);
        }
        let mut addresses = told_along(lookup.additionals());
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
            let (resolver, target) = (self.clone(), target.clone());
            lookups.spawn(async move {
                let records = resolver.addresses(target.clone()).await.unwrap_or_default();
                (target, records)
            });
        }
        lookups.join_all().await
    }

    /// Looks up A records, and AAAA records only if there are none: a server with both would become
    /// two replicas.
    async fn addresses(&self, name: Name) -> Found {
        match self.records(name.clone(), RecordType::A).await {
            Err(DiscoveryAnswer::Empty) => self.records(name, RecordType::AAAA).await,
            found => found,
        }
    }

    async fn records(&self, name: Name, kind: RecordType) -> Found {
        let lookup = self.0.lookup(name, kind).await.map_err(|error| why(&error))?;
        let records = lookup.answers().iter().filter(|record| record.record_type() == kind);
        let records: Vec<Record> = records.cloned().collect();
        if records.is_empty() { Err(DiscoveryAnswer::Empty) } else { Ok(records) }
    }
}

fn build(source: &DnsSource) -> Result<TokioResolver, NetError> {
    let provider = TokioRuntimeProvider::default();
    let mut builder = match source.resolver {
        None => TokioResolver::builder(provider)?,
        Some(address) => {
            let at_port = |mut connection: ConnectionConfig| {
                connection.port = address.port();
                connection
            };
            let connections =
                vec![at_port(ConnectionConfig::udp()), at_port(ConnectionConfig::tcp())];
            let server = NameServerConfig::new(address.ip(), true, connections);
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
            let mut builder = TokioResolver::builder_with_config(config, provider);
            // A configured DNS server is asked alone, without the system's hosts file.
            builder.options_mut().use_hosts_file = ResolveHosts::Never;
            builder
        }
    };
    let options = builder.options_mut();
    options.timeout = source.timeout / ATTEMPTS;
    // hickory counts the tries after the first.
    options.attempts = (ATTEMPTS - 1) as usize;
    // A cache would hide changes until a long TTL is over.
    options.cache_size = 0;
    builder.build()
}

/// Returns `Empty` if DNS said that there are no records, and `Failed` for any other error.
fn why(error: &NetError) -> DiscoveryAnswer {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(_)) => DiscoveryAnswer::Empty,
        error => {
            tracing::debug!(%error, "no answer from DNS");
            DiscoveryAnswer::Failed
        }
    }
}

fn ttl(records: &[Record]) -> Duration {
    let ttls = records.iter().map(|record| record.ttl);
    Duration::from_secs(u64::from(ttls.min().unwrap_or_default()))
}

/// Returns the endpoints at the addresses of a name.
pub(super) fn addresses_in(host: &str, port: u16, records: &[Record]) -> Vec<DiscoveredEndpoint> {
    let endpoint = |address| DiscoveredEndpoint {
        host: host.to_owned(),
        address: Some(address),
        port,
        weight: 1,
    };
    let addresses = records.iter().filter_map(|record| record.data.ip_addr());
    addresses.map(endpoint).take(ENDPOINTS_MAX).collect()
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
pub(super) fn told_along(additionals: &[Record]) -> Vec<(Name, IpAddr)> {
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
    use hickory_resolver::net::NoRecords;
    use hickory_resolver::proto::op::{Query, ResponseCode};

    use super::*;

    #[test]
    fn only_a_server_that_knows_of_nothing_makes_an_empty_answer() {
        for code in [ResponseCode::NXDomain, ResponseCode::NoError] {
            let nothing = NoRecords::new(Query::query(Name::root(), RecordType::A), code);
            assert_eq!(why(&nothing.into()), DiscoveryAnswer::Empty, "{code}");
        }
        for code in [ResponseCode::ServFail, ResponseCode::Refused, ResponseCode::NotImp] {
            let failure = NetError::Dns(DnsError::ResponseCode(code));
            assert_eq!(why(&failure), DiscoveryAnswer::Failed, "{code}");
        }
        assert_eq!(why(&NetError::Timeout), DiscoveryAnswer::Failed);
    }
}
