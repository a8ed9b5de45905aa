//! Fuzz target of DNS queries.
#![expect(clippy::expect_used, clippy::panic, reason = "assertions of tests")]

use std::net::IpAddr;

use hickory_proto::op::{Edns, Message};
use hickory_proto::rr::RData;
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};

use crate::dns::query::{Parsed, read};
use crate::dns::test_zone::{EU, locate, view, zone};
use crate::dns::{DnsReply, QueryOutcome, QueryTransport, Sources, answer, truncated};

/// Largest ratio of answer bytes to query bytes for a query without EDNS: the gain of a forged
/// query.
const AMPLIFICATION_MAX: usize = 5;

/// Asserts for any message: the answer repeats id and question, fits its transport, amplifies an
/// attack only a little, and leads to a region that is offered.
pub(crate) fn dns_query(message: &[u8]) {
    let (zone, mut view) = (zone(), view());
    if let Some(region) = view.regions.get_mut(EU) {
        region.is_offered = false;
    }
    let sources = Sources { zone: &zone, view: &view, locate: &locate };
    let source = IpAddr::from([192, 0, 1, 1]);
    for transport in [QueryTransport::Udp, QueryTransport::Tcp] {
        let reply = answer(message, source, transport, &sources);
        assert_eq!(reply, answer(message, source, transport, &sources), "by chance");
        assert!(reply.region != Some(EU), "a region that is not offered");
        check(message, &reply, transport);
    }
    if let Some(hint) = truncated(message) {
        assert!(hint.len() <= message.len(), "a hint that gains something");
        let hint = Message::from_vec(&hint).expect("a readable hint");
        assert!(hint.truncation && hint.answers.is_empty());
    }
}

fn check(message: &[u8], reply: &DnsReply, transport: QueryTransport) {
    let Some(bytes) = &reply.bytes else { return };
    assert_eq!(bytes[..2], message[..2], "another id");
    assert_eq!(bytes[2] & 0x80, 0x80, "no answer");
    let answer = Message::from_vec(bytes).expect("a readable answer");
    let Parsed::Ask(ask) = read(message) else {
        assert!(answer.queries.is_empty() && answer.answers.is_empty());
        return;
    };
    let [question] = &answer.queries[..] else { panic!("not one question") };
    assert!(question.name().eq_case(ask.query.name()), "letters changed their case");
    assert_eq!(question, &ask.query);
    for record in &answer.answers {
        assert!(record.name.eq_case(ask.query.name()), "an answer to something else");
        if let RData::A(address) = &record.data {
            assert!(!matches!(address.0.octets(), [203, 0, 113, 1..=2]), "not offered");
        }
    }
    assert_eq!(answer.edns.is_some(), ask.edns.is_some());
    let scope = match answer.edns.as_ref().and_then(|edns| edns.option(EdnsCode::Subnet)) {
        Some(EdnsOption::Subnet(subnet)) => subnet.scope_prefix(),
        _ => 0,
    };
    assert!(scope <= ask.subnet.map_or(0, |subnet| subnet.source_prefix()));
    if transport == QueryTransport::Udp {
        let told = ask.edns.as_ref().map_or(512, Edns::max_payload).clamp(512, 1_232);
        assert!(bytes.len() <= told.into(), "{} bytes", bytes.len());
        assert!(bytes.len() <= message.len() * AMPLIFICATION_MAX, "{} bytes", bytes.len());
        assert_eq!(answer.truncation, reply.outcome == QueryOutcome::Truncated);
    }
}
