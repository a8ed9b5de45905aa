use std::net::IpAddr;

use hickory_proto::op::{Edns, Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::{ClientSubnet, EdnsCode, EdnsOption};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use proptest::prelude::*;

use crate::dns::test_zone::{AP, EU, US, locate, name, spec, view, zone};
use crate::dns::{
    DnsReply, DnsView, QueryKind, QueryOutcome, QueryTransport, Sources, Zone, ZoneSpec, answer,
    truncated,
};

const SERVICE: &str = "infer.example.com.";
/// Resolver in Paris.
const PARIS: &str = "192.0.1.53";
/// Resolver whose place is unknown.
const UNKNOWN: &str = "192.0.99.53";

fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.id = 0x1234;
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

fn with_edns(mut message: Message, payload: u16, subnet: Option<&str>) -> Message {
    let mut edns = Edns::new();
    edns.set_max_payload(payload);
    if let Some(subnet) = subnet {
        edns.options_mut().insert(EdnsOption::Subnet(subnet.parse().unwrap()));
    }
    message.set_edns(edns);
    message
}

fn ask_of(bytes: &[u8], from: &str, zone: &Zone, view: &DnsView) -> DnsReply {
    let sources = Sources { zone, view, locate: &locate };
    answer(bytes, from.parse().unwrap(), QueryTransport::Udp, &sources)
}

/// Asks from Paris and returns the reply, also as a parsed message.
fn ask(message: &Message) -> (DnsReply, Message) {
    let reply = ask_of(&message.to_vec().unwrap(), PARIS, &zone(), &view());
    let bytes = reply.bytes.as_ref().expect("an answer");
    let answer = Message::from_vec(bytes).unwrap();
    assert_eq!(answer.id, 0x1234);
    assert!(answer.recursion_desired && !answer.recursion_available);
    (reply, answer)
}

fn texts(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| record.data.to_string()).collect()
}

fn scope(answer: &Message) -> Option<u8> {
    match answer.edns.as_ref()?.option(EdnsCode::Subnet)? {
        EdnsOption::Subnet(subnet) => Some(subnet.scope_prefix()),
        _ => None,
    }
}

#[test]
fn the_nearest_region_answers_with_all_its_addresses_of_the_family() {
    let (reply, answer) = ask(&query(SERVICE, RecordType::A));
    let mut told = texts(&answer.answers);
    told.sort();
    assert_eq!(told, ["203.0.113.1", "203.0.113.2"]);
    assert!(answer.authoritative && !answer.truncation);
    assert!(answer.answers.iter().all(|record| record.ttl == 20));
    assert_eq!(
        (reply.kind, reply.outcome, reply.region),
        (QueryKind::A, QueryOutcome::Answered, Some(EU))
    );
    assert_eq!(reply.region(&zone()).unwrap().name.as_str(), "eu-central-1");
    let (reply, answer) = ask(&query("api.v1.infer.example.com.", RecordType::AAAA));
    assert_eq!(
        (texts(&answer.answers), reply.region),
        (vec!["2001:db8:1::1".to_owned()], Some(EU))
    );
}

#[test]
fn each_kind_of_record_has_its_answer() {
    let acme = "_acme-challenge.infer.example.com.";
    let soa = "ns1.infer.example.com. hostmaster.example.com. 7 3600 600 604800 20";
    for (name, kind, expected) in [
        (SERVICE, RecordType::SOA, &[soa][..]),
        (SERVICE, RecordType::NS, &["ns1.infer.example.com.", "ns2.example.net."]),
        (SERVICE, RecordType::CAA, &["0 issue \"ca.example.net\""]),
        (SERVICE, RecordType::ANY, &["RFC8482 "]),
        ("ns1.infer.example.com.", RecordType::A, &["203.0.113.129"]),
        (acme, RecordType::TXT, &["x.acme.example.net."]),
        (acme, RecordType::A, &["x.acme.example.net."]),
    ] {
        let (reply, answer) = ask(&query(name, kind));
        assert_eq!(texts(&answer.answers), expected, "{name} {kind}");
        assert_eq!(
            (reply.outcome, answer.response_code),
            (QueryOutcome::Answered, ResponseCode::NoError)
        );
    }
    let (_, answer) = ask(&query(SERVICE, RecordType::HTTPS));
    let [record] = &answer.answers[..] else { panic!("{answer}") };
    assert_eq!(record.data.to_string(), "1 . alpn=h2,", "HTTP/3 is not served");
}

#[test]
fn what_does_not_exist_is_told_with_the_start_of_authority() {
    for (name, kind, outcome) in [
        ("nobody.infer.example.com.", RecordType::A, QueryOutcome::NoName),
        ("a.ns1.infer.example.com.", RecordType::A, QueryOutcome::NoName),
        ("v1.infer.example.com.", RecordType::A, QueryOutcome::NoData),
        (SERVICE, RecordType::TXT, QueryOutcome::NoData),
        ("ns1.infer.example.com.", RecordType::AAAA, QueryOutcome::NoData),
        ("api.v1.infer.example.com.", RecordType::NS, QueryOutcome::NoData),
        ("ns1.infer.example.com.", RecordType::HTTPS, QueryOutcome::NoData),
    ] {
        let (reply, answer) = ask(&query(name, kind));
        assert_eq!(reply.outcome, outcome, "{name} {kind}");
        let [soa] = &answer.authorities[..] else { panic!("{answer}") };
        assert_eq!((soa.name.to_string(), soa.ttl), (SERVICE.to_owned(), 20));
        assert!(answer.authoritative && answer.answers.is_empty());
    }
}

#[test]
fn what_is_not_this_servers_business_is_refused() {
    let chaos = {
        let mut message = query(SERVICE, RecordType::TXT);
        message.queries[0].query_class = DNSClass::CH;
        message
    };
    for message in [
        query("example.com.", RecordType::A),
        query("notinfer.example.com.", RecordType::A),
        query(".", RecordType::NS),
        query(SERVICE, RecordType::AXFR),
        query(SERVICE, RecordType::IXFR),
        chaos,
    ] {
        let (reply, answer) = ask(&message);
        assert_eq!(
            (reply.outcome, answer.response_code),
            (QueryOutcome::Refused, ResponseCode::Refused)
        );
        assert!(!answer.authoritative && answer.answers.is_empty());
        assert!(answer.authorities.is_empty(), "a referral to the root would be amplified");
    }
}

#[test]
fn other_operations_and_broken_messages_are_told_so() {
    let mut update = query(SERVICE, RecordType::SOA);
    update.metadata.op_code = OpCode::Update;
    let (reply, answer) = ask(&update);
    assert_eq!(
        (reply.outcome, answer.response_code),
        (QueryOutcome::NotImplemented, ResponseCode::NotImp)
    );
    let mut two = query(SERVICE, RecordType::A);
    two.add_query(Query::query(name("a.b").name().clone(), RecordType::A));
    let mut none = query(SERVICE, RecordType::A);
    none.queries.clear();
    for message in [two, none] {
        let (reply, answer) = ask(&message);
        assert_eq!(
            (reply.outcome, answer.response_code),
            (QueryOutcome::Malformed, ResponseCode::FormErr)
        );
    }
    let whole = query(SERVICE, RecordType::A).to_vec().unwrap();
    for length in 0..whole.len() {
        let reply = ask_of(&whole[..length], PARIS, &zone(), &view());
        let expected = if length < 12 { QueryOutcome::Dropped } else { QueryOutcome::Malformed };
        assert_eq!((reply.outcome, reply.bytes.is_some()), (expected, length >= 12), "{length}");
    }
    let response = Message::response(1, OpCode::Query).to_vec().unwrap();
    assert_eq!(
        ask_of(&response, PARIS, &zone(), &view()).bytes,
        None,
        "or two servers go on for ever"
    );
}

#[test]
fn a_version_of_edns_that_does_not_exist_is_told_so() {
    let mut message = with_edns(query(SERVICE, RecordType::A), 1_232, None);
    message.edns.as_mut().unwrap().set_version(1);
    let (reply, answer) = ask(&message);
    // The code 16 has two names in the library.
    assert_eq!((reply.outcome, u16::from(answer.response_code)), (QueryOutcome::BadVersion, 16));
    assert_eq!(answer.edns.unwrap().version(), 0);
}

#[test]
fn the_network_that_a_resolver_asks_for_counts_more_than_the_resolver() {
    for (subnet, region, bits) in [
        ("198.51.2.0/24", US, 24),
        ("198.51.3.0/24", AP, 24),
        ("198.51.3.77/32", AP, 24),
        ("198.51.2.0/23", US, 23),
        ("2001:db8:300::/48", AP, 48),
        ("2001:db8:300::1/128", AP, 56),
        // The client network is unknown or withheld: the resolver's place counts, for all of its
        // clients.
        ("198.51.99.0/24", EU, 0),
        ("0.0.0.0/0", EU, 0),
    ] {
        let (reply, answer) = ask(&with_edns(query(SERVICE, RecordType::A), 1_232, Some(subnet)));
        assert_eq!((reply.region, scope(&answer)), (Some(region), Some(bits)), "{subnet}");
    }
    let (_, answer) = ask(&with_edns(query(SERVICE, RecordType::NS), 1_232, Some("198.51.2.0/24")));
    assert_eq!(scope(&answer), Some(0), "an answer that is the same for all");
    let (_, answer) = ask(&with_edns(query(SERVICE, RecordType::A), 1_232, None));
    assert_eq!(scope(&answer), None);
}

#[test]
fn a_client_subnet_that_breaks_the_rules_is_a_fault_of_form() {
    let subnet = |address: &str, bits, scope| {
        let mut message = query(SERVICE, RecordType::A);
        let mut edns = Edns::new();
        let option = ClientSubnet::new(address.parse().unwrap(), bits, scope);
        edns.options_mut().insert(EdnsOption::Subnet(option));
        message.set_edns(edns);
        ask(&message).0.outcome
    };
    assert_eq!(subnet("198.51.2.0", 24, 0), QueryOutcome::Answered);
    assert_eq!(subnet("198.51.2.0", 24, 24), QueryOutcome::Malformed);
    assert_eq!(subnet("198.51.3.0", 23, 0), QueryOutcome::Malformed, "a bit behind the prefix");
}

#[test]
fn letters_keep_the_case_that_they_were_asked_in() {
    let (_, answer) = ask(&query("iNfEr.ExAmPlE.cOm.", RecordType::A));
    assert_eq!(answer.queries[0].name().to_string(), "iNfEr.ExAmPlE.cOm.");
    assert!(answer.answers.iter().all(|record| record.name.to_string() == "iNfEr.ExAmPlE.cOm."));
    let bytes = |text| ask(&query(text, RecordType::A)).1.answers.len();
    assert_eq!(bytes("API.V1.INFER.EXAMPLE.COM."), 2);
}

#[test]
fn an_answer_that_does_not_fit_a_datagram_is_truncated_and_whole_by_tcp() {
    let addresses: Vec<IpAddr> = (0..60).map(|n| IpAddr::from([203, 0, 113, n])).collect();
    let mut spec: ZoneSpec = spec();
    spec.addresses_max = 60;
    spec.regions.iter_mut().for_each(|region| region.addresses.clone_from(&addresses));
    let (zone, view) = (Zone::new(spec), view());
    let sources = Sources { zone: &zone, view: &view, locate: &locate };
    let plain = query(SERVICE, RecordType::A);
    for (message, transport, is_whole, most) in [
        (plain.clone(), QueryTransport::Udp, false, 512),
        (with_edns(plain.clone(), 600, None), QueryTransport::Udp, false, 600),
        (with_edns(plain.clone(), 4_096, None), QueryTransport::Udp, true, 1_232),
        (with_edns(plain.clone(), 0, None), QueryTransport::Udp, false, 512),
        (plain, QueryTransport::Tcp, true, 65_535),
    ] {
        let bytes = message.to_vec().unwrap();
        let reply = answer(&bytes, PARIS.parse().unwrap(), transport, &sources);
        let bytes = reply.bytes.unwrap();
        assert!(bytes.len() <= most);
        let answer = Message::from_vec(&bytes).unwrap();
        assert_eq!(
            (answer.truncation, answer.answers.len()),
            if is_whole { (false, 60) } else { (true, 0) }
        );
        assert_eq!(reply.outcome == QueryOutcome::Truncated, !is_whole);
    }
}

#[test]
fn before_regions_are_heard_the_resolver_is_sent_to_another_server() {
    let unsettled = DnsView { is_settled: false, ..view() };
    let bytes = query(SERVICE, RecordType::A).to_vec().unwrap();
    assert_eq!(ask_of(&bytes, PARIS, &zone(), &unsettled).outcome, QueryOutcome::Unready);
    let bytes = query(SERVICE, RecordType::NS).to_vec().unwrap();
    assert_eq!(ask_of(&bytes, PARIS, &zone(), &unsettled).outcome, QueryOutcome::Answered);
}

#[test]
fn networks_that_the_config_places_are_there_and_the_most_specific_one_counts() {
    let mut spec = spec();
    spec.regions[US].client_networks = vec!["10.0.0.0/8".parse().unwrap()];
    spec.regions[AP].client_networks = vec!["10.1.0.0/16".parse().unwrap()];
    spec.regions[EU].client_networks = vec!["192.0.2.0/24".parse().unwrap()];
    let zone = Zone::new(spec);
    let bytes = query(SERVICE, RecordType::A).to_vec().unwrap();
    for (source, region) in [
        ("10.2.0.1", US),
        ("10.1.0.1", AP),
        ("::ffff:10.1.0.1", AP),
        ("192.0.2.1", EU),
        ("192.0.3.1", AP),
    ] {
        assert_eq!(ask_of(&bytes, source, &zone, &view()).region, Some(region), "{source}");
    }
}

#[test]
fn a_resolver_of_unknown_place_gets_this_nodes_region() {
    let bytes = query(SERVICE, RecordType::A).to_vec().unwrap();
    for own in [EU, US, AP] {
        let view = DnsView { own: Some(own), ..view() };
        assert_eq!(ask_of(&bytes, UNKNOWN, &zone(), &view).region, Some(own));
    }
}

#[test]
fn a_region_without_ipv6_is_no_reason_to_lead_clients_far_away() {
    let bytes = query(SERVICE, RecordType::AAAA).to_vec().unwrap();
    let reply = ask_of(&bytes, "192.0.3.53", &zone(), &view());
    assert_eq!(
        (reply.outcome, reply.region),
        (QueryOutcome::NoData, None),
        "Singapore has IPv4 alone"
    );
}

#[test]
fn a_hint_to_come_by_tcp_is_no_longer_than_the_query() {
    for message in [
        query(SERVICE, RecordType::A),
        with_edns(
            query("aPi.v1.infer.example.com.", RecordType::AAAA),
            1_232,
            Some("198.51.2.0/24"),
        ),
    ] {
        let bytes = message.to_vec().unwrap();
        let hint = truncated(&bytes).unwrap();
        assert!(hint.len() <= bytes.len());
        let hint = Message::from_vec(&hint).unwrap();
        assert!(hint.truncation && hint.answers.is_empty());
        assert_eq!(
            (hint.id, &hint.queries, hint.edns.is_some()),
            (0x1234, &message.queries, message.edns.is_some())
        );
    }
    assert_eq!(truncated(b"short"), None);
    assert_eq!(truncated(&Message::response(1, OpCode::Query).to_vec().unwrap()), None);
}

proptest! {
    #[test]
    fn no_answer_leads_to_a_region_that_is_not_offered_while_one_is(
        offered in prop::array::uniform3(any::<bool>()),
        own in 0..3_usize,
        network in any::<[u8; 3]>(),
        is_v6 in any::<bool>(),
    ) {
        let mut view = DnsView { own: Some(own), ..view() };
        for (region, is_offered) in view.regions.iter_mut().zip(offered) {
            region.is_offered = is_offered;
        }
        let kind = if is_v6 { RecordType::AAAA } else { RecordType::A };
        let [a, b, c] = network;
        let subnet = format!("{a}.{b}.{c}.0/24");
        let message = with_edns(query(SERVICE, kind), 1_232, Some(&subnet)).to_vec().unwrap();
        let reply = ask_of(&message, UNKNOWN, &zone(), &view);
        let answer = Message::from_vec(&reply.bytes.unwrap()).unwrap();
        for record in &answer.answers {
            let address: IpAddr = match &record.data {
                RData::A(address) => address.0.into(),
                RData::AAAA(address) => address.0.into(),
                other => panic!("{other}"),
            };
            let has = |region: &usize| zone().regions()[*region].addresses.contains(&address);
            let region = (0..3).find(has).unwrap();
            prop_assert!(offered[region] || offered == [false; 3]);
        }
    }
}
