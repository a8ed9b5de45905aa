//! Texts of refusals by the admin API, and of answers by other servers.

use http::StatusCode;
use serde_json::Value;

use crate::connect::AdminUrl;

/// Returns the text of an error of the API, or of another server that answered in its place.
pub(crate) fn text_of(
    admin: &AdminUrl,
    has_token: bool,
    status: StatusCode,
    answer: &Value,
) -> String {
    let error = &answer["error"];
    if error["cause"].is_null() {
        return not_the_api(admin, status, answer);
    }
    if error["code"] == "unauthorized" && !has_token {
        return format!("{} (unauthorized): {TOKEN_REMEDY}", plain(&error["cause"]));
    }
    of_the_api(error)
}

/// Ways to give a token to a command.
const TOKEN_REMEDY: &str =
    "name the file that holds one by --token-file FILE or by the variable SPILLWAY_TOKEN_FILE";

fn plain(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the text about an answer that no admin API gives: that of a listener for clients, or of
/// another program.
fn not_the_api(admin: &AdminUrl, status: StatusCode, answer: &Value) -> String {
    let remedy = "give the address of [admin] in the node's config by --admin";
    match answer["error"]["message"].as_str() {
        Some(message) => format!(
            "{admin} is a listener for clients, not the admin listener of a node: {remedy} (it answered \
             {}: {message})",
            status.as_str()
        ),
        None => format!("{admin} is no admin listener of Spillway, it answered {status}: {remedy}"),
    }
}

/// Returns the text of an error of the API.
fn of_the_api(error: &Value) -> String {
    let code = plain(&error["code"]);
    let mut message = format!("{} ({code}): {}", plain(&error["cause"]), plain(&error["remedy"]));
    if let Some(node) = error["leader"]["node"].as_str() {
        message.push_str(&format!("; the leader may be {node}"));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_admin_api_is_named_as_what_it_is() {
        let admin = AdminUrl { authority: "127.0.0.1:8080".to_owned(), is_tls: false };
        let told = |status, answer: Value| not_the_api(&admin, status, &answer);
        let key =
            serde_json::json!({ "error": { "message": "no key", "code": "missing_api_key" } });
        let client = told(StatusCode::UNAUTHORIZED, key);
        assert!(client.contains("127.0.0.1:8080 is a listener for clients"), "{client}");
        assert!(client.contains("--admin") && client.ends_with("(it answered 401: no key)"));
        let other = told(StatusCode::NOT_FOUND, Value::Null);
        assert!(other.contains("no admin listener of Spillway, it answered 404"), "{other}");
    }
}
