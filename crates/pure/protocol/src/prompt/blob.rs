//! Images, sound, files and embeddings inside JSON, which have far fewer tokens than text of their
//! length. docs/explanation/limits.md has the figures that the weights come from.

use std::ops::Range;

use super::quotes::Quotes;

/// Smallest blob in bytes: shorter ones have about as many tokens as text.
const BLOB_BYTES_MIN: usize = 1024;
/// Length in bytes of the beginning that shows whether a string is base64. Text of that length has a
/// space or another mark.
const BASE64_SHOWN: usize = 64;
/// Names of members that contain base64 without media type.
const NAMES: [&[u8]; 3] = [b"\"data\"", b"\"file_data\"", b"\"image_embeds\""];
/// Number of the bytes before a string in which its name is looked for.
const NAME_BYTES_MAX: usize = 32;

/// Tokens of an image, by which vision models differ and the gateway sees only bytes.
const IMAGE_TOKENS: u64 = 1_024;
/// Bytes of sound, video or of a file that count as one token, as in uploads.
const MEDIA_TOKEN_BYTES: u64 = 64;
/// Most tokens of a sound, a video or a file: engines shorten a video to about as many.
const MEDIA_TOKENS_MAX: u64 = 16_384;
/// Bytes of embeddings that count as one token: the vectors of the smallest models.
const EMBEDDING_BYTES: u64 = 1_024;

/// Returns true if the string at `range` of `json`, quotes included, is an image or another file.
#[inline]
pub(super) fn is_blob(json: &[u8], range: Range<usize>) -> bool {
    if range.len() < BLOB_BYTES_MIN {
        return false;
    }
    json[range.clone()].starts_with(b"\"data:") || is_named_base64(json, range)
}

fn is_named_base64(json: &[u8], range: Range<usize>) -> bool {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    let shown = &json[range.start + 1..range.start + 1 + BASE64_SHOWN];
    let before = &json[range.start.saturating_sub(NAME_BYTES_MAX)..range.start];
    let name = || before.trim_ascii_end().strip_suffix(b":").map(<[u8]>::trim_ascii_end);
    shown.iter().all(is_base64)
        && name().is_some_and(|text| NAMES.iter().any(|name| text.ends_with(name)))
}

/// Returns the tokens that a blob counts as. `blob` is a string with its quotes.
#[must_use]
pub fn blob_tokens(blob: &[u8]) -> u64 {
    if is_image(blob) {
        return IMAGE_TOKENS;
    }
    decoded_bytes(blob.len()).div_ceil(MEDIA_TOKEN_BYTES).min(MEDIA_TOKENS_MAX)
}

/// Returns the tokens of embeddings in place of a prompt: base64 of tensors, or lists of vectors.
pub(crate) fn embedding_tokens(json: &[u8]) -> u64 {
    if memchr::memchr(b'"', json).is_some() {
        return decoded_bytes(json.len()).div_ceil(EMBEDDING_BYTES);
    }
    // Each innermost list is a vector.
    let begins = |at: &usize| json[at + 1..].trim_ascii_start().first() != Some(&b'[');
    memchr::memchr_iter(b'[', json).filter(begins).count() as u64
}

/// Returns the bytes that a JSON value counts as, with each blob as text of as many tokens.
pub(crate) fn weighed_bytes(body: &[u8], range: &Range<usize>, token_bytes: u64) -> u64 {
    let value = &body[range.clone()];
    let mut bytes = value.len() as u64;
    // Nearly all blobs have this word in front, and a search for it is fast.
    if value.len() < BLOB_BYTES_MIN || memchr::memmem::find(value, b"data").is_none() {
        return bytes;
    }
    let json = &body[..range.end];
    let mut quotes = Quotes::new(json, range.start, &[]);
    let mut at = range.start;
    while at < range.end {
        let start = quotes.next(at);
        at = range.end.min(quotes.next(start + 1) + 1);
        if start < at && is_blob(json, start..at) {
            bytes -= (at - start) as u64;
            bytes += blob_tokens(&json[start..at]) * token_bytes;
        }
    }
    bytes
}

/// Returns the number of bytes that base64 of this length encodes.
fn decoded_bytes(length: usize) -> u64 {
    length as u64 / 4 * 3
}

/// Returns true for an image, by its media type or, in base64 alone, by how its format begins.
fn is_image(blob: &[u8]) -> bool {
    // PNG, JPEG, GIF and BMP.
    const BEGINNINGS: [&[u8]; 4] = [b"iVBORw0K", b"/9j/", b"R0lGOD", b"Qk0"];
    let text = blob.strip_prefix(b"\"").unwrap_or(blob);
    if let Some(kind) = text.strip_prefix(b"data:") {
        return kind.get(..6).is_some_and(|kind| kind.eq_ignore_ascii_case(b"image/"));
    }
    // RIFF also contains sound: the bytes at 9 to 11 distinguish WebP from WAV.
    let is_webp = || text.starts_with(b"UklGR") && text.get(12..16) == Some(b"RUJQ");
    BEGINNINGS.iter().any(|begin| text.starts_with(begin)) || is_webp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tokens of a value with a blob of 400 kB that begins so, in a member of this name.
    fn tokens(name: &str, begin: &str) -> u64 {
        let json = format!("{{\"{name}\" : \"{begin}{}\"}}", "Qrs0".repeat(100_000));
        weighed_bytes(json.as_bytes(), &(0..json.len()), 4) / 4
    }

    #[test]
    fn images_sound_and_files_weigh_less_than_text() {
        for (name, begin) in [
            ("url", "data:image/png;base64,"),
            ("url", "data:IMAGE/webp;base64,"),
            ("data", "iVBORw0K"),
            ("data", "/9j/4AAQ"),
            ("data", "UklGRiQAAABXRUJQ"),
        ] {
            assert!((1_024..1_050).contains(&tokens(name, begin)), "{begin}");
        }
        for (name, begin) in [
            ("url", "data:video/mp4;base64,"),
            ("file_data", "data:application/pdf;base64,"),
            ("file_data", "JVBERi0x"),
            ("data", "UklGRiQAAABXQVZF"),
            ("data", "SUQzBAAA"),
        ] {
            assert!((4_687..4_720).contains(&tokens(name, begin)), "{begin}");
        }
    }

    #[test]
    fn what_may_be_text_counts_as_text() {
        for (name, begin) in [
            ("text", "iVBORw0K"),
            ("url", "https://example.org/"),
            ("data", "A document in plain words. "),
            ("metadata", "iVBORw0K"),
        ] {
            assert!(tokens(name, begin) > 100_000, "{name} {begin}");
        }
        assert_eq!(weighed_bytes(br#"{"data":"iVBORw0K"}"#, &(0..19), 4), 19);
    }

    #[test]
    fn a_file_of_any_length_has_a_bound() {
        let video = format!("\"data:video/mp4;base64,{}\"", "A".repeat(8 << 20));
        assert_eq!(blob_tokens(video.as_bytes()), 16_384);
    }

    #[test]
    fn embeddings_weigh_as_their_vectors() {
        let base64 = format!("\"{}\"", "A".repeat(400_000));
        assert_eq!(embedding_tokens(base64.as_bytes()), 293);
        assert_eq!(embedding_tokens(b"[[0.5, 1],[2e-3,-1]]"), 2);
        assert_eq!(embedding_tokens(b"[ [ [0.5],[1] ],[[2]]]"), 3);
    }
}
