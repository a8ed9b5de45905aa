//! The file with the tokens of a node.

use spillway_control::{Hidden, key_hash};

use crate::config::{AdminRole, ConfigToken};

/// Tokens in one file: people and programs that operate the cluster.
const TOKENS_MAX: usize = 256;
/// What is shorter may be guessed.
const TOKEN_BYTES_MIN: usize = 24;
/// As long as a header reasonably is.
const TOKEN_BYTES_MAX: usize = 512;
/// As the audit trail takes it.
const NAME_BYTES_MAX: usize = 64;
/// What a hash begins with.
const HASH: &str = "sha256:";

/// A line of a token file can't be used. No part of a token is ever in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {cause}: {remedy}")]
pub struct TokenFileFault {
    /// Which line, from 1 on.
    pub line: usize,
    /// What is wrong.
    pub cause: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// Reads the tokens of a file: one a line as `name role token`, with `read`, `operate` or `admin`
/// for the role, and for the token itself or `sha256:` and its hash in hexadecimal, as
/// `printf %s TOKEN | sha256sum` prints it. Empty lines and those that begin with `#` count for
/// nothing.
///
/// # Errors
/// If a line is not like that.
pub fn parse_token_file(text: &str) -> Result<Vec<ConfigToken>, TokenFileFault> {
    let mut tokens: Vec<ConfigToken> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line_text = line.trim();
        if line_text.is_empty() || line_text.starts_with('#') {
            continue;
        }
        let fault = |(cause, remedy)| TokenFileFault { line: at + 1, cause, remedy };
        let token = parse_line(line_text).map_err(fault)?;
        if tokens.iter().any(|known| known.name == token.name || known.hash == token.hash) {
            let cause = format!("the name or the token of {:?} stands here twice", token.name);
            return Err(fault((cause, "give each its own")));
        }
        if tokens.len() == TOKENS_MAX {
            let cause = format!("there are more than {TOKENS_MAX} tokens");
            return Err(fault((cause, "make keys of the cluster for the others")));
        }
        tokens.push(token);
    }
    Ok(tokens)
}

type Wrong = (String, &'static str);

fn parse_line(line: &str) -> Result<ConfigToken, Wrong> {
    let parts: Vec<&str> = line.split_whitespace().collect();
    let [name, role, token] = parts[..] else {
        return Err(("it has not three parts".to_owned(), "write `name role token`"));
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    if name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        let remedy = "use up to 64 letters, digits, hyphens, underscores, dots and @";
        return Err(("the name can't be used".to_owned(), remedy));
    }
    let role = AdminRole::find(role)
        .ok_or_else(|| ("there is no such role".to_owned(), "use read, operate or admin"))?;
    Ok(ConfigToken { name: name.to_owned(), role, hash: hash(token)? })
}

fn hash(token: &str) -> Result<Hidden, Wrong> {
    if let Some(digits) = token.strip_prefix(HASH) {
        let read = serde_json::from_value(serde_json::Value::from(digits));
        let wrong = |_| ("the hash can't be read".to_owned(), "write 64 hexadecimal digits");
        return read.map_err(wrong);
    }
    if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
        let cause = format!("a token of {} bytes is too short or too long", token.len());
        return Err((cause, "use 32 random bytes, e.g. of `openssl rand -hex 32`"));
    }
    Ok(key_hash(&[], token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef01234567";

    #[test]
    fn a_token_and_its_hash_are_the_same() {
        let plain = parse_token_file(&format!("# people\n\n ada admin {TOKEN}\n")).unwrap();
        assert_eq!(plain[0].name, "ada");
        assert_eq!(plain[0].role, AdminRole::Admin);
        let digits: String =
            plain[0].hash.reveal().iter().map(|byte| format!("{byte:02x}")).collect();
        let hashed = parse_token_file(&format!("ada admin sha256:{digits}")).unwrap();
        assert_eq!(hashed, plain);
    }

    #[test]
    fn so_many_tokens_are_taken_and_no_more() {
        let lines = |count: usize| {
            (0..count).map(|at| format!("n{at} read {TOKEN}{at}\n")).collect::<String>()
        };
        assert_eq!(parse_token_file(&lines(TOKENS_MAX)).unwrap().len(), TOKENS_MAX);
        let fault = parse_token_file(&lines(TOKENS_MAX + 1)).unwrap_err();
        assert_eq!(fault.line, TOKENS_MAX + 1);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_without_the_token() {
        let twice = format!("ada admin {TOKEN}\nbob read {TOKEN}");
        let cases = [
            (1, format!("ada {TOKEN}")),
            (2, format!("\nada boss {TOKEN}")),
            (1, "ada admin 0123456789abcdef".to_owned()),
            (1, "ada admin sha256:12".to_owned()),
            (1, format!("a/b admin {TOKEN}")),
            (2, format!("ada admin {TOKEN}\nada read x{TOKEN}")),
            (2, twice),
        ];
        for (line, text) in cases {
            let fault = parse_token_file(&text).unwrap_err();
            assert_eq!(fault.line, line, "{text}");
            assert!(!fault.to_string().contains("0123456789abcdef"), "{fault}");
        }
    }
}
