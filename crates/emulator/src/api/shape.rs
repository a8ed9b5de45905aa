//! The form that an answer must have: prose, JSON, one of some texts, a text of
//! some pattern, or calls of tools.

use serde_json::{Value, json};

use crate::answer::{Answer, Calls, Length, Part};
use crate::text::{TOKEN_BYTES, after_last_mark, detokenize, hash_tokens, mixed};
use crate::{pattern, schema};

use super::ApiError;

/// What an answer must look like.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Shape {
    /// Whatever the model likes to say.
    #[default]
    Prose,
    /// JSON that this schema allows.
    Json(Value),
    /// One of these texts.
    OneOf(Vec<String>),
    /// A text that this regular expression matches.
    Pattern(String),
    /// Calls of these tools, each with arguments that its schema allows.
    Calls { tools: Vec<Tool>, is_named: bool },
}

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// The schema of its arguments.
    pub(crate) parameters: Value,
}

impl Shape {
    /// What the fields of a request demand beside calls of tools: `response_format`, or
    /// `structured_outputs` and its older names as vLLM has them.
    pub(crate) fn of(format: Option<&Value>, body: &Value) -> Result<Self, ApiError> {
        let vllm = &body["structured_outputs"];
        let choice = vllm.get("choice").or_else(|| body.get("guided_choice"));
        if let Some(choice) = choice.filter(|choice| !choice.is_null()) {
            let texts: Option<Vec<String>> = serde_json::from_value(choice.clone()).ok();
            let texts = texts.filter(|texts| !texts.is_empty());
            let wrong = || invalid("choice must be a list of texts", "structured_outputs");
            return texts.map(Self::OneOf).ok_or_else(wrong);
        }
        let schema = vllm.get("json").or_else(|| body.get("guided_json"));
        if let Some(schema) = schema.filter(|schema| !schema.is_null()) {
            // vLLM takes it as a text, too.
            let parsed = schema.as_str().map(serde_json::from_str).transpose();
            let wrong = |_| invalid("json must be a JSON schema", "structured_outputs");
            return Ok(Self::Json(parsed.map_err(wrong)?.unwrap_or_else(|| schema.clone())));
        }
        let regex = vllm.get("regex").or_else(|| body.get("guided_regex"));
        if let Some(regex) = regex.filter(|regex| !regex.is_null()) {
            let wrong = || invalid("regex must be a regular expression", "structured_outputs");
            let regex = regex.as_str().ok_or_else(wrong)?;
            pattern::sample(regex, &mut fastrand::Rng::with_seed(0), 1).ok_or_else(wrong)?;
            return Ok(Self::Pattern(regex.to_owned()));
        }
        let grammar = [vllm.get("grammar"), body.get("guided_grammar")];
        if grammar.into_iter().flatten().any(|grammar| !grammar.is_null()) {
            return Err(invalid("the emulator knows no grammars", "structured_outputs"));
        }
        format.map_or(Ok(Self::Prose), Self::of_format)
    }

    /// What `response_format`, or `text.format` of a response, demands.
    fn of_format(format: &Value) -> Result<Self, ApiError> {
        match format["type"].as_str() {
            Some("text") => Ok(Self::Prose),
            None if format.is_null() => Ok(Self::Prose),
            Some("json_object") => Ok(Self::Json(json!({
                "type": "object",
                "required": ["answer", "score"],
                "properties": { "answer": { "type": "string" }, "score": { "type": "integer" } },
            }))),
            Some("json_schema") => {
                let inner = format.get("json_schema").unwrap_or(format);
                let name = inner["name"].as_str().filter(|name| !name.is_empty());
                name.ok_or_else(|| invalid("json_schema must have a name", "response_format"))?;
                let schema = inner.get("schema").filter(|schema| schema.is_object());
                let wrong = || invalid("json_schema must have a schema", "response_format");
                schema.cloned().map(Self::Json).ok_or_else(wrong)
            }
            _ => Err(invalid("type must be text, json_object or json_schema", "response_format")),
        }
    }

    /// The answer to `prompt`. All but prose follows from what stands before the message that is
    /// being written, so that who is given the beginning of it says the rest.
    pub(crate) fn answer(&self, prompt: &[u32], seed: u64, length: Length) -> Answer {
        let most = length.most();
        let begins = after_last_mark(prompt);
        let (before, said) = prompt.split_at(begins.unwrap_or(prompt.len()));
        let form_seed = hash_tokens(before) ^ mixed(seed);
        let bytes_max = (most as usize).saturating_mul(TOKEN_BYTES);
        let said = detokenize(said);
        match self {
            Self::Prose => Answer::new(prompt, seed, length),
            Self::Json(schema) => {
                let text = schema::sample(schema, form_seed, bytes_max).to_string();
                Answer::of_parts(vec![(Part::Said, text)], &said, most)
            }
            Self::OneOf(texts) => {
                let text = fastrand::Rng::with_seed(form_seed).choice(texts).cloned();
                Answer::of_parts(vec![(Part::Said, text.unwrap_or_default())], &said, most)
            }
            Self::Pattern(regex) => {
                let mut rng = fastrand::Rng::with_seed(form_seed);
                let text = pattern::sample(regex, &mut rng, bytes_max).unwrap_or_default();
                Answer::of_parts(vec![(Part::Said, text)], &said, most)
            }
            Self::Calls { tools, is_named } => {
                let parts = tools.iter().enumerate().flat_map(|(at, tool)| {
                    let seed = form_seed.wrapping_add(at as u64);
                    let arguments = schema::sample(&tool.parameters, seed, bytes_max).to_string();
                    call_parts(at, &tool.name, arguments)
                });
                let names = tools.iter().map(|tool| tool.name.clone()).collect();
                let mut answer = Answer::of_parts(parts.collect(), &said, most);
                answer.calls = Calls { names, is_named: *is_named };
                answer
            }
        }
    }
}

/// A call as text, the same when it is made and when it comes back in the next turn.
pub(crate) fn call_text(name: &str, arguments: &str) -> String {
    call_parts(0, name, arguments.to_owned()).into_iter().map(|(_, text)| text).collect()
}

fn call_parts(at: usize, name: &str, arguments: String) -> [(Part, String); 3] {
    let name = Value::from(name);
    [
        (Part::Unsaid, format!("<tool_call>{{\"name\": {name}, \"arguments\": ")),
        (Part::Arguments(at), arguments),
        (Part::Unsaid, "}</tool_call>".to_owned()),
    ]
}

fn invalid(message: &str, param: &'static str) -> ApiError {
    ApiError::invalid(message, Some(param))
}
