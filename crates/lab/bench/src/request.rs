//! Chat request of all scenarios, of an exact size and with a number that makes each one distinct.

use http::{Request, header};
use spillway_harness::{ClientBody, full};

/// Path of every request.
pub(crate) const PATH: &str = "/v1/chat/completions";

/// Model that every request names and every replica serves.
pub(crate) const MODEL: &str = "tiny";

/// Digits of the number at the start of the prompt.
const NUMBER_DIGITS: usize = 12;

/// Filler text with the escapes that JSON readers meet in practice: quotes and line breaks.
const FILLER: &str = "the quick brown fox said \\\"jump over the lazy dog\\\" and did so.\\n";

/// JSON body of an exact size. The prompt starts with a number, so that no two requests share a
/// prefix and no answer can come from a cache.
#[derive(Clone, Debug)]
pub(crate) struct ChatBody {
    bytes: Vec<u8>,
    number_at: usize,
}

impl ChatBody {
    /// Builds a body of `body_bytes` bytes. Returns an error below the few hundred bytes that a
    /// request needs.
    pub(crate) fn new(body_bytes: usize, is_stream: bool) -> anyhow::Result<Self> {
        // `messages` comes first, as in common clients: a gateway must read past the prompt to find
        // `model`.
        let before = "{\"messages\":[{\"role\":\"user\",\"content\":\"";
        let after =
            format!("\"}}],\"model\":\"{MODEL}\",\"max_tokens\":256,\"stream\":{is_stream}}}");
        let least = before.len() + NUMBER_DIGITS + after.len();
        anyhow::ensure!(body_bytes >= least, "a request needs at least {least} bytes");
        let mut bytes = before.as_bytes().to_vec();
        // The place of the number is at the start, so that prompts differ before their long text.
        bytes.extend_from_slice(&[b'0'; NUMBER_DIGITS]);
        let text_end = body_bytes - after.len();
        bytes.extend(FILLER.bytes().cycle().take(text_end - bytes.len()));
        if bytes.last() == Some(&b'\\') {
            // The text was cut inside an escape, which would swallow the closing quote.
            bytes[text_end - 1] = b' ';
        }
        bytes.extend_from_slice(after.as_bytes());
        Ok(Self { bytes, number_at: before.len() })
    }

    /// Writes `number` into the prompt, modulo 10^12.
    pub(crate) fn stamp(&mut self, number: u64) {
        let mut rest = number;
        for digit in self.bytes[self.number_at..][..NUMBER_DIGITS].iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
            rest /= 10;
        }
    }

    /// Returns the request that carries the body.
    pub(crate) fn request(&self) -> http::Result<Request<ClientBody>> {
        Request::post(PATH)
            .header(header::USER_AGENT, "spillway-bench")
            .header(header::ACCEPT, "*/*")
            .header(header::CONTENT_TYPE, "application/json")
            .body(full(self.bytes.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_the_exact_size_and_are_json() {
        // Every length of a whole filler and more, so that each way to cut it comes up.
        for size in (200..300).chain([1024, 16 * 1024, 128 * 1024]) {
            let mut body = ChatBody::new(size, true).unwrap();
            body.stamp(42);
            assert_eq!(body.bytes.len(), size);
            let value: serde_json::Value = serde_json::from_slice(&body.bytes).unwrap();
            let prompt = value["messages"][0]["content"].as_str().unwrap();
            assert!(prompt.starts_with("000000000042"), "{prompt}");
            assert_eq!((&value["model"], &value["stream"]), (&MODEL.into(), &true.into()));
        }
        assert!(ChatBody::new(10, false).is_err());
    }
}
