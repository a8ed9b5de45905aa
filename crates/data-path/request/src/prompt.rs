//! Hashes a prompt's blocks, with the scopes by which engines keep caches apart.

use std::borrow::Cow;

use spillway_prefix::{PrefixHasher, PrefixStream, Scope};
use spillway_protocol::{Facts, PromptFacts, PromptPiece, ReplyShape, blob_tokens, read_prompt};
use spillway_types::{BlockHashes, ModelName, TenantName};
use spillway_usage::TOKEN_BYTES;

/// Bytes of a blob's digest that are hashed at a time.
const DIGEST_RUN_BYTES: usize = 256;

/// A prompt as routing sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Hashes of the blocks.
    pub blocks: BlockHashes,
    /// Size in bytes, with each image or file counted as text of as many tokens.
    pub bytes: u32,
    /// True if the prompt may have more tokens than its body has bytes.
    pub has_media: bool,
}

/// End of a prompt, where its reply goes on.
#[derive(Debug)]
pub struct PromptEnd {
    /// State of the hash.
    pub(crate) stream: PrefixStream,
    /// Shape in which the reply follows.
    pub(crate) shape: ReplyShape,
}

/// Scope within which prompts may share cache entries.
#[derive(Clone, Copy, Debug)]
pub struct PromptScope<'a> {
    /// Model that reads the prompt, aliases resolved.
    pub model: &'a ModelName,
    /// The tenant, if it must not share cache entries with others.
    pub tenant: Option<&'a TenantName>,
}

/// Hashes the prompt of `body`, from which `facts` were read. Needs the whole body: engines put
/// tools and instructions before the messages, and clients mostly send them behind.
///
/// Returns the end of the prompt too, where its reply goes on; `None` if no later prompt will repeat the reply.
#[must_use]
pub fn hash_prompt(
    hasher: &PrefixHasher,
    facts: &Facts<'_>,
    body: &[u8],
    scope: PromptScope<'_>,
) -> (Prompt, Option<PromptEnd>) {
    if facts.prompt.is_none() {
        return (Prompt::default(), None);
    }
    let text = |range: &std::ops::Range<usize>| &body[range.clone()];
    let salt = salt(scope.tenant, facts.cache_salts.each_ref().map(|salt| salt.as_ref().map(text)));
    let adapter = facts.adapter.as_ref().and_then(|value| std::str::from_utf8(text(value)).ok());
    let scope =
        Scope { model: scope.model.as_str(), adapter: adapter.unwrap_or_default(), salt: &salt };
    let mut stream = hasher.start(&scope);
    let mut bytes = 0_usize;
    let PromptFacts { shape, has_media } = read_prompt(facts, body, |piece| {
        bytes += match piece {
            PromptPiece::Text(text) => {
                stream.update(text);
                text.len()
            }
            // As text, a photo of a megabyte would count as 300,000 tokens and outweigh every queue.
            PromptPiece::Blob(blob) => {
                let weight = (blob_tokens(blob) * TOKEN_BYTES) as usize;
                hash_blob(hasher, &mut stream, blob, weight);
                weight
            }
        };
    });
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let prompt = Prompt { blocks: stream.take_blocks(), bytes, has_media };
    (prompt, shape.map(|shape| PromptEnd { stream, shape }))
}

/// Returns the salt for engines that keep cache entries of prompts apart; `None` if the tenant
/// shares them.
pub fn engine_salt(
    hasher: &PrefixHasher,
    facts: &Facts<'_>,
    body: &[u8],
    scope: PromptScope<'_>,
) -> Option<String> {
    let tenant = scope.tenant?;
    let asked = facts.cache_salts.each_ref().map(|salt| salt.clone().map(|range| &body[range]));
    Some(hasher.engine_salt(&salt(Some(tenant), asked)))
}

/// Hashes a blob's keyed digest in its place, repeated up to the blob's weight in bytes of text.
fn hash_blob(hasher: &PrefixHasher, stream: &mut PrefixStream, blob: &[u8], weight: usize) {
    let digest = hasher.hash_request_key(blob).to_le_bytes();
    let mut run = [0; DIGEST_RUN_BYTES];
    run.chunks_exact_mut(digest.len()).for_each(|part| part.copy_from_slice(&digest));
    for at in (0..weight).step_by(DIGEST_RUN_BYTES) {
        stream.update(&run[..DIGEST_RUN_BYTES.min(weight - at)]);
    }
}

/// Returns the salt that keeps prompts apart: the tenant, if tenants are isolated, and the client's
/// own cache salts. The hash key keeps both from being guessed.
fn salt<'a>(tenant: Option<&'a TenantName>, asked: [Option<&[u8]>; 2]) -> Cow<'a, [u8]> {
    let tenant = tenant.map(|tenant| tenant.as_str().as_bytes()).unwrap_or_default();
    if asked.iter().all(Option::is_none) {
        return Cow::Borrowed(tenant);
    }
    let mut salt = Vec::new();
    for part in [Some(tenant), asked[0], asked[1]] {
        let part = part.unwrap_or_default();
        // With its length in front, or one part could pass for the end of another.
        salt.extend_from_slice(&(part.len() as u64).to_le_bytes());
        salt.extend_from_slice(part);
    }
    Cow::Owned(salt)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use spillway_prefix::PrefixConfig;
    use spillway_protocol::read_facts;
    use spillway_route::Policy;

    use super::*;
    use crate::reply_hasher::ReplyHasher;

    fn prompt_of(body: &Value, model: &str, tenant: Option<&str>) -> Prompt {
        let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).unwrap();
        let body = body.to_string();
        let facts = read_facts(body.as_bytes()).unwrap();
        let (model, tenant) = (ModelName::from(model), tenant.map(TenantName::from));
        let scope = PromptScope { model: &model, tenant: tenant.as_ref() };
        hash_prompt(&hasher, &facts, body.as_bytes(), scope).0
    }

    fn shared(left: &Prompt, right: &Prompt) -> usize {
        let (left, right) = (left.blocks.as_slice(), right.blocks.as_slice());
        left.iter().zip(right).take_while(|(left, right)| left == right).count()
    }

    fn body(extra: Value) -> Value {
        let mut body = json!({"messages": [{"role": "user", "content": "x".repeat(2_000)}]});
        let fields = body.as_object_mut().unwrap();
        fields.extend(extra.as_object().unwrap().clone());
        body
    }

    #[test]
    fn what_engines_keep_apart_shares_no_block_and_the_rest_does() {
        let plain = prompt_of(&body(json!({})), "m", None);
        assert!(plain.blocks.as_slice().len() >= 7, "{plain:?}");
        for extra in [
            json!({"cache_salt": "s"}),
            json!({"extra_key": "s"}),
            json!({"lora_path": "sql"}),
            json!({"tools": [{"type": "function"}]}),
            json!({"instructions": "be brief"}),
            json!({"reasoning_effort": "low"}),
        ] {
            assert_eq!(shared(&plain, &prompt_of(&body(extra.clone()), "m", None)), 0, "{extra}");
        }
        for extra in [
            json!({"temperature": 1}),
            json!({"stream": true}),
            json!({"max_tokens": 5, "user": "u"}),
            json!({"cache_salt": null}),
        ] {
            assert_eq!(prompt_of(&body(extra.clone()), "m", None), plain, "{extra}");
        }
        assert_eq!(shared(&plain, &prompt_of(&body(json!({})), "n", None)), 0);
        assert_eq!(shared(&plain, &prompt_of(&body(json!({})), "m", Some("t"))), 0);
    }

    #[test]
    fn salts_and_tenants_never_pass_for_each_other() {
        let of = |salt: Option<&str>, key: Option<&str>, tenant: Option<&str>| {
            prompt_of(&body(json!({"cache_salt": salt, "extra_key": key})), "m", tenant)
        };
        let all = [
            of(None, None, None),
            of(Some("a"), None, None),
            of(None, Some("a"), None),
            of(None, None, Some("a")),
            of(None, None, Some("\"a\"")),
            of(Some("a"), None, Some("a")),
            of(Some("aa"), None, None),
            of(Some("a"), Some("a"), None),
        ];
        for (at, left) in all.iter().enumerate() {
            for right in &all[at + 1..] {
                assert_eq!(shared(left, right), 0);
            }
        }
    }

    #[test]
    fn an_image_weighs_as_some_text_and_its_content_counts() {
        let with = |image: &str| {
            let url = format!("data:image/png;base64,{}", image.repeat(100_000));
            let part = json!({"type": "image_url", "image_url": {"url": url}});
            let text = json!({"type": "text", "text": "x".repeat(1_000)});
            json!({"messages": [{"role": "user", "content": [text, part]}]})
        };
        let (left, right) = (prompt_of(&with("a"), "m", None), prompt_of(&with("b"), "m", None));
        assert_eq!(left, prompt_of(&with("a"), "m", None));
        assert!((5_000..6_000).contains(&left.bytes), "{}", left.bytes);
        assert_eq!(shared(&left, &right), 4, "the text before it");
    }

    #[test]
    fn a_reply_is_hashed_as_the_next_prompt_has_it_and_in_its_scope() {
        let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).unwrap();
        let (model, tenant) = (ModelName::from("m"), TenantName::from("t"));
        let said = "It is so. ".repeat(100);
        let blocks = |tenant: Option<&TenantName>, salt: Option<&str>| {
            let text = body(json!({ "cache_salt": salt })).to_string();
            let facts = read_facts(text.as_bytes()).unwrap();
            let scope = PromptScope { model: &model, tenant };
            let (prompt, end) = hash_prompt(&hasher, &facts, text.as_bytes(), scope);
            let policy = Policy::PredictedLatency;
            let turn = ReplyHasher::of(end, policy, &facts, text.as_bytes());
            let mut turn = turn.unwrap();
            let reply = json!({"choices": [{"message": {"content": said}}]}).to_string();
            turn.piece(reply.as_bytes());
            (prompt.blocks.as_slice().to_vec(), turn.finish().as_slice().to_vec())
        };
        let mut next = body(json!({}));
        let messages = next["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": said}));
        messages.push(json!({"role": "user", "content": "x".repeat(300)}));
        let (prompt, turn) = blocks(None, None);
        assert!(turn.len() >= 3, "{turn:?}");
        let next = prompt_of(&next, "m", None);
        assert!(next.blocks.as_slice().starts_with(&[&prompt[..], &turn].concat()));
        for (tenant, salt) in [(Some(&tenant), None), (None, Some("s"))] {
            let (_, other) = blocks(tenant, salt);
            assert_eq!(other.len(), turn.len());
            assert!(other.iter().all(|block| !turn.contains(block)));
        }
    }
}
