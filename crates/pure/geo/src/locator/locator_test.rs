use super::*;
use crate::DatabaseWriter;

const FRANKFURT: (f64, f64) = (50.11, 8.68);

fn cities() -> DatabaseWriter {
    DatabaseWriter::new("GeoLite2-City")
        .city("203.0.113.0/24", "DE", FRANKFURT)
        .city("203.0.113.128/25", "FR", (48.86, 2.35))
        .city("2001:db8::/32", "JP", (35.68, 139.69))
}

fn at(locator: &Locator, address: &str) -> ClientLocation {
    locator.locate(address.parse().unwrap())
}

fn country(locator: &Locator, address: &str) -> Option<String> {
    let country = locator.country(address.parse().unwrap());
    assert_eq!(country, at(locator, address).country, "{address}");
    country.map(|country| country.to_string())
}

fn error(bytes: Vec<u8>) -> String {
    Locator::from_bytes(bytes, None).unwrap_err().to_string()
}

#[test]
fn addresses_are_where_the_database_says_they_are() {
    for bits in [24, 28, 32] {
        let asns = DatabaseWriter::new("GeoLite2-ASN").asn("203.0.0.0/16", 64_500);
        let bytes = cities().record_bits(bits).bytes();
        let locator = Locator::from_bytes(bytes, Some(asns.record_bits(bits).bytes())).unwrap();
        let place = at(&locator, "203.0.113.7");
        assert_eq!(place.country, "DE".parse().ok());
        assert_eq!(place.coordinates, Coordinates::new(FRANKFURT.0, FRANKFURT.1));
        assert_eq!(place.asn, Some(64_500));
        assert_eq!(
            country(&locator, "203.0.113.200").as_deref(),
            Some("FR"),
            "the smaller network"
        );
        let japan = at(&locator, "2001:db8::1");
        assert_eq!((japan.country, japan.asn), ("JP".parse().ok(), None));
        assert_eq!(at(&locator, "198.51.100.1"), ClientLocation::default());
        assert_eq!(at(&locator, "2001:db9::1"), ClientLocation::default());
    }
}

#[test]
fn ipv4_addresses_inside_ipv6_addresses_are_found_whatever_aliases_there_are() {
    for writer in [cities(), cities().without_aliases()] {
        let locator = Locator::from_bytes(writer.bytes(), None).unwrap();
        for address in [
            "::ffff:203.0.113.7",
            "64:ff9b::203.0.113.7",
            "2002:cb00:7107::1",
            // A Teredo client behind that address; the Teredo server is elsewhere.
            "2001:0:4136:e378:8000:63bf:34ff:8ef8",
        ] {
            assert_eq!(country(&locator, address).as_deref(), Some("DE"), "{address}");
        }
    }
}

#[test]
fn databases_of_compatible_makers_are_read() {
    for kind in [
        "GeoIP2-City",
        "GeoLite2-Country",
        "GeoIP2-Enterprise",
        "DBIP-City-Lite",
        "DBIP-Country (compat=Country)",
    ] {
        let bytes = DatabaseWriter::new(kind).country("203.0.113.0/24", "DE").bytes();
        let locator = Locator::from_bytes(bytes, None).unwrap();
        let place = at(&locator, "203.0.113.1");
        assert_eq!((place.country, place.coordinates), ("DE".parse().ok(), None));
        assert_eq!(locator.databases().0.database_type, kind);
    }
    for kind in ["GeoIP2-ISP", "DBIP-ASN-Lite (compat=GeoLite2-ASN)"] {
        let asns = DatabaseWriter::new(kind).asn("203.0.113.0/24", 7).bytes();
        let locator = Locator::from_bytes(cities().bytes(), Some(asns)).unwrap();
        assert_eq!(at(&locator, "203.0.113.1").asn, Some(7));
        let (places, asns) = locator.databases();
        assert_eq!(
            (places.built_unix_s, asns.unwrap().database_type.as_str()),
            (1_700_000_000, kind)
        );
    }
}

#[test]
fn a_database_of_another_type_is_refused_by_name() {
    let asns = || DatabaseWriter::new("GeoLite2-ASN").asn("203.0.113.0/24", 1).bytes();
    let expected = "a database of type \"GeoLite2-ASN\", where one of type City, Country, Enterprise is expected";
    assert_eq!(error(asns()), expected);
    let flat = DatabaseWriter::new("ipinfo lite.mmdb").misshapen("203.0.113.0/24").bytes();
    assert!(error(flat).contains("\"ipinfo lite.mmdb\""));
    let swapped = Locator::from_bytes(cities().bytes(), Some(cities().bytes())).unwrap_err();
    assert!(swapped.to_string().ends_with("ASN, ISP is expected"), "{swapped}");
    let long = DatabaseWriter::new(&"x".repeat(200)).country("203.0.113.0/24", "DE").bytes();
    assert!(error(long).len() < 160);
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    let whole = cities().bytes();
    for length in 0..whole.len() {
        assert!(Locator::from_bytes(whole[..length].to_vec(), None).is_err(), "{length} bytes");
    }
    // Without the first byte, or with a hole: the metadata is still there.
    assert!(Locator::from_bytes(whole[1..].to_vec(), None).is_err());
    let hole = [&whole[..whole.len() / 2], &whole[whole.len() / 2 + 7..]].concat();
    assert!(Locator::from_bytes(hole, None).is_err());
    assert!(error(b"GIF89a".to_vec()).starts_with("not a whole location database"));
}

#[test]
fn a_record_of_another_shape_tells_nothing() {
    let bytes = DatabaseWriter::new("Test-City")
        .misshapen("203.0.113.0/24")
        .country("198.51.100.0/24", "Germany")
        .city("192.0.2.0/24", "DE", (f64::NAN, 999.0))
        .oddly_typed("100.64.0.0/10", "DE");
    let locator = Locator::from_bytes(bytes.bytes(), None).unwrap();
    assert_eq!(at(&locator, "203.0.113.1"), ClientLocation::default());
    assert_eq!(at(&locator, "198.51.100.1"), ClientLocation::default(), "no code of a country");
    assert_eq!(at(&locator, "192.0.2.1").coordinates, None, "not on Earth");
    let odd = at(&locator, "100.64.0.1");
    assert_eq!((odd.country, odd.coordinates), ("DE".parse().ok(), None), "a text is no number");
}

/// Both children of every node but the last are the next node: 2^95 paths lead to the IPv4
/// addresses, and the library's check would follow all of them.
#[test]
fn a_tree_whose_branches_meet_again_is_refused_at_once() {
    let mut bytes =
        DatabaseWriter::new("Test-City").record_bits(32).country("0.0.0.0/1", "DE").bytes();
    for node in 0..95_u32 {
        let right = node as usize * 8 + 4;
        bytes[right..right + 4].copy_from_slice(&(node + 1).to_be_bytes());
    }
    assert!(error(bytes.clone()).ends_with("lead to node 1"));
    // The tree has a circle.
    bytes[..4].fill(0);
    assert!(matches!(Locator::from_bytes(bytes, None), Err(LocatorError::Tangled(0))));
}
