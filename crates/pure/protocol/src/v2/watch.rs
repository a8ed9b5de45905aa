//! Check for fields that steer the engine, in the JSON of a V2 request that passes in pieces.

use crate::{EngineFields, ErrorKind, GatewayError};

/// Longest key in bytes that is compared; no field has a longer name.
const KEY_BYTES_MAX: usize = 64;
/// Deepest level of keys that are checked: the request itself and one object inside it,
/// `parameters`.
const DEPTH_MAX: u32 = 2;

/// Check of one request's JSON that follows it only as far as needed to know its keys. Tensors pass
/// at the speed of a search for quotes and braces.
#[derive(Debug)]
pub struct V2Watch {
    allowed: EngineFields,
    /// Number of bytes of JSON that follow; the bytes behind them are no JSON.
    bytes_left: u64,
    depth: u32,
    place: WatchPosition,
    key: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchPosition {
    Outside,
    Text {
        is_escaped: bool,
    },
    /// Behind a string, which is a key if a colon follows.
    Behind,
}

impl V2Watch {
    /// Creates a check of a request whose first `json_bytes` bytes are JSON. These fields are
    /// `allowed`.
    #[must_use]
    pub fn new(allowed: EngineFields, json_bytes: u64) -> Self {
        let (bytes_left, place) = (json_bytes, WatchPosition::Outside);
        Self { allowed, bytes_left, depth: 0, place, key: Vec::new() }
    }

    /// Returns true if all JSON was seen.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.bytes_left == 0
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// Returns an error for a field that is not allowed, or for a key that may hide one.
    pub fn look(&mut self, piece: &[u8]) -> Result<(), GatewayError> {
        let length = usize::try_from(self.bytes_left).unwrap_or(usize::MAX).min(piece.len());
        self.bytes_left -= length as u64;
        let mut rest = &piece[..length];
        while let Some((byte, after)) = rest.split_first() {
            match self.place {
                WatchPosition::Outside => {
                    let next = memchr::memchr3(b'"', b'{', b'}', rest);
                    let Some(at) = next else { return Ok(()) };
                    match rest[at] {
                        b'{' => self.depth = self.depth.saturating_add(1),
                        b'}' => self.depth = self.depth.saturating_sub(1),
                        _ => {
                            self.key.clear();
                            self.place = WatchPosition::Text { is_escaped: false };
                        }
                    }
                    rest = &rest[at + 1..];
                }
                WatchPosition::Text { is_escaped } => {
                    self.text(*byte, is_escaped);
                    rest = after;
                }
                WatchPosition::Behind => match byte {
                    b' ' | b'\t' | b'\r' | b'\n' => rest = after,
                    b':' => {
                        self.check()?;
                        self.place = WatchPosition::Outside;
                        rest = after;
                    }
                    _ => self.place = WatchPosition::Outside,
                },
            }
        }
        Ok(())
    }

    fn text(&mut self, byte: u8, is_escaped: bool) {
        if byte == b'"' && !is_escaped {
            self.place = WatchPosition::Behind;
            return;
        }
        if self.key.len() <= KEY_BYTES_MAX {
            self.key.push(byte);
        }
        self.place = WatchPosition::Text { is_escaped: byte == b'\\' && !is_escaped };
    }

    fn check(&self) -> Result<(), GatewayError> {
        // Deeper keys are data, and longer ones are none of the fields.
        if self.depth > DEPTH_MAX || self.key.len() > KEY_BYTES_MAX {
            return Ok(());
        }
        // An escape could hide any name, and keys of usual clients have none.
        if self.key.contains(&b'\\') {
            let message = "A key of a long request must not be written with escapes.";
            return Err(GatewayError::new(ErrorKind::BadRequest, message));
        }
        let field = EngineFields::named(&String::from_utf8_lossy(&self.key));
        field.unwrap_or_default().check(self.allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(body: &str, piece_bytes: usize) -> Result<(), GatewayError> {
        let mut watch = V2Watch::new(EngineFields::NONE, u64::MAX);
        body.as_bytes().chunks(piece_bytes).try_for_each(|piece| watch.look(piece))
    }

    #[test]
    fn a_field_is_found_however_the_request_is_cut() {
        let tensor = "1.5,".repeat(200);
        let bad = format!(
            r#"{{"inputs":[{{"name":"{{\"x\":","data":[{tensor}1]}}],"parameters" : {{"priority" :1}}}}"#
        );
        let good = bad.replace("priority", "priorities");
        for piece_bytes in [1, 2, 3, 7, 100, 10_000] {
            assert_eq!(look(&bad, piece_bytes).unwrap_err().param, Some("priority"));
            assert!(look(&good, piece_bytes).is_ok(), "{piece_bytes}");
        }
        assert!(look(r#"{"parameters":{"prio\u0072ity":1}}"#, 3).is_err());
        assert!(look(r#"{"inputs":[{"name":"priority","data":["priority",":"]}]}"#, 3).is_ok());
        assert!(look(r#"{"inputs":[{"parameters":{"priority":1}}]}"#, 3).is_ok());
    }

    #[test]
    fn allowed_fields_and_what_stands_behind_the_json_pass() {
        let body = br#"{"parameters":{"priority":1}}"#;
        let allowed = EngineFields::named("priority").unwrap();
        assert!(V2Watch::new(allowed, u64::MAX).look(body).is_ok());
        let mut watch = V2Watch::new(EngineFields::NONE, 2);
        assert!(watch.look(b"{}").is_ok() && watch.look(body).is_ok());
    }
}
