//! Choice of the tools that the model calls.

use serde_json::{Value, json};

use super::ApiError;
use super::shape::{Shape, Tool};

/// Largest number of calls in one answer.
const CALLS_MAX: usize = 8;

/// Fields of a request about tools.
#[derive(Debug)]
pub(crate) struct Tools {
    tools: Vec<Tool>,
    choice: ToolChoice,
    in_parallel: bool,
}

#[derive(Debug, PartialEq)]
enum ToolChoice {
    None,
    Auto,
    Required,
    Named(String),
}

impl Tools {
    /// Parses the fields `tools`, `tool_choice` and `parallel_tool_calls`. Only tools of kind
    /// `function` are kept.
    ///
    /// # Errors
    /// Returns 400 if `tool_choice` is malformed or names no given tool.
    pub(crate) fn of(body: &Value) -> Result<Self, ApiError> {
        let given = body["tools"].as_array().map_or(&[][..], Vec::as_slice);
        let tools: Vec<Tool> = given.iter().filter_map(tool_of).collect();
        let choice = choice_of(&body["tool_choice"], !tools.is_empty())?;
        // A call cannot be demanded without tools.
        if tools.is_empty() && !matches!(choice, ToolChoice::None | ToolChoice::Auto) {
            return Err(invalid("When using `tool_choice`, `tools` must be set."));
        }
        if let ToolChoice::Named(name) = &choice
            && !tools.iter().any(|tool| tool.name == *name)
        {
            return Err(invalid("`tool_choice` names a tool that is not in `tools`"));
        }
        let in_parallel = body["parallel_tool_calls"] == json!(true);
        Ok(Self { tools, choice, in_parallel })
    }

    /// Returns the text that describes the tools to the model; `None` if there are none.
    pub(crate) fn prompt(body: &Value) -> Option<String> {
        let tools = body["tools"].as_array().filter(|tools| !tools.is_empty())?;
        Some(Value::from(tools.clone()).to_string())
    }

    /// Returns the calls that the model makes; `None` if it answers in prose.
    ///
    /// With a free choice, the model calls a tool if the last message is from a user, so that an
    /// agent's loop ends after one round. `asked` is the text of that message. The model calls the
    /// tool whose name shares most words with it. It calls all tools only if the client allows
    /// parallel calls.
    pub(crate) fn calls(&self, asked: &str, was_user: bool) -> Option<Shape> {
        let (tools, is_named) = match &self.choice {
            ToolChoice::None => return None,
            ToolChoice::Auto if !was_user || self.tools.is_empty() => return None,
            ToolChoice::Named(name) => {
                let named = self.tools.iter().filter(|tool| tool.name == *name);
                (named.take(1).cloned().collect(), true)
            }
            ToolChoice::Auto | ToolChoice::Required if self.in_parallel => {
                (self.tools.iter().take(CALLS_MAX).cloned().collect(), false)
            }
            ToolChoice::Auto | ToolChoice::Required => {
                let asked = asked.to_lowercase();
                // Of several best tools, the first one wins.
                let best = self.tools.iter().rev().max_by_key(|tool| words_in(&tool.name, &asked));
                (best.cloned().into_iter().collect(), false)
            }
        };
        Some(Shape::Calls { tools, is_named })
    }
}

/// Returns the number of words of a tool's name that occur in `asked`.
fn words_in(name: &str, asked: &str) -> usize {
    let words = name.split(|letter: char| !letter.is_alphanumeric());
    // Words such as `to` or `of` occur in nearly every text.
    words.filter(|word| word.len() > 2 && asked.contains(&word.to_lowercase())).count()
}

/// Parses a function in the form of chat completions, or in that of responses.
fn tool_of(value: &Value) -> Option<Tool> {
    let function = value.get("function").unwrap_or(value);
    let name = function["name"].as_str()?.to_owned();
    let is_function = value["type"].as_str().is_none_or(|kind| kind == "function");
    let parameters = function["parameters"].clone();
    let none = json!({ "type": "object", "properties": {} });
    let parameters = if parameters.is_object() { parameters } else { none };
    is_function.then_some(Tool { name, parameters })
}

fn choice_of(value: &Value, has_tools: bool) -> Result<ToolChoice, ApiError> {
    match value {
        Value::Null if has_tools => Ok(ToolChoice::Auto),
        Value::Null => Ok(ToolChoice::None),
        Value::String(word) => match word.as_str() {
            "none" => Ok(ToolChoice::None),
            "auto" => Ok(ToolChoice::Auto),
            "required" => Ok(ToolChoice::Required),
            _ => Err(invalid("`tool_choice` must be none, auto, required or name a function")),
        },
        _ => {
            let name = value["function"]["name"].as_str().or_else(|| value["name"].as_str());
            let wrong = || invalid("`tool_choice` must be none, auto, required or name a function");
            name.map(|name| ToolChoice::Named(name.to_owned())).ok_or_else(wrong)
        }
    }
}

fn invalid(message: &str) -> ApiError {
    ApiError::invalid(message, Some("tool_choice"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(more: Value) -> Result<Tools, ApiError> {
        let mut body = json!({ "tools": [
            { "type": "function", "function": { "name": "get_weather", "parameters": {} } },
            { "type": "function", "name": "read_news" },
            { "type": "web_search" },
        ]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Tools::of(&body)
    }

    fn called(tools: &Tools, asked: &str, was_user: bool) -> Vec<String> {
        match tools.calls(asked, was_user) {
            Some(Shape::Calls { tools, .. }) => tools.into_iter().map(|tool| tool.name).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_tool_is_called_when_a_user_asks_and_not_after_its_result() {
        let auto = tools(json!({})).unwrap();
        assert_eq!(called(&auto, "What is the news?", true), ["read_news"]);
        assert_eq!(called(&auto, "Hm?", true), ["get_weather"]);
        assert!(called(&auto, "sunny", false).is_empty());
        let all = tools(json!({ "parallel_tool_calls": true })).unwrap();
        assert_eq!(called(&all, "Hm?", true), ["get_weather", "read_news"]);
    }

    #[test]
    fn the_client_may_choose_for_the_model() {
        assert!(called(&tools(json!({ "tool_choice": "none" })).unwrap(), "news", true).is_empty());
        let required = tools(json!({ "tool_choice": "required" })).unwrap();
        assert_eq!(called(&required, "sunny", false), ["get_weather"]);
        for choice in [
            json!({ "type": "function", "function": { "name": "read_news" } }),
            json!({ "type": "function", "name": "read_news" }),
        ] {
            let named = tools(json!({ "tool_choice": choice })).unwrap();
            assert_eq!(called(&named, "weather", false), ["read_news"]);
        }
    }

    #[test]
    fn choices_that_make_no_sense_are_refused() {
        for choice in [json!("never"), json!({ "name": "unknown" }), json!({}), json!(5)] {
            assert!(tools(json!({ "tool_choice": choice })).is_err(), "{choice}");
        }
        assert!(tools(json!({ "tools": [], "tool_choice": "required" })).is_err());
        assert!(tools(json!({ "tools": null, "tool_choice": "auto" })).is_ok());
    }
}
