//! Answers to DNS queries: the choice of records and the composition of the message.

use std::net::IpAddr;

use hickory_proto::op::{Edns, Message, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::rdata::HINFO;
use hickory_proto::rr::rdata::opt::{ClientSubnet, EdnsOption};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use crate::ClientLocation;
use crate::dns::client::{ClientNetwork, V4_BITS, V6_BITS};
use crate::dns::nearest::{Asking, addresses, choose};
use crate::dns::query::{Parsed, QueryAsk, read};
use crate::dns::zone::{STATIC_TTL_S, ZoneMatch, address_records, alias_record};
use crate::dns::{DnsView, QueryKind, QueryOutcome, QueryTransport, Zone, ZoneRegion};

/// Largest UDP answer in bytes for clients that support EDNS, as the DNS flag day of 2020
/// recommends: no network cuts such a datagram into fragments.
const DATAGRAM_BYTES_MAX: u16 = 1_232;
/// Largest UDP answer in bytes for clients that do not support EDNS.
const PLAIN_BYTES_MAX: u16 = 512;

/// Data that answers are made from.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The zone.
    pub zone: &'a Zone,
    /// State of the regions at this moment.
    pub view: &'a DnsView,
    /// Function that locates an address.
    pub locate: &'a dyn Fn(IpAddr) -> ClientLocation,
}

/// Answer to one query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsReply {
    /// Bytes of the message to send back; `None` if no answer is sent.
    pub bytes: Option<Vec<u8>>,
    /// Kind of record that the query asked for.
    pub kind: QueryKind,
    /// Outcome of the query, for metrics.
    pub outcome: QueryOutcome,
    /// Index in [`Zone::regions`] of the region whose addresses the answer has; `None` if there is
    /// none.
    pub region: Option<usize>,
}

/// Records of an answer.
#[derive(Debug, Default)]
struct AnswerContent {
    code: ResponseCode,
    answers: Vec<RData>,
    ttl_s: u32,
    region: Option<usize>,
    /// Bits of the client's network that the answer depends on.
    scope: u8,
}

impl DnsReply {
    /// Returns the region whose addresses the answer has; `None` if the answer has none.
    #[must_use]
    pub fn region<'z>(&self, zone: &'z Zone) -> Option<&'z ZoneRegion> {
        zone.regions().get(self.region?)
    }
}

impl std::fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").field("view", self.view).finish_non_exhaustive()
    }
}

/// Answers a DNS message that came from `source`.
///
/// The answer holds all records or, with the truncation bit set, none. No bytes are returned for a
/// message that must not be answered: one without a readable head, or one that is itself an answer.
#[must_use]
pub fn answer(
    message: &[u8],
    source: IpAddr,
    transport: QueryTransport,
    sources: &Sources<'_>,
) -> DnsReply {
    let silence = DnsReply {
        bytes: None,
        kind: QueryKind::Other,
        outcome: QueryOutcome::Dropped,
        region: None,
    };
    let ask = match read(message) {
        Parsed::Silence => return silence,
        Parsed::Fault(head, code) => {
            let bytes = fault(head, code).to_vec().ok();
            return DnsReply { bytes, outcome: outcome_of(code, true), ..silence };
        }
        Parsed::Ask(ask) => ask,
    };
    let kind = QueryKind::of(ask.query.query_type());
    // The outcome counts for metrics even if the answer is then truncated.
    let content = content(&ask, kind, source, sources);
    let outcome = outcome_of(content.code, !content.answers.is_empty());
    let region = content.region;
    let whole = compose(&ask, content, sources.zone);
    let limit = bytes_max(&ask, transport);
    let bytes = whole.to_vec().ok().filter(|bytes| bytes.len() <= limit);
    if bytes.is_some() {
        return DnsReply { bytes, kind, outcome, region };
    }
    // All or nothing: a client could take a part of the records for all of them.
    let bytes = whole.truncate().to_vec().ok().filter(|bytes| bytes.len() <= limit);
    DnsReply { bytes, kind, outcome: QueryOutcome::Truncated, region: None }
}

/// Returns an answer without records that makes the resolver ask again by TCP, for networks over
/// the rate limit. The answer is no longer than the query. Returns `None` if such an answer is
/// impossible, or if `message` is no query.
#[must_use]
pub fn truncated(message: &[u8]) -> Option<Vec<u8>> {
    let Parsed::Ask(ask) = read(message) else { return None };
    let mut reply = Message::response(ask.metadata.id, OpCode::Query);
    reply.metadata.recursion_desired = ask.metadata.recursion_desired;
    reply.metadata.authoritative = true;
    reply.metadata.truncation = true;
    reply.add_query(ask.query);
    if let Some(asked) = &ask.edns {
        reply.set_edns(edns(asked, None, 0));
    }
    reply.to_vec().ok().filter(|bytes| bytes.len() <= message.len())
}

fn outcome_of(code: ResponseCode, has_records: bool) -> QueryOutcome {
    match code {
        ResponseCode::NoError if has_records => QueryOutcome::Answered,
        ResponseCode::NoError => QueryOutcome::NoData,
        ResponseCode::NXDomain => QueryOutcome::NoName,
        ResponseCode::NotImp => QueryOutcome::NotImplemented,
        ResponseCode::FormErr => QueryOutcome::Malformed,
        ResponseCode::BADVERS => QueryOutcome::BadVersion,
        ResponseCode::ServFail => QueryOutcome::Unready,
        _ => QueryOutcome::Refused,
    }
}

fn bytes_max(ask: &QueryAsk, transport: QueryTransport) -> usize {
    let told = ask.edns.as_ref().map_or(PLAIN_BYTES_MAX, Edns::max_payload);
    match transport {
        // A resolver may announce less than every client has to accept, or more than networks carry
        // whole.
        QueryTransport::Udp => told.clamp(PLAIN_BYTES_MAX, DATAGRAM_BYTES_MAX).into(),
        QueryTransport::Tcp => usize::from(u16::MAX),
    }
}

/// Chooses the records of the answer, or its error code.
fn content(
    ask: &QueryAsk,
    kind: QueryKind,
    source: IpAddr,
    sources: &Sources<'_>,
) -> AnswerContent {
    let only = |code| AnswerContent { code, ..AnswerContent::default() };
    // Only version 0 exists: what a later one asks for cannot be known (RFC 6891, section 6.1.3).
    if ask.edns.as_ref().is_some_and(|edns| edns.version() > 0) {
        return only(ResponseCode::BADVERS);
    }
    let is_transfer = matches!(ask.query.query_type(), RecordType::AXFR | RecordType::IXFR);
    if is_transfer || ask.query.query_class() != DNSClass::IN {
        return only(ResponseCode::Refused);
    }
    let zone = sources.zone;
    let fixed =
        |answers| AnswerContent { answers, ttl_s: STATIC_TTL_S, ..AnswerContent::default() };
    let (is_apex, is_service, host) = match zone.find(ask.query.name()) {
        ZoneMatch::Elsewhere => return only(ResponseCode::Refused),
        ZoneMatch::Nothing => return only(ResponseCode::NXDomain),
        ZoneMatch::Empty => return only(ResponseCode::NoError),
        ZoneMatch::Alias(target) => return fixed(vec![alias_record(target)]),
        ZoneMatch::Name { is_apex, is_service, host } => (is_apex, is_service, host),
    };
    match kind {
        QueryKind::A | QueryKind::Aaaa if is_service => region_content(ask, kind, source, sources),
        QueryKind::A | QueryKind::Aaaa => {
            let addresses = host.map(|host| &host.addresses[..]).unwrap_or_default();
            fixed(address_records(addresses, kind))
        }
        QueryKind::Soa if is_apex => fixed(vec![zone.soa()]),
        // RFC 8482: a query for all records gets one short record, so that ANY amplifies no attack.
        QueryKind::Any => {
            fixed(vec![RData::HINFO(HINFO::new("RFC8482".to_owned(), String::new()))])
        }
        _ => fixed(zone.fixed(kind, is_apex, is_service).to_vec()),
    }
}

/// Returns the addresses of the region that the client is directed to. Returns the code SERVFAIL
/// until the state of the other regions is known.
fn region_content(
    ask: &QueryAsk,
    kind: QueryKind,
    source: IpAddr,
    Sources { zone, view, locate }: &Sources<'_>,
) -> AnswerContent {
    if !view.is_settled {
        // The resolver asks another name server at once. An answer given now would not consider
        // regions from which this node has received nothing yet.
        return AnswerContent { code: ResponseCode::ServFail, ..AnswerContent::default() };
    }
    // A prefix of no bits means that the client does not want to be located.
    let subnet = ask.subnet.filter(|subnet| subnet.source_prefix() > 0);
    let place = |address| zone.placed(address).or_else(|| locate(address).coordinates);
    let told = subnet.and_then(|subnet| place(subnet.addr()).map(|at| (subnet, at)));
    // The location of the resolver is used for its clients if the query names no network, or one in
    // no known place.
    let at = told.map(|(_, at)| at).or_else(|| place(source));
    let network = ClientNetwork::of(told.map_or(source, |(subnet, _)| subnet.addr()));
    let name = ask.query.name().to_lowercase().to_ascii();
    let asking = Asking { at, network, name: name.as_bytes() };
    let region = choose(zone, view, &asking);
    // One region for both address families, even if that region has no IPv6 address: a client with
    // both would try the IPv6 address of a far region first. Networks without IPv4 reach the region
    // by NAT64, which asks for IPv4 addresses.
    let addresses = region.map(|region| addresses(zone, region, &asking)).unwrap_or_default();
    let answers = address_records(&addresses, kind);
    AnswerContent {
        ttl_s: zone.spec().ttl_s,
        region: region.filter(|_| !answers.is_empty()),
        answers,
        scope: told.map_or(0, |(subnet, _)| scope(&subnet)),
        ..AnswerContent::default()
    }
}

/// Returns the prefix length that the answer holds for: not longer than the prefix that the
/// resolver sent, and not longer than a [`ClientNetwork`].
fn scope(subnet: &ClientSubnet) -> u8 {
    let finest = if subnet.addr().is_ipv4() { V4_BITS } else { V6_BITS };
    subnet.source_prefix().min(finest)
}

/// Returns an answer to a message that cannot be read: the head with an error code, nothing else.
fn fault(head: Metadata, code: ResponseCode) -> Message {
    let mut message = Message::error_msg(head.id, head.op_code, code);
    message.metadata.recursion_desired = head.recursion_desired;
    message
}

fn compose(ask: &QueryAsk, content: AnswerContent, zone: &Zone) -> Message {
    let mut message = Message::response(ask.metadata.id, OpCode::Query);
    let code = content.code;
    message.metadata.recursion_desired = ask.metadata.recursion_desired;
    message.metadata.response_code = code;
    message.metadata.authoritative = matches!(code, ResponseCode::NoError | ResponseCode::NXDomain);
    let is_negative = message.metadata.authoritative && content.answers.is_empty();
    message.add_query(ask.query.clone());
    let owner = ask.query.name();
    message.add_answers(content.answers.into_iter().map(|data| record(owner, content.ttl_s, data)));
    if is_negative {
        // RFC 2308: the TTL of this record determines how long a resolver may keep the negative
        // answer.
        let ttl_s = zone.spec().ttl_s;
        message.add_authority(record(zone.origin().name(), ttl_s, zone.soa()));
    }
    if let Some(asked) = &ask.edns {
        message.set_edns(edns(asked, ask.subnet, content.scope));
    }
    message
}

fn record(owner: &Name, ttl_s: u32, data: RData) -> Record {
    Record::from_rdata(owner.clone(), ttl_s, data)
}

fn edns(asked: &Edns, subnet: Option<ClientSubnet>, scope: u8) -> Edns {
    let mut edns = Edns::new();
    edns.set_max_payload(DATAGRAM_BYTES_MAX);
    edns.set_dnssec_ok(asked.flags().dnssec_ok);
    if let Some(mut subnet) = subnet {
        subnet.set_scope_prefix(scope);
        edns.options_mut().insert(EdnsOption::Subnet(subnet));
    }
    edns
}
