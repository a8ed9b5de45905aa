//! Prescribed forms of answers: prose, JSON, or tool calls.

use serde_json::{Value, json};

use super::ApiError;
use crate::answer::{Answer, AnswerPart, Calls, Length};
use crate::schema;
use crate::text::{TOKEN_BYTES, after_last_mark, detokenize, hash_tokens, mixed};

/// Prescribed form of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Shape {
    /// Free prose.
    #[default]
    Prose,
    /// JSON that matches this schema.
    Json(Value),
    /// Calls of these tools, each with arguments that match the tool's schema.
    Calls { tools: Vec<Tool>, is_named: bool },
}

/// Function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// JSON schema of the arguments.
    pub(crate) parameters: Value,
}

impl Shape {
    /// Reads the form from `response_format`, or from `text.format` of a response.
    ///
    /// # Errors
    /// Returns 400 for a form that is unknown or incomplete.
    pub(crate) fn of(format: &Value) -> Result<Self, ApiError> {
        match format["type"].as_str() {
            Some("text") => Ok(Self::Prose),
            None if format.is_null() => Ok(Self::Prose),
            Some("json_object") => Ok(Self::Json(json!({
                "type": "object",
                "required": ["answer", "score"],
                "properties": { "answer": { "type": "string" }, "score": { "type": "integer" } },
            }))),
            Some("json_schema") => {
                // In `/v1/responses` the fields are in the format itself.
                let inner = format.get("json_schema").unwrap_or(format);
                let name = inner["name"].as_str().filter(|name| !name.is_empty());
                name.ok_or_else(|| invalid("json_schema must have a name"))?;
                let schema = inner.get("schema").filter(|schema| schema.is_object());
                let wrong = || invalid("json_schema must have a schema");
                schema.cloned().map(Self::Json).ok_or_else(wrong)
            }
            _ => Err(invalid("type must be text, json_object or json_schema")),
        }
    }

    /// Returns the answer to `prompt`.
    ///
    /// Except for prose, the text depends only on the tokens before the message that is being
    /// written. A prompt that ends with the beginning of the answer is therefore continued with its
    /// rest.
    pub(crate) fn answer(&self, prompt: &[u32], seed: u64, length: Length) -> Answer {
        let most = length.most();
        let begins = after_last_mark(prompt);
        // Everything after the last mark is the beginning of the answer itself.
        let (before, said) = prompt.split_at(begins.unwrap_or(prompt.len()));
        let form_seed = hash_tokens(before) ^ mixed(seed);
        let bytes_max = (most as usize).saturating_mul(TOKEN_BYTES);
        let said = detokenize(said);
        match self {
            Self::Prose => Answer::new(prompt, seed, length),
            Self::Json(schema) => {
                let text = schema::sample(schema, form_seed, bytes_max).to_string();
                Answer::of_parts(vec![(AnswerPart::Said, text)], &said, most)
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

/// Returns a tool call as text: the same text when it is made and when it comes back in the next
/// turn.
pub(crate) fn call_text(name: &str, arguments: &str) -> String {
    call_parts(0, name, arguments.to_owned()).into_iter().map(|(_, text)| text).collect()
}

fn call_parts(at: usize, name: &str, arguments: String) -> [(AnswerPart, String); 3] {
    let name = Value::from(name);
    [
        (AnswerPart::Unsaid, format!("<tool_call>{{\"name\": {name}, \"arguments\": ")),
        (AnswerPart::Arguments(at), arguments),
        (AnswerPart::Unsaid, "}</tool_call>".to_owned()),
    ]
}

fn invalid(message: &str) -> ApiError {
    ApiError::invalid(message, Some("response_format"))
}
