//! Contents of messages: texts, images, sounds and files, as tokens of a prompt.

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};
use serde_json::Value;

use super::ApiError;
use crate::text::{TextContent, hash_tokens, tokens_of};

/// Tokens of an image of unknown size, because it is not fetched or has an unknown format: those of
/// 672 × 672 pixels.
const IMAGE_TOKENS: u32 = 576;
/// Smallest and largest number of tokens of an image, the defaults of Qwen's models.
const IMAGE_TOKENS_MIN: u32 = 4;
const IMAGE_TOKENS_MAX: u32 = 1_280;
/// Side in pixels of the square that becomes one token.
const PATCH_PIXELS: u32 = 28;
/// Bytes of a sound or file that become one token: a minute of audio at 128 kbit/s becomes 480.
pub(crate) const BYTES_PER_TOKEN: usize = 2_000;
/// Decoder of base64 with or without padding, since clients send both.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the parts of a message's content, which is a string or a list of parts.
///
/// # Errors
/// Returns 400 if a part is malformed.
pub(crate) fn parts_of(content: &Value) -> Result<Vec<TextContent>, ApiError> {
    match content {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![TextContent::Text(text.clone())]),
        Value::Array(parts) => parts.iter().map(part_of).collect(),
        other => Ok(vec![TextContent::Text(other.to_string())]),
    }
}

/// Returns the texts of the parts, joined.
pub(crate) fn text_of(parts: &[TextContent]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        TextContent::Text(text) => Some(text.as_str()),
        TextContent::Media { .. } => None,
    });
    texts.collect()
}

fn part_of(part: &Value) -> Result<TextContent, ApiError> {
    let field = |name: &str| part.get(name).filter(|value| !value.is_null());
    let url_of =
        |value: &Value| value["url"].as_str().or_else(|| value.as_str()).map(str::to_owned);
    if let Some(text) = field("text").or_else(|| field("refusal")).and_then(Value::as_str) {
        return Ok(TextContent::Text(text.to_owned()));
    }
    if let Some(image) = field("image_url").or_else(|| field("image")) {
        let url = url_of(image).ok_or_else(|| invalid("image_url must have a url"))?;
        let tokens = data_of(&url)?.map_or(IMAGE_TOKENS, |data| {
            image_size(&data).map_or(IMAGE_TOKENS, |(width, height)| image_tokens(width, height))
        });
        return Ok(media(&url, tokens));
    }
    if let Some(sound) = field("input_audio") {
        let data = sound["data"].as_str().ok_or_else(|| invalid("input_audio must have data"))?;
        return Ok(media(data, file_tokens(&decode(data)?)));
    }
    let files = ["audio_url", "video_url", "file", "file_data", "file_url", "file_id"];
    if let Some(file) = files.into_iter().find_map(field) {
        // Files come as data, by id, or by URL.
        let inner = file.get("file_data").or_else(|| file.get("file_id")).unwrap_or(file);
        let url = url_of(inner).unwrap_or_else(|| inner.to_string());
        let tokens = data_of(&url)?.map_or(IMAGE_TOKENS, |data| file_tokens(&data));
        return Ok(media(&url, tokens));
    }
    // Unknown parts become text, so that they still count as prompt.
    Ok(TextContent::Text(part.to_string()))
}

/// Returns the data in a data URL; `None` for other URLs, which are never fetched.
fn data_of(url: &str) -> Result<Option<Vec<u8>>, ApiError> {
    let Some(rest) = url.strip_prefix("data:") else { return Ok(None) };
    let parts = rest.split_once(";base64,");
    let (_, data) = parts.ok_or_else(|| invalid("a data URL must be in base64"))?;
    decode(data).map(Some)
}

fn decode(data: &str) -> Result<Vec<u8>, ApiError> {
    let decoded = BASE64.decode(data).ok().filter(|decoded| !decoded.is_empty());
    decoded.ok_or_else(|| invalid("the data is not valid base64"))
}

fn media(source: &str, tokens: u32) -> TextContent {
    TextContent::Media { hash: hash_tokens(&tokens_of(source)), tokens }
}

fn file_tokens(data: &[u8]) -> u32 {
    u32::try_from(data.len().div_ceil(BYTES_PER_TOKEN)).unwrap_or(u32::MAX)
}

fn image_tokens(width: u32, height: u32) -> u32 {
    let patches = width.div_ceil(PATCH_PIXELS).saturating_mul(height.div_ceil(PATCH_PIXELS));
    patches.clamp(IMAGE_TOKENS_MIN, IMAGE_TOKENS_MAX)
}

/// Returns width and height of a PNG file in pixels; `None` for other files.
fn image_size(file: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| Some(u32::from_be_bytes(*file.get(at..)?.first_chunk()?));
    file.starts_with(b"\x89PNG").then_some((number(16)?, number(20)?))
}

fn invalid(message: &str) -> ApiError {
    ApiError::invalid(message, Some("messages"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::png;

    fn tokens(part: Value) -> Result<u32, ApiError> {
        match parts_of(&json!([part]))?.first() {
            Some(TextContent::Media { tokens, .. }) => Ok(*tokens),
            other => panic!("{other:?} is no image"),
        }
    }

    fn data_url(file: &[u8]) -> String {
        format!("data:image/any;base64,{}", BASE64.encode(file))
    }

    #[test]
    fn an_image_counts_by_its_size_and_not_by_its_bytes() {
        let png = data_url(&png::square(112, [1, 2, 3]));
        assert_eq!(
            tokens(json!({ "type": "image_url", "image_url": { "url": png } })).unwrap(),
            16
        );
        assert_eq!(tokens(json!({ "type": "input_image", "image_url": png })).unwrap(), 16);
        let far = json!({ "image_url": { "url": "https://example.com/a.png" } });
        assert_eq!(tokens(far).unwrap(), IMAGE_TOKENS);
        let unknown = json!({ "image_url": { "url": data_url(&[0; 200_000]) } });
        assert_eq!(tokens(unknown).unwrap(), IMAGE_TOKENS);
    }

    #[test]
    fn sounds_and_files_count_by_their_length() {
        let data = BASE64.encode([7; 20_000]);
        let sound =
            json!({ "type": "input_audio", "input_audio": { "data": data, "format": "wav" } });
        assert_eq!(tokens(sound).unwrap(), 10);
        let file = json!({ "type": "file", "file": { "file_data": data_url(&[7; 20_000]) } });
        assert_eq!(tokens(file).unwrap(), 10);
    }

    #[test]
    fn data_that_is_no_base64_is_refused() {
        for url in ["data:image/png;base64,###", "data:image/png,abc", "data:image/png;base64,"] {
            assert!(tokens(json!({ "image_url": { "url": url } })).is_err(), "{url}");
        }
        assert!(tokens(json!({ "image_url": {} })).is_err());
        assert!(tokens(json!({ "input_audio": { "data": "?" } })).is_err());
    }

    #[test]
    fn broken_images_are_images_of_unknown_size() {
        for file in [&b"\xFF\xD8"[..], b"\x89PNG", b"GIF8"] {
            assert_eq!(image_size(file), None);
        }
    }
}
