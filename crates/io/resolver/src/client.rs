//! Questions to name servers.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, Record, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;

use crate::error::LookupError;
use crate::name::dns_name;
use crate::search_list::SearchList;

/// Longest time limit of one try, whatever resolv.conf sets: another name server may answer.
const TRY_MAX: Duration = Duration::from_secs(2);
/// Most tries after the first: a lost packet is no outage.
const RETRIES_MAX: usize = 1;
/// Time that the second family of addresses has after the first was found: some name servers never
/// answer questions for one of them.
const SECOND_FAMILY_WAIT: Duration = Duration::from_millis(500);
/// Most addresses of a family that are taken. A message over TCP can't hold many more.
const ADDRESSES_MAX: usize = 1024;

/// Client of some name servers. Sends a query each time: the cache is the [`crate::Host`].
#[derive(Clone)]
pub struct DnsClient {
    resolver: TokioResolver,
    search: SearchList,
}

impl std::fmt::Debug for DnsClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DnsClient").field("search", &self.search).finish_non_exhaustive()
    }
}

/// Addresses of a name, by family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundAddresses {
    pub(crate) v4: FamilyAnswer,
    pub(crate) v6: FamilyAnswer,
    /// Time for which the answers are valid.
    pub(crate) ttl: Duration,
}

/// Answer about the addresses of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FamilyAnswer {
    /// All addresses of this family; empty if the name has none.
    Known(Vec<IpAddr>),
    /// No answer that counts.
    Failed,
}

/// Answer to the questions for one name, or the reason for which there is none.
struct FamilyRecords {
    result: Result<Vec<Record>, LookupFault>,
}

/// Failed question.
#[derive(Debug)]
struct LookupFault {
    error: LookupError,
    /// Time for which the absence of records is valid.
    ttl: Option<Duration>,
}

impl DnsClient {
    /// Makes a client of these name servers, which get names as they are.
    #[must_use]
    pub fn of_servers(servers: &[SocketAddr], timeout: Duration) -> Option<Self> {
        let server = |address: &SocketAddr| {
            let at_port = |mut connection: ConnectionConfig| {
                connection.port = address.port();
                connection
            };
            let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(at_port);
            NameServerConfig::new(address.ip(), true, connections.into())
        };
        let servers = servers.iter().map(server).collect();
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let mut options = ResolverOpts::default();
        (options.timeout, options.attempts) = (timeout / 2, 1);
        Self::new(config, options)
    }

    /// Makes a client of the name servers in the text of a resolv.conf. Without any, it asks this
    /// machine, as the system's own resolver does.
    pub(crate) fn of_resolv_conf(text: &str) -> Option<Self> {
        let (config, options) = parse_resolv_conf(text).unwrap_or_else(|error| {
            tracing::debug!(%error, "resolv.conf names no server that can be asked");
            let local = NameServerConfig::udp_and_tcp(IpAddr::from([127, 0, 0, 1]));
            let search = Vec::new();
            (ResolverConfig::from_parts(None, search, vec![local]), ResolverOpts::default())
        });
        Self::new(config, options)
    }

    fn new(config: ResolverConfig, mut options: ResolverOpts) -> Option<Self> {
        options.timeout = options.timeout.min(TRY_MAX);
        options.attempts = options.attempts.min(RETRIES_MAX);
        // A cache would hide changes until a long TTL is over.
        options.cache_size = 0;
        // The hosts file is read elsewhere, whenever it changes.
        options.use_hosts_file = ResolveHosts::Never;
        let mut domains = config.search().to_vec();
        if domains.is_empty() {
            domains.extend(config.domain().cloned());
        }
        let search = SearchList { domains, ndots: options.ndots };
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options;
        let resolver = builder.build().inspect_err(|error| {
            tracing::warn!(%error, "the DNS configuration can't be used");
        });
        Some(Self { resolver: resolver.ok()?, search })
    }

    /// Returns the records of a name; of a short name, those of the first completed one that has
    /// any.
    ///
    /// # Errors
    /// Returns [`LookupError::NotFound`] if the name servers report that there are none.
    pub async fn records(&self, name: &str, kind: RecordType) -> Result<Lookup, LookupError> {
        let mut outcome = nothing("it has no such record");
        let mut has_failed = false;
        for candidate in self.search.candidates(&dns_name(name)?) {
            match self.resolver.lookup(candidate, kind).await {
                Ok(lookup) if lookup.answers().iter().any(|it| it.record_type() == kind) => {
                    return Ok(lookup);
                }
                Ok(_) => note(&mut outcome, &mut has_failed, nothing("it has no such record")),
                Err(error) => note(&mut outcome, &mut has_failed, fault_of(&error).error),
            }
        }
        Err(outcome)
    }

    /// Looks up the addresses of a name.
    ///
    /// # Errors
    /// Returns the failure with the time for which it is valid, if that is known.
    pub(crate) async fn addresses(
        &self,
        name: &Name,
    ) -> Result<FoundAddresses, (LookupError, Option<Duration>)> {
        let mut outcome = nothing("the name has no address");
        let mut has_failed = false;
        let mut ttl: Option<Duration> = None;
        for candidate in self.search.candidates(name) {
            let (v4, v6) = self.families(&candidate).await;
            let found =
                [&v4, &v6].iter().any(|it| it.result.as_ref().is_ok_and(|it| !it.is_empty()));
            if found {
                return Ok(FoundAddresses::of(&v4, &v6));
            }
            for fault in [v4.result, v6.result].into_iter().filter_map(Result::err) {
                ttl = ttl.into_iter().chain(fault.ttl).min();
                note(&mut outcome, &mut has_failed, fault.error);
            }
        }
        Err((outcome, ttl.filter(|_| !has_failed)))
    }

    /// Asks for the addresses of both families at the same time.
    async fn families(&self, name: &Name) -> (FamilyRecords, FamilyRecords) {
        let mut v4 = Box::pin(self.family(name, RecordType::A));
        let mut v6 = Box::pin(self.family(name, RecordType::AAAA));
        tokio::select! {
            first = &mut v4 => {
                let second = second(&first, v6).await;
                (first, second)
            }
            first = &mut v6 => (second(&first, v4).await, first),
        }
    }

    async fn family(&self, name: &Name, kind: RecordType) -> FamilyRecords {
        let result = match self.resolver.lookup(name.clone(), kind).await {
            Ok(lookup) => {
                let records = lookup.answers().iter().filter(|it| it.record_type() == kind);
                Ok(records.take(ADDRESSES_MAX).cloned().collect())
            }
            Err(error) => Err(fault_of(&error)),
        };
        FamilyRecords { result }
    }
}

/// Waits for the answer about the second family, only a little if the first has addresses.
async fn second(
    first: &FamilyRecords,
    second: impl Future<Output = FamilyRecords>,
) -> FamilyRecords {
    if !first.result.as_ref().is_ok_and(|records| !records.is_empty()) {
        return second.await;
    }
    tokio::time::timeout(SECOND_FAMILY_WAIT, second).await.unwrap_or_else(|_| {
        let error = LookupError::NoAnswer("no answer in time".to_owned());
        FamilyRecords { result: Err(LookupFault { error, ttl: None }) }
    })
}

impl FoundAddresses {
    /// Returns the addresses that the hosts file has for a name; it has no time limit.
    pub(crate) fn of_file(addresses: Vec<IpAddr>) -> Self {
        let (v6, v4) = addresses.into_iter().partition(IpAddr::is_ipv6);
        let (v4, v6) = (FamilyAnswer::Known(v4), FamilyAnswer::Known(v6));
        Self { v4, v6, ttl: Duration::MAX }
    }

    fn of(v4: &FamilyRecords, v6: &FamilyRecords) -> Self {
        let ttls = |it: &FamilyRecords| it.result.iter().flatten().map(|it| it.ttl).min();
        let ttl = ttls(v4).into_iter().chain(ttls(v6)).min().unwrap_or_default();
        let ttl = Duration::from_secs(u64::from(ttl));
        Self { v4: FamilyAnswer::of(v4), v6: FamilyAnswer::of(v6), ttl }
    }
}

impl FamilyAnswer {
    fn of(answer: &FamilyRecords) -> Self {
        match &answer.result {
            Ok(records) => {
                Self::Known(records.iter().filter_map(|record| record.data.ip_addr()).collect())
            }
            Err(LookupFault { error: LookupError::NotFound(_), .. }) => Self::Known(Vec::new()),
            Err(_) => Self::Failed,
        }
    }
}

/// Notes an error of one candidate: a failure outweighs the absence of another candidate.
fn note(outcome: &mut LookupError, has_failed: &mut bool, error: LookupError) {
    let is_failure = !matches!(error, LookupError::NotFound(_));
    if is_failure || !*has_failed {
        *outcome = error;
    }
    *has_failed |= is_failure;
}

fn nothing(why: &str) -> LookupError {
    LookupError::NotFound(why.to_owned())
}

fn fault_of(error: &NetError) -> LookupFault {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(nothing_found)) => {
            let error = match nothing_found.response_code {
                ResponseCode::NXDomain => nothing("the name does not exist (NXDOMAIN)"),
                _ => nothing("the name has no address"),
            };
            let ttl = nothing_found.negative_ttl.map(|ttl| Duration::from_secs(u64::from(ttl)));
            LookupFault { error, ttl }
        }
        NetError::Timeout => {
            let why = "the name servers do not answer".to_owned();
            LookupFault { error: LookupError::NoAnswer(why), ttl: None }
        }
        error => LookupFault { error: LookupError::NoAnswer(error.to_string()), ttl: None },
    }
}

#[cfg(test)]
mod tests {
    use hickory_resolver::net::NoRecords;
    use hickory_resolver::proto::op::Query;

    use super::*;

    #[test]
    fn only_a_server_that_knows_of_nothing_says_that_a_name_does_not_resolve() {
        for code in [ResponseCode::NXDomain, ResponseCode::NoError] {
            let nothing = NoRecords::new(Query::query(Name::root(), RecordType::A), code);
            let fault = fault_of(&nothing.into());
            assert!(matches!(fault.error, LookupError::NotFound(_)), "{code}");
        }
        for code in [ResponseCode::ServFail, ResponseCode::Refused, ResponseCode::NotImp] {
            let fault = fault_of(&NetError::Dns(DnsError::ResponseCode(code)));
            assert!(matches!(fault.error, LookupError::NoAnswer(_)), "{code}");
        }
        assert!(matches!(fault_of(&NetError::Timeout).error, LookupError::NoAnswer(_)));
    }

    #[test]
    fn a_failure_outweighs_the_absence_of_other_candidates() {
        let failure = || LookupError::NoAnswer("x".to_owned());
        for errors in [[failure(), nothing("y")], [nothing("y"), failure()]] {
            let (mut outcome, mut has_failed) = (nothing("none"), false);
            errors.into_iter().for_each(|error| note(&mut outcome, &mut has_failed, error));
            assert_eq!(outcome, failure());
        }
    }
}
