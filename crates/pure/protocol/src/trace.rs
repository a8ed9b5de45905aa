//! W3C trace context (`traceparent`) and request ids, which identify one request in the logs of all
//! systems.

use http::{HeaderName, HeaderValue};

/// Header of a [`TraceContext`].
pub static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Header of the vendors' additions to the trace context; passed on unchanged.
pub static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// Header of a request's id.
pub static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const SAMPLED: u8 = 1;
/// Length of a version 00 header: `00-` + 32 digits + `-` + 16 digits + `-` + 2 digits.
const VERSION_0_BYTES: usize = 55;
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Position in a distributed trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Id of the whole trace; never 0.
    pub trace_id: u128,
    /// Id of the span that is the parent of the next one; never 0.
    pub parent: u64,
    /// Flags. Bit 0: the caller records this trace.
    pub flags: u8,
}

impl TraceContext {
    /// Starts a trace. Zero ids would be invalid, so they become 1.
    #[must_use]
    pub fn new(trace_id: u128, span_id: u64, sampled: bool) -> Self {
        Self { trace_id: trace_id.max(1), parent: span_id.max(1), flags: u8::from(sampled) }
    }

    /// Parses a `traceparent` header. Returns `None` if it is invalid, so that a new trace starts.
    ///
    /// From versions later than 00, only the fields that the standard promises to keep are read.
    #[must_use]
    pub fn parse(value: &HeaderValue) -> Option<Self> {
        let text = value.to_str().ok()?;
        let (known, later) = text.split_at_checked(VERSION_0_BYTES)?;
        let mut fields = known.split('-');
        let version = hex(fields.next()?, 2)?;
        let trace_id = hex(fields.next()?, 32)?;
        let parent = hex(fields.next()?, 16)?;
        let flags = hex(fields.next()?, 2)?;
        // Later versions may append fields, version 00 may not.
        let length_fits = later.is_empty() || (version > 0 && later.starts_with('-'));
        if fields.next().is_some() || !length_fits || version == 0xff {
            return None;
        }
        if trace_id == 0 || parent == 0 {
            return None;
        }
        // Only the lowest flag keeps its meaning in later versions.
        let flags = if version == 0 { flags } else { flags & u128::from(SAMPLED) };
        Some(Self {
            trace_id,
            parent: u64::try_from(parent).ok()?,
            flags: u8::try_from(flags).ok()?,
        })
    }

    /// Returns the same trace with a new span; a zero `span_id` becomes 1.
    #[must_use]
    pub fn child(self, span_id: u64) -> Self {
        Self { parent: span_id.max(1), ..self }
    }

    /// Returns true if the caller records this trace.
    #[must_use]
    pub fn sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Returns the `traceparent` header, in version 00.
    #[must_use]
    #[expect(clippy::expect_used, reason = "hex digits and dashes are visible ASCII")]
    pub fn to_header_value(self) -> HeaderValue {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&mut text[3..35], &self.trace_id.to_be_bytes());
        write_hex(&mut text[36..52], &self.parent.to_be_bytes());
        write_hex(&mut text[53..55], &[self.flags]);
        HeaderValue::from_bytes(&text).expect("hex digits and dashes are a valid header value")
    }
}

/// Returns a request id for a client that sent none: 32 hex digits.
#[must_use]
#[expect(clippy::expect_used, reason = "hex digits are visible ASCII")]
pub fn new_request_id(random: u128) -> HeaderValue {
    let mut text = [0; 32];
    write_hex(&mut text, &random.to_be_bytes());
    HeaderValue::from_bytes(&text).expect("hex digits are a valid header value")
}

/// Returns true if a client's request id may be used as it is: 1 to 128 visible ASCII characters,
/// so that it cannot break a header or a line of a log.
#[must_use]
pub fn valid_request_id(text: &str) -> bool {
    (1..=REQUEST_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Writes two digits per byte. Every request writes two ids, and the standard formatter takes ten
/// times longer.
fn write_hex(digits: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

/// Parses exactly `digits` lower-case hex digits: the standard allows no others.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != digits || !text.bytes().all(is_digit) {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parsed(text: &str) -> Option<TraceContext> {
        TraceContext::parse(&HeaderValue::from_bytes(text.as_bytes()).unwrap())
    }

    #[test]
    fn the_standards_example_is_read_and_written_alike() {
        let context = parsed(VALID).unwrap();
        assert_eq!(context.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.parent, 0x00f0_67aa_0ba9_02b7);
        assert!(context.sampled());
        assert_eq!(context.to_header_value(), VALID);
    }

    #[test]
    fn a_new_request_id_is_valid_and_holds_all_the_randomness() {
        let id = new_request_id(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
        assert_eq!(id, "0123456789abcdeffedcba9876543210");
        assert!(valid_request_id(id.to_str().unwrap()));
    }

    #[test]
    fn what_the_standard_calls_invalid_is_none() {
        let check = |text: &str| assert_eq!(parsed(text), None, "{text}");
        check("");
        check("00");
        check(&VALID.to_uppercase());
        check(&VALID.replacen("00", "ff", 1));
        check(&VALID.replacen("00-", "0g-", 1));
        check(&VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)));
        check(&VALID.replace("00f067aa0ba902b7", &"0".repeat(16)));
        check(&VALID.replacen('-', "_", 1));
        check(&VALID[..54]);
        check(&format!("{VALID}-"));
        check(&format!("{VALID}0"));
        check(&format!(" {VALID}"));
        check(&VALID.replacen("00-", "0-0", 1));
        check(&VALID.replace("-01", "-+1"));
        check(&format!("{}é", &VALID[..54]));
    }

    #[test]
    fn of_a_later_version_the_known_part_is_read() {
        let later = VALID.replacen("00", "01", 1);
        let context = parsed(&format!("{}-ff", &later[..52])).unwrap();
        assert_eq!(context.flags, SAMPLED);
        assert!(parsed(&format!("{later}-what-ever")).is_some());
        assert_eq!(parsed(&format!("{later}what-ever")), None);
        assert_eq!(context.to_header_value().to_str().unwrap()[..3], VALID[..3]);
    }

    #[test]
    fn a_child_stays_in_its_trace() {
        let context = parsed(VALID).unwrap();
        let child = context.child(7);
        assert_eq!((child.trace_id, child.flags), (context.trace_id, context.flags));
        assert_eq!(child.parent, 7);
        assert_eq!(context.child(0).parent, 1);
    }

    #[test]
    fn a_new_trace_is_never_invalid() {
        let header = TraceContext::new(0, 0, false).to_header_value();
        assert_eq!(header, "00-00000000000000000000000000000001-0000000000000001-00");
        assert!(TraceContext::parse(&header).is_some());
    }

    #[test]
    fn a_request_id_is_short_and_visible() {
        assert!(valid_request_id("req-1"));
        assert!(valid_request_id(&"x".repeat(128)));
        for text in ["", &"x".repeat(129), "a b", "a\n", "a\u{7f}", "é"] {
            assert!(!valid_request_id(text), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_context_survives_its_header(
            trace_id in 1..=u128::MAX, parent in 1..=u64::MAX, flags in any::<u8>(),
        ) {
            let context = TraceContext { trace_id, parent, flags };
            prop_assert_eq!(TraceContext::parse(&context.to_header_value()), Some(context));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let Ok(value) = HeaderValue::from_bytes(&bytes) else { return Ok(()) };
            prop_assert_eq!(TraceContext::parse(&value), None);
        }

        #[test]
        fn damage_is_refused_or_read_as_it_stands(at in 0_usize..55, byte in 0x20_u8..0x7f) {
            let mut bytes = VALID.as_bytes().to_vec();
            bytes[at] = byte;
            let value = HeaderValue::from_bytes(&bytes).unwrap();
            if let Some(context) = TraceContext::parse(&value) {
                let written = context.to_header_value();
                prop_assert_eq!(&written.as_bytes()[3..52], &bytes[3..52]);
            }
        }
    }
}
