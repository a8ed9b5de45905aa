//! Parser of queries, with the client subnet of EDNS.

use hickory_proto::op::{
    Edns, Header, Message, MessageType, Metadata, OpCode, Query, ResponseCode,
};
use hickory_proto::rr::rdata::opt::{ClientSubnet, EdnsCode, EdnsOption};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};
use ipnet::IpNet;

/// Largest number of additional records: one for EDNS, one signature, and some spare. The decoder
/// reserves memory for the announced number, which a forged head could set to 65,535.
const RECORDS_MAX: u16 = 8;

/// Result of parsing a message.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// The message gets no answer: it is too short, or itself an answer. Answers to answers make
    /// loops.
    Silence,
    /// The message gets an error code. Question and EDNS are not repeated, since they could not be
    /// read.
    Fault(Metadata, ResponseCode),
    /// A query with one question.
    Ask(QueryAsk),
}

/// Query that can be answered.
#[derive(Debug)]
pub(crate) struct QueryAsk {
    /// Head of the message.
    pub(crate) metadata: Metadata,
    /// Question of the query, in the letter case of the client.
    pub(crate) query: Query,
    /// EDNS of the client; `None` if the client does not support EDNS.
    pub(crate) edns: Option<Edns>,
    /// Client network that the resolver asks for; `None` if the query has none.
    pub(crate) subnet: Option<ClientSubnet>,
}

/// Parses a message.
pub(crate) fn read(message: &[u8]) -> Parsed {
    let mut decoder = BinDecoder::new(message);
    let Ok(Header { metadata, counts }) = Header::read(&mut decoder) else {
        return Parsed::Silence;
    };
    // An answer to an answer could start a loop between two servers.
    if metadata.message_type == MessageType::Response {
        return Parsed::Silence;
    }
    // Updates, notifications and other operations are not implemented.
    if metadata.op_code != OpCode::Query {
        return Parsed::Fault(metadata, ResponseCode::NotImp);
    }
    let fault = Parsed::Fault(metadata, ResponseCode::FormErr);
    // RFC 9619: a query has one question. A request for a zone transfer may have one authority
    // record.
    let are_few = counts.authorities <= 1 && counts.additionals <= RECORDS_MAX;
    if counts.queries != 1 || counts.answers != 0 || !are_few {
        return fault;
    }
    let Ok(query) = Query::read(&mut decoder) else { return fault };
    let mut records = |count: u16, is_additional| {
        Message::read_records(&mut decoder, count.into(), is_additional, OpCode::Query)
    };
    if records(counts.authorities, false).is_err() {
        return fault;
    }
    let Ok((_, edns, _)) = records(counts.additionals, true) else { return fault };
    let subnet = edns.as_ref().and_then(|edns| edns.option(EdnsCode::Subnet));
    let subnet = match subnet {
        Some(EdnsOption::Subnet(subnet)) if is_whole(subnet) => Some(*subnet),
        // A client subnet that breaks RFC 7871 is malformed, not just ignored.
        Some(_) => return fault,
        None => None,
    };
    Parsed::Ask(QueryAsk { metadata, query, edns, subnet })
}

/// Returns true if RFC 7871 (section 6) allows this client subnet in a query: the scope is 0, and
/// all bits behind the prefix are 0.
fn is_whole(subnet: &ClientSubnet) -> bool {
    let network = IpNet::new(subnet.addr(), subnet.source_prefix());
    let has_rest = network.map_or(true, |network| network.network() != subnet.addr());
    subnet.scope_prefix() == 0 && !has_rest
}
