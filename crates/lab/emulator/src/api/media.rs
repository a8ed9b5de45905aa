//! Audio and images: the smallest replies that clients accept, after real work of the engine.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{StatusCode, header};
use http_body_util::{BodyExt, Full};
use serde::Deserialize;
use serde_json::{Value, json};

use super::content::BYTES_PER_TOKEN;
use super::generate::{self, prefill};
use super::sampling::Sampling;
use super::{ApiCall, ApiError, Reply, json, png, with_type};
use crate::answer::Answer;
use crate::body::ReplyBody;
use crate::clock::unix_seconds;
use crate::text::{hash_tokens, tokenize};

/// Sample rate of the returned speech.
const SAMPLE_RATE_HZ: u32 = 24_000;
/// Samples of speech per character of input: about 15 characters a second.
const SAMPLES_PER_CHARACTER: usize = 1_600;
/// Longest input of the speech endpoint in characters, as in OpenAI's API.
const SPEECH_CHARACTERS_MAX: usize = 4_096;
/// Work of the engine for one image, in tokens.
const IMAGE_TOKENS: usize = 1_024;
/// Largest number of images in one request, as in OpenAI's API.
const IMAGES_MAX: u32 = 10;

/// Handles `POST /v1/audio/transcriptions`, a multipart form.
pub(crate) async fn transcribe(call: &ApiCall) -> Reply {
    let form = read_form(call).await?;
    call.check_model(&form.model)?;
    // Each audio token is a piece of the file, so the prefix cache recognises a repeated file.
    let prompt: Vec<u32> = form.file.chunks(BYTES_PER_TOKEN).map(audio_token).collect();
    let started = generate::start(call, &prompt, &Sampling::default())?;
    let (answers, usage) = started.finished(call).await?;
    let text: String = answers.iter().map(Answer::text).collect();
    if form.response_format == "text" {
        return Ok(with_type(ReplyBody::whole(text), "text/plain; charset=utf-8"));
    }
    let usage = json!({
        "type": "tokens",
        "input_tokens": usage.prompt_tokens,
        // Clients that check the type refuse a reply without it.
        "input_token_details": { "audio_tokens": usage.prompt_tokens, "text_tokens": 0 },
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    });
    Ok(json(StatusCode::OK, &json!({ "text": text, "usage": usage })))
}

#[derive(Debug, Deserialize)]
struct SpeechRequest {
    model: String,
    input: String,
    response_format: Option<String>,
}

/// Handles `POST /v1/audio/speech`: silence of the right length.
pub(crate) async fn speak(call: &ApiCall) -> Reply {
    let request: SpeechRequest = call.json()?;
    call.check_model(&request.model)?;
    let characters = request.input.chars().count();
    if !(1..=SPEECH_CHARACTERS_MAX).contains(&characters) {
        return Err(ApiError::invalid("input must have 1 to 4096 characters", Some("input")));
    }
    let mut prompt = Vec::new();
    tokenize(&request.input, &mut prompt);
    prefill(call, &[prompt]).await?;
    // 16-bit samples have two bytes.
    let samples = vec![0; characters * SAMPLES_PER_CHARACTER * 2];
    match request.response_format.as_deref() {
        // The default of the API is mp3, but players recognise a WAV file by its first bytes.
        None | Some("wav") => Ok(with_type(ReplyBody::whole(wav(&samples)), "audio/wav")),
        Some("pcm") => Ok(with_type(ReplyBody::whole(samples), "audio/pcm")),
        Some(_) => {
            Err(ApiError::invalid("only wav and pcm are supported", Some("response_format")))
        }
    }
}

#[derive(Debug, Deserialize)]
struct ImageRequest {
    model: Option<String>,
    prompt: String,
    n: Option<u32>,
}

/// Handles `POST /v1/images/generations`: squares of one colour.
pub(crate) async fn draw(call: &ApiCall) -> Reply {
    let request: ImageRequest = call.json()?;
    if let Some(model) = &request.model {
        call.check_model(model)?;
    }
    let images = request.n.unwrap_or(1);
    if !(1..=IMAGES_MAX).contains(&images) {
        return Err(ApiError::invalid("n must be 1 to 10", Some("n")));
    }
    let mut prompt = Vec::new();
    tokenize(&request.prompt, &mut prompt);
    let mut work = prompt.clone();
    // The images are extra prompt, so that the engine has work to do.
    work.resize(prompt.len() + IMAGE_TOKENS * images as usize, 0);
    prefill(call, &[work]).await?;
    let image = |index: u32| {
        let seed = hash_tokens(&prompt).wrapping_add(u64::from(index));
        let [red, green, blue, ..] = fastrand::Rng::with_seed(seed).u64(..).to_le_bytes();
        json!({ "b64_json": BASE64.encode(png::square(64, [red, green, blue])) })
    };
    let data: Vec<Value> = (0..images).map(image).collect();
    Ok(json(StatusCode::OK, &json!({ "created": unix_seconds(), "data": data })))
}

#[derive(Debug, Default)]
struct MediaForm {
    model: String,
    response_format: String,
    file: Bytes,
}

async fn read_form(call: &ApiCall) -> Result<MediaForm, ApiError> {
    let content_type = call.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or("");
    let boundary = multer::parse_boundary(content_type).map_err(malformed)?;
    let stream = Full::new(call.body.clone()).into_data_stream();
    let mut parts = multer::Multipart::new(stream, boundary);
    let mut form = MediaForm::default();
    while let Some(part) = parts.next_field().await.map_err(malformed)? {
        match part.name() {
            Some("model") => form.model = part.text().await.map_err(malformed)?,
            Some("response_format") => {
                form.response_format = part.text().await.map_err(malformed)?;
            }
            Some("file") => form.file = part.bytes().await.map_err(malformed)?,
            _ => {}
        }
    }
    if form.file.is_empty() {
        return Err(ApiError::invalid("file is missing", Some("file")));
    }
    Ok(form)
}

fn malformed(error: multer::Error) -> ApiError {
    ApiError::invalid(format!("the form is not valid: {error}"), None)
}

fn audio_token(chunk: &[u8]) -> u32 {
    let bytes: Vec<u32> = chunk.iter().map(|byte| u32::from(*byte)).collect();
    let [one, two, three, four, ..] = hash_tokens(&bytes).to_le_bytes();
    u32::from_le_bytes([one, two, three, four])
}

/// Returns 16-bit mono samples with a WAV header.
fn wav(samples: &[u8]) -> Vec<u8> {
    let length = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    let mut file = Vec::with_capacity(44 + samples.len());
    file.extend(b"RIFF");
    file.extend(length.saturating_add(36).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    file.extend(1_u16.to_le_bytes()); // PCM
    file.extend(1_u16.to_le_bytes()); // mono
    file.extend(SAMPLE_RATE_HZ.to_le_bytes());
    file.extend((SAMPLE_RATE_HZ * 2).to_le_bytes());
    file.extend(2_u16.to_le_bytes());
    file.extend(16_u16.to_le_bytes());
    file.extend(b"data");
    file.extend(length.to_le_bytes());
    file.extend(samples);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wav_says_how_long_it_is() {
        let file = wav(&[0; 8]);
        assert_eq!(file.len(), 44 + 8);
        assert_eq!(&file[..4], b"RIFF");
        assert_eq!(file[4..8], 44_u32.to_le_bytes());
        assert_eq!(file[40..44], 8_u32.to_le_bytes());
    }
}
