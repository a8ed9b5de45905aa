//! Request fields that steer the engine instead of the answer.

use crate::body::{NameTable, folded};
use crate::{ErrorKind, GatewayError};

/// Names of fields by which vLLM, SGLang, TensorRT-LLM, llama.cpp and TGI decide when, where, with
/// which adapter or with which state they process a request.
///
/// A client that may set them could put its requests before those of others (`priority`), take the
/// id of another's request (`request_id`, `rid`), make the engine connect to any host
/// (`kv_transfer_params`, `bootstrap_host`), use an adapter that its key is not for (`lora_path`),
/// continue another's state (`session_params`, `id_slot`), run code (`custom_logit_processor`), or
/// hide how many tokens were generated for it (`stream_interval`).
pub(crate) const NAMES: [&str; 41] = [
    "priority",
    "request_id",
    "rid",
    "session_id",
    "session_params",
    "conversation_id",
    "kv_transfer_params",
    "ec_transfer_params",
    "disaggregated_params",
    "conversation_params",
    "scheduling_params",
    "migration_request",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "bootstrap_pair_key",
    "data_parallel_rank",
    "data_parallel_rank_decode",
    "routed_dp_rank",
    "decode_dp_rank",
    "disagg_prefill_dp_rank",
    "disagg_request_id",
    "lora_path",
    "lora_request",
    "lora_name",
    "lora_id",
    "lora",
    "adapter_id",
    "adapter_source",
    "custom_logit_processor",
    "custom_params",
    "custom_labels",
    "logits_processors",
    "ngram_corpus_id",
    "vllm_xargs",
    "extra_args",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "id_slot",
    "slot_id",
    "stream_interval",
];

static TABLE: NameTable<{ NAMES.len() }> = NameTable::new(NAMES);

/// Set of fields that steer the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineFields(u64);

impl EngineFields {
    /// Empty set.
    pub const NONE: Self = Self(0);

    /// Returns the names of all fields that steer an engine.
    #[must_use]
    pub fn all_names() -> &'static [&'static str] {
        &NAMES
    }

    /// Returns the field of this name, in any case of letters; `None` if it does not steer an
    /// engine.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        TABLE.find(name).map(Self::at)
    }

    /// Adds a field by its name, if it steers an engine.
    pub fn note(&mut self, name: &str) {
        self.0 |= Self::named(name).unwrap_or_default().0;
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Returns true if the set contains all of `others`.
    #[must_use]
    pub fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Checks that a request has no fields of this set except the `allowed` ones.
    ///
    /// # Errors
    /// Returns [`ErrorKind::BadRequest`] with the first field that is not allowed, and a hint for
    /// the client.
    pub fn check(self, allowed: Self) -> Result<(), GatewayError> {
        self.first_beyond(allowed).map_or(Ok(()), |name| Err(refusal(name)))
    }

    /// Returns the name of a field that is not `allowed`; `None` if there is none.
    pub(crate) fn first_beyond(self, allowed: Self) -> Option<&'static str> {
        let refused = self.0 & !allowed.0;
        (refused != 0).then(|| NAMES[refused.trailing_zeros() as usize])
    }

    pub(crate) fn at(index: usize) -> Self {
        Self(1 << index)
    }

    /// Returns the fields that seem to be in the text of a request, which cannot be parsed.
    pub(crate) fn seen_in(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        // An escape may hide any name, so the first one represents it.
        if text.contains("\\u00") {
            return Self::at(0);
        }
        let text = folded(&text).to_ascii_lowercase();
        let mut seen = Self::NONE;
        for (index, name) in NAMES.iter().enumerate() {
            if text.contains(&format!("\"{name}\"")) {
                seen = seen.with(Self::at(index));
            }
        }
        seen
    }
}

/// Returns the error for a field that is not allowed.
pub(crate) fn refusal(name: &'static str) -> GatewayError {
    let message = format!(
        "The field '{name}' steers the model server and is not allowed here. Leave it out, or ask the \
         operator to list it in allow_engine_fields of the route."
    );
    GatewayError::new(ErrorKind::BadRequest, message).with_param(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known_in_any_case_and_others_are_not() {
        for name in NAMES {
            let field = EngineFields::named(name).unwrap();
            assert_eq!(EngineFields::named(&name.to_uppercase()), Some(field), "{name}");
            assert!(field.check(field).is_ok());
            let error = field.check(EngineFields::NONE).unwrap_err();
            assert_eq!((error.kind, error.param), (ErrorKind::BadRequest, Some(name)));
            assert!(error.message.contains(name), "{error}");
        }
        assert_eq!(EngineFields::named("ses\u{17f}ion_id"), EngineFields::named("session_id"));
        for name in ["", "model", "messages", "user", "cache_salt", "temperature"] {
            assert_eq!(EngineFields::named(name), None, "{name}");
        }
    }

    #[test]
    fn only_fields_that_are_not_allowed_are_refused() {
        let mut fields = EngineFields::NONE;
        fields.note("priority");
        fields.note("temperature");
        assert!(fields.check(EngineFields::named("priority").unwrap()).is_ok());
        fields.note("lora_path");
        let error = fields.check(EngineFields::named("priority").unwrap()).unwrap_err();
        assert_eq!(error.param, Some("lora_path"));
    }
}
