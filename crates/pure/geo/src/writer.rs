//! Writer of small location databases for tests: the licensed databases cannot be distributed.

use std::net::IpAddr;

/// Bytes before the metadata of a database.
const METADATA_MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";
/// Number of zero bytes between the search tree and the records.
const SEPARATOR_BYTES: u32 = 16;
/// Number of zero bits before the IPv4 addresses in a tree of IPv6 addresses.
const IPV4_DEPTH: usize = 96;
/// Networks that real databases alias to the IPv4 addresses.
const ALIASES: [&str; 2] = ["::ffff:0:0/96", "2002::/16"];

/// Builder of a location database. Where networks overlap, the smaller one wins.
#[derive(Clone, Debug)]
pub struct DatabaseWriter {
    database_type: String,
    record_bits: u16,
    has_aliases: bool,
    networks: Vec<(Bits, Value)>,
}

/// First bits of an address, and their number.
#[derive(Clone, Copy, Debug)]
struct Bits(u128, usize);

#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Double(f64),
    Short(u16),
    Number(u32),
    Long(u64),
    Map(Vec<(&'static str, Self)>),
    List(Vec<Self>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Child {
    Nothing,
    Node(usize),
    Record(usize),
}

impl DatabaseWriter {
    /// Creates a builder of a database of this type, e.g. `GeoLite2-City`, with tree records of 28
    /// bits.
    #[must_use]
    pub fn new(database_type: &str) -> Self {
        Self {
            database_type: database_type.to_owned(),
            record_bits: 28,
            has_aliases: true,
            networks: Vec::new(),
        }
    }

    /// Sets the size of the tree's records: 24, 28 or 32 bits.
    #[must_use]
    pub fn record_bits(mut self, record_bits: u16) -> Self {
        self.record_bits = record_bits;
        self
    }

    /// Leaves out the aliases of IPv4-mapped and 6to4 addresses to the IPv4 addresses.
    #[must_use]
    pub fn without_aliases(mut self) -> Self {
        self.has_aliases = false;
        self
    }

    /// Adds a network, e.g. `203.0.113.0/24`, with the country of its clients.
    ///
    /// # Panics
    /// Panics if `network` is no network, as all methods do that take one.
    #[must_use]
    pub fn country(self, network: &str, country: &str) -> Self {
        self.network(network, Value::Map(vec![("country", in_country(country))]))
    }

    /// Adds a network with the country of its clients and a point in degrees north and east.
    #[must_use]
    pub fn city(self, network: &str, country: &str, (north, east): (f64, f64)) -> Self {
        let point = vec![("latitude", Value::Double(north)), ("longitude", Value::Double(east))];
        let record = vec![
            ("country", in_country(country)),
            ("location", Value::Map(point)),
            ("subdivisions", Value::List(vec![in_country("XX")])),
        ];
        self.network(network, Value::Map(record))
    }

    /// Adds a network with the number of its autonomous system.
    #[must_use]
    pub fn asn(self, network: &str, number: u32) -> Self {
        let record = vec![
            ("autonomous_system_number", Value::Number(number)),
            ("autonomous_system_organization", Value::Text("Example".to_owned())),
        ];
        self.network(network, Value::Map(record))
    }

    /// Adds a network whose coordinates are not doubles: one is an integer, the other one a text.
    #[must_use]
    pub fn oddly_typed(self, network: &str, country: &str) -> Self {
        let point =
            vec![("latitude", Value::Short(50)), ("longitude", Value::Text("8.68".to_owned()))];
        let record = vec![("location", Value::Map(point)), ("country", in_country(country))];
        self.network(network, Value::Map(record))
    }

    /// Adds a network whose record has a text in the place of a country.
    #[must_use]
    pub fn misshapen(self, network: &str) -> Self {
        self.network(network, Value::Map(vec![("country", Value::Text("DE".to_owned()))]))
    }

    /// Returns the bytes of the database.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut networks = self.networks.clone();
        // Larger networks first, so that a smaller one inside replaces a part of them.
        networks.sort_by_key(|(bits, _)| bits.1);
        let mut nodes = vec![[Child::Nothing; 2]];
        let mut records = Vec::new();
        for (bits, value) in &networks {
            insert(&mut nodes, *bits, Child::Record(records.len()));
            value.encode(&mut records);
        }
        if self.has_aliases {
            // Without any IPv4 network the path ends early, and there is nothing for an alias to
            // lead to.
            let ipv4 = (0..IPV4_DEPTH).try_fold(0, |node, _| match nodes[node][0] {
                Child::Node(next) => Some(next),
                Child::Nothing | Child::Record(_) => None,
            });
            for alias in ALIASES.iter().filter(|_| ipv4.is_some()) {
                insert(&mut nodes, bits(alias), ipv4.map_or(Child::Nothing, Child::Node));
            }
        }
        self.file(&nodes, &records)
    }

    fn network(mut self, network: &str, value: Value) -> Self {
        self.networks.push((bits(network), value));
        self
    }

    fn file(&self, nodes: &[[Child; 2]], records: &[u8]) -> Vec<u8> {
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let number = |child: Child| match child {
            Child::Nothing => count,
            Child::Node(node) => u32::try_from(node).unwrap_or(u32::MAX),
            Child::Record(at) => count + SEPARATOR_BYTES + u32::try_from(at).unwrap_or(u32::MAX),
        };
        let mut file = Vec::new();
        for [left, right] in nodes {
            self.put_node(number(*left), number(*right), &mut file);
        }
        file.extend([0; SEPARATOR_BYTES as usize]);
        file.extend(records);
        file.extend(METADATA_MARKER);
        let text = |text: &str| Value::Text(text.to_owned());
        Value::Map(vec![
            ("binary_format_major_version", Value::Short(2)),
            ("binary_format_minor_version", Value::Short(0)),
            ("build_epoch", Value::Long(1_700_000_000)),
            ("database_type", text(&self.database_type)),
            ("description", Value::Map(vec![("en", text("A test"))])),
            ("ip_version", Value::Short(6)),
            ("languages", Value::List(vec![text("en")])),
            ("node_count", Value::Number(count)),
            ("record_size", Value::Short(self.record_bits)),
        ])
        .encode(&mut file);
        file
    }

    fn put_node(&self, left: u32, right: u32, file: &mut Vec<u8>) {
        let (left, right) = (left.to_be_bytes(), right.to_be_bytes());
        match self.record_bits {
            24 => file.extend(left[1..].iter().chain(&right[1..])),
            28 => {
                file.extend(&left[1..]);
                file.push(left[0] << 4 | right[0] & 0x0f);
                file.extend(&right[1..]);
            }
            _ => file.extend(left.iter().chain(&right)),
        }
    }
}

fn in_country(code: &str) -> Value {
    let names = Value::Map(vec![("en", Value::Text(format!("Land of {code}")))]);
    Value::Map(vec![("iso_code", Value::Text(code.to_owned())), ("names", names)])
}

/// Parses a network; IPv4 networks lie at the beginning of the IPv6 addresses.
#[expect(clippy::expect_used, reason = "a test's helper fails by panicking")]
fn bits(network: &str) -> Bits {
    let (address, length) = network.split_once('/').expect("an address and a length");
    let length: usize = length.parse().expect("a length");
    match address.parse().expect("an address") {
        IpAddr::V4(address) => Bits(address.to_bits().into(), IPV4_DEPTH + length),
        IpAddr::V6(address) => Bits(address.to_bits(), length),
    }
}

/// Sets the child of a network in the tree. A child set before for a larger network stays valid for
/// the rest of that network.
fn insert(nodes: &mut Vec<[Child; 2]>, Bits(address, length): Bits, child: Child) {
    let side = |depth: usize| usize::from(address >> (127 - depth) & 1 == 1);
    let mut node = 0;
    for depth in 0..length - 1 {
        let before = nodes[node][side(depth)];
        node = match before {
            Child::Node(next) => next,
            Child::Nothing | Child::Record(_) => {
                // Both halves keep the value of the larger network until the smaller one takes its
                // own part.
                nodes.push([before; 2]);
                nodes[node][side(depth)] = Child::Node(nodes.len() - 1);
                nodes.len() - 1
            }
        };
    }
    nodes[node][side(length - 1)] = child;
}

impl Value {
    fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Self::Text(text) => {
                head(2, text.len(), into);
                into.extend(text.as_bytes());
            }
            Self::Double(value) => {
                head(3, 8, into);
                into.extend(value.to_be_bytes());
            }
            Self::Short(number) => {
                head(5, 2, into);
                into.extend(number.to_be_bytes());
            }
            Self::Number(number) => {
                head(6, 4, into);
                into.extend(number.to_be_bytes());
            }
            Self::Long(number) => {
                head(9, 8, into);
                into.extend(number.to_be_bytes());
            }
            Self::Map(fields) => {
                head(7, fields.len(), into);
                for (name, value) in fields {
                    Self::Text((*name).to_owned()).encode(into);
                    value.encode(into);
                }
            }
            Self::List(values) => {
                head(11, values.len(), into);
                values.iter().for_each(|value| value.encode(into));
            }
        }
    }
}

/// Writes type and length of a value. A type from 8 on and a length from 29 on take one more byte
/// each.
fn head(kind: u8, length: usize, into: &mut Vec<u8>) {
    let short = u8::try_from(length.min(29)).unwrap_or(29);
    if kind < 8 {
        into.push(kind << 5 | short);
    } else {
        into.extend([short, kind - 7]);
    }
    if short == 29 {
        into.push(u8::try_from(length - 29).unwrap_or(u8::MAX));
    }
}
