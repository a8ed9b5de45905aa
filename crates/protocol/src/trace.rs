//! W3C trace context and request ids: how one request is found in everybody's logs.

use http::{HeaderName, HeaderValue};

/// Header of a [`TraceContext`].
pub static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Header of the vendors' additions to it; passed on as it is.
pub static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// Header of a request's id.
pub static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const SAMPLED: u8 = 1;
/// `00-` + 32 digits + `-` + 16 digits + `-` + 2 digits.
const VERSION_0_BYTES: usize = 55;
const REQUEST_ID_BYTES_MAX: usize = 128;

/// A position in a distributed trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The whole trace; never 0.
    pub trace_id: u128,
    /// The span that the next one is a child of; never 0.
    pub parent: u64,
    /// Bit 0: the caller records this trace.
    pub flags: u8,
}

impl TraceContext {
    /// The start of a trace. Zero ids would be invalid, so they become 1.
    #[must_use]
    pub fn new(trace_id: u128, span_id: u64, sampled: bool) -> Self {
        Self { trace_id: trace_id.max(1), parent: span_id.max(1), flags: u8::from(sampled) }
    }

    /// Reads a `traceparent` header; `None` if it is invalid, in which case a new trace starts.
    ///
    /// Of a version later than 00 only what the standard promises to keep is read.
    #[must_use]
    pub fn parse(value: &HeaderValue) -> Option<Self> {
        let text = value.to_str().ok()?;
        let (known, later) = text.split_at_checked(VERSION_0_BYTES)?;
        let mut fields = known.split('-');
        let version = hex(fields.next()?, 2)?;
        let trace_id = hex(fields.next()?, 32)?;
        let parent = hex(fields.next()?, 16)?;
        let flags = hex(fields.next()?, 2)?;
        let length_fits = later.is_empty() || (version > 0 && later.starts_with('-'));
        if fields.next().is_some() || !length_fits || version == 0xff {
            return None;
        }
        if trace_id == 0 || parent == 0 {
            return None;
        }
        let flags = if version == 0 { flags } else { flags & u128::from(SAMPLED) };
        Some(Self {
            trace_id,
            parent: u64::try_from(parent).ok()?,
            flags: u8::try_from(flags).ok()?,
        })
    }

    /// The same trace seen from a new span; a zero `span_id` becomes 1.
    #[must_use]
    pub fn child(self, span_id: u64) -> Self {
        Self { parent: span_id.max(1), ..self }
    }

    /// Whether the caller records this trace.
    #[must_use]
    pub fn sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The `traceparent` header, in version 00.
    #[must_use]
    #[expect(clippy::expect_used, reason = "hex digits and dashes are visible ASCII")]
    pub fn to_header_value(self) -> HeaderValue {
        let Self { trace_id, parent, flags } = self;
        HeaderValue::try_from(format!("00-{trace_id:032x}-{parent:016x}-{flags:02x}"))
            .expect("hex digits and dashes are a valid header value")
    }
}

/// Whether a client's request id may be used as it is: 1 to 128 visible ASCII characters, so that
/// it can break neither a header nor a line of a log.
#[must_use]
pub fn valid_request_id(text: &str) -> bool {
    (1..=REQUEST_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Exactly `digits` lower-case hex digits: the standard allows no others.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != digits || !text.bytes().all(is_digit) {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}
