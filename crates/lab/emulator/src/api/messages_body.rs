//! Requests of Anthropic's API as chat requests, by vLLM's rules.

use serde_json::{Map, Value, json};

use super::ApiError;

/// Fields with the same name and meaning in both APIs, and those of vLLM that control the length of
/// answers in tests.
const SAME: [&str; 9] = [
    "model",
    "max_tokens",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "ignore_eos",
    "seed",
    "cache_salt",
];
/// Beginning of a block of the system prompt that changes with each request. vLLM removes it, since
/// no prompt would be found in the cache otherwise.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Returns the chat request with the meaning of `body`.
///
/// # Errors
/// Returns 400 if a message or tool is malformed.
pub(super) fn chat_of(body: &Value) -> Result<Value, ApiError> {
    let mut chat = Map::new();
    let mut copy = |from: &str, to: &str| match &body[from] {
        Value::Null => {}
        value => drop(chat.insert(to.to_owned(), value.clone())),
    };
    SAME.iter().for_each(|field| copy(field, field));
    copy("stop_sequences", "stop");
    let given = body["messages"].as_array();
    let given = given.ok_or_else(|| invalid("messages: Input should be a valid list"))?;
    let mut messages = system_of(&body["system"])?;
    for message in given {
        push_message(&mut messages, message)?;
    }
    // The model continues a last message of its own.
    if given.last().is_some_and(|message| message["role"] == "assistant") {
        chat.insert("continue_final_message".to_owned(), true.into());
        chat.insert("add_generation_prompt".to_owned(), false.into());
    }
    chat.insert("messages".to_owned(), messages.into());
    if let Some(tools) = body["tools"].as_array().filter(|tools| !tools.is_empty()) {
        chat.insert("tools".to_owned(), tools.iter().map(tool_of).collect());
        let choice = &body["tool_choice"];
        chat.insert("tool_choice".to_owned(), choice_of(choice));
        // As in chats, the model calls several tools only if the client allows that by name.
        let in_parallel = choice["disable_parallel_tool_use"] == json!(false);
        chat.insert("parallel_tool_calls".to_owned(), in_parallel.into());
    }
    Ok(Value::Object(chat))
}

/// Returns the message with the system prompt, if there is one.
fn system_of(system: &Value) -> Result<Vec<Value>, ApiError> {
    let text = match system {
        Value::Null => return Ok(Vec::new()),
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block["text"].as_str());
            texts.filter(|text| !text.starts_with(BILLING_HEADER)).collect()
        }
        _ => return Err(invalid("system: Input should be a string or a list of text blocks")),
    };
    Ok(vec![json!({ "role": "system", "content": text })])
}

/// Appends a message. Results of tools become messages of their own before it.
fn push_message(messages: &mut Vec<Value>, message: &Value) -> Result<(), ApiError> {
    let role =
        message["role"].as_str().filter(|role| ["user", "assistant", "system"].contains(role));
    let role = role.ok_or_else(|| invalid("messages: role should be 'user' or 'assistant'"))?;
    let blocks = match &message["content"] {
        Value::String(text) => {
            messages.push(json!({ "role": role, "content": text }));
            return Ok(());
        }
        Value::Array(blocks) => blocks,
        _ => return Err(invalid("messages: content should be a string or a list of blocks")),
    };
    let (mut parts, mut calls) = (Vec::new(), Vec::new());
    for block in blocks {
        match block["type"].as_str() {
            Some("tool_use") => {
                let function = json!({
                    "name": block["name"],
                    "arguments": block["input"].to_string(),
                });
                calls.push(json!({ "id": block["id"], "type": "function", "function": function }));
            }
            Some("tool_result") => {
                let content = match &block["content"] {
                    Value::Array(blocks) => blocks.iter().map(part_of).collect(),
                    content => content.clone(),
                };
                messages.push(json!({ "role": "tool", "content": content }));
            }
            // The thoughts of earlier turns are not part of the prompt.
            Some("thinking" | "redacted_thinking") => {}
            Some(_) => parts.push(part_of(block)),
            None => return Err(invalid("messages: a block should have a type")),
        }
    }
    if !parts.is_empty() || !calls.is_empty() {
        messages.push(json!({ "role": role, "content": parts, "tool_calls": calls }));
    }
    Ok(())
}

/// Returns a block as a part of a chat message.
fn part_of(block: &Value) -> Value {
    let source = &block["source"];
    if block["type"] != "image" {
        return block.clone();
    }
    let url = match (source["url"].as_str(), source["data"].as_str()) {
        (Some(url), _) => url.to_owned(),
        (None, data) => {
            let kind = source["media_type"].as_str().unwrap_or("image/png");
            format!("data:{kind};base64,{}", data.unwrap_or_default())
        }
    };
    json!({ "type": "image_url", "image_url": { "url": url } })
}

fn tool_of(tool: &Value) -> Value {
    let function = json!({
        "name": tool["name"],
        "description": tool["description"],
        "parameters": tool["input_schema"],
    });
    json!({ "type": "function", "function": function })
}

fn choice_of(choice: &Value) -> Value {
    match choice["type"].as_str() {
        Some("any") => "required".into(),
        Some("none") => "none".into(),
        Some("tool") => json!({ "type": "function", "function": { "name": choice["name"] } }),
        _ => "auto".into(),
    }
}

fn invalid(message: &str) -> ApiError {
    ApiError::invalid(message, Some("messages"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_tools_become_their_chat_forms() {
        let body = json!({
            "model": "tiny",
            "max_tokens": 9,
            "system": [
                { "type": "text", "text": "x-anthropic-billing-header: cch=1;" },
                { "type": "text", "text": "Be brief." },
            ],
            "stop_sequences": ["END"],
            "tools": [{ "name": "look", "input_schema": { "type": "object" } }],
            "tool_choice": { "type": "any" },
            "messages": [
                { "role": "user", "content": "hi" },
                { "role": "assistant", "content": [
                    { "type": "thinking", "thinking": "hm" },
                    { "type": "tool_use", "id": "toolu_1", "name": "look", "input": { "a": 1 } },
                ] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "toolu_1", "content": "seen" },
                    { "type": "text", "text": "go on" },
                ] },
            ],
        });
        let chat = chat_of(&body).unwrap();
        assert_eq!((&chat["stop"], &chat["tool_choice"]), (&json!(["END"]), &json!("required")));
        assert_eq!(chat["tools"][0]["function"]["name"], "look");
        assert_eq!(chat["add_generation_prompt"], Value::Null);
        let messages = chat["messages"].as_array().unwrap();
        let roles: Vec<&str> =
            messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
        assert_eq!(messages[0]["content"], "Be brief.");
        assert_eq!(messages[2]["tool_calls"][0]["function"]["arguments"], r#"{"a":1}"#);
        assert_eq!(messages[3]["content"], "seen");
    }

    #[test]
    fn malformed_messages_are_refused() {
        for messages in [
            json!(null),
            json!("hi"),
            json!([{ "content": "hi" }]),
            json!([{ "role": "tool", "content": "hi" }]),
            json!([{ "role": "user", "content": 7 }]),
            json!([{ "role": "user", "content": [{ "text": "hi" }] }]),
        ] {
            assert!(chat_of(&json!({ "messages": messages })).is_err(), "{messages}");
        }
    }
}
