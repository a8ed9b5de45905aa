//! Kinds and outcomes of queries, as labels of metrics: their number is bounded.

use hickory_proto::rr::RecordType;

/// Kind of record that a query asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryKind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Parameters of HTTPS connections (RFC 9460).
    Https,
    /// Start of authority.
    Soa,
    /// Name servers.
    Ns,
    /// Authorities that may issue certificates.
    Caa,
    /// All records (ANY).
    Any,
    /// Another kind, or a message that could not be read.
    Other,
}

impl QueryKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 8] =
        [Self::A, Self::Aaaa, Self::Https, Self::Soa, Self::Ns, Self::Caa, Self::Any, Self::Other];

    pub(crate) fn of(record: RecordType) -> Self {
        match record {
            RecordType::A => Self::A,
            RecordType::AAAA => Self::Aaaa,
            RecordType::HTTPS => Self::Https,
            RecordType::SOA => Self::Soa,
            RecordType::NS => Self::Ns,
            RecordType::CAA => Self::Caa,
            RecordType::ANY => Self::Any,
            _ => Self::Other,
        }
    }

    /// Returns the label for metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Https => "HTTPS",
            Self::Soa => "SOA",
            Self::Ns => "NS",
            Self::Caa => "CAA",
            Self::Any => "ANY",
            Self::Other => "other",
        }
    }
}

/// Outcome of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryOutcome {
    /// The answer has records.
    Answered,
    /// The name exists, but has no records of the requested kind.
    NoData,
    /// The name does not exist.
    NoName,
    /// The query asks for another zone, a transfer, or another class.
    Refused,
    /// The query cannot be read.
    Malformed,
    /// The message is an operation other than a query.
    NotImplemented,
    /// The EDNS version of the query is unknown.
    BadVersion,
    /// This node does not know the other regions yet.
    Unready,
    /// The answer did not fit a datagram.
    Truncated,
    /// The network is over its rate limit and got an answer that asks for TCP.
    LimitedTruncated,
    /// The network is over its rate limit and got no answer.
    LimitedDropped,
    /// The message was too short to be answered, or was itself an answer.
    Dropped,
}

impl QueryOutcome {
    /// All outcomes, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Answered,
        Self::NoData,
        Self::NoName,
        Self::Refused,
        Self::Malformed,
        Self::NotImplemented,
        Self::BadVersion,
        Self::Unready,
        Self::Truncated,
        Self::LimitedTruncated,
        Self::LimitedDropped,
        Self::Dropped,
    ];

    /// Returns the label for metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::NoData => "nodata",
            Self::NoName => "nxdomain",
            Self::Refused => "refused",
            Self::Malformed => "formerr",
            Self::NotImplemented => "notimp",
            Self::BadVersion => "badvers",
            Self::Unready => "servfail",
            Self::Truncated => "truncated",
            Self::LimitedTruncated => "limited_truncated",
            Self::LimitedDropped => "limited_dropped",
            Self::Dropped => "dropped",
        }
    }
}
