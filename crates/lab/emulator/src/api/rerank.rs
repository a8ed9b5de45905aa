//! Endpoint `POST /v1/rerank`, in the form that Jina, Cohere and vLLM share.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::generate::prefill;
use super::{ApiCall, ApiError, Reply, json};
use crate::text::{hash_tokens, token_count, tokenize};

/// Largest number of documents in one request.
const DOCUMENTS_MAX: usize = 1000;

#[derive(Debug, Deserialize)]
struct RerankRequest {
    model: String,
    query: String,
    documents: Vec<Document>,
    top_n: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Document {
    Text(String),
    Object { text: String },
}

impl Document {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Object { text } => text,
        }
    }
}

pub(crate) async fn answer(call: &ApiCall) -> Reply {
    let request: RerankRequest = call.json()?;
    call.check_model(&request.model)?;
    if !(1..=DOCUMENTS_MAX).contains(&request.documents.len()) {
        let message = "documents has too few or too many entries";
        return Err(ApiError::invalid(message, Some("documents")));
    }
    let pair = |document: &Document| {
        let mut tokens = Vec::new();
        tokenize(&request.query, &mut tokens);
        tokenize(document.text(), &mut tokens);
        tokens
    };
    let pairs: Vec<Vec<u32>> = request.documents.iter().map(pair).collect();
    prefill(call, &pairs).await?;
    let total_tokens: u32 = pairs.iter().map(|tokens| token_count(tokens)).sum();
    let results = ranked(&request);
    let mut id = Vec::new();
    tokenize(&request.query, &mut id);
    let body = json!({
        "id": format!("rerank-{:016x}", hash_tokens(&id)),
        "model": request.model,
        "usage": { "prompt_tokens": total_tokens, "total_tokens": total_tokens },
        "results": results,
    });
    Ok(json(StatusCode::OK, &body))
}

/// Returns the documents with their scores, best first.
fn ranked(request: &RerankRequest) -> Vec<Value> {
    let score = |document: &Document| relevance(&request.query, document.text());
    let mut scored: Vec<(usize, f64)> = request.documents.iter().map(score).enumerate().collect();
    scored.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    scored.truncate(request.top_n.unwrap_or(usize::MAX));
    let result = |(index, score): (usize, f64)| {
        let document = json!({ "text": request.documents[index].text() });
        json!({ "index": index, "document": document, "relevance_score": score })
    };
    scored.into_iter().map(result).collect()
}

/// Returns the share of the query's words that the document has, 0 to 1.
fn relevance(query: &str, document: &str) -> f64 {
    let words = |text: &str| -> std::collections::BTreeSet<String> {
        let words = text.split(|letter: char| !letter.is_alphanumeric());
        words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
    };
    let (wanted, present) = (words(query), words(document));
    let found = u32::try_from(wanted.intersection(&present).count()).unwrap_or(u32::MAX);
    let asked = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
    f64::from(found) / f64::from(asked.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_with_more_of_the_querys_words_come_first() {
        let request = RerankRequest {
            model: "tiny".to_owned(),
            query: "water over the dam".to_owned(),
            documents: vec![
                Document::Text("a desert".to_owned()),
                Document::Object { text: "The water is over the dam.".to_owned() },
                Document::Text("a dam".to_owned()),
            ],
            top_n: Some(2),
        };
        let indices: Vec<_> =
            ranked(&request).iter().map(|result| result["index"].clone()).collect();
        assert_eq!(indices, [json!(1), json!(2)]);
        assert!((relevance("a b", "b c") - 0.5).abs() < 1e-9);
    }
}
