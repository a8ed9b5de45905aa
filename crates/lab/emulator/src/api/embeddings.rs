//! `POST /v1/embeddings`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::completions::TextOrTokens;
use super::generate::prefill;
use super::{ApiCall, ApiError, Reply, json};
use crate::text::{hash_tokens, token_count};

/// Numbers in a vector if the client does not choose.
const DIMENSIONS: usize = 256;
/// Largest size of a vector that a client may choose.
const DIMENSIONS_MAX: usize = 4096;
/// Largest number of inputs in one request, as in OpenAI's API.
const INPUTS_MAX: usize = 2048;

#[derive(Debug, Deserialize)]
struct EmbeddingsRequest {
    model: String,
    input: TextOrTokens,
    dimensions: Option<usize>,
    #[serde(default)]
    encoding_format: Encoding,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Float,
    Base64,
}

pub(crate) async fn answer(call: &ApiCall) -> Reply {
    let request: EmbeddingsRequest = call.json()?;
    call.check_model(&request.model)?;
    let dimensions = request.dimensions.unwrap_or(DIMENSIONS);
    if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
        return Err(ApiError::invalid("dimensions is out of range", Some("dimensions")));
    }
    let inputs = request.input.into_token_lists();
    if !(1..=INPUTS_MAX).contains(&inputs.len()) {
        return Err(ApiError::invalid("input has too few or too many entries", Some("input")));
    }
    prefill(call, &inputs).await?;
    let prompt_tokens: u32 = inputs.iter().map(|tokens| token_count(tokens)).sum();
    let entry = |(index, tokens): (usize, &Vec<u32>)| {
        let vector = vector(hash_tokens(tokens), dimensions);
        let embedding = encode(&vector, request.encoding_format);
        json!({ "object": "embedding", "index": index, "embedding": embedding })
    };
    let data: Vec<Value> = inputs.iter().enumerate().map(entry).collect();
    let body = json!({
        "object": "list",
        "data": data,
        "model": request.model,
        "usage": { "prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens },
    });
    Ok(json(StatusCode::OK, &body))
}

/// Returns a vector of length 1 that depends only on `seed`.
fn vector(seed: u64, dimensions: usize) -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let raw: Vec<f32> = (0..dimensions).map(|_| rng.f32() * 2.0 - 1.0).collect();
    // Never 0, by which the numbers are divided.
    let length = raw.iter().map(|value| value * value).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    raw.into_iter().map(|value| value / length).collect()
}

fn encode(vector: &[f32], encoding: Encoding) -> Value {
    match encoding {
        Encoding::Float => json!(vector),
        Encoding::Base64 => {
            let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
            Value::String(BASE64.encode(bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_length_one_and_follow_from_the_input() {
        let first = vector(1, 64);
        let length: f32 = first.iter().map(|value| value * value).sum();
        assert!((length - 1.0).abs() < 1e-5);
        assert_eq!(first, vector(1, 64));
        assert_ne!(first, vector(2, 64));
    }

    #[test]
    fn base64_holds_the_same_little_endian_numbers() {
        let Value::String(text) = encode(&[1.0, -2.0], Encoding::Base64) else { panic!() };
        assert_eq!(text, "AACAPwAAAMA=");
    }
}
