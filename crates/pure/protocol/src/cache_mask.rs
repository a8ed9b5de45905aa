//! Mask that hides from a reply how much of its prompt was in the engine's cache.

use bytes::{Bytes, BytesMut};

/// Members whose numbers reveal cached tokens, in OpenAI's API, vLLM, SGLang and llama.cpp.
const KEYS: [&[u8]; 12] = [
    b"cached_tokens",
    b"cached_tokens_details",
    b"cached_tokens_per_turn",
    b"cache_read_input_tokens",
    b"cache_creation_input_tokens",
    b"tokens_cached",
    b"tokens_evaluated",
    b"cache_n",
    b"prompt_n",
    b"prompt_ms",
    b"prompt_per_token_ms",
    b"prompt_per_second",
];
/// Upper bound on the length of these keys in bytes.
const KEY_BYTES_MAX: usize = 32;

/// Mask that sets every number under one of these keys to zero, in JSON or in events of JSON that
/// pass in pieces. The number of bytes stays equal, so an announced length stays right, and nothing
/// is held back.
#[derive(Debug, Default)]
pub struct CacheMask {
    place: JsonPosition,
    /// Text since the last quote that began a string.
    key: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum JsonPosition {
    /// Outside of strings, or anywhere else where no number is hidden.
    #[default]
    Outside,
    /// Inside a string.
    Text { is_escaped: bool },
    /// Behind a string that is one of the keys; a colon must follow.
    Key,
    /// Inside the value of such a key.
    Value { depth: u32, in_text: bool, is_escaped: bool, in_number: bool },
}

impl CacheMask {
    /// Returns the next piece with these numbers set to zero.
    #[must_use]
    pub fn mask(&mut self, piece: Bytes) -> Bytes {
        let mut changed: Option<BytesMut> = None;
        for (at, byte) in piece.iter().enumerate() {
            let masked = self.step(*byte);
            if masked != *byte {
                // Pieces without such a number, which are nearly all, are not copied.
                changed.get_or_insert_with(|| BytesMut::from(&piece[..]))[at] = masked;
            }
        }
        changed.map_or(piece, BytesMut::freeze)
    }

    fn step(&mut self, byte: u8) -> u8 {
        match self.place {
            JsonPosition::Outside => {
                if byte == b'"' {
                    self.key.clear();
                    self.place = JsonPosition::Text { is_escaped: false };
                }
            }
            JsonPosition::Text { is_escaped } => self.step_text(byte, is_escaped),
            JsonPosition::Key => match byte {
                b':' => {
                    self.place = JsonPosition::Value {
                        depth: 0,
                        in_text: false,
                        is_escaped: false,
                        in_number: false,
                    };
                }
                b' ' | b'\t' | b'\r' | b'\n' => {}
                _ => {
                    self.place = JsonPosition::Outside;
                    return self.step(byte);
                }
            },
            JsonPosition::Value { depth, in_text, is_escaped, in_number } => {
                return self.step_value(byte, (depth, in_text, is_escaped, in_number));
            }
        }
        byte
    }

    fn step_text(&mut self, byte: u8, is_escaped: bool) {
        match byte {
            // JSON strings do not span lines, so the event was no JSON.
            b'\n' => self.place = JsonPosition::Outside,
            b'"' if !is_escaped => {
                let is_known = KEYS.contains(&self.key.as_slice());
                self.place = if is_known { JsonPosition::Key } else { JsonPosition::Outside };
            }
            _ => {
                // One byte more than the longest key is enough to know that it is none.
                if self.key.len() <= KEY_BYTES_MAX {
                    self.key.push(byte);
                }
                self.place = JsonPosition::Text { is_escaped: byte == b'\\' && !is_escaped };
            }
        }
    }

    fn step_value(
        &mut self,
        byte: u8,
        (mut depth, mut in_text, mut is_escaped, mut in_number): (u32, bool, bool, bool),
    ) -> u8 {
        let mut masked = byte;
        if in_text {
            let is_end = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            in_text = !is_end;
        } else {
            match byte {
                // Spaces behind the zero keep the length and the JSON valid.
                b'0'..=b'9' | b'-' | b'+' | b'.' if in_number => masked = b' ',
                b'e' | b'E' if in_number => masked = b' ',
                // A sign before the first digit: negative and positive numbers look the same.
                b'-' => masked = b' ',
                b'0'..=b'9' => {
                    masked = b'0';
                    in_number = true;
                }
                b'"' => in_text = true,
                b'[' | b'{' => depth = depth.saturating_add(1),
                // The value ends here; the byte belongs to the object around it.
                b']' | b'}' | b',' if depth == 0 => {
                    self.place = JsonPosition::Outside;
                    return byte;
                }
                b']' | b'}' => depth -= 1,
                _ => {}
            }
            in_number &= matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        }
        self.place = JsonPosition::Value { depth, in_text, is_escaped, in_number };
        masked
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn masked(text: &str, cuts: &[usize]) -> String {
        let (mut mask, mut done, mut out) = (CacheMask::default(), 0, Vec::new());
        for cut in cuts.iter().copied().chain([text.len()]) {
            let cut = cut.clamp(done, text.len());
            out.extend(mask.mask(Bytes::copy_from_slice(&text.as_bytes()[done..cut])));
            done = cut;
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_of_the_cache_are_zero_and_all_else_stays() {
        let reply = json!({"choices": [{"text": "\"cached_tokens\": 5", "n": 7}], "usage": {
            "prompt_tokens": 2_300,
            "prompt_tokens_details": {"cached_tokens": 2_256, "audio_tokens": 3},
            "cached_tokens_details": {"device": 5, "by": "12", "host": [1.5e-3, -2]},
        }, "timings": {"cache_n": 12, "predicted_n": 9}});
        let text = masked(&reply.to_string(), &[]);
        assert_eq!(text.len(), reply.to_string().len());
        let mut expected = reply;
        let usage = &mut expected["usage"];
        usage["prompt_tokens_details"]["cached_tokens"] = 0.into();
        usage["cached_tokens_details"] = json!({"device": 0, "by": "12", "host": [0, 0]});
        expected["timings"]["cache_n"] = 0.into();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    }

    #[test]
    fn events_are_masked_one_by_one() {
        let events =
            "data: {\"x\":\"a \\\" b\"}\n\ndata: {\"usage\":{\"cached_tokens\" : 96 }}\n\n";
        let expected = events.replace("96", "0 ");
        assert_eq!(masked(events, &[]), expected);
        let odd = "data: it's \"odd\n\ndata: {\"cached_tokens\":96}\n\n";
        assert_eq!(masked(odd, &[]), odd.replace("96", "0 "));
        assert_eq!(
            masked("{\"a\":\"cached_tokens\",\"b\":96}", &[]),
            "{\"a\":\"cached_tokens\",\"b\":96}"
        );
    }

    #[test]
    fn texts_and_exponents_within_a_hidden_value_hide_nothing_else() {
        let reply = r#"{"cached_tokens_details":{"a\"b":17,"c\\":18},"cached_tokens":1E+5,"n":3}"#;
        let expected =
            r#"{"cached_tokens_details":{"a\"b":0 ,"c\\":0 },"cached_tokens":0   ,"n":3}"#;
        assert_eq!(masked(reply, &[]), expected);
    }

    proptest! {
        #[test]
        fn it_makes_no_difference_how_a_reply_is_cut(
            tokens in any::<u32>(),
            text in any::<String>(),
            mut cuts in prop::collection::vec(0_usize..200, 0..6),
        ) {
            let reply = json!({"a": text, "cached_tokens": tokens, "b": [tokens]}).to_string();
            cuts.sort_unstable();
            let whole = masked(&reply, &[]);
            prop_assert_eq!(&masked(&reply, &cuts), &whole);
            let tree: Value = serde_json::from_str(&whole).unwrap();
            prop_assert_eq!(&tree["cached_tokens"], &json!(0));
            prop_assert_eq!(&tree["b"], &json!([tokens]));
            prop_assert_eq!(&tree["a"], &json!(text));
        }
    }
}
